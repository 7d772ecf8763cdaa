"""The tile of a convolution by CUTLASS 2.x: which of its kernels, and its parameters."""

from __future__ import annotations

from typing import ClassVar

from kronop.artifacts import Field, KernelSignature, Scalar
from kronop.descriptions.datatype import INTERLEAVE
from kronop.emit.cuda import operands
from kronop.emit.cuda.cutlass.design import CutlassDesign
from kronop.families.conv2d.vocabulary import (
    DgradSwizzle,
    IteratorAlgorithm,
    Operator,
    StrideSupport,
)
from kronop.families.gemm.vocabulary import Swizzle
from kronop.frozen import dataclass

_POINTERS = ("a", "b", "result", "source", "bias", "partial")
_STEPS = 3
_FIELDS = (
    *("images", "h", "w", "c", "k", "r", "s", "p", "q"),
    *("pad_h", "pad_w", "stride_h", "stride_w", "dilation_h", "dilation_w", "flipped"),
    *(("a_steps", _STEPS), ("b_steps", _STEPS), "ld_source", "ld_result", "ld_partial"),
    *("a_group", "b_group", "source_group", "result_group"),
    *("m", "n", "row_tiles", "column_tiles"),
    *("slices", "taps", "depth", "adds_up", "bias_row", "bias_column"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2dTile(CutlassDesign):
    """How a kernel of CUTLASS 2.x divides a convolution into tiles of a matrix product.

    Attributes:
        conv_kind, iterator_algorithm: which kernel.
        stride_support: Unity, or Strided; only the kernels of dgrad differ in it.
        panels: images, filters and results are in panels of 32 channels.
        swizzle: the order of the tiles.
    """

    # Extents, and of strided dgrad those of its results too.
    prepared_bytes: ClassVar[int] = 1024

    conv_kind: Operator
    iterator_algorithm: IteratorAlgorithm
    stride_support: StrideSupport
    panels: bool
    swizzle: Swizzle | DgradSwizzle

    @property
    def interleaved(self) -> bool:
        return self.panels

    @property
    def strided_rows(self) -> bool:
        """Whether rows of a tile are pixels of images to which the same pixels of filters
        contribute: those of strided dgrad."""
        is_strided = self.stride_support is StrideSupport.Strided
        return self.conv_kind is Operator.dgrad and is_strided

    @property
    def is_analytic(self) -> bool:
        return self.iterator_algorithm is IteratorAlgorithm.analytic

    @property
    def is_for_few(self) -> bool:
        """Whether sums run over pixels and channels of a filter as one index."""
        few = (IteratorAlgorithm.fixed_channels, IteratorAlgorithm.few_channels)
        return self.iterator_algorithm in few

    @property
    def panel(self) -> int:
        """Channels of a panel; 1 for tensors with channels last."""
        return INTERLEAVE if self.panels else 1

    @property
    def signature(self) -> KernelSignature:
        counts = (item if isinstance(item, tuple) else (item, 1) for item in _FIELDS)
        return KernelSignature(
            "CutlassConv2dParameters",
            (
                *(Field(name, Scalar.POINTER) for name in _POINTERS),
                *(Field(name, Scalar.INT64, count) for name, count in counts),
                operands.scalar_fields(self.epilogue),
            ),
        )
