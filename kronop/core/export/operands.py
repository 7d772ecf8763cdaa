"""The operands of an exported operation: their slots, shapes and types in C."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, Protocol

from kronop.args.protocols import OperationLike
from kronop.core.family import Kind
from kronop.descriptions.datatype import Layout
from kronop.descriptions.tensor import TensorDescription
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.emit.emitter import Emitter
from kronop.emit.plan import Plan
from kronop.errors import DescriptionError
from kronop.frozen import dataclass
from kronop.size import Rows, Size

BIAS, SOURCE, RESULT = "bias", "Z", "Y"
# Types that C has a name for; others are passed as `void`, to which C and C++ convert silently.
_C_TYPES = {
    "float64": "double",
    "float32": "float",
    "int64": "int64_t",
    "int32": "int32_t",
    "int8": "int8_t",
}


class Exportable(OperationLike, Protocol):
    """The part of an operation that its export uses."""

    _emitter: Emitter

    @property
    def kind(self) -> Kind: ...

    @property
    def plan(self) -> Plan: ...

    def plan_for(self, rows: Size) -> Plan: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """One operand, or one of a list of them.

    Attributes:
        name: the name by which arguments take it.
        description: its element type and layout.
        shape_for: its shape, a function of the size.
        is_listed: whether arguments take a list by that name.
    """

    name: str
    description: TensorDescription
    shape_for: Callable[[Size], tuple[int, ...]]
    is_listed: bool = False

    @property
    def c_type(self) -> str:
        return _C_TYPES.get(self.description.element.name, "void")

    @property
    def promised(self) -> int:
        """The bytes of which addresses are multiples, as the description promises: at most 16."""
        return self.description.alignment * self.description.element.bytes

    def nbytes(self, size: Size) -> int:
        """Bytes of the operand, which is dense."""
        return math.prod(self.shape_for(size)) * self.description.element.bytes

    @property
    def row_bytes(self) -> int | None:
        """The bytes from one row to the next; 0 if it has no rows, None if a part of the rows is
        no operand of fewer rows."""
        one, two = (self.shape_for(Rows(rows)) for rows in (1, 2))
        if one == two:
            return 0
        if (one[0], two[0]) != (1, 2) or self.description.layout is not Layout.RowMajor:
            return None
        return self.nbytes(Rows(1)) if one[1:] == two[1:] else None


def check_exported(operation: Exportable) -> None:
    """Raises DescriptionError if operations of this kind can't be exported."""
    kind, what = operation.kind, operation.description
    if kind.arguments is None:
        raise DescriptionError(
            "export",
            expected="a kind of operation that declares its arguments",
            got=f"an operation of {kind.name}",
            hint="run it from Python",
        )
    if isinstance(what.epilogue, VisitorEpilogue):
        raise DescriptionError(
            "export",
            expected="an operation with an epilogue functor, such as LinearCombination",
            got="one with a visitor tree",
            hint="run it from Python",
        )
    if what.Y.interleaved:
        raise DescriptionError(
            "export",
            expected="row-major or column-major tensors",
            got=f"{what.Y.layout.value} ones",
            hint="run it from Python",
        )


def operands_of(operation: Exportable, sample: Size) -> tuple[Operand, ...]:
    """The operands in the order of the C function: inputs, bias, Y, Z; `sample` is some size.

    Raises:
        DescriptionError: as of `check_exported`.
    """
    check_exported(operation)
    kind, what = operation.kind, operation.description
    found: list[Operand] = []
    # The description may have fewer: X2 is X1 in symmetric distances.
    for (name, shape), field in zip(what.operands(sample).items(), kind.inputs, strict=False):
        is_listed = isinstance(shape, list)
        found += [
            Operand(
                name=name,
                description=getattr(what, field),
                shape_for=functools.partial(_shape, what, name, at if is_listed else None),
                is_listed=is_listed,
            )
            for at in range(len(shape) if is_listed else 1)
        ]
    assert kind.arguments is not None
    if what.adds_rows and BIAS in inspect.signature(kind.arguments.get()).parameters:
        plain = TensorDescription(what.Y.element)
        of_bias = functools.partial(_columns, what)
        found.append(Operand(name=BIAS, description=plain, shape_for=of_bias))
    both = (
        Operand(name=name, description=what.Y, shape_for=what.y_shape) for name in (RESULT, SOURCE)
    )
    return (*found, *both)


def _columns(what: Any, size: Size) -> tuple[int, ...]:
    """The shape of a bias: one number for each column of the results."""
    columns = getattr(what, "output_columns", None)
    return what.y_shape(size)[-1:] if columns is None else (columns,)


def _shape(what: Any, name: str, at: int | None, size: Size) -> tuple[int, ...]:
    shape = what.operands(size)[name]
    return tuple(shape if at is None else shape[at])
