"""Kernel functions of pairs of points: `kronop.kernels.Gaussian(bandwidth=0.5)`.

They can be added, multiplied with each other, and scaled: `2 * Gaussian(0.5) + Linear()` is a
kernel too, and is compiled into one function. Their values are numbers or tensors. A tensor
broadcasts over the batch of the points: its shape is that of their leading dimensions, or () for
one value. A list is an array of one dimension. A bandwidth with one more dimension than the points
have leading ones has one element per feature (automatic relevance determination): d_k is divided by
the element k. Numbers, lists and NumPy's arrays have to be finite, bandwidths positive.

In the formulas `d = x - y`, `|d|_p` is the p-norm, and `l` the bandwidth.

Example:
    >>> x, y = np.array([[0.0, 0.0], [3.0, 4.0]]), np.zeros((1, 2))
    >>> kronop.kernel_matrix(x, y, kronop.kernels.Gaussian(bandwidth=5.0)).round(4).tolist()
    [[1.0], [0.6065]]
"""

from __future__ import annotations

import math
from dataclasses import dataclass  # torch.compile can trace its constructors.
from typing import TYPE_CHECKING, Any

import numpy as np

from kronop.descriptions.expression import Expression, apply, lift
from kronop.descriptions.shared import check_flag
from kronop.errors import ArgumentError, ElementTypeError, mismatch
from kronop.families.distance.builder import Builder
from kronop.families.distance.form import Bound, TermKind
from kronop.families.distance.values import (
    FINITE,
    NOT_NEGATIVE,
    checked,
    checked_power,
    chosen,
    short,
)

__all__ = [
    "Cosine",
    "Gaussian",
    "Kernel",
    "Laplace",
    "Linear",
    "Matern",
    "Polynomial",
    "PowerNorm",
    "RationalQuadratic",
    "Scaled",
]


# Differences are divided by wider bandwidths, and by those below its reciprocal, before they are
# squared.
_MOST_WIDTH = 2.0**48


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        raise AttributeError(
            f"kronop.kernels has no {name!r}, but {', '.join(__all__)}; the radial basis function"
            " (RBF, squared exponential) is Gaussian"
        )


class Kernel:
    """The base of all kernels: sums, products and multiples of them are kernels.

    Example:
        >>> kernel = kronop.kernels.Gaussian(bandwidth=0.5) / 2 + kronop.kernels.Linear()
        >>> isinstance(kernel, kronop.kernels.Kernel)
        True
        >>> kernel.first
        Scaled(scale=0.5, kernel=Gaussian(bandwidth=0.5))
    """

    __slots__ = ()
    # Whether it falls to 0 faster than others grow: times infinity it is 0 then.
    _fades = False

    def __add__(self, other: Kernel) -> Kernel:
        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Any) -> Kernel:
        if isinstance(other, Kernel):
            return Product(self, other)
        return Scaled(other, self)

    __rmul__ = __mul__

    def __radd__(self, other: Any) -> Kernel:
        # Python's sum of a list of kernels starts with 0.
        is_zero = isinstance(other, (int, float)) and other == 0
        return self if is_zero else NotImplemented

    def __truediv__(self, other: Any) -> Kernel:
        return Scaled(1.0 / other, self)

    # Makes NumPy leave `array * kernel` to the kernel, instead of multiplying each element.
    __array_ufunc__ = None

    def bound(self, batch_dims: int = 0, regularization: Any = None) -> Bound:
        """The compiled form and the values.

        Args:
            batch_dims: the number of leading dimensions of the points.
            regularization: what is added on the diagonal; None or the number 0 for nothing.
        """
        builder = Builder(batch_dims)
        if isinstance(regularization, (int, float)) and regularization == 0:
            regularization = None
        if regularization is not None:
            regularization = checked("regularization", regularization, FINITE)
        return builder.finish(self._expression(builder), regularization)

    def _expression(self, builder: Builder) -> Expression:
        raise NotImplementedError


