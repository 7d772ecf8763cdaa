"""PyCUTLASS's words for convolutions: kinds, iterators, layouts, sizes."""

from __future__ import annotations

import dataclasses
import enum
import math
from typing import Any, Self

from kronop.descriptions.datatype import INTERLEAVED_TYPES, TENSOR_TYPES, AnyLayout, DataType
from kronop.errors import ArgumentError, ElementTypeError
from kronop.families.conv2d.size import Conv2dSize, shapes_of
from kronop.families.gemm.vocabulary import Extent, GemmCoord, MatrixCoord, take_extents
from kronop.frozen import dataclass

_EXTENTS = frozenset(item.name for item in dataclasses.fields(Conv2dSize))


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

    def moved(self, size: Conv2dSize, source: DataType, output: DataType) -> int:
        """Bytes of A and B, and of C, of elements of these types."""
        shapes = shapes_of(size)
        a, b, c = (math.prod(shapes[name]) for name in self.tensors)
        return (a + b) * source.bytes + c * output.bytes


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
    """The order in which a GPU takes tiles of a strided dgrad: as `Swizzle` says.

    Example:
        >>> kronop.StridedDgradIdentitySwizzle4.width
        4
    """

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
        given = {"n": n, "h": h, "w": w, "c": c}
        take_extents(self, given, "kronop.Tensor4DCoord(N, H, W, C) takes four integers")

    def at(self, index: int) -> int:
        """The extent with this number."""
        return int((self.n, self.h, self.w, self.c)[index])

    @property
    def elements(self) -> int:
        """The product of the extents."""
        return math.prod(self.at(index) for index in range(4))


