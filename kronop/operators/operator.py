"""What all operators have: products from both sides, and what follows from eigenvalues."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Sequence
from operator import index, is_
from types import ModuleType
from typing import Any, NoReturn, Protocol, Self

from kronop.descriptions.shared import Array
from kronop.errors import ArgumentError, ElementTypeError
from kronop.operators.frameworks import (
    as_scale,
    as_tensor,
    batch_of,
    check_alike,
    framework_of,
    identity,
    is_torch,
    placed,
    taken,
    turned,
)
from kronop.tensors import Scale, Tensor


class Operator(abc.ABC):
    """A matrix (..., P, Q) that is not formed. Leading dimensions are batches, as in `matmul`.

    An operator is a value, which nothing changes. It is no frozen dataclass, because torch.compile
    takes those apart.
    """

    # Whether `eigh` decomposes it, if its factors are symmetric.
    decomposes = False
    # Arrays leave `x @ operator` and `x * operator` to the operator.
    __array_ufunc__ = None

    @functools.cached_property
    def memory(self) -> dict[str, tuple[list[Tensor], object]]:
        """What was computed of tensors: their values, and what it is. See `kept`."""
        return {}

    def __getstate__(self) -> dict[str, object]:
        """Copies and pickles compute anew."""
        return {name: value for name, value in self.__dict__.items() if name != "memory"}

    @property
    @abc.abstractmethod
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors that the operator is made of."""

    @abc.abstractmethod
    def like(self, tensors: Sequence[Tensor]) -> Self:
        """The operator that is made of other tensors in the same way."""

    def of(self, tensors: Sequence[Tensor]) -> Self:
        """The operator of these tensors: itself, with what it keeps, where they are its own."""
        return self if all(map(is_, self.tensors, tensors)) else self.like(tensors)

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, ...]:
        """(..., P, Q)."""

    @property
    @abc.abstractmethod
    def T(self) -> Self:
        """The transpose; of a batch, that of each matrix."""

    @property
    def mT(self) -> Self:
        """The transpose, under the name that it has for batches."""
        return self.T

    @property
    def H(self) -> Self:
        """The adjoint, which for real numbers is the transpose."""
        return self.T

    @property
    def mH(self) -> Self:
        """The adjoint, under the name that it has for batches."""
        return self.T

    @property
    def dtype(self) -> Any:
        """The framework's element type."""
        return self.tensors[0].dtype

    @property
    def framework(self) -> ModuleType:
        """NumPy, torch or CuPy."""
        return framework_of(self.tensors[0], "factors[0]")

    def __repr__(self) -> str:
        items = getattr(self, "factors", self.tensors)
        sizes = ", ".join("x".join(map(str, item.shape)) for item in items)
        kind = str(self.dtype).removeprefix("torch.")
        return f"{type(self).__name__}({sizes}; {self.framework.__name__} {kind})"

    @abc.abstractmethod
    def to_dense(self) -> Tensor:
        """The matrix, formed: (..., P, Q), of the factors' type, in which whole numbers wrap around
        (products of int8 factors are int32)."""

    @abc.abstractmethod
    def diagonal(self) -> Tensor:
        """The diagonal of a square operator: (..., N).

        Raises:
            ArgumentError: the operator, or a factor, is not square.
        """

    def trace(self) -> Tensor:
        """The sum of the diagonal of a square operator: (...).

        Raises:
            ArgumentError: the operator, or a factor, is not square.
        """
        return self.diagonal().sum(-1)

    @abc.abstractmethod
    def _multiply(self, x: Tensor) -> Tensor:
        """The product with checked columns (..., Q, C)."""

    def _multiply_rows(self, x: Tensor) -> Tensor:
        """The product of checked rows (..., C, P) and the operator."""
        return turned(self.T._multiply(turned(x)))

    def __matmul__(self, x: Array) -> Array:
        """operator @ x with x (Q,) or (..., Q, C).

        Returns:
            (P,), or (..., P, C), whose leading dimensions are broadcast with the operator's.

        Raises:
            ArgumentError: shapes or frameworks do not fit.
            ElementTypeError: x is no tensor, of another element type, or an operator.
        """
        if isinstance(x, Operator):
            raise _unsupported(
                "a product of operators",
                "two KroneckerOperators whose factors go together",
                f"{type(self).__name__} @ {type(x).__name__}",
                "apply one after the other: left @ (right @ x)",
            )
        self.check_columns(x, "x")
        return on_columns(self._multiply, x)

    def __rmatmul__(self, x: Array) -> Array:
        """x @ operator with x (P,) or (..., C, P)."""
        self._check_operand(x, "x", -1, self.shape[-2])
        if len(x.shape) > 1:
            found: Array = self._multiply_rows(x)
            return found
        return on_columns(self.T._multiply, x)

    def __mul__(self, scale: Scale) -> Self:
        """The operator times a number, or times a tensor over the leading dimensions."""
        return self._scaled(as_scale(scale, self.tensors[0]))

    __rmul__ = __mul__

    def __truediv__(self, divisor: Scale) -> Self:
        """The operator divided by a number, or by a tensor over the leading dimensions."""
        scale = as_scale(divisor, self.tensors[0], "the divisor")
        if isinstance(scale, (int, float)) and scale == 0:
            hint = "an operator divided by 0 has no products"
            raise ArgumentError(
                "the divisor", expected="a number other than 0", got=divisor, hint=hint
            )
        return self.__mul__(1 / scale)

    def __neg__(self) -> Self:
        return self * -1

    def __add__(self, other: object) -> Operator:
        """The sum with another operator; only some have one that is an operator."""
        if isinstance(other, int) and other == 0:  # What sum() begins with.
            return self
        if isinstance(other, (Operator, int, float)) or hasattr(other, "shape"):
            raise _unsupported(
                "a sum",
                "KroneckerOperators and their sums",
                f"{type(self).__name__} and {type(other).__name__}",
                "add the products with x, which kronop.cg takes as a function; a multiple of the"
                " identity is the sigma2 of solve, logdet and cg",
            )
        return NotImplemented

    __radd__ = __add__

    def __sub__(self, other: Operator | float) -> Operator:
        return self.__add__(-other)

    def __rsub__(self, other: object) -> Operator:
        return (-self).__add__(other)

    def __array__(self, *args: object, **options: object) -> NoReturn:
        """Refused, because NumPy would work on the matrix, or on an array of one object."""
        raise _unsupported(
            "a conversion to an array",
            "an array",
            f"{type(self).__name__}, which is not formed",
            "multiply by operator @ x, or form the matrix: to_dense()",
        )

    @abc.abstractmethod
    def _scaled(self, scale: Scale) -> Self:
        """The operator times a number, or times a tensor over the leading dimensions."""

    def submatrix(self, index: Tensor) -> Tensor:
        """The matrix (..., n, n) of the rows and columns at the index (n,)."""
        units = placed(identity(index.shape[0], self.tensors[0]), index, self.shape[-1])
        return taken(self @ units, index)

    def check_columns(self, x: Tensor, name: str) -> None:
        """Refuses what is not (Q,) or (..., Q, C), of the operator's framework and type."""
        self._check_operand(x, name, -2, self.shape[-1])

    def _check_operand(self, x: Tensor, name: str, at: int, length: int) -> None:
        check_alike(x, name, self.tensors[0], "the operator")
        shape = tuple(x.shape)
        if not shape or shape[max(at, -len(shape))] != length:
            wanted = f"(..., {length}, C)" if at == -2 else f"(..., {length})"
            raise ArgumentError(
                f"shape of {name}",
                expected=f"({length},) or {wanted} beside an operator {self.shape}",
                got=shape,
                hint="its rows meet the operator's columns"
                if at == -2
                else "its columns meet the operator's rows",
            )
        batch_of(self.shape[:-2], shape[:-2])

    def check_square(self, doing: str) -> None:
        """Refuses what only square operators have."""
        if self.shape[-1] != self.shape[-2]:
            raise ArgumentError(
                doing,
                expected="a square operator",
                got=f"shape {self.shape}",
                hint="svd() is of any operator",
            )

    @abc.abstractmethod
    def solve(self, b: Array, sigma2: Scale = 0.0) -> Array:
        """x with (operator + sigma2 I) x = b, for symmetric factors, by their eigendecompositions.

        Of torch tensors it is differentiable in b, every factor and sigma2, to any order. A
        gradient is one more solve and a product, and does not divide by differences of eigenvalues.

        Args:
            b: (N,) or (..., N, C): right-hand sides as columns.
            sigma2: a number, or a tensor that broadcasts with the leading dimensions.

        Returns:
            x, of b's shape, broadcast with the operator's leading dimensions.

        Raises:
            ArgumentError: the operator is not square, a factor is not symmetric, an eigenvalue
                plus sigma2 is 0, or b does not fit. As with LAPACK, an operator that is singular
                but for rounding is not noticed.
            ElementTypeError: element types are not float32 or float64, or differ.
        """

    def inverse(self) -> Operator:
        """The inverse (..., N, N); of symmetric factors, by their eigendecompositions.

        Raises:
            ArgumentError: a factor is not symmetric, or an eigenvalue is 0.
            ElementTypeError: the element type is neither float32 nor float64.
        """
        return self.eigh().inverse()

    def direct_solver(self) -> Callable[[Tensor, Tensor], Tensor]:
        """What solves for columns b (..., N, C) and a sigma2, by decompositions that are made
        once. It has no gradient with respect to them: see `systems`."""
        return self.eigh().shifted_solve

    @abc.abstractmethod
    def eigh(self) -> Decomposition:
        """The eigendecomposition, by those of the factors, which have to be symmetric.

        Returns:
            An operator that may be unpacked, `values, vectors = operator.eigh()`. Values (..., N)
            are in the order of the Kronecker product, not sorted; `vectors` is a
            KroneckerOperator whose columns are orthonormal.

        Raises:
            ArgumentError: a factor is not symmetric, or not finite.
            ElementTypeError: the element type is neither float32 nor float64.
        """

    @abc.abstractmethod
    def eigvalsh(self) -> Tensor:
        """The eigenvalues (..., N) of symmetric factors, in the order of `eigh`.

        Gradients of torch tensors exist for repeated eigenvalues too, as far as they are those of
        a function that treats them alike.

        Raises:
            ArgumentError, ElementTypeError: as of `eigh`.
        """

    def slogdet(self, sigma2: Scale = 0.0) -> tuple[Tensor, Tensor]:
        """`(sign, log |det|)` of operator + sigma2 I, each (...), as NumPy's slogdet.

        Args:
            sigma2: as for `solve`; where it is not the number 0, factors have to be symmetric.

        Raises:
            ArgumentError: the operator, or a factor, is not square, or one that has to be symmetric
                is not.
            ElementTypeError: the element type is neither float32 nor float64.
        """
        self.check_square("logdet")
        xp, values = self.framework, shifted(self.eigvalsh(), sigma2)
        return xp.sign(values).prod(-1), xp.log(abs(values)).sum(-1)

    def logdet(self, sigma2: Scale = 0.0) -> Tensor:
        """log det(operator + sigma2 I), (...): NaN where the determinant is negative, as torch's.

        Args:
            sigma2: as for `solve`; where it is not the number 0, factors have to be symmetric.

        Raises:
            ArgumentError, ElementTypeError: as of `slogdet`.
        """
        sign, logarithm = self.slogdet(sigma2)
        return self.framework.where(sign < 0, as_tensor(float("nan"), logarithm, "NaN"), logarithm)

    def apply(self, function: Callable[[Tensor], Tensor]) -> Operator:
        """function(operator): Q diag(function(values)) Q^T, for symmetric factors.

        Args:
            function: takes the eigenvalues (..., N) as a tensor and returns as many. It gets those
                that are below 0 by rounding as they are, where `sqrt` and `**` count them as 0.

        Raises:
            ArgumentError: a factor is not symmetric, or the function's result is of another shape
                or type.
            ElementTypeError: the element type is neither float32 nor float64.
        """
        return self.eigh().apply(function)

    def sqrt(self) -> Operator:
        """The symmetric root (..., N, N) of a positive semidefinite operator of symmetric factors.

        Raises:
            ArgumentError: a factor is not symmetric, or an eigenvalue is negative by more than
                rounding.
            ElementTypeError: the element type is neither float32 nor float64.
        """
        return self.eigh().sqrt()

    def exp(self) -> Operator:
        """The matrix exponential (..., N, N), for symmetric factors.

        Raises:
            ArgumentError, ElementTypeError: as of `eigh`.
        """
        return self.apply(self.framework.exp)

    def __pow__(self, exponent: float) -> Operator:
        """The power of an operator of symmetric factors.

        With a whole exponent, also one that is a float, any such operator has one. With another
        one eigenvalues count as they do for `sqrt`: those below 0 by rounding are 0.

        Raises:
            ArgumentError: a factor is not symmetric, an eigenvalue is 0 and the exponent negative,
                or an eigenvalue is negative and the exponent not whole.
            ElementTypeError: the exponent is no real number.
        """
        return self.eigh() ** exponent

    def preconditioner(self, sigma2: Tensor, rtol: float) -> Callable[[Tensor], Tensor] | None:
        """What `cg` is preconditioned by if it is given nothing: a function of columns that nearly
        solves, to a relative residual of this size, or None."""
        return None