def check_kernel(kernel: object) -> None:
    """Raises ElementTypeError unless it is a kernel."""
    if not isinstance(kernel, Kernel):
        raise ElementTypeError(
            mismatch(
                "kernel",
                expected="one of kronop.kernels",
                got=short(kernel),
                hint="for example kronop.kernels.Gaussian(bandwidth=0.5)",
            )
        )


def _is_extreme(bandwidth: Any) -> bool:
    """Whether squares of distances about as large as a bandwidth may leave the range of float32.
    Tensors, which may be on a GPU, are not looked into."""
    if isinstance(bandwidth, float):
        return not 1 / _MOST_WIDTH <= bandwidth <= _MOST_WIDTH
    return isinstance(bandwidth, np.ndarray) and any(map(_is_extreme, bandwidth.ravel().tolist()))


def _scaled_by(builder: Builder, kind: TermKind, bandwidth: Any) -> tuple[Expression, Any]:
    """(the sum of that kind, the bandwidth that it still has to be divided by or 1)."""
    if builder.is_vector(bandwidth) or _is_extreme(bandwidth):
        return builder.term(kind, vector=builder.vector("bandwidth", bandwidth)), lift(1.0)
    return builder.term(kind), builder.value("bandwidth", bandwidth)


def _distance(builder: Builder, bandwidth: Any) -> Expression:
    """|d|_2 / l."""
    square, width = _scaled_by(builder, TermKind.Two, bandwidth)
    return apply("divide", apply("sqrt", square), width)


def _square(builder: Builder, bandwidth: Any, factor: float) -> Expression:
    """|d|_2^2 / l^2 times a factor."""
    square, width = _scaled_by(builder, TermKind.Two, bandwidth)
    return over_square(square, width, factor)


def over_square(value: Expression, width: Expression, factor: float) -> Expression:
    """A value over the square of a width, times a factor. The square itself may leave the range of
    the type."""
    if width == lift(1.0):
        return value * factor
    reciprocal = apply("divide", 1.0, width)
    return value * (reciprocal * factor) * reciprocal


@dataclass(frozen=True, eq=False)
class Gaussian(Kernel):
    """`exp(-|d|_2^2 / (2 l^2))`, the radial basis function or squared exponential (Rasmussen and
    Williams, Gaussian Processes for Machine Learning, equation 4.9).

    Args:
        bandwidth: l, positive.

    Raises:
        ArgumentError, ElementTypeError: a bandwidth that is not positive.

    Example:
        >>> x, y = np.array([[0.0, 0.0], [3.0, 4.0]]), np.zeros((1, 2))
        >>> kronop.kernel_matrix(x, y, kronop.kernels.Gaussian(bandwidth=5.0)).round(4).tolist()
        [[1.0], [0.6065]]
    """

    bandwidth: Any

    _fades = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "bandwidth", checked("bandwidth", self.bandwidth))

    def _expression(self, builder: Builder) -> Expression:
        return apply("exp", _square(builder, self.bandwidth, -0.5))


@dataclass(frozen=True, eq=False)
class Laplace(Kernel):
    """`exp(-|d|_norm / l)`, the exponential of a distance.

    Args:
        bandwidth: l, positive.
        norm: 1 or 2.

    Raises:
        ArgumentError, ElementTypeError: another norm, or a bandwidth that is not positive.

    Example:
        >>> x, y = np.array([[0.0, 0.0], [3.0, 4.0]]), np.zeros((1, 2))
        >>> kronop.kernel_matrix(x, y, kronop.kernels.Laplace(bandwidth=7.0)).round(4).tolist()
        [[1.0], [0.3679]]
    """

    bandwidth: Any
    norm: int = 1

    _fades = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "bandwidth", checked("bandwidth", self.bandwidth))
        object.__setattr__(self, "norm", chosen("norm", self.norm, (1, 2)))

    def _expression(self, builder: Builder) -> Expression:
        if self.norm == 1:
            total, width = _scaled_by(builder, TermKind.One, self.bandwidth)
            return apply("exp", apply("divide", total, width) * -1.0)
        return apply("exp", _distance(builder, self.bandwidth) * -1.0)


