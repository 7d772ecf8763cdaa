"""Kronecker sums of square matrices as an operator.

A + B + ... with A x I x ... + I x B x ... + ...: Laplacians on grids, generators of independent
processes. Eigenvectors are Kronecker products of those of the factors, eigenvalues all sums of
theirs, and the exponential is the Kronecker product of the exponentials.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

import numpy as np

from kronop.errors import ArgumentError, installing
from kronop.families.kron.formed import kronecker_product, widened
from kronop.late import imported
from kronop.operators.factored import Factored
from kronop.operators.factors import asymmetry
from kronop.operators.frameworks import (
    check_decomposable,
    diagonal,
    framework_of,
    identity,
    is_number,
    is_torch,
    outer,
    times,
    turned,
)
from kronop.operators.kronecker import KroneckerOperator, decomposed, eigenvalues
from kronop.operators.spectral import SpectralOperator
from kronop.tensors import Scale, Tensor


class KroneckerSum(Factored):
    """A Kronecker sum A1 (+) A2 (+) ... (+) AN, a matrix (..., N, N) that is not formed: the sum of
    the products I x ... x Ai x ... x I.

    Attributes:
        factors: square matrices (..., Ni, Ni) of one element type; leading dimensions broadcast.
        scale: a number, or a tensor over the leading dimensions, that their sum is multiplied by.

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

    _square = True

    @property
    def shape(self) -> tuple[int, ...]:
        order = math.prod(factor.shape[-1] for factor in self.factors)
        return (*self.batch, order, order)

    def to_dense(self) -> Tensor:
        def formed(factors: Sequence[Tensor]) -> Tensor:
            total: Scale = 0
            for at, factor in enumerate(factors):
                parts = [identity(other.shape[-1], other) for other in factors]
                total = total + kronecker_product([*parts[:at], factor, *parts[at + 1 :]])
            return total

        return self._of_wide(formed, 2)

    def diagonal(self) -> Tensor:
        return self._of_wide(lambda factors: outer(map(diagonal, factors), operator.add), 1)

    def submatrix(self, index: Tensor) -> Tensor:
        digits = self._digits(index)
        alike = [at[:, None] == at for at in digits]

        def entries(factors: Sequence[Tensor]) -> Tensor:
            total: Scale = 0
            for own, (factor, at) in enumerate(zip(factors, digits, strict=True)):
                others = math.prod(same for g, same in enumerate(alike) if g != own)
                total = total + factor[..., at[:, None], at] * others
            return total

        return self._of_wide(entries, 2)

    def _multiply(self, x: Tensor) -> Tensor:
        if is_number(self.scale) and self.scale == 1:
            return self._summed(self.factors, x)
        return self._of_wide(lambda factors: self._summed(factors, widened(x)), 2)

    def _summed(self, factors: Sequence[Tensor], x: Tensor) -> Tensor:
        total: Scale = 0
        left, right = 1, self.shape[-1]
        for factor in factors:
            order = factor.shape[-1]
            right //= order
            total = total + _along(factor, x, left, right)
            left *= order
        return total

    def eigh(self) -> SpectralOperator:
        values, vectors = decomposed(self)
        return SpectralOperator(times(outer(values, operator.add), self.scale, 1), vectors)

    def eigvalsh(self) -> Tensor:
        return times(outer(eigenvalues(self), operator.add), self.scale, 1)

    def exp(self) -> KroneckerOperator:
        """The matrix exponential: the Kronecker product of those of the factors, which may be any
        square ones.

        Of torch tensors it is differentiable. Exponentials of what is not symmetric are torch's,
        CuPy's, and for NumPy SciPy's.

        Raises:
            ArgumentError: a factor of NumPy or CuPy is not finite, or one of NumPy is not symmetric
                and SciPy is not installed.
            ElementTypeError: the element type is neither float32 nor float64.
        """
        check_decomposable(self.factors[0])
        return KroneckerOperator(
            [
                _exponential(times(factor, self.scale, 2), f"factors[{at}]")
                for at, factor in enumerate(self.factors)
            ]
        )


def _exponential(matrix: Tensor, name: str) -> Tensor:
    xp = framework_of(matrix, name)
    if is_torch(xp):
        return xp.linalg.matrix_exp(matrix)
    if not asymmetry(matrix, name):
        values, vectors = xp.linalg.eigh(matrix)
        return (vectors * xp.exp(values)[..., None, :]) @ turned(vectors)
    try:
        library = imported("scipy.linalg" if xp is np else "cupyx.scipy.linalg")
    except ImportError as error:
        raise ArgumentError(
            name,
            expected="a symmetric matrix, where SciPy is not installed",
            got="another one",
            hint=installing("scipy"),
        ) from error
    # CuPy's takes no batches.
    found = [library.expm(item) for item in matrix.reshape(-1, *matrix.shape[-2:])]
    return xp.stack(found).reshape(matrix.shape)


def _along(factor: Tensor, x: Tensor, left: int, right: int) -> Tensor:
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
