"""Kronecker products of matrices as an operator.

With F = F1 x ... x FN of square factors: f(F) = f(F1) x ... x f(FN) for inverses, powers, Cholesky
and singular value decompositions, and for eigenvectors; eigenvalues are all products of theirs
(Van Loan, The ubiquitous Kronecker product, 2000).
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from kronop.descriptions.shared import Array
from kronop.errors import ArgumentError
from kronop.families.kron.formed import widened
from kronop.operators.factored import Factored
from kronop.operators.factors import check_symmetric
from kronop.operators.frameworks import (
    check_decomposable,
    cholesky,
    copied,
    inverse,
    is_number,
    log_size,
    outer,
    sign_of,
    solved,
    times,
)
from kronop.operators.kept import kept, recalled
from kronop.operators.operator import Operator, on_columns, whole
from kronop.operators.product import KroneckerProduct, balanced
from kronop.operators.product_sum import added
from kronop.operators.spectral import SpectralOperator
from kronop.tensors import Scale, Tensor


class KroneckerOperator(KroneckerProduct):
    """A Kronecker product F1 x F2 x ... x FN, a matrix (..., P, Q) that is not formed.

    It is made of NumPy's, torch's or CuPy's tensors, and takes and gives those. It refers to the
    factors. It keeps their eigendecomposition for later calls, with copies of the factors: when
    elements have changed, it decomposes anew.

    Attributes:
        factors: matrices (..., Pi, Qi) of one element type; leading dimensions broadcast. P is the
            product of all Pi, Q that of all Qi.
        scale: a number, or a tensor over the leading dimensions, that their product is multiplied
            by. It is no part of a factor.

    Raises:
        ArgumentError: shapes do not fit, or frameworks are mixed.
        ElementTypeError: a factor is no tensor, or element types differ.

    Example:
        >>> A, B = np.array([[2.0, 1.0], [1.0, 2.0]]), np.diag([1.0, 2.0, 4.0])
        >>> K, b = kronop.KroneckerOperator([A, B]), np.arange(6.0)
        >>> bool(np.allclose(K @ b, np.kron(A, B) @ b))
        True
        >>> bool(np.allclose(K @ K.solve(b), b)), round(float(K.logdet()), 4)
        (True, 7.4547)
        >>> K.eigh().values.round(6).tolist()  # in the order of the product
        [1.0, 2.0, 4.0, 3.0, 6.0, 12.0]
    """

    def __add__(self, other: object) -> Operator:
        return added(self, other)

    def solve(self, b: Array, sigma2: Scale = 0.0) -> Array:
        """x with (operator + sigma2 I) x = b.

        With the number 0 for sigma2, by LU decompositions of the factors, which may be any
        invertible ones. Otherwise by the eigendecompositions of the factors, which have to be
        symmetric: Q (values + sigma2)^-1 Q^T b. Of torch tensors it is differentiable in b, every
        factor and sigma2, to any order; gradients do not divide by differences of eigenvalues.

        Args:
            b: (N,) or (..., N, C): right-hand sides as columns.
            sigma2: a number, or a tensor that broadcasts with the leading dimensions.

        Returns:
            x, of b's shape, broadcast with the operator's leading dimensions.

        Raises:
            ArgumentError: the operator or a factor is not square, a factor is singular or (with
                sigma2) not symmetric, an eigenvalue plus sigma2 is 0, or b does not fit. As with
                LAPACK, what is singular but for rounding is not noticed.
            ElementTypeError: element types are not float32 or float64, or differ.
        """
        if not _is_zero(sigma2):
            return super().solve(b, sigma2)
        self.check_square("solve")
        self._check_square_factors("solve")
        self.check_columns(b, "b")
        inverse = self._inverse_scale()
        return on_columns(lambda columns: times(self._divided(columns), inverse, 2), b)

    def _divided(self, b: Tensor) -> Tensor:
        """x of columns b (..., N, C), by one factor after the other. Inverses would be multiplied
        faster, but errors would grow with the square of a factor's condition."""
        order, columns = b.shape[-2:]
        left = 1
        for at, factor in enumerate(self.factors):
            own = factor.shape[-1]
            rest = order * columns // (left * own)
            rows = b.reshape(*b.shape[:-2], left, own, rest).swapaxes(-3, -2)
            x = solved(factor, rows.reshape(*b.shape[:-2], own, left * rest), f"factors[{at}]")
            x = x.reshape(*x.shape[:-1], left, rest).swapaxes(-3, -2)
            b = x.reshape(*x.shape[:-3], order, columns)
            left *= own
        return b

    def inverse(self) -> KroneckerOperator:
        """The inverse (..., N, N), by those of the factors.

        Raises:
            ArgumentError: a factor is not square, or singular.
            ElementTypeError: the element type is neither float32 nor float64.
        """
        return self._of_squares("inverse", inverse, self._inverse_scale())

    def _inverse_scale(self) -> Scale:
        zero: Tensor = self.scale == 0
        if zero if is_number(self.scale) else bool(zero.any()):
            raise ArgumentError(
                "the scale",
                expected="a number other than 0 where an operator is inverted",
                got=self.scale,
                hint="solve(b, sigma2) adds sigma2 to the eigenvalues",
            )
        return 1 / self.scale

    def cholesky(self) -> KroneckerOperator:
        """The lower triangular L (..., N, N) of L L^T, for symmetric positive definite factors.

        Raises:
            ArgumentError: a factor is not square, symmetric and positive definite.
            ElementTypeError: the element type is neither float32 nor float64.
        """

        def factored(factor: Tensor, name: str) -> Tensor:
            check_symmetric(factor, name)
            found = cholesky(factor)
            if found is None:
                raise ArgumentError(
                    name,
                    expected="a positive definite matrix",
                    got="one that is not",
                    hint="add to its diagonal, or use eigh()",
                )
            return found

        signed, size = self.signed()
        return signed._of_squares("cholesky", factored, size**0.5)

    def eigh(self) -> SpectralOperator:
        values, vectors = decomposed(self)
        return SpectralOperator(times(outer(values, operator.mul), self.scale, 1), vectors)

    def eigvalsh(self) -> Tensor:
        return times(outer(eigenvalues(self), operator.mul), self.scale, 1)

    def svd(self) -> tuple[KroneckerOperator, Tensor, KroneckerOperator]:
        """(U, S, Vh) with U diag(S) Vh the operator, as NumPy's svd with full_matrices=False.

        Returns:
            Operators U (..., P, K) and Vh (..., K, Q), and S (..., K), in the order of the
            Kronecker product, not sorted. K is the product of all min(Pi, Qi).

        Raises:
            ElementTypeError: the element type is neither float32 nor float64.
        """
        check_decomposable(self.factors[0])
        signed, size = self.signed()
        svd = self.framework.linalg.svd
        parts = [svd(factor, full_matrices=False) for factor in signed.factors]
        lefts, parts_of_s, rights = zip(*parts, strict=True)
        values = times(outer(parts_of_s, operator.mul), size, 1)
        return KroneckerOperator(lefts), values, KroneckerOperator(rights)

    def slogdet(self, sigma2: Scale = 0.0) -> tuple[Tensor, Tensor]:
        if not _is_zero(sigma2):
            return super().slogdet(sigma2)
        self._check_square_factors("logdet")
        check_decomposable(self.factors[0])
        order = self.shape[-1]
        sign, logarithm = sign_of(self.scale) ** order, order * log_size(self.scale)
        for factor in self.factors:
            # det(A x B) = det(A)^(order of B) det(B)^(order of A).
            copies = order // factor.shape[-1]
            own_sign, own = self.framework.linalg.slogdet(factor)
            sign, logarithm = sign * own_sign**copies, logarithm + copies * own
        return sign, logarithm

    def __pow__(self, exponent: float) -> Operator:
        """A whole power of square factors, or any power of symmetric ones.

        Raises:
            ArgumentError: a factor is not square; the exponent is negative and a factor singular;
                or it is not whole and a factor not symmetric, or an eigenvalue negative.
            ElementTypeError: the exponent is no real number, or the element type is neither float32
                nor float64 where factors are inverted or decomposed.
        """
        exponent = whole(exponent)
        if not isinstance(exponent, int):
            return super().__pow__(exponent)
        base = self if exponent >= 0 else self.inverse()
        power, exponent = self.framework.linalg.matrix_power, abs(exponent)
        return base._of_squares(
            "a power", lambda factor, _: power(widened(factor), exponent), base.scale**exponent
        )

    def _of_squares(
        self, doing: str, function: Callable[[Tensor, str], Tensor], scale: Scale
    ) -> KroneckerOperator:
        """The operator of a function of each square factor and its name, and of a scale."""
        self._check_square_factors(doing)
        items = enumerate(self.factors)
        found = [function(item, f"factors[{at}]") for at, item in items]
        return KroneckerOperator(balanced(found, self.factors[0]), scale)