@dataclass(frozen=True, eq=False)
class Matern(Kernel):
    """The Matérn kernel of `r = |d|_2 / l`, for three smoothnesses that need no Bessel function::

        nu = 1/2: exp(-r)
        nu = 3/2: (1 + sqrt(3) r) exp(-sqrt(3) r)
        nu = 5/2: (1 + sqrt(5) r + 5 r^2 / 3) exp(-sqrt(5) r)

    (Rasmussen and Williams, Gaussian Processes for Machine Learning, equations 4.14 and 4.17.)

    Args:
        nu: 0.5, 1.5 or 2.5.
        bandwidth: l, positive.

    Raises:
        ArgumentError, ElementTypeError: another nu, or a bandwidth that is not positive.

    Example:
        >>> x, y = np.array([[0.0, 0.0], [3.0, 4.0]]), np.zeros((1, 2))
        >>> kronop.kernel_matrix(x, y, kronop.kernels.Matern(1.5, bandwidth=5.0)).round(4).tolist()
        [[1.0], [0.4834]]
    """

    nu: float
    bandwidth: Any

    _fades = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "bandwidth", checked("bandwidth", self.bandwidth))
        object.__setattr__(self, "nu", chosen("nu", self.nu, (0.5, 1.5, 2.5)))

    def _expression(self, builder: Builder) -> Expression:
        r = _distance(builder, self.bandwidth) * math.sqrt(2 * self.nu)
        decay = apply("exp", r * -1.0)
        if self.nu == 0.5:
            return decay
        if self.nu == 1.5:
            return apply("fade", decay, r + 1.0)
        return apply("fade", decay, r * r * (1 / 3) + r + 1.0)


@dataclass(frozen=True, eq=False)
class RationalQuadratic(Kernel):
    """`(1 + |d|_2^2 / (2 alpha l^2))^-alpha`, the rational quadratic kernel (Rasmussen and
    Williams, equation 4.19).

    Args:
        alpha: the mixture of length scales, positive.
        bandwidth: l, positive.

    Raises:
        ArgumentError, ElementTypeError: a value that is not positive.

    Example:
        >>> x, y = np.array([[0.0, 0.0], [3.0, 4.0]]), np.zeros((1, 2))
        >>> kronop.kernel_matrix(x, y, kronop.kernels.RationalQuadratic(1.0, 5.0)).round(4).tolist()
        [[1.0], [0.6667]]
    """

    alpha: Any
    bandwidth: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", checked("alpha", self.alpha))
        object.__setattr__(self, "bandwidth", checked("bandwidth", self.bandwidth))

    def _expression(self, builder: Builder) -> Expression:
        alpha = builder.value("alpha", self.alpha)
        ratio = apply("divide", _square(builder, self.bandwidth, 0.5), alpha)
        return apply("power", ratio + 1.0, alpha * -1.0)


@dataclass(frozen=True, eq=False)
class PowerNorm(Kernel):
    """`|d|_p`, the distance in the p-norm, or (`root` is False) `|d|_p^p`, the sum of the powers.

    p = 0 counts the features that differ, p = infinity takes the largest difference; both are the
    same without the root.

    Args:
        p: a number of at least 0, or a tensor of positive and finite powers.
        root: whether the p-th root of the sum is taken.

    Raises:
        ArgumentError, ElementTypeError: a power that is none of these.

    Example:
        >>> x, y = np.array([[0.0, 0.0], [3.0, 4.0]]), np.zeros((1, 2))
        >>> kronop.kernel_matrix(x, y, kronop.kernels.PowerNorm(2)).tolist()
        [[0.0], [5.0]]
    """

    p: Any
    root: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", checked_power("p", self.p))
        check_flag("root", self.root)

    def _expression(self, builder: Builder) -> Expression:
        total, exponent = builder.power_of("p", self.p)
        if not self.root or exponent in (1.0, 0.0):
            return total
        if exponent == 0.5:
            return apply("sqrt", total)
        return apply("power", total, exponent)