class Decomposition(Protocol):
    """The part of a `SpectralOperator` that other operators use."""

    @property
    def values(self) -> Tensor: ...

    def shifted_solve(self, b: Tensor, sigma2: Scale) -> Tensor: ...

    def inverse(self) -> Operator: ...

    def apply(self, function: Callable[[Tensor], Tensor]) -> Operator: ...

    def sqrt(self) -> Operator: ...

    def __pow__(self, exponent: float) -> Operator: ...


def _unsupported(subject: str, expected: str, got: str, hint: str) -> ElementTypeError:
    return ElementTypeError(subject, expected=expected, got=got, hint=hint)


def on_columns(function: Callable[[Tensor], Tensor], x: Array) -> Array:
    """The function of columns (..., N, C), for a vector as well."""
    found: Array = function(x[..., None])[..., 0] if len(x.shape) == 1 else function(x)
    return found


def shifted(values: Tensor, sigma2: Scale) -> Tensor:
    """values (..., N) + sigma2 (...)."""
    return values + as_tensor(sigma2, values, "sigma2")[..., None]


def whole(exponent: Any) -> Scale:
    """An exponent as an int where it is a whole number, of whatever type; any other one as it is.

    A torch tensor that requires a gradient stays one.
    """
    if not getattr(exponent, "shape", (1,)):
        if getattr(exponent, "requires_grad", False):
            return exponent
        exponent = exponent.item()
    if isinstance(exponent, float):
        return int(exponent) if exponent.is_integer() else exponent
    try:
        return index(exponent)
    except TypeError as error:
        raise ElementTypeError(
            "the exponent", expected="a real number", got=exponent, hint="pass a float"
        ) from error


def detached(operator: Operator) -> Operator:
    """The same operator without gradients."""
    if not is_torch(operator.framework):
        return operator
    return operator.like([item.detach() for item in operator.tensors])
