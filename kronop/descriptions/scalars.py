"""Run-time scalars of epilogues: alpha, beta and the activation's own, checked."""

from __future__ import annotations

import math
import numbers
from dataclasses import field
from typing import Any

import numpy as np

from kronop.descriptions.datatype import DataType, bfloat16, float16, float32, float64
from kronop.errors import ArgumentError, ElementTypeError
from kronop.frozen import dataclass

FINITE_MAX = {
    float16: 65504.0,
    bfloat16: 3.3895313892515355e38,
    float32: 3.4028234663852886e38,
    float64: 1.7976931348623157e308,
}


@dataclass(frozen=True, slots=True)
class EpilogueArguments:
    """The run-time scalars of an epilogue: alpha, beta, then the activation's own.

    Attributes:
        scalars: all scalars, in that order.
        has_beta: whether beta was given, not taken from the default: a call with Z needs a beta.
    """

    scalars: tuple[float, ...]
    has_beta: bool = field(default=True, repr=False, compare=False)

    @property
    def alpha(self) -> float:
        return self.scalars[0]

    @property
    def beta(self) -> float:
        return self.scalars[1]


def saturated(value: Any, element: DataType) -> Any:
    """Numbers in NumPy as kernels convert them to integers: rounded, to even where two are as near,
    the nearest of the type's range, 0 for NaN."""
    half = 2 ** (element.bits - 1)
    value = np.asarray(value)
    if value.dtype.kind == "f":
        value = np.nan_to_num(np.rint(value), nan=0.0, posinf=np.inf, neginf=-np.inf)
    with np.errstate(invalid="ignore"):  # 2^63 is a float64, but no int64.
        inside = np.clip(value, -half, half - 1).astype(np.int64)
    return np.where(value >= half, half - 1, inside)


def scalar(name: str, value: Any, element: DataType) -> float:
    """A scalar that is computed with in the type `element`.

    Raises:
        ElementTypeError: it is no real number.
        ArgumentError: it is not finite in that type or, for integers, not whole.
    """
    value = _number(value)
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        hint = "pass a Python or NumPy scalar, or a 0-d tensor on the host"
        raise ElementTypeError(name, expected="a real number", got=repr(value), hint=hint)
    checked = _finite if element.kind == "float" else _whole
    return checked(name, value, element)


def _number(value: Any) -> Any:
    """The Python number in a 0-d array or tensor on the host; other values as they are."""
    # NOTE: a tensor that requires a gradient is not converted (which would drop it) but refused.
    plain = not getattr(value, "requires_grad", False)
    on_host = str(getattr(value, "device", "cpu")) == "cpu"
    if getattr(value, "shape", None) == () and hasattr(value, "item") and plain and on_host:
        return value.item()
    return value


def _whole(name: str, value: Any, element: DataType) -> int:
    half = 2 ** (element.bits - 1)
    # The range is compared first, because math.floor raises on infinities and NaN.
    if not -half <= value < half or value != math.floor(value):
        raise ArgumentError(
            name,
            expected=f"a finite whole number within {element.name}",
            got=repr(value),
            hint="integer operations scale by integers",
        )
    whole: int = math.floor(value)
    return whole


def _finite(name: str, value: Any, element: DataType) -> float:
    bound = FINITE_MAX[element]
    # Comparing is exact for integers of any size and false for NaN; float() may raise.
    if not -bound <= value <= bound:
        hint = "check where it was computed"
        raise ArgumentError(name, expected=f"a finite {element.name}", got=repr(value), hint=hint)
    return float(value)
