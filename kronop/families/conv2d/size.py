"""The extents of convolutions that may vary between runs of one operation."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Self

from kronop.errors import ArgumentError
from kronop.families.gemm.size import GemmSize
from kronop.frozen import dataclass
from kronop.size import bucket_of, extent_of

MOST_STEP = 2**31 - 1
"""The most that strides, padding and dilation may be: kernels' coordinates have 32 bits."""
_STEPS = ("pad_h", "pad_w", "stride_h", "stride_w", "dilation_h", "dilation_w")
_LEAST_ONE = ("r", "s", *_STEPS[2:], "groups", "slices")
_HINT = "a size is arguments.size, or kronop.conv.Conv2dProblemSize(...).size"


@dataclass(frozen=True, slots=True)
class Conv2dSize:
    """N images of H x W pixels of C channels, K filters of R x S pixels, N results of P x Q pixels
    of K channels.

    Attributes:
        n, h, w, c: extents of the images.
        k, r, s: extents of the filters, each of which has c / groups channels.
        p, q: extents of the results; -1 for those that torch computes.
        pad_h, pad_w: zeros above and left of an image.
        stride_h, stride_w, dilation_h, dilation_w: distances of patches, and of a patch's pixels.
        groups: the channels and filters are divided in so many groups.
        slices: into how many parts sums are cut at least; 1 leaves that to the plan.
        flipped: filters are flipped in both directions (a convolution in the mathematical sense).

    Raises:
        ArgumentError: an extent is no integer, or too small; channels or filters are no multiples
            of the groups.
    """

    n: int
    h: int = 9
    w: int = 7
    c: int = 8
    k: int = 16
    r: int = 3
    s: int = 2
    p: int = -1
    q: int = -1
    pad_h: int = 0
    pad_w: int = 0
    stride_h: int = 1
    stride_w: int = 1
    dilation_h: int = 1
    dilation_w: int = 1
    groups: int = 1
    slices: int = 1
    flipped: bool = False

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            is_open = item.name in ("p", "q") and value == -1
            if item.name != "flipped" and not is_open:
                value = extent_of(f"extent {item.name}", value, _HINT)
                object.__setattr__(self, item.name, value)
        for name in _LEAST_ONE:
            if not getattr(self, name):
                raise ArgumentError(name, expected="at least 1", got="0", hint=_HINT)
        for name in _STEPS:
            if (value := getattr(self, name)) > MOST_STEP:
                raise ArgumentError(name, expected=f"at most {MOST_STEP}", got=value, hint=_HINT)
        for name, extent in (("p", self._output("h", self.r)), ("q", self._output("w", self.s))):
            if getattr(self, name) == -1:
                object.__setattr__(self, name, extent)
        check_groups(self.groups, self.c, self.k)

    def _output(self, axis: str, extent: int) -> int:
        """Pixels of a result along an axis, for `extent` pixels of a filter."""
        along, pad, stride, dilation = (
            getattr(self, name)
            for name in (axis, f"pad_{axis}", f"stride_{axis}", f"dilation_{axis}")
        )
        count: int = (along + 2 * pad - dilation * (extent - 1) - 1) // stride + 1
        return max(0, count)

    def __bool__(self) -> bool:
        return any(map(math.prod, shapes_of(self).values()))

    @property
    def rows(self) -> int:
        return self.n

    @property
    def channels(self) -> int:
        """Channels of a filter."""
        return self.c // self.groups

    @property
    def filters(self) -> int:
        """Filters of a group."""
        return self.k // self.groups

    @property
    def products(self) -> int:
        """Multiply-adds of the convolution; those with padding count."""
        return self.n * self.p * self.q * self.k * self.r * self.s * self.channels

    def product(self, extents: tuple[int, int, int]) -> GemmSize:
        """The size of the matrix products, of M, N and K of a group, as which it is computed."""
        return GemmSize(*extents, self.groups, self.slices)

    def bucket(self) -> Self:
        """The same with a number of images that stands for others: layers have fixed extents."""
        return dataclasses.replace(self, n=bucket_of(self.n) if self.n else 0)

    def told(self) -> str:
        groups = f" in {self.groups} groups" if self.groups > 1 else ""
        return f"{self._images(str(self.n))}{groups}"

    def served(self) -> str:
        return self._images(f"{self.n} to {2 * self.n - 1}" if self.n > 1 else str(self.n))

    def _images(self, count: str) -> str:
        steps = (
            f"/{self.stride_h}x{self.stride_w}" if (self.stride_h, self.stride_w) != (1, 1) else ""
        )
        images = "image" if count == "1" else "images"
        filters = "filter" if self.k == 1 else "filters"
        return (
            f"{count} {images} {self.h}x{self.w}x{self.c}, {self.k} {filters}"
            f" {self.r}x{self.s}{steps}"
        )

    def times(self, batch: int) -> Self:
        return dataclasses.replace(self, n=self.n * batch)


def check_groups(groups: int, c: int, k: int) -> None:
    """Raises ArgumentError unless all groups have as many channels, and as many filters."""
    if c % groups or k % groups:
        raise ArgumentError(
            "groups",
            expected=f"a divisor of {c} channels and {k} filters",
            got=groups,
            hint="each group has as many channels, and as many filters",
        )


def as_size(size: Any) -> Conv2dSize:
    """The size, or that of small images if only their number is given."""
    return size if isinstance(size, Conv2dSize) else Conv2dSize(size)


def shapes_of(size: Conv2dSize) -> dict[str, tuple[int, ...]]:
    """The shapes of images, filters and results, channels last."""
    return {
        "images": (size.n, size.h, size.w, size.c),
        "filters": (size.k, size.r, size.s, size.channels),
        "results": (size.n, size.p, size.q, size.k),
    }


# What plans are made for where no size is known, for GPUs and for CPUs.
USUAL = {
    "cuda": Conv2dSize(64, 56, 56, 64, 64, 3, 3, pad_h=1, pad_w=1),
    "x86": Conv2dSize(4, 56, 56, 64, 64, 3, 3, pad_h=1, pad_w=1),
}