def eigenvalues(of: Factored) -> list[Tensor]:
    """Those of each symmetric factor."""
    if (pairs := recalled(of, "eigh", of.factors)) is not None:
        return [copied(values) for values, _ in pairs]

    def decompose() -> list[Tensor]:
        _check_symmetric_factors(of)
        return [of.framework.linalg.eigvalsh(factor) for factor in of.factors]

    return [copied(values) for values in kept(of, "eigvalsh", of.factors, decompose)]


def decomposed(of: Factored) -> tuple[list[Tensor], KroneckerOperator]:
    """The eigenvalues of each symmetric factor, and the eigenvectors of all."""

    def decompose() -> list[tuple[Tensor, Tensor]]:
        _check_symmetric_factors(of)
        return [tuple(of.framework.linalg.eigh(factor)) for factor in of.factors]

    # Copies, because who gets them may write on them.
    pairs = kept(of, "eigh", of.factors, decompose)
    values, vectors = zip(*(map(copied, pair) for pair in pairs), strict=True)
    return list(values), KroneckerOperator(vectors)


def _check_symmetric_factors(of: Factored) -> None:
    for at, factor in enumerate(of.factors):
        check_symmetric(factor, f"factors[{at}]")


def _is_zero(sigma2: Scale) -> bool:
    """Whether nothing is added. The value of a tensor is not looked at."""
    return isinstance(sigma2, (int, float)) and sigma2 == 0
