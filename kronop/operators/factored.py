"""Operators that are made of factors and a scale."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Self

from kronop.families.kron.formed import narrowed, widened
from kronop.operators.factors import read_factors
from kronop.operators.frameworks import as_scale, batch_of, is_number, times, turned
from kronop.operators.masked import Solvable
from kronop.tensors import Scale, Tensor


class Factored(Solvable):
    """What is made of factors, times a scale. The scale is kept apart: multiplied into a factor, it
    could leave the range of a type whose range the product stays in."""

    decomposes = True
    _square = False

    def __init__(self, factors: Iterable[Tensor], scale: Scale = 1) -> None:
        self._factors = read_factors(factors, square=self._square)
        self._scale = as_scale(scale, self._factors[0])

    @property
    def factors(self) -> tuple[Tensor, ...]:
        """The factors (..., P, Q), the left-most first, without the scale."""
        return self._factors

    @property
    def scale(self) -> Scale:
        """What the product or sum of the factors is multiplied by: a number, or a tensor over the
        leading dimensions (of float32 beside factors of 16 bits). `2 * K` has K's factors, and
        twice its scale."""
        return self._scale

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.factors if is_number(self.scale) else (*self.factors, self.scale)

    def like(self, tensors: Sequence[Tensor]) -> Self:
        count = len(self.factors)
        return type(self)(tensors[:count], *(tensors[count:] or [self.scale]))

    @property
    def batch(self) -> tuple[int, ...]:
        """The leading dimensions."""
        return batch_of(
            getattr(self.scale, "shape", ()), *(factor.shape[:-2] for factor in self.factors)
        )

    @property
    def T(self) -> Self:
        return type(self)([turned(factor) for factor in self.factors], self.scale)

    def _scaled(self, scale: Scale) -> Self:
        return type(self)(self.factors, self.scale * scale)

    def _digits(self, index: Tensor) -> list[Tensor]:
        """The positions in each factor that make those of a square operator at the index."""
        found: list[Tensor] = []
        for factor in reversed(self.factors):
            order = factor.shape[-1]
            found.append(index % order)
            index = index // order
        return found[::-1]

    def _of_wide(self, function: Callable[[Sequence[Tensor]], Tensor], trailing: int) -> Tensor:
        """The scale times a function of the factors with so many trailing dimensions. Of 16 bits it
        is computed in float32: their products may leave the range that the result is in."""
        found = times(function([widened(factor) for factor in self.factors]), self.scale, trailing)
        return narrowed(found, self.factors[0])

    def __repr__(self) -> str:
        plain = super().__repr__()
        return plain if is_number(self.scale) and self.scale == 1 else f"{self.scale} * {plain}"