@dataclass(frozen=True, slots=True)
class Conv2dProblemSize:
    """The extents of a convolution, in CUTLASS's words.

    P = (H + 2 pad_h - R dilation_h) / stride_h + 1, rounded down, and Q likewise. With a dilation
    of 1 these are torch's numbers; with more, CUTLASS has fewer results.

    Args:
        input_size: (N, H, W, C) of the images.
        filter_size: (K, R, S, C / groups).
        padding: of which the first and the third count.
        stride, dilation: (along H, along W).
        mode: whether filters are flipped.
        split_k_slices: into how many slices GPUs cut the sum.
        groups: the channels and filters are divided in so many groups.

    Raises:
        ElementTypeError: an argument has the wrong class.
        ArgumentError: an extent is too small, or channels do not fit.

    Example:
        >>> four, two = kronop.Tensor4DCoord, kronop.MatrixCoord
        >>> size = kronop.conv.Conv2dProblemSize(
        ...     four(1, 8, 9, 32), four(16, 3, 3, 32), four(1, 1, 1, 1), two(2, 2), two(1, 1)
        ... )
        >>> size.P, size.Q, size.K
        (4, 5, 16)
    """

    size: Conv2dSize

    def __init__(
        self,
        input_size: Tensor4DCoord,
        filter_size: Tensor4DCoord,
        padding: Tensor4DCoord,
        stride: MatrixCoord,
        dilation: MatrixCoord,
        mode: Mode = Mode.cross_correlation,
        split_k_slices: int = 1,
        groups: int = 1,
    ) -> None:
        _check_class(Tensor4DCoord, input_size=input_size, filter_size=filter_size, padding=padding)
        _check_class(MatrixCoord, stride=stride, dilation=dilation)
        _check_class(Mode, mode=mode)
        n, h, w, c = (input_size.at(index) for index in range(4))
        k, r, s, channels = (filter_size.at(index) for index in range(4))
        pads, steps = (padding.at(0), padding.at(2)), (int(stride.row), int(stride.column))
        apart = (int(dilation.row), int(dilation.column))
        counts = [
            max(0, (along + 2 * pad - taps * gap) // max(step, 1) + 1)
            for along, pad, taps, gap, step in zip((h, w), pads, (r, s), apart, steps, strict=True)
        ]
        extents: Any = (n, h, w, c, k, r, s, *counts)
        how: Any = (*pads, *steps, *apart, groups, split_k_slices, mode is Mode.convolution)
        found = Conv2dSize(*extents, *how)
        if found.channels != channels:
            raise ArgumentError(
                "channels of filter_size",
                expected=f"{found.channels}, the {c} channels of images in {groups} groups",
                got=channels,
                hint="kronop.Tensor4DCoord(K, R, S, C / groups)",
            )
        object.__setattr__(self, "size", found)

    @classmethod
    def of(cls, size: Conv2dSize) -> Self:
        """The problem size of a size, whose P and Q may be those that torch computes."""
        made = cls.__new__(cls)
        object.__setattr__(made, "size", size)
        return made

    def __getattr__(self, name: str) -> Any:
        """CUTLASS's names of the extents: N, H, W, C, K, R, S, P, Q in capitals, stride_h, pad_w,
        dilation_h and so on, groups and split_k_slices."""
        is_one = len(name) == 1
        own = {"split_k_slices": "slices"}.get(name, name.lower() if is_one else name)
        if own not in _EXTENTS or (is_one and not name.isupper()):
            raise AttributeError(f"Conv2dProblemSize has no attribute {name!r}")
        return getattr(self.size, own)

    @property
    def mode(self) -> Mode:
        """Whether filters are flipped."""
        return Mode.convolution if self.size.flipped else Mode.cross_correlation


def _check_class(kind: type, **given: object) -> None:
    """Refuses arguments of another class."""
    for name, value in given.items():
        if not isinstance(value, kind):
            raise ElementTypeError(
                name,
                expected=f"a {kind.__name__}",
                got=repr(value),
                hint="see kronop.conv.Conv2dProblemSize",
            )


def implicit_gemm_problem_size(operator: Operator, problem_size: Conv2dProblemSize) -> GemmCoord:
    """M, N and K of the matrix product, of each group, as which a convolution is computed.

    Example:
        >>> four, two = kronop.Tensor4DCoord, kronop.MatrixCoord(1, 1)
        >>> size = kronop.conv.Conv2dProblemSize(
        ...     four(1, 8, 8, 32), four(16, 3, 3, 32), four(1, 1, 1, 1), two, two
        ... )
        >>> kronop.conv.implicit_gemm_problem_size(kronop.conv.Operator.fprop, size)
        GemmCoord(m=64, n=16, k=288)
    """
    return GemmCoord(*operator.extents(problem_size.size))


def implicit_gemm_tensor_a_extent(
    operator: Operator, problem_size: Conv2dProblemSize
) -> Tensor4DCoord:
    """The shape of A, channels last."""
    return _extent(operator, problem_size, 0)


def implicit_gemm_tensor_b_extent(
    operator: Operator, problem_size: Conv2dProblemSize
) -> Tensor4DCoord:
    """The shape of B, channels last."""
    return _extent(operator, problem_size, 1)


def implicit_gemm_tensor_c_extent(
    operator: Operator, problem_size: Conv2dProblemSize
) -> Tensor4DCoord:
    """The shape of C and D, channels last."""
    return _extent(operator, problem_size, 2)


def implicit_gemm_tensor_a_size(operator: Operator, problem_size: Conv2dProblemSize) -> int:
    """How many elements A has."""
    return _extent(operator, problem_size, 0).elements


def implicit_gemm_tensor_b_size(operator: Operator, problem_size: Conv2dProblemSize) -> int:
    """How many elements B has."""
    return _extent(operator, problem_size, 1).elements


def implicit_gemm_tensor_c_size(operator: Operator, problem_size: Conv2dProblemSize) -> int:
    """How many elements C and D have."""
    return _extent(operator, problem_size, 2).elements


def _extent(operator: Operator, problem: Conv2dProblemSize, index: int) -> Tensor4DCoord:
    return Tensor4DCoord(*shapes_of(problem.size)[operator.tensors[index]])
