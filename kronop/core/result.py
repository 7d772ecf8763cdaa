"""The result Y while candidate plans are measured: saved, poisoned before each, and compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kronop.args.base import Arguments
from kronop.args.frameworks import view
from kronop.errors import ArgumentError, ElementTypeError, mismatch

# Bits of the significand, with the implicit one, of the types that products are rounded to.
_MANTISSA = {"float64": 53, "float32": 24, "tfloat32": 11, "float16": 11, "bfloat16": 8}
_MOST_DIFFERENCE = 0.1


class Result:
    """The Y of some arguments, handled by the library that made it (NumPy, CuPy or torch)."""

    def __init__(self, arguments: Arguments) -> None:
        what = arguments.operation.description
        self._Y = arguments.Y
        self._accumulates = arguments.accumulates
        self._is_integer = what.Y.element.kind == "int"
        bits = min(_MANTISSA.get(item.name, 53) for item in (what.Y.element, what.math.element_a))
        self._tolerance = min(_MOST_DIFFERENCE, 64 * 2.0**-bits)
        self._before = self._copied()
        self._expected: Any = None

    def judge(self, run: Callable[[], None]) -> str:
        """Compares the result of `run` with that of the first run: empty if they agree, else a
        sentence that says how far they differ.

        Raises:
            ArgumentError: the result of the first run is not finite.
        """
        if self._accumulates:
            self.restore()
        else:
            self._poison()
        run()
        if self._expected is None:
            self._expected = self._copied()
            if not self._distance(self._expected) == 0:
                raise ArgumentError(
                    mismatch(
                        "Y",
                        expected="a finite result, to compare candidates by",
                        got="infinities or NaN",
                        hint="fill the tensors with typical values",
                    )
                )
            return ""
        distance = self._distance(self._expected)
        # Written as `<=` so that a NaN distance counts as a difference.
        if distance <= self._tolerance:
            return ""
        return f"its result is {distance:.2g} away from the first one's"

    def restore(self) -> None:
        """Gives Y the values that it had when this object was made."""
        self._Y[...] = self._before

    def _copied(self) -> Any:
        return self._Y.copy() if hasattr(self._Y, "copy") else self._Y.clone()

    def _poison(self) -> None:
        self._Y[...] = 77 if self._is_integer else float("nan")

    def _distance(self, expected: Any) -> float:
        """|Y - expected| / |expected| in the 2-norm; for integers, 1 if any element differs."""
        if self._is_integer:
            return float(bool((expected != self._Y).any()))
        size = _norm(expected)
        with np.errstate(invalid="ignore", over="ignore"):
            return _norm(self._Y - expected) / (size if size else 1.0)


def _norm(values: Any) -> float:
    """The 2-norm, computed on values scaled by their largest magnitude so that no square
    overflows."""
    if hasattr(values, "copy"):
        wide = values.astype(np.promote_types(values.dtype, np.float32))
    else:
        wide = values.float() if values.element_size() < 4 else values
    most = float(abs(wide).max())
    if not 0 < most < float("inf"):
        return most
    return float(most * float(((wide / most) ** 2).sum()) ** 0.5)


def result_of(arguments: Arguments) -> Result:
    """The result of `arguments`.

    Raises:
        ElementTypeError: Y is not an array of NumPy or CuPy or a tensor of torch.
    """
    framework = view(arguments.Y, "Y").framework
    if framework not in ("numpy", "torch", "cupy"):
        raise ElementTypeError(
            mismatch(
                "Y",
                expected="an array of NumPy or CuPy, or a tensor of torch",
                got=f"one of {framework}",
                hint="tune with arguments of one of these",
            )
        )
    return Result(arguments)
