"""Sums of Kronecker products as an operator, and the exact way to solve with two of them.

Symmetric A and positive definite C have a common V with V^T A V = diag(w) and V^T C V = I: with
C = L L^T, w and U are the eigenvalues and eigenvectors of L^-1 A L^-T, and V = L^-T U (Golub and
Van Loan, Matrix Computations, 8.7). With one for each pair of factors,

    (A1 x A2 + C1 x C2)^-1 = (V1 x V2) (w1 x w2 + 1)^-1 (V1 x V2)^T.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn, Self

from kronop.descriptions.shared import Array
from kronop.errors import ArgumentError, ElementTypeError
from kronop.operators.factors import check_symmetric
from kronop.operators.frameworks import (
    batch_of,
    check_alike,
    cholesky,
    diagonal,
    framework_of,
    is_number,
    log_size,
    outer,
    products,
    solve_triangular,
    times,
    turned,
    without_gradient,
)
from kronop.operators.kept import kept
from kronop.operators.masked import Solvable
from kronop.operators.operator import Operator
from kronop.operators.product import KroneckerProduct
from kronop.operators.spectral import between, nonzero
from kronop.tensors import Scale, Tensor

_ITERATE = "kronop.cg(operator, b, sigma2=...) solves with any symmetric positive definite operator"


class KroneckerProductSum(Solvable):
    """A sum of Kronecker products A1 x A2 x ... + C1 x C2 x ... + ..., a matrix (..., P, Q) that is
    not formed: what `+` of KroneckerOperators gives.

    With two terms of symmetric factors of the same orders, of which one term has positive definite
    factors, `solve`, `slogdet` and `logdet` are exact (without sigma2). `kronop.cg` is for all
    others.

    Attributes:
        terms: two or more KroneckerOperators of equal shapes, but for batches, which broadcast.

    Raises:
        ArgumentError: shapes do not fit, or frameworks are mixed.
        ElementTypeError: a term is no KroneckerOperator, or element types differ.

    Example:
        >>> A, B = np.array([[2.0, 1.0], [1.0, 2.0]]), np.diag([1.0, 2.0, 4.0])
        >>> K, b = kronop.KroneckerOperator([A, B]), np.arange(6.0)
        >>> two = K + kronop.KroneckerOperator([np.eye(2), np.eye(3)])
        >>> len(two.terms), two.shape
        (2, (6, 6))
        >>> bool(np.allclose(two @ two.solve(b), b))
        True
    """

    def __init__(self, terms: Iterable[KroneckerProduct]) -> None:
        terms = tuple(terms)
        if len(terms) < 2 or not all(isinstance(term, KroneckerProduct) for term in terms):
            raise ElementTypeError(
                "terms",
                expected="two or more of kronop.KroneckerOperator",
                got=", ".join(type(term).__name__ for term in terms) or "none",
                hint="wrap each list of factors in a KroneckerOperator",
            )
        for at, term in enumerate(terms):
            check_alike(term.factors[0], f"terms[{at}]", terms[0].factors[0], "terms[0]")
            if term.shape[-2:] != terms[0].shape[-2:]:
                raise ArgumentError(
                    f"shape of terms[{at}]",
                    expected=f"{terms[0].shape[-2:]} as terms[0]",
                    got=term.shape[-2:],
                    hint="terms are added, so that they are of one shape",
                )
        batch_of(*(term.shape[:-2] for term in terms))
        self._terms = terms

    @property
    def terms(self) -> tuple[KroneckerProduct, ...]:
        """The operators whose sum this is."""
        return self._terms

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.terms))})"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(item for term in self.terms for item in term.tensors)

    def like(self, tensors: Sequence[Tensor]) -> Self:
        left, terms = list(tensors), []
        for term in self.terms:
            count = len(term.tensors)
            terms.append(term.like(left[:count]))
            left = left[count:]
        return type(self)(terms)

    @property
    def shape(self) -> tuple[int, ...]:
        return (*batch_of(*(term.shape[:-2] for term in self.terms)), *self.terms[0].shape[-2:])

    @property
    def T(self) -> Self:
        return type(self)([term.T for term in self.terms])

    def to_dense(self) -> Tensor:
        return sum(term.to_dense() for term in self.terms)

    def diagonal(self) -> Tensor:
        return sum(term.diagonal() for term in self.terms)

    def trace(self) -> Tensor:
        return sum(term.trace() for term in self.terms)

    def submatrix(self, index: Tensor) -> Tensor:
        return sum(term.submatrix(index) for term in self.terms)

    def __add__(self, other: object) -> Operator:
        return added(self, other)

    def _scaled(self, scale: Scale) -> Self:
        return type(self)([term._scaled(scale) for term in self.terms])

    def _multiply(self, x: Tensor) -> Tensor:
        first, *others = self.terms
        total = first._multiply(x)
        gekmm = products(self.framework)[0]
        for term in others:
            lead = batch_of(total.shape[:-2], term.shape[:-2])
            if is_number(term.scale) and lead == tuple(total.shape[:-2]):
                # Added in the same pass.
                total = gekmm(term.factors, x, alpha=term.scale, beta=1.0, z=total)
            else:
                total = total + term._multiply(x)
        return total

    def direct_solver(self) -> Callable[[Tensor, Tensor], Tensor]:
        values, vectors = kept(self, "pair", self.tensors, self._inverse)
        return lambda b, sigma2: between(vectors, values, b)

    def _inverse(self) -> tuple[Tensor, KroneckerProduct]:
        """V, and the diagonal matrix in V diag V^T of the inverse."""
        roots, others, scale, ratio = self._pair()
        # V of each pair of factors, and w.
        found = [_common(root, other) for root, other in zip(roots, others, strict=True)]
        values = nonzero(1 + times(outer([w for w, _ in found], operator.mul), ratio, 1))
        vectors = type(self.terms[0])([v for _, v in found])
        return times(1 / values, 1 / scale, 1), vectors

    def solve(self, b: Array, sigma2: Scale = 0.0) -> Array:
        """x with operator @ x = b, exactly: see the class for which operators.

        Of torch tensors it is differentiable in b and every factor, to any order.

        Args:
            b: (N,) or (..., N, C): right-hand sides as columns.
            sigma2: 0; a multiple of the identity would be a third term.

        Returns:
            x, of b's shape, broadcast with the operator's leading dimensions.

        Raises:
            ArgumentError: there is no exact way, or b does not fit.
            ElementTypeError: element types are not float32 or float64, or differ.
        """
        self._refuse(sigma2)
        return super().solve(b)

    def slogdet(self, sigma2: Scale = 0.0) -> tuple[Tensor, Tensor]:
        """`(sign, log |det|)`, each (...), of the operators that `solve` takes.

        Raises:
            ArgumentError: there is no exact way.
            ElementTypeError: the element type is neither float32 nor float64.
        """
        self.check_square("logdet")
        self._refuse(sigma2)
        roots, others, scale, ratio = self._pair()
        xp, order = self.framework, self.shape[-1]
        pairs = zip(roots, others, strict=True)
        common = [xp.linalg.eigvalsh(_congruent(root, other)) for root, other in pairs]
        values = 1 + times(outer(common, operator.mul), ratio, 1)
        logarithm = xp.log(abs(values)).sum(-1) + order * log_size(scale)
        for root in roots:
            copies = order // root.shape[-1]
            logarithm = logarithm + 2 * copies * xp.log(diagonal(root)).sum(-1)
        return xp.sign(values).prod(-1), logarithm

    def eigh(self) -> NoReturn:
        """Refused: a sum of products has no orthonormal eigenvectors that are such a product.

        Raises:
            ArgumentError: always.
        """
        raise _no_exact(
            "eigh", "a Kronecker product or a Kronecker sum", "a sum of products", _ITERATE
        )

    def eigvalsh(self) -> NoReturn:
        """Refused, as `eigh`.

        Raises:
            ArgumentError: always.
        """
        self.eigh()

    def _pair(self) -> tuple[list[Tensor], list[Tensor], Scale, Scale]:
        """The Cholesky factors of the definite term's factors, the other term's factors, the scale
        of the former, and the ratio of the latter's to it."""
        if len(self.terms) != 2:
            raise _no_exact("an exact solution", "two terms", len(self.terms), _ITERATE)
        first, second = self.terms
        orders = [[tuple(factor.shape[-2:]) for factor in term.factors] for term in self.terms]
        if orders[0] != orders[1]:
            raise _no_exact("an exact solution", "factors of the same orders", orders, _ITERATE)
        for number, term in enumerate(self.terms):
            for at, factor in enumerate(term.factors):
                check_symmetric(factor, f"terms[{number}].factors[{at}]")
        found = []
        for definite, other in ((second, first), (first, second)):
            signed, size = definite.signed()
            tried = [cholesky(factor) for factor in signed.factors]
            roots = [root for root in tried if root is not None]
            if len(roots) == len(tried):
                ratio = other.scale / size
                found.append((_regularity(roots), roots, list(other.factors), size, ratio))
        if not found:
            raise _no_exact("terms", "one with positive definite factors", "none", _ITERATE)
        # Errors grow with the condition of the term whose roots are divided by.
        return max(found, key=lambda item: item[0])[1:]

    def _refuse(self, sigma2: Scale) -> None:
        if not isinstance(sigma2, (int, float)) or sigma2 != 0:
            raise _no_exact("sigma2", "0 with a sum of products", sigma2, _ITERATE)


