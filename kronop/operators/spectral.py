"""Symmetric operators that are known by their eigenvalues and eigenvectors: Q diag(values) Q^T."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Self

from kronop.descriptions.shared import Array
from kronop.errors import ArgumentError
from kronop.operators.frameworks import batch_of, check_alike, times, turned, without_autocast
from kronop.operators.masked import Solvable
from kronop.operators.operator import detached, on_columns, shifted, whole
from kronop.operators.product import KroneckerProduct
from kronop.tensors import Scale, Tensor


class SpectralOperator(Solvable):
    """A symmetric operator (..., N, N) that is known by its eigenvalues and eigenvectors,
    Q diag(values) Q^T, as `eigh` and `apply` of the other operators give it.

    It is itself an operator: a function of it is a function of its values, and to solve with
    several sigma2 is to decompose once. `values, vectors = operator` unpacks it.

    Attributes:
        values: the eigenvalues (..., N), in the order of the Kronecker product.
        vectors: Q, whose columns are the orthonormal eigenvectors.

    Raises:
        ArgumentError: there is not one value for each vector, or frameworks are mixed.
        ElementTypeError: element types differ.

    Example:
        >>> A, B = np.array([[2.0, 1.0], [1.0, 2.0]]), np.diag([1.0, 2.0, 4.0])
        >>> K, b = kronop.KroneckerOperator([A, B]), np.arange(6.0)
        >>> eigen = K.eigh()
        >>> x = eigen.solve(b, 0.1)  # decomposes nothing: another sigma2 costs two products
        >>> bool(np.allclose(K @ x + 0.1 * x, b)), bool(np.allclose(eigen.sqrt() @ b, K.sqrt() @ b))
        (True, True)
        >>> values, vectors = eigen
        >>> values.shape, vectors.shape
        ((6,), (6, 6))
    """

    decomposes = True

    def __init__(self, values: Tensor, vectors: KroneckerProduct) -> None:
        check_alike(values, "values", vectors.factors[0], "the vectors")
        shape, order = tuple(values.shape), vectors.shape[-1]
        if not shape or shape[-1] != order:
            raise ArgumentError(
                "shape of values",
                expected=f"(..., {order}), one for each of the vectors",
                got=shape,
                hint="eigh() gives both",
            )
        self._values, self._vectors = values, vectors

    @property
    def values(self) -> Tensor:
        """The eigenvalues (..., N), in the order of the Kronecker product."""
        return self._values

    @property
    def vectors(self) -> KroneckerProduct:
        """The eigenvectors (..., N, N), one in each column."""
        return self._vectors

    def __iter__(self) -> Iterator[Tensor | KroneckerProduct]:
        return iter((self.values, self.vectors))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.values, *self.vectors.tensors)

    def like(self, tensors: Sequence[Tensor]) -> Self:
        return type(self)(tensors[0], self.vectors.like(tensors[1:]))

    @property
    def shape(self) -> tuple[int, ...]:
        *batch, rows, columns = self.vectors.shape
        return (*batch_of(batch, self.values.shape[:-1]), rows, columns)

    @property
    def T(self) -> Self:
        return self

    def to_dense(self) -> Tensor:
        q = self.vectors.to_dense()
        return (q * self.values[..., None, :]) @ turned(q)

    def diagonal(self) -> Tensor:
        # The elements of Q, squared, are a Kronecker product as well.
        q = self.vectors
        squares = type(q)([factor * factor for factor in q.factors], q.scale * q.scale)
        return (squares @ self.values[..., None])[..., 0]

    def trace(self) -> Tensor:
        return self.values.sum(-1)

    def _multiply(self, x: Tensor) -> Tensor:
        return between(self.vectors, self.values, x)

    def _scaled(self, scale: Scale) -> Self:
        return type(self)(times(self.values, scale, 1), self.vectors)

    def eigh(self) -> SpectralOperator:
        return self

    def eigvalsh(self) -> Tensor:
        return self.values

    def solve(self, b: Array, sigma2: Scale = 0.0) -> Array:
        """x with (operator + sigma2 I) x = b; see `KroneckerOperator.solve`.

        Gradients of torch tensors are those of the values and vectors.

        Args:
            b: (N,) or (..., N, C): right-hand sides as columns.
            sigma2: a number, or a tensor that broadcasts with the leading dimensions.

        Returns:
            x, of b's shape, broadcast with the operator's leading dimensions.

        Raises:
            ArgumentError: an eigenvalue plus sigma2 is 0, or b does not fit.
            ElementTypeError: element types differ.
        """
        self.check_columns(b, "b")
        with without_autocast(b):
            return on_columns(lambda columns: self.shifted_solve(columns, sigma2), b)

    def shifted_solve(self, b: Tensor, sigma2: Scale) -> Tensor:
        """The same for checked columns (..., N, C)."""
        return between(self.vectors, 1 / nonzero(shifted(self.values, sigma2)), b)

    def inverse(self) -> SpectralOperator:
        return self.apply(lambda values: 1 / nonzero(values))

    def apply(self, function: Callable[[Tensor], Tensor]) -> SpectralOperator:
        found = function(self.values)
        given = (getattr(found, "shape", None), getattr(found, "dtype", type(found).__name__))
        if given != (self.values.shape, self.values.dtype):
            raise ArgumentError(
                "the function's result",
                expected=f"a value of {self.values.dtype} for each eigenvalue",
                got=f"{given[1]} of shape {given[0]}",
                hint="apply a function of elements, such as numpy.exp",
            )
        return SpectralOperator(found, self.vectors)

    def sqrt(self) -> SpectralOperator:
        """The symmetric root (..., N, N), if the operator is positive semidefinite.

        Eigenvalues that are negative by no more than rounding count as 0.

        Raises:
            ArgumentError: an eigenvalue is negative by more than rounding.
        """
        self._check_semidefinite("sqrt")
        return self.apply(lambda values: values.clip(0) ** 0.5)

    def __pow__(self, exponent: float) -> SpectralOperator:
        exponent = whole(exponent)
        fractional = not isinstance(exponent, int)
        if fractional:
            self._check_semidefinite("a power that is not whole")

        def power(values: Tensor) -> Tensor:
            values = values.clip(0) if fractional else values
            return (nonzero(values) if exponent < 0 else values) ** exponent

        return self.apply(power)

    def _check_semidefinite(self, doing: str) -> None:
        """Refuses eigenvalues that are negative by more than rounding."""
        if not math.prod(self.values.shape):
            return
        values = detached(self).tensors[0]
        # Rounding of each factor's eigenvalues is relative to the largest one of its matrix.
        size = sum(factor.shape[-1] for factor in self.vectors.factors)
        size *= self.framework.finfo(self.dtype).eps
        if bool((values < -size * self.framework.amax(abs(values), -1)[..., None]).any()):
            raise ArgumentError(
                doing,
                expected="an operator without negative eigenvalues",
                got=f"one of {float(values.min()):.2g}",
                hint="apply(function) takes a function of any eigenvalues",
            )


def between(vectors: KroneckerProduct, values: Tensor, x: Tensor) -> Tensor:
    """V diag(values) V^T x for columns x (..., N, C)."""
    return vectors @ (values[..., None] * (vectors.T @ x))


def nonzero(values: Tensor) -> Tensor:
    """The eigenvalues, if none is 0."""
    if bool((values == 0).any()):
        raise ArgumentError(
            "the operator",
            expected="an invertible one",
            got="an eigenvalue of 0",
            hint="solve(b, sigma2) adds sigma2 to the eigenvalues",
        )
    return values
