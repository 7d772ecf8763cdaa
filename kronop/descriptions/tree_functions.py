"""The functions of values in a visitor tree, besides operators and activations."""

from __future__ import annotations

from typing import Any

from kronop.descriptions.expression import apply
from kronop.descriptions.traced import Reduced, Traced
from kronop.descriptions.visitor import AXES
from kronop.errors import DescriptionError, ElementTypeError


def exp(x: object) -> Traced:
    """e^x of a value in a visitor tree.

    Raises:
        ElementTypeError: what is no value of the function.

    Example:
        >>> tree = kronop.epilogue_visitor(lambda accum: kronop.exp(accum * -2.0))
        >>> epilogue = tree(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> epilogue.evaluate([[0.0, 1.0]], {})["D"].round(4).tolist()
        [[1.0, 0.1353]]
    """
    return _value(x, "kronop.exp").through(lambda value: apply("exp", value))


def maximum(x: object, y: object = None, *, axis: str | None = None) -> Any:
    """The larger one of two values in a visitor tree, or the largest one of each row or column.

    Args:
        x: a value of the function.
        y: another one, or a number.
        axis: in place of `y`: "row" gives (M), the largest of each row; "column" gives (N).

    Raises:
        ElementTypeError: what is no value of the function.
        DescriptionError: neither y nor an axis, both, or an unknown axis.

    Example:
        >>> tree = kronop.epilogue_visitor(
        ...     lambda accum: (kronop.maximum(accum, 0.5), kronop.maximum(accum, axis="row"))
        ... )
        >>> epilogue = tree(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> found = epilogue.evaluate([[0.0, 1.0], [2.0, 3.0]], {})
        >>> found["D"].tolist(), found["D1"].tolist()
        ([[0.5, 1.0], [2.0, 3.0]], [1.0, 3.0])
    """
    if (y is None) == (axis is None):
        raise DescriptionError(
            "kronop.maximum",
            expected="a second value, or an axis",
            got="neither" if y is None else "both",
            hint='kronop.maximum(x, y) or kronop.maximum(x, axis="row")',
        )
    return _pair("max", x, y) if axis is None else _reduced(x, "max", axis)


def minimum(x: object, y: object = None, *, axis: str | None = None) -> Traced:
    """The smaller one of two values in a visitor tree, one of which may be a number.

    Raises:
        ElementTypeError: what is no value of the function.
        DescriptionError: an axis, since no kernel reduces to the smallest.

    Example:
        >>> tree = kronop.epilogue_visitor(lambda accum: kronop.minimum(accum, 0.5))
        >>> epilogue = tree(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> epilogue.evaluate([[0.0, 1.0]], {})["D"].tolist()
        [[0.0, 0.5]]
    """
    if axis is not None or y is None:
        raise DescriptionError(
            "kronop.minimum",
            expected="two values",
            got="one" if axis is None else f"axis={axis!r}",
            hint="the smallest is minus kronop.maximum(-x, axis=...), after the run",
        )
    return _pair("min", x, y)


def sum(x: object, *, axis: str) -> Reduced:
    """The sum of each row (axis "row", giving (M)) or of each column ("column", giving (N)) of a
    value in a visitor tree. It can only be returned.

    Raises:
        ElementTypeError: what is no value of the function.
        DescriptionError: an unknown axis.

    Example:
        >>> tree = kronop.epilogue_visitor(lambda accum: (accum, kronop.sum(accum, axis="column")))
        >>> epilogue = tree(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> epilogue.evaluate([[0.0, 1.0], [2.0, 3.0]], {})["D1"].tolist()
        [2.0, 4.0]
    """
    return _reduced(x, "sum", axis)


def _value(x: object, called: str) -> Traced:
    if isinstance(x, Reduced):
        x.refuse()
    if not isinstance(x, Traced):
        raise ElementTypeError(
            called,
            expected="a value of an epilogue visitor",
            got=repr(x),
            hint="it is called in functions for kronop.epilogue_visitor",
        )
    return x


def _pair(operation: str, x: object, y: object) -> Traced:
    leader = _value(y if isinstance(y, (Traced, Reduced)) else x, f"kronop.{operation}imum")
    return leader.trace.apply(operation, x, y)


def _reduced(x: object, reduction: str, axis: str) -> Reduced:
    if axis not in AXES:
        hint = "a reduction of each row, or of each column"
        raise DescriptionError("axis", expected='"row" or "column"', got=repr(axis), hint=hint)
    return Reduced(_value(x, f"a {reduction} along an axis"), reduction, axis)
