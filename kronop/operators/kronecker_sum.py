"""Kronecker sums of square matrices as an operator.

A + B + ... with A x I x ... + I x B x ... + ...: Laplacians on grids, generators of independent
processes. Eigenvectors are Kronecker products of those of the factors, eigenvalues all sums of
theirs, and the exponential is the Kronecker product of the exponentials.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

from kronop.families.kron.formed import kronecker_product
from kronop.late import imported
from kronop.operators.factors import read_factors
from kronop.operators.frameworks import (
    batch_of,
    check_decomposable,
    diagonal,
    identity,
    is_torch,
    outer,
    turned,
)
from kronop.operators.kronecker import KroneckerOperator, decomposed, eigenvalues
from kronop.operators.operator import Operator

if TYPE_CHECKING:
    from kronop.operators.spectral import SpectralOperator


class KroneckerSum(Operator):
    """A Kronecker sum A1 (+) A2 (+) ... (+) AN, a matrix (..., N, N) that is not formed: the sum of
    the products I x ... x Ai x ... x I.

    Attributes:
        factors: square matrices (..., Ni, Ni) of one element type; leading dimensions broadcast.

    Raises:
        ArgumentError: a factor is not square, shapes do not fit, or frameworks are mixed.
        ElementTypeError: a factor is no tensor, or element types differ.

    Example:
        >>> A, B = np.array([[2.0, 1.0], [1.0, 2.0]]), np.diag([1.0, 2.0, 4.0])
        >>> L, b = kronop.KroneckerSum([A, B]), np.arange(6.0)
        >>> L.eigvalsh().round(6).tolist()  # all sums of the factors' eigenvalues
        [2.0, 3.0, 5.0, 4.0, 5.0, 7.0]
        >>> bool(np.allclose(L @ L.solve(b), b))
        True
        >>> len((-0.1 * L).exp().factors)  # a Kronecker product
        2
    """

    def __init__(self, factors: Iterable[Any]) -> None:
        self._factors = read_factors(factors, square=True)

    @property
    def factors(self) -> tuple[Any, ...]:
        """The factors (..., N, N), the left-most first."""
        return self._factors

    @property
    def tensors(self) -> tuple[Any, ...]:
        return self.factors

    def like(self, tensors: Sequence[Any]) -> Self:
        return type(self)(tensors)

    @property
    def shape(self) -> tuple[int, ...]:
        order = math.prod(factor.shape[-1] for factor in self.factors)
        return (*batch_of(*(factor.shape[:-2] for factor in self.factors)), order, order)

    @property
    def T(self) -> Self:
        return self.like([turned(factor) for factor in self.factors])

    def to_dense(self) -> Any:
        total: Any = 0
        for at, factor in enumerate(self.factors):
            before, behind = self.factors[:at], self.factors[at + 1 :]
            total = total + kronecker_product(
                [*map(identity, before), factor, *map(identity, behind)]
            )
        return total

    def diagonal(self) -> Any:
        return outer(map(diagonal, self.factors), operator.add)

    def _multiply(self, x: Any) -> Any:
        total: Any = 0
        left, right = 1, self.shape[-1]
        for factor in self.factors:
            order = factor.shape[-1]
            right //= order
            total = total + _along(factor, x, left, right)
            left *= order
        return total

    def _scaled(self, scale: Any) -> Self:
        return self.like([scale * factor for factor in self.factors])

    def eigh(self) -> SpectralOperator:
        imported("kronop.operators.spectral")
        from kronop.operators.spectral import SpectralOperator

        values, vectors = decomposed(self)
        return SpectralOperator(outer(values, operator.add), vectors)

    def eigvalsh(self) -> Any:
        return outer(eigenvalues(self), operator.add)

    def exp(self) -> KroneckerOperator:
        """The matrix exponential: the Kronecker product of those of the factors.

        Of torch tensors the factors may be any square ones, and it is differentiable; of NumPy
        and CuPy they have to be symmetric.

        Raises:
            ArgumentError: a factor of NumPy or CuPy is not symmetric.
            ElementTypeError: the element type is neither float32 nor float64.
        """
        check_decomposable(self.factors[0])
        if is_torch(self.framework):
            power = self.framework.linalg.matrix_exp
            return KroneckerOperator([power(factor) for factor in self.factors])
        values, vectors = decomposed(self)
        pairs = zip(values, vectors.factors, strict=True)
        exp = self.framework.exp
        return KroneckerOperator([(q * exp(w)[..., None, :]) @ turned(q) for w, q in pairs])


def _along(factor: Any, x: Any, left: int, right: int) -> Any:
    """(I x factor x I) x for identities of these orders and columns x (..., N, C).

    This is one small dense product for each of the left identity's rows, for which the framework's
    own product is as fast as kronop's, and there is nothing to compile.
    """
    order, columns = factor.shape[-1], x.shape[-1]
    if right * columns == 1:  # As rows, it is a single product.
        part = x.reshape(*x.shape[:-2], left, order) @ turned(factor)
        return part.reshape(*part.shape[:-2], left * order, 1)
    part = factor[..., None, :, :] @ x.reshape(*x.shape[:-2], left, order, right * columns)
    return part.reshape(*part.shape[:-3], left * order * right, columns)
