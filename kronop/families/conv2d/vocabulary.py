"""PyCUTLASS's words for convolutions: kinds, iterators, layouts, sizes."""

from __future__ import annotations

import enum
from typing import Any

from kronop.descriptions.datatype import INTERLEAVED_TYPES, TENSOR_TYPES, AnyLayout, DataType
from kronop.errors import ArgumentError, ElementTypeError
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.gemm.vocabulary import Extent, MatrixCoord
from kronop.frozen import dataclass
from kronop.size import extent_of


class TensorLayout(AnyLayout):
    """How images, filters and results of a convolution lie in memory.

    Attributes:
        TensorNHWC: (N, H, W, C), (K, R, S, C / groups) and (N, P, Q, K), the last axis contiguous;
            torch calls it channels_last.
        TensorNC32HW32: images (N, C/32, H, W, 32) and results (N, K/32, P, Q, 32) of int8.
        TensorC32RSK32: filters (C/32, R, S, K, 32) of int8.

    Example:
        >>> kronop.TensorDescription(kronop.float16, kronop.TensorNHWC, 8).layout
        kronop.TensorNHWC
    """

    TensorNHWC = "channels last"
    TensorNC32HW32 = "images in panels of 32 channels"
    TensorC32RSK32 = "filters in panels of 32 channels"

    @property
    def interleaved(self) -> bool:
        """Whether 32 channels are contiguous, in place of all."""
        return self is not TensorLayout.TensorNHWC

    @property
    def elements(self) -> tuple[DataType, ...]:
        return INTERLEAVED_TYPES if self.interleaved else tuple(TENSOR_TYPES.values())


TensorNHWC = TensorLayout.TensorNHWC
TensorNC32HW32 = TensorLayout.TensorNC32HW32
TensorC32RSK32 = TensorLayout.TensorC32RSK32


class Operator(enum.Enum):
    """What a convolution computes: D from A and B.

    Attributes:
        fprop: the results, from images and filters.
        dgrad: the gradient of the images, from that of the results and the filters.
        wgrad: the gradient of the filters, from that of the results and the images.

    Example:
        >>> [item.name for item in kronop.conv.Operator]
        ['fprop', 'dgrad', 'wgrad']
    """

    fprop = "fprop"
    dgrad = "dgrad"
    wgrad = "wgrad"

    @property
    def tensors(self) -> tuple[str, str, str]:
        """What A, B and C are: "images", "filters" and "results"."""
        return {
            "fprop": ("images", "filters", "results"),
            "dgrad": ("results", "filters", "images"),
            "wgrad": ("results", "images", "filters"),
        }[self.value]

    def extents(self, size: Conv2dSize) -> tuple[int, int, int]:
        """M, N and K of the matrix products, one for each group, as which it is computed."""
        s = size
        return {
            "fprop": (s.n * s.p * s.q, s.filters, s.r * s.s * s.channels),
            "dgrad": (s.n * s.h * s.w, s.channels, s.r * s.s * s.filters),
            "wgrad": (s.filters, s.r * s.s * s.channels, s.n * s.p * s.q),
        }[self.value]


class IteratorAlgorithm(enum.Enum):
    """How CUTLASS's kernels find the elements of A and B; kronop's own kernels take no notice.

    Attributes:
        analytic: any problem.
        optimized: the filter has at most 32 x 32 pixels, among other bounds; faster.
        fixed_channels: of fprop: C is the alignment.
        few_channels: of fprop: C is a multiple of the alignment, and small.
    """

    analytic = "analytic"
    optimized = "optimized"
    fixed_channels = "fixed_channels"
    few_channels = "few_channels"


class StrideSupport(enum.Enum):
    """Which strides an operation takes: any, or 1 alone."""

    Strided = "strided"
    Unity = "unity"


class Mode(enum.Enum):
    """Whether filters are flipped in both directions (convolution), or not (cross_correlation,
    which networks have)."""

    convolution = "convolution"
    cross_correlation = "cross-correlation"


class SplitKMode(enum.Enum):
    """How slices of a sum are added up: by the kernel itself, or by a `ReductionOperation`."""

    Serial = "serial"
    Parallel = "parallel"


class DgradSwizzle(enum.Enum):
    """The order in which a GPU takes tiles of a strided dgrad: as `Swizzle` says."""

    StridedDgradIdentitySwizzle1 = 1
    StridedDgradIdentitySwizzle4 = 4

    def __repr__(self) -> str:
        return f"kronop.{self.name}"

    @property
    def width(self) -> int:
        """Tiles along N that are taken together."""
        return self.value


StridedDgradIdentitySwizzle1 = DgradSwizzle.StridedDgradIdentitySwizzle1
StridedDgradIdentitySwizzle4 = DgradSwizzle.StridedDgradIdentitySwizzle4


@dataclass(frozen=True, slots=True)
class Tensor4DCoord:
    """Four extents: of images (N, H, W, C), of filters (K, R, S, C); or the padding of images
    (above, below, left, right), of which CUTLASS reads the first and the third.

    Raises:
        ArgumentError: one is not an integer of at least 0.

    Example:
        >>> kronop.Tensor4DCoord(1, 8, 8, 64).c
        64
    """

    n: Extent
    h: Extent
    w: Extent
    c: Extent

    def __init__(self, n: int, h: int, w: int, c: int) -> None:
        for name, value in {"n": n, "h": h, "w": w, "c": c}.items():
            hint = "kronop.Tensor4DCoord(N, H, W, C) takes four integers"
            object.__setattr__(self, name, Extent(extent_of(f"extent {name}", value, hint)))

    def at(self, index: int) -> int:
        """The extent with this number."""
        return int((self.n, self.h, self.w, self.c)[index])
