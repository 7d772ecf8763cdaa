"""Kernel functions of pairs of points: `kronop.kernels.Gaussian(bandwidth=0.5)`.

They can be added, multiplied with each other, and scaled: `2 * Gaussian(0.5) + Linear()` is a
kernel too, and is compiled into one function. Their values are numbers or tensors. A tensor
broadcasts with the leading dimensions of the points. A list is an array of one dimension. A
bandwidth with more dimensions than the points have leading ones has one element per feature in its
last (automatic relevance determination), or a single one: d_k is divided by the element k. Numbers,
lists and NumPy's arrays have to be finite, bandwidths positive.

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

from kronop.descriptions.expression import Expression, apply, is_one, lift
from kronop.descriptions.shared import check_flag
from kronop.errors import ArgumentError, ElementTypeError
from kronop.families.distance.builder import Builder
from kronop.families.distance.composed import Kernel, Scaled
from kronop.families.distance.form import TermKind
from kronop.families.distance.values import NOT_NEGATIVE, checked, checked_power, chosen, short

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


def check_kernel(kernel: object) -> None:
    """Raises ElementTypeError unless it is a kernel."""
    if not isinstance(kernel, Kernel):
        raise ElementTypeError(
            "kernel",
            expected="one of kronop.kernels",
            got=short(kernel),
            hint="for example kronop.kernels.Gaussian(bandwidth=0.5)",
        )


def _is_extreme(bandwidth: Any) -> bool:
    """Whether squares of distances about as large as a bandwidth may leave the range of float32.
    Tensors, which may be on a GPU, are not looked into."""
    if isinstance(bandwidth, np.ndarray):
        return bool(((bandwidth < 1 / _MOST_WIDTH) | (bandwidth > _MOST_WIDTH)).any())
    return isinstance(bandwidth, float) and not 1 / _MOST_WIDTH <= bandwidth <= _MOST_WIDTH


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
    if is_one(width):
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
        return (builder.norm if self.root else builder.sum_of_powers)("p", self.p)


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
                "degree", expected="a positive integer", got=repr(self.degree), hint="take 2"
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
        # Each scale is that of one point, and so is computed once for many pairs.
        return dot * apply("inverse_root", of_x) * apply("inverse_root", of_y)
