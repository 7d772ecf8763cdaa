"""The samples that families declare, run against their references: of every family there is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import kronop
from kronop import families
from kronop.commands import matrix
from kronop.core.family import Family, Kind
from kronop.descriptions.datatype import TENSOR_TYPES, result_type
from kronop.target import Target
from tests import support


def kinds(known: Sequence[Family]) -> Iterator[Kind]:
    return (kind for family in known for kind in family.kinds)


def elements(kind: Kind, target: str) -> list[kronop.DataType]:
    """The element types that the support matrix has for it."""
    where = Target.parse(target)
    return [item for item in TENSOR_TYPES.values() if matrix.sample(kind, item, where) is not None]


def scale_and_add(kind: Kind) -> bool:
    """Whether results are alpha and beta times something, as `check` expects."""
    return "epilogue" not in kind.sample


def operation(kind: Kind, target: str, element: kronop.DataType) -> Any:
    """The operation of a kind's sample."""
    fields = {
        **dict.fromkeys(kind.inputs, kind.tensor(element)),
        "Y": kind.tensor(result_type(element)),
        "epilogue": support.linear(element),
        **kind.sample_fields,
    }
    names = {"epilogue": "epilogue_functor", **kind.names}
    named = {names.get(name, name): value for name, value in fields.items()}
    made = _exported(kind, kind.operation_name)
    return made(target=target, tile_description=None, **named)


def check(
    made: Any, rows: int, random: np.random.Generator, alpha: float = 2, beta: float = -3
) -> None:
    """Runs an operation on arrays of its own and compares every element."""
    what, element = made.description, element_of(made)
    given = {name: array(random, shape, element) for name, shape in what.operands(rows).items()}
    z = support.random_array(random, what.y_shape(rows), what.Y.element)
    y, output_op = support.poison(z.shape, what.Y.element), made.epilogue_type(alpha, beta)
    names, kind = made.kind.argument_names, made.kind
    results = {names.get("Z", "Z"): z, names.get("Y", "Y"): y}
    arguments = arguments_of(kind)(operation=made, **given, **results, output_op=output_op)
    made.run(arguments)
    arguments.sync()
    expected(what, list(given.values()), z, output_op).check(y)


def arguments_of(kind: Kind) -> Any:
    """The class of a kind's arguments."""
    named = kind.arguments.name if kind.arguments else _beside(kind, "Arguments")
    return _exported(kind, named)


def element_of(made: Any) -> kronop.DataType:
    """The element type of an operation's first operand."""
    element: kronop.DataType = getattr(made.description, made.kind.inputs[0]).element
    return element


def _beside(kind: Kind, what: str) -> str:
    return kind.description.name.removesuffix("Description") + what


def _exported(kind: Kind, name: str) -> Any:
    family = next(item for item in families.FAMILIES if kind in item.kinds)
    assert name in family.exports, f"{name} stands beside {kind.description.name}"
    return getattr(kronop, name)


def array(random: np.random.Generator, shape: Any, element: kronop.DataType) -> Any:
    if isinstance(shape, list):
        return [array(random, item, element) for item in shape]
    return support.random_array(random, shape, element)


def _each(change: Any, given: Any) -> Any:
    return [_each(change, item) for item in given] if isinstance(given, list) else change(given)


def expected(what: Any, given: list[Any], z: Any, output_op: Any) -> support.Expected:
    value = what.reference(*given, z=z, output_op=output_op)
    if value.dtype.kind == "i":
        return support.Expected(value, 0)
    plain = support.magnitudes_of(what)
    # Sums of magnitudes, for which a kind that has differences in its sums has a function.
    summed = getattr(plain, "magnitudes", plain.reference)
    size = summed(*_each(lambda item: np.abs(np.float64(item)), given))
    # As many terms as a sum has: the result where all operands are ones.
    terms = summed(*_each(lambda item: np.ones(item.shape), given))
    steps = int(np.max(terms, initial=1)) + 32
    bound = support.error_bound(what, value, size, steps, z, None, output_op)
    # What is between the operands of a list is rounded to their type.
    between = sum(len(item) for item in given if isinstance(item, list))
    rounding = support.unit(what.math.element_a)
    return support.Expected(value, bound + 2 * between * rounding * abs(output_op.alpha) * size)
