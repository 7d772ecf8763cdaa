"""Checks that the descriptions of all families share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, TypeVar

from kronop.descriptions.activation import Activation
from kronop.descriptions.datatype import FLOAT8, AnyLayout, DataType, Layout
from kronop.descriptions.epilogue import Epilogue, check_accumulator
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.shaped import Shaped
from kronop.descriptions.tensor import TensorDescription
from kronop.descriptions.tile import TileDescription, whole
from kronop.descriptions.visitor import VisitorEpilogue, VisitorTree
from kronop.errors import ArgumentError, DescriptionError, ElementTypeError, OutOfMemoryError

_MOST_MEMORY = 1 << 62


# Of functions that return the kind of tensor that they take: NumPy in, NumPy out.
Array = TypeVar("Array", bound=Any)


def check_operands(
    what: Shaped,
    operands: Iterable[str],
    *,
    math: MathInstruction | None = None,
    called: str = "Y",
    trees: bool = False,
    schedules: bool = False,
    half_sums: bool = False,
    layouts: tuple[type[AnyLayout], ...] = (Layout,),
) -> None:
    """Checks that all types of a description agree: those of the operands with the math
    instruction, and that of Y with the epilogue.

    Args:
        operands: the names of the operands.
        math: in place of the description's own.
        called: Y's name for the caller.
        trees: whether the epilogue may be a visitor tree.
        schedules: whether a tile may have clusters and schedules.
        half_sums: whether sums may be of float16.
        layouts: the classes of their layouts.

    Raises:
        ElementTypeError: an argument has the wrong class.
        DescriptionError: types or alignments do not agree, or the epilogue is a tree.
    """
    math, epilogue, output = math or what.math, what.epilogue, what.Y
    inputs = {name: getattr(what, name) for name in operands}
    _check_classes(math, what.tile, epilogue, {**inputs, called: output})
    if not trees:
        _refuse_trees(epilogue)
    if not schedules:
        _refuse_schedules(what.tile)
    _check_layouts({**inputs, called: output}, layouts)
    if epilogue.epilogue_vector_length > output.alignment:
        raise DescriptionError(
            "epilogue_vector_length",
            expected=f"at most {output.alignment}, the alignment of {called}",
            got=repr(epilogue.epilogue_vector_length),
            hint=f"promise that alignment for {called}, or write fewer elements at once",
        )
    sums = math.element_accumulator
    check_accumulator(sums, "math.element_accumulator", half_sums=half_sums)
    _check_types(math, epilogue, inputs, (called, output))


def _check_classes(
    math: MathInstruction,
    tile: TileDescription | None,
    epilogue: Epilogue,
    tensors: Mapping[str, TensorDescription],
) -> None:
    kinds: dict[str, tuple[object, type]] = {"math": (math, MathInstruction)}
    kinds |= {name: (item, TensorDescription) for name, item in tensors.items()}
    if tile is not None:
        kinds["tile_description"] = (tile, TileDescription)
    for name, (value, kind) in kinds.items():
        if not isinstance(value, kind):
            raise ElementTypeError(
                name,
                expected=f"a {kind.__name__}",
                got=repr(value),
                hint=f"build a kronop.{kind.__name__}",
            )
    if not isinstance(epilogue, Epilogue):
        got, hint = _taken_for_epilogue(epilogue)
        raise ElementTypeError("epilogue_functor", expected="an epilogue", got=got, hint=hint)


def _taken_for_epilogue(value: object) -> tuple[str, str]:
    """What it is, and what makes an epilogue of it."""
    types = "element_output, vector_length, element_accumulator, element_epilogue"
    if isinstance(value, VisitorTree):
        return "a visitor tree without types", f"call it with them: tree({types})"
    if isinstance(value, type):
        return f"the class {value.__name__}", f"make an object of it, as LinearCombination({types})"
    if isinstance(value, Activation):
        return repr(value), f"kronop.LinearCombinationGeneric(kronop.{value.name}(...), {types})"
    if callable(value):
        return repr(value), f"kronop.epilogue_visitor(function)({types}) makes one of a function"
    return repr(value), f"for example kronop.LinearCombination({types})"


def _refuse_trees(epilogue: Epilogue) -> None:
    if isinstance(epilogue, VisitorEpilogue):
        raise DescriptionError(
            "epilogue_functor",
            expected="one of the four functors",
            got="a visitor tree",
            hint="matrix products (kronop.GemmOperationUniversal), Kronecker and"
            " Kronecker-sparse products and distances take trees",
        )


def _refuse_schedules(tile: TileDescription | None) -> None:
    if tile is not None and tile.has_schedules:
        raise DescriptionError(
            "tile_description",
            expected="no cluster_shape and no schedules",
            got=repr(tile),
            hint="only matrix products (kronop.GemmOperationUniversal) take these",
        )


def _check_layouts(
    tensors: Mapping[str, TensorDescription], layouts: tuple[type[AnyLayout], ...]
) -> None:
    for name, item in tensors.items():
        if not isinstance(item.layout, layouts):
            raise DescriptionError(
                f"layout of {name}",
                expected=" or ".join(map(repr, layouts[0])),
                got=repr(item.layout),
                hint="only matrix products (kronop.GemmOperationUniversal) take interleaved"
                " matrices, and only convolutions (kronop.Conv2dOperation) tensors of images",
            )


def _check_types(
    math: MathInstruction,
    epilogue: Epilogue,
    inputs: Mapping[str, TensorDescription],
    output: tuple[str, TensorDescription],
) -> None:
    """Checks the element types; `output` has its name for the caller."""
    if len({item.element for item in inputs.values()}) > 1:
        given = [f"{item.element!r} of {name}" for name, item in inputs.items()]
        raise DescriptionError(
            f"elements of {' and '.join(inputs)}",
            expected="one type for all",
            got=" and ".join(given),
            hint="describe all with the type that the tensors have",
        )
    (name, result), sums = output, epilogue.element_accumulator
    agreements = [
        (f"element of {name}", item.element, "math.element_a", math.element_a)
        for name, item in inputs.items()
    ]
    agreements += [
        (f"element of {name}", result.element, "epilogue.element_output", epilogue.element_output),
        (
            "epilogue.element_accumulator",
            sums,
            "math.element_accumulator",
            math.element_accumulator,
        ),
    ]
    for name, value, other_name, other in agreements:
        if value != other:
            raise DescriptionError(
                name,
                expected=f"{other!r} ({other_name})",
                got=repr(value),
                hint="use one type for both",
            )


def refuse_float8(math: MathInstruction, family: str) -> None:
    """Raises ElementTypeError for operands of 8-bit floats, which few families support."""
    if math.element_a in FLOAT8:
        raise ElementTypeError(
            f"element type of a {family}",
            expected="a float of at least 16 bits or an integer",
            got=repr(math.element_a),
            hint="convert the tensors to float16, which holds all their values; only"
            " Kronecker-sparse products (kronop.ksmm) and matrix products (kronop.gemm.matmul)"
            " read 8-bit floats",
        )


def beta_beside(source: Any, beta: Any, called: str = "Z") -> Any:
    """beta, or 0 if it is None; `called` is the name of Z for the caller.

    Raises:
        ArgumentError: beta is None although there is a Z, which would then be ignored.
    """
    if beta is None and source is not None:
        raise ArgumentError(
            "beta",
            expected=f"a number, because {called} is given",
            got="none",
            hint=f"pass beta=1 to add {called}, or leave {called} out: without a beta it is not"
            " read",
        )
    return 0.0 if beta is None else beta


def check_flag(subject: str, value: object) -> None:
    """Raises ElementTypeError unless `value` is a bool; a string like "no" would be true."""
    if not isinstance(value, bool):
        raise ElementTypeError(
            subject, expected="True or False", got=repr(value), hint="pass a bool"
        )


def check_memory(subject: str, shape: Sequence[int], element: DataType) -> None:
    """Raises OutOfMemoryError for sizes that no address space holds.

    For example, 63 factors may each double the columns. Frameworks raise various errors for such
    sizes, some of which don't mention memory.
    """
    if element.bytes * prod(max(extent, 1) for extent in shape) > _MOST_MEMORY:
        raise OutOfMemoryError(
            subject,
            expected=f"at most {_MOST_MEMORY} bytes",
            got=f"{element.name} of shape {tuple(shape)}",
            hint="take fewer or smaller factors",
        )


def check_sizes(subject: str, names: Sequence[str], sizes: Sequence[int]) -> None:
    """Raises DescriptionError unless `sizes` holds one positive integer per name."""
    count = len(sizes) if isinstance(sizes, tuple) else None
    if count != len(names) or any(
        not isinstance(size, int) or isinstance(size, bool) or size < 1 for size in sizes
    ):
        raise DescriptionError(
            subject,
            expected=f"{len(names)} positive integers ({', '.join(names)})",
            got=repr(sizes),
            hint="every size must be at least 1"
            if count in (None, len(names))
            else f"give {len(names)} sizes, not {count}",
        )


def integers(name: str, values: Any) -> Any:
    """The values as a tuple in which integers of any kind are Python's; other items stay.

    Raises:
        ElementTypeError: `values` is not a sequence.
    """
    try:
        return tuple(map(whole, values))
    except TypeError:
        raise ElementTypeError(
            name, expected="a sequence of integers", got=repr(values), hint="give every size"
        ) from None


def lists_of_integers(name: str, values: Any) -> Any:
    """`integers` of each item: for shapes of factors and patterns of a chain."""
    each = enumerate(integers(name, values))
    return tuple(integers(f"{name}[{index}]", item) for index, item in each)


# Metadata of fields for which a user may pass any kind of sequence, with any kind of integers.
INTEGERS: Mapping[str, Any] = {"plain": integers}
LISTS_OF_INTEGERS: Mapping[str, Any] = {"plain": lists_of_integers}
