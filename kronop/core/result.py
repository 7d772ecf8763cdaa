"""The results while candidate plans are measured: saved, poisoned before each, and compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kronop.args.base import Arguments
from kronop.args.frameworks import view
from kronop.errors import ArgumentError, ElementTypeError
from kronop.tensors import Tensor

# Bits of the significand, with the implicit one, of the types that products are rounded to.
_MANTISSA = {"float64": 53, "float32": 24, "tfloat32": 11, "float16": 11, "bfloat16": 8}
_MOST_DIFFERENCE = 0.1


class _Tensor:
    """One result, handled by the library that made it (NumPy, CuPy or torch)."""

    def __init__(self, tensor: Tensor, bits: int) -> None:
        """`bits` are those of the significand of what is multiplied."""
        element = view(tensor, "a result").element
        self._tensor, self._is_integer = tensor, element.kind == "int"
        own = min(bits, _MANTISSA.get(element.name, 53))
        self._tolerance = min(_MOST_DIFFERENCE, 64 * 2.0**-own)
        self._before, self._expected = self._copied(), None

    def restore(self) -> None:
        self._tensor[...] = self._before

    def poison(self) -> None:
        self._tensor[...] = 77 if self._is_integer else float("nan")

    def expect(self) -> bool:
        """Takes what it is now as right; says whether it is finite."""
        self._expected = self._copied()
        return self._distance() == 0

    def trouble(self) -> str:
        """How far it differs from what is right; empty if it does not."""
        distance = self._distance()
        # Written as `<=` so that a NaN distance counts as a difference.
        if distance <= self._tolerance:
            return ""
        return f"its result is {distance:.2g} away from the first one's"

    def _copied(self) -> Tensor:
        return self._tensor.copy() if hasattr(self._tensor, "copy") else self._tensor.clone()

    def _distance(self) -> float:
        """|Y - expected| / |expected| in the 2-norm; for integers, 1 if any element differs."""
        expected = self._expected
        if self._is_integer:
            return float(bool((expected != self._tensor).any()))
        size = _norm(expected)
        with np.errstate(invalid="ignore", over="ignore"):
            return _norm(self._tensor - expected) / (size if size else 1.0)


class Result:
    """All tensors that a run of some arguments writes."""

    def __init__(self, tensors: Sequence[Tensor], bits: int, *, accumulates: bool) -> None:
        self._tensors = [_Tensor(item, bits) for item in tensors]
        self._accumulates = accumulates
        self._is_first = True

    def judge(self, run: Callable[[], None]) -> str:
        """Compares the results of `run` with those of the first run: empty if they agree, else a
        sentence that says how far they differ.

        Raises:
            ArgumentError: a result of the first run is not finite.
        """
        before = _Tensor.restore if self._accumulates else _Tensor.poison
        for item in self._tensors:
            before(item)
        run()
        if not self._is_first:
            return next(filter(None, (item.trouble() for item in self._tensors)), "")
        self._is_first = False
        finite = [item.expect() for item in self._tensors]
        if not all(finite):
            raise ArgumentError(
                "Y",
                expected="a finite result, to compare candidates by",
                got="infinities or NaN",
                hint="fill the tensors with typical values",
            )
        return ""

    def restore(self) -> None:
        """Gives all tensors the values that they had when this object was made."""
        for item in self._tensors:
            item.restore()


def _norm(values: Tensor) -> float:
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
    """The results of `arguments`.

    Raises:
        ElementTypeError: one is not an array of NumPy or CuPy or a tensor of torch.
    """
    for item in arguments.results:
        framework = view(item, "Y").framework
        if framework not in ("numpy", "torch", "cupy"):
            raise ElementTypeError(
                "Y",
                expected="an array of NumPy or CuPy, or a tensor of torch",
                got=f"one of {framework}",
                hint="tune with arguments of one of these",
            )
    what = arguments.operation.description
    bits = min(_MANTISSA.get(item.name, 53) for item in (what.Y.element, what.math.element_a))
    return Result(arguments.results, bits, accumulates=arguments.accumulates)
