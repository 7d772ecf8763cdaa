"""The checks of what kernels are given: numbers, lists, tensors, and choices."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np

from kronop.errors import ArgumentError, ElementTypeError, mismatch


def checked(name: str, value: Any, *, least: float = 0.0, above: bool = True) -> Any:
    """A number beyond `least`, a tensor (whose values are not looked at), or an array of numbers.

    Raises:
        ElementTypeError: it is none of these.
        ArgumentError: a number that is NaN, or not beyond `least`; a list of none.
    """
    if isinstance(value, np.ndarray):
        check_real(name, value)
    if hasattr(value, "shape") and not isinstance(value, np.generic):
        return value
    if not isinstance(value, (list, tuple)):
        return _number(name, value, least, above)
    if not value:
        raise ArgumentError(_refused(name, value, least, above))
    return np.array([_number(name, item, least, above) for item in value], np.float64)


def check_real(name: str, array: Any) -> None:
    """Raises ElementTypeError unless a NumPy array is of real numbers."""
    if array.dtype.kind not in "fiu":
        raise ElementTypeError(
            mismatch(name, expected="real numbers", got=str(array.dtype), hint="convert it")
        )


def _number(name: str, value: Any, least: float, above: bool) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ElementTypeError(
            mismatch(
                name,
                expected="a number, a list of numbers, or a tensor",
                got=repr(value),
                hint="a tensor broadcasts over the batch",
            )
        )
    try:
        number = float(value)
    except OverflowError:  # An integer that float64 does not reach is no number here.
        number = math.nan
    if not (number > least if above else number >= least):
        raise ArgumentError(_refused(name, value, least, above))
    return number


def chosen(name: str, value: Any, choices: tuple[float, ...]) -> Any:
    """The choice that equals the value. It is compiled into the formula, so no tensor has it.

    Raises:
        ArgumentError: it is none of the choices.
    """
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number or value not in choices:
        *others, last = choices
        raise ArgumentError(
            mismatch(
                name,
                expected=f"{', '.join(map(str, others))} or {last}",
                got=repr(value),
                hint="choose one number; it is compiled, so that it can't be a tensor",
            )
        )
    return choices[choices.index(value)]


def _refused(name: str, value: Any, least: float, above: bool) -> str:
    bound = f"{'above' if above else 'at least'} {least:g}"
    return mismatch(name, expected=f"numbers {bound}", got=repr(value), hint="NaN is none either")
