"""Kronecker products of matrices as an operator that multiplies."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Self, overload

from kronop.descriptions.shared import Array
from kronop.errors import ArgumentError
from kronop.families.kron.formed import kronecker_product, narrowed, widened
from kronop.operators.factored import Factored
from kronop.operators.frameworks import (
    diagonal,
    framework_of,
    is_number,
    outer,
    products,
    sign_of,
    times,
    without_gradient,
)
from kronop.tensors import Scale, Tensor


class KroneckerProduct(Factored):
    """The part of a `KroneckerOperator` that sums and eigenvectors are made of."""

    @property
    def shape(self) -> tuple[int, ...]:
        rows = math.prod(factor.shape[-2] for factor in self.factors)
        columns = math.prod(factor.shape[-1] for factor in self.factors)
        return (*self.batch, rows, columns)

    def to_dense(self) -> Tensor:
        return self._of_wide(kronecker_product, 2)

    def diagonal(self) -> Tensor:
        self._check_square_factors("diagonal")
        return self._of_wide(lambda factors: outer(map(diagonal, factors), operator.mul), 1)

    def trace(self) -> Tensor:
        self._check_square_factors("trace")
        return self._of_wide(
            lambda factors: math.prod(diagonal(factor).sum(-1) for factor in factors), 0
        )

    def submatrix(self, index: Tensor) -> Tensor:
        self._check_square_factors("a submatrix")
        digits = self._digits(index)

        def entries(factors: Sequence[Tensor]) -> Tensor:
            pairs = zip(factors, digits, strict=True)
            return math.prod(factor[..., at[:, None], at] for factor, at in pairs)

        return self._of_wide(entries, 2)

    def _multiply(self, x: Tensor) -> Tensor:
        return self._product(0, x)

    def _multiply_rows(self, x: Tensor) -> Tensor:
        return self._product(1, x)

    def _product(self, side: int, x: Tensor) -> Tensor:
        """The product with columns, by gekmm, or with rows, by gemkm."""

        def multiply(factors: Sequence[Tensor], x: Tensor, alpha: float = 1) -> Tensor:
            operands = (x, factors) if side else (factors, x)
            return products(self.framework)[side](*operands, alpha=alpha)

        if is_number(self.scale):
            return multiply(self.factors, x, self.scale)
        found = times(multiply([*map(widened, self.factors)], widened(x)), self.scale, 2)
        return narrowed(found, x)

    @overload
    def __matmul__(self, x: KroneckerProduct) -> Self: ...
    @overload
    def __matmul__(self, x: Array) -> Array: ...

    def __matmul__(self, x: Tensor) -> Tensor:
        """operator @ x with x (Q,) or (..., Q, C), or the product with another KroneckerOperator,
        whose factors go with these one by one.

        Raises:
            ArgumentError: shapes or frameworks do not fit.
            ElementTypeError: x is no tensor, or of another element type.
        """
        if not isinstance(x, KroneckerProduct):
            return super().__matmul__(x)
        inner = [factor.shape[-1] for factor in self.factors]
        if inner != [factor.shape[-2] for factor in x.factors]:
            raise ArgumentError(
                "the right operator",
                expected=f"factors of {inner} rows",
                got=f"factors of {[factor.shape[-2] for factor in x.factors]}",
                hint="apply one after the other: left @ (right @ x)",
            )
        pairs = zip(self.factors, x.factors, strict=True)
        factors = balanced([widened(a) @ widened(b) for a, b in pairs], self.factors[0])
        return type(self)(factors, self.scale * x.scale)

    def signed(self) -> tuple[Self, Scale]:
        """An operator without scale, that has the scale's sign, and the scale's absolute value."""
        first, *others = self.factors
        return type(self)([times(first, sign_of(self.scale), 2), *others]), abs(self.scale)

    def _check_square_factors(self, doing: str) -> None:
        for at, factor in enumerate(self.factors):
            if factor.shape[-1] != factor.shape[-2]:
                raise ArgumentError(
                    doing,
                    expected="square factors",
                    got=f"factors[{at}] of shape {tuple(factor.shape)}",
                    hint="svd() and to_dense() are of any factors",
                )


def balanced(factors: list[Tensor], beside: Tensor) -> list[Tensor]:
    """Factors that were computed of widened ones, in the type of these. Of 16 bits each gets the
    same largest absolute value, so that the product alone has to be in range."""
    if factors[0].dtype == beside.dtype:
        return factors
    xp = framework_of(beside, "factors[0]")
    sizes = [xp.amax(abs(without_gradient(factor)), (-2, -1)) for factor in factors]
    mean = math.prod(size ** (1 / len(sizes)) for size in sizes)
    scales = [mean / xp.where(size > 0, size, 1) for size in sizes]
    pairs = zip(factors, scales, strict=True)
    return [narrowed(times(factor, scale, 2), beside) for factor, scale in pairs]