@dataclass(frozen=True, eq=False)
class Linear(Kernel):
    """The inner product of x and y.

    Example:
        >>> x, y = np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]])
        >>> kronop.kernel_matrix(x, y, kronop.kernels.Linear()).tolist()
        [[11.0]]
    """

    def _expression(self, builder: Builder) -> Expression:
        return builder.term(TermKind.Dot)


@dataclass(frozen=True, eq=False)
class Polynomial(Kernel):
    """`(x . y + offset)^degree`, a power of the inner product.

    Args:
        degree: a positive integer.
        offset: at least 0.

    Raises:
        ArgumentError, ElementTypeError: a degree or an offset that is not as above.

    Example:
        >>> x, y = np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]])
        >>> kronop.kernel_matrix(x, y, kronop.kernels.Polynomial(2, offset=1.0)).tolist()
        [[144.0]]
    """

    degree: int
    offset: Any = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "offset", checked("offset", self.offset, NOT_NEGATIVE))
        if type(self.degree) is not int or self.degree < 1:
            raise ArgumentError(
                mismatch(
                    "degree", expected="a positive integer", got=repr(self.degree), hint="take 2"
                )
            )

    def _expression(self, builder: Builder) -> Expression:
        base = builder.term(TermKind.Dot) + builder.value("offset", self.offset)
        found, rest = None, self.degree
        while rest:
            if rest % 2:
                found = base if found is None else found * base
            base, rest = base * base, rest // 2
        assert found is not None
        return found


@dataclass(frozen=True, eq=False)
class Cosine(Kernel):
    """The cosine of the angle between x and y; 0 where one of them is 0.

    Example:
        >>> x, y = np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]])
        >>> kronop.kernel_matrix(x, y, kronop.kernels.Cosine()).round(4).tolist()
        [[0.9839]]
    """

    def _expression(self, builder: Builder) -> Expression:
        dot, of_x, of_y = map(builder.term, (TermKind.Dot, TermKind.NormA, TermKind.NormB))
        return dot * apply("inverse", apply("sqrt", of_x) * apply("sqrt", of_y))


@dataclass(frozen=True, eq=False)
class Sum(Kernel):
    """The sum of two kernels."""

    first: Kernel
    second: Kernel

    def __post_init__(self) -> None:
        object.__setattr__(self, "_fades", self.first._fades and self.second._fades)

    def _expression(self, builder: Builder) -> Expression:
        return self.first._expression(builder) + self.second._expression(builder)


@dataclass(frozen=True, eq=False)
class Product(Kernel):
    """The product of two kernels."""

    first: Kernel
    second: Kernel

    def __post_init__(self) -> None:
        object.__setattr__(self, "_fades", self.first._fades or self.second._fades)

    def _expression(self, builder: Builder) -> Expression:
        first, second = (item._expression(builder) for item in (self.first, self.second))
        if self.first._fades == self.second._fades:
            return first * second
        return apply("fade", first, second) if self.first._fades else apply("fade", second, first)


@dataclass(frozen=True, eq=False)
class Scaled(Kernel):
    """A kernel times a number or a tensor of one value per problem of the batch: what
    `scale * kernel` gives. torch.compile traces this, where it does not trace the product.

    Raises:
        ArgumentError, ElementTypeError: a scale that is not finite.

    Example:
        >>> 2.0 * kronop.kernels.Gaussian(bandwidth=0.5)
        Scaled(scale=2.0, kernel=Gaussian(bandwidth=0.5))
    """

    scale: Any
    kernel: Kernel

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", checked("scale", self.scale, FINITE))
        object.__setattr__(self, "_fades", self.kernel._fades)

    def _expression(self, builder: Builder) -> Expression:
        return builder.value("scale", self.scale) * self.kernel._expression(builder)
