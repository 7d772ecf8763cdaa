"""The checks of what kernels are given: numbers, lists, tensors, and choices."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass  # torch.compile can trace its constructors.
from typing import Any

import numpy as np

from kronop.errors import ArgumentError, ElementTypeError

_NUMBER_OR_MORE = "a real number, a list of them, or a tensor"


@dataclass(frozen=True)
class Range:
    """The numbers that a value may be; NaN is never one.

    Attributes:
        text: them in words.
        least: the least, or what all are above.
        above: whether `least` is none of them.
        infinite: whether infinity is one.
        hint: what to do about another one.
    """

    text: str
    least: float
    above: bool = True
    infinite: bool = False
    hint: str = "pass numbers of this range"

    def has(self, number: Any) -> Any:
        """Whether a number, or each of an array, is in the range."""
        is_beyond = number > self.least if self.above else number >= self.least
        return is_beyond if self.infinite else is_beyond & (number < math.inf)


FINITE = Range("finite numbers", -math.inf)
POSITIVE = Range("finite numbers above 0", 0.0)
NOT_NEGATIVE = Range("finite numbers of at least 0", 0.0, above=False)
_POWER = Range("a number of at least 0, or infinity", 0.0, above=False, infinite=True)
_POWERS = Range(
    "positive and finite numbers in an array", 0.0, hint="pass 0 or infinity as a number"
)


def checked(name: str, value: Any, among: Range = POSITIVE) -> Any:
    """A number of that range, an array of such numbers, or a tensor of another framework (whose
    values are not looked at).

    Raises:
        ElementTypeError: it is none of these.
        ArgumentError: numbers out of the range; a list of none.
    """
    if isinstance(value, np.ndarray):
        check_array(name, value, among)
    if hasattr(value, "shape") and not isinstance(value, np.generic):
        return value
    if not isinstance(value, (list, tuple)):
        return _number(name, value, among)
    if not value:
        raise ArgumentError(
            name, expected=_NUMBER_OR_MORE, got=repr(value), hint="a list has numbers"
        )
    items = enumerate(value)
    return np.array(
        [_number(name, item, among, f" at index {at}") for at, item in items], np.float64
    )


def checked_power(name: str, value: Any) -> Any:
    """A power of at least 0, infinity too; or an array or tensor of positive and finite ones.

    Raises:
        ElementTypeError, ArgumentError: as `checked`.
    """
    is_one = isinstance(value, numbers.Real)
    return checked(name, value, _POWER if is_one else _POWERS)


def check_array(name: str, array: Any, among: Range = _POWERS) -> None:
    """Raises ElementTypeError unless a NumPy array is of real numbers, and ArgumentError unless all
    are of that range."""
    if array.dtype.kind not in "fiu":
        raise ElementTypeError(
            name,
            expected="real numbers",
            got=str(array.dtype),
            hint="pass its real part" if array.dtype.kind == "c" else "convert it",
        )
    fits = np.asarray(among.has(array))
    if not fits.all():
        at = tuple(np.argwhere(~fits)[0].tolist())
        where = f" at index {at[0] if len(at) == 1 else at}" if at else ""
        raise _refused(name, f"{array[at]}{where}", among)


def _number(name: str, value: Any, among: Range, where: str = "") -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        is_sequence = isinstance(value, (list, tuple, np.ndarray))
        raise ElementTypeError(
            name,
            expected=_NUMBER_OR_MORE,
            got=f"{short(value)}{where}",
            hint="a list has one dimension; pass an array" if is_sequence else "pass a number",
        )
    try:
        number = float(value)
    except OverflowError:
        got = f"an integer beyond float64{where}"
        raise _refused(name, got, among) from None
    if not among.has(number):
        raise _refused(name, f"{number:g}{where}", among)
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
            name,
            expected=f"{', '.join(map(str, others))} or {last}",
            got=short(value),
            hint="choose one number; it is compiled, so that it can't be a tensor",
        )
    return choices[choices.index(value)]


def short(value: Any) -> str:
    """A value for a message: of a tensor its shape, not its elements."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if hasattr(value, "shape") and not isinstance(value, np.generic):
        return f"{type(value).__name__} of shape {tuple(value.shape)}"
    return repr(value)


def _refused(name: str, got: str, among: Range) -> ArgumentError:
    return ArgumentError(name, expected=among.text, got=got, hint=among.hint)