def added(left: KroneckerProduct | KroneckerProductSum, right: object) -> Operator:
    """The sum of Kronecker products, or sums of these; of others what all operators have."""
    if not isinstance(right, (KroneckerProduct, KroneckerProductSum)):
        return Operator.__add__(left, right)
    terms = [
        item.terms if isinstance(item, KroneckerProductSum) else (item,) for item in (left, right)
    ]
    return KroneckerProductSum([*terms[0], *terms[1]])


def _regularity(roots: list[Tensor]) -> float:
    """Of Cholesky factors, 1 for the identity and towards 0 for what is nearly singular: the least
    over a batch."""
    ratio = 1.0
    for root in roots:
        entries, framework = diagonal(without_gradient(root)), framework_of(root, "the root")
        ratio *= float((framework.amin(entries, -1) / framework.amax(entries, -1)).min())
    return ratio


def _congruent(root: Tensor, other: Tensor) -> Tensor:
    """L^-1 A L^-T."""
    half = solve_triangular(root, other, upper=False)
    return solve_triangular(root, turned(half), upper=False)


def _common(root: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """(w, V) of A and C = L L^T."""
    values, vectors = framework_of(root, "the root").linalg.eigh(_congruent(root, other))
    return values, solve_triangular(turned(root), vectors, upper=True)


def _no_exact(subject: str, expected: str, got: object, hint: str) -> ArgumentError:
    return ArgumentError(subject, expected=expected, got=got, hint=hint)
