"""Kernels of kernels: sums, products and multiples.

A kernel may be part of several others, and in them to any depth: `k = k * k` ten times, or the sum
of thousands. So what walks over kernels takes each once, and does not recurse.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, fields  # torch.compile can trace its constructors.
from typing import Any

import numpy as np

from kronop.descriptions.expression import Expression, apply
from kronop.descriptions.ordered import in_order
from kronop.families.distance.builder import Builder
from kronop.families.distance.form import Bound
from kronop.families.distance.values import FINITE, checked

# A kernel whose parts take more characters is shown without them.
_MOST_SHOWN = 1000


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
        written: dict[int, Expression] = {}
        for kernel in _every(self):
            parts = [written[id(part)] for part in kernel._parts()]
            written[id(kernel)] = kernel._composed(builder, *parts)
        return builder.finish(written[id(self)], regularization)

    def _parts(self) -> tuple[Kernel, ...]:
        """The kernels that it is composed of."""
        return ()

    def _composed(self, builder: Builder, *parts: Expression) -> Expression:
        """What it computes of what its parts compute."""
        return self._expression(builder)

    def _expression(self, builder: Builder) -> Expression:
        """What it computes, if it has no parts."""
        raise NotImplementedError


class Composed(Kernel):
    """A kernel with parts, which are among its fields."""

    __slots__ = ()

    def __repr__(self) -> str:
        texts: dict[int, str] = {}
        for kernel in _every(self):
            if isinstance(kernel, Composed):
                every = kernel._fields().items()
                told = ", ".join([f"{name}={texts.get(id(it)) or repr(it)}" for name, it in every])
                told = told if len(told) <= _MOST_SHOWN else "..."
                texts[id(kernel)] = f"{type(kernel).__name__}({told})"
            else:
                texts[id(kernel)] = repr(kernel)
        return texts[id(self)]

    def __reduce__(self) -> tuple[Any, ...]:
        # (the kernel, None), or (its class, whether each field is the place of a part and it).
        rows: list[tuple[Any, Any]] = []
        places: dict[int, int] = {}
        for kernel in _every(self):
            places[id(kernel)] = len(rows)
            if isinstance(kernel, Composed):
                given = [(id(it) in places, it) for it in kernel._fields().values()]
                told = [(is_part, places[id(it)] if is_part else it) for is_part, it in given]
                rows.append((type(kernel), told))
            else:
                rows.append((kernel, None))
        return _made, (rows,)

    def _fields(self) -> dict[str, Any]:
        return {item.name: getattr(self, item.name) for item in fields(self)}  # type: ignore[arg-type]


def _every(kernel: Kernel) -> list[Kernel]:
    """The kernel, and before it those that it is composed of, each once."""
    return in_order([kernel], lambda item: item._parts()) if kernel._parts() else [kernel]


# The bound form that a kernel had last, with what it was asked for.
_last: weakref.WeakKeyDictionary[Kernel, tuple[tuple[int, Any], Bound]]
_last = weakref.WeakKeyDictionary()


def bound_of(kernel: Kernel, batch_dims: int, regularization: Any = None) -> Bound:
    """`kernel.bound`, which a repeated call finds.

    Kernels do not change, but the numbers in NumPy's arrays may, and forms depend on these.
    """
    if regularization is not None and type(regularization) not in (int, float):
        return kernel.bound(batch_dims, regularization)
    wanted = (batch_dims, regularization)
    known = _last.get(kernel)
    if known is not None and known[0] == wanted:
        return known[1]
    bound = kernel.bound(*wanted)
    if not any(isinstance(item, np.ndarray) for item in (*bound.values, *bound.vectors)):
        _last[kernel] = (wanted, bound)
    return bound


def _made(rows: Sequence[tuple[Any, Any]]) -> Kernel:
    """The kernel of `Composed.__reduce__`."""
    made: list[Kernel] = []
    for kind, told in rows:
        if told is None:
            made.append(kind)
        else:
            made.append(kind(*[made[item] if is_part else item for is_part, item in told]))
    return made[-1]


@dataclass(frozen=True, eq=False, repr=False)
class Sum(Composed):
    """The sum of two kernels."""

    first: Kernel
    second: Kernel

    def __post_init__(self) -> None:
        object.__setattr__(self, "_fades", self.first._fades and self.second._fades)

    def _parts(self) -> tuple[Kernel, ...]:
        return self.first, self.second

    def _composed(self, builder: Builder, *parts: Expression) -> Expression:
        return parts[0] + parts[1]


@dataclass(frozen=True, eq=False, repr=False)
class Product(Composed):
    """The product of two kernels."""

    first: Kernel
    second: Kernel

    def __post_init__(self) -> None:
        object.__setattr__(self, "_fades", self.first._fades or self.second._fades)

    def _parts(self) -> tuple[Kernel, ...]:
        return self.first, self.second

    def _composed(self, builder: Builder, *parts: Expression) -> Expression:
        if self.first._fades == self.second._fades:
            return parts[0] * parts[1]
        return apply("fade", *(parts if self.first._fades else reversed(parts)))


@dataclass(frozen=True, eq=False, repr=False)
class Scaled(Composed):
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

    def _parts(self) -> tuple[Kernel, ...]:
        return (self.kernel,)

    def _composed(self, builder: Builder, *parts: Expression) -> Expression:
        return builder.value("scale", self.scale) * parts[0]
