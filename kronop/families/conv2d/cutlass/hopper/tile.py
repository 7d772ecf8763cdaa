"""The tile of a convolution by CUTLASS 3.x: one warp group multiplies what another one copies."""

from __future__ import annotations

from kronop.artifacts import KernelSignature
from kronop.emit.cuda import operands
from kronop.emit.cuda.cutlass.hopper import WARP_GROUP, HopperDesign
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.conv2d.vocabulary import Operator
from kronop.frozen import dataclass

WARPS = (4, 1, 1)
"""Warps that multiply."""
LINES = 64
"""Elements of a line of shared memory of an operand that is not contiguous along the sums."""
_SWIZZLED = 8  # Rows of a swizzle.
_NUMBERS = (
    *("images", "h", "w", "c", "k", "r", "s", "p", "q"),
    *("pad_h", "pad_w", "stride_h", "stride_w", "dilation_h", "dilation_w"),
    *("result_row", "result_column", "source_row", "source_column"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HopperConv2dTile(HopperDesign):
    """How a kernel of CUTLASS 3.x divides a convolution into tiles of a matrix product.

    Attributes:
        conv_kind: which kernel.
    """

    threads = 2 * WARP_GROUP

    conv_kind: Operator

    def __str__(self) -> str:
        return self._told()

    @property
    def columns(self) -> int:
        """What columns of a tile are a multiple of."""
        of_sums = self.conv_kind is Operator.fprop
        return _SWIZZLED * self.cluster if of_sums else LINES

    def tiles_of(self, size: Conv2dSize) -> tuple[int, int]:
        """Blocks along M and N, whole clusters: columns of wgrad are tiles of channels, for each
        pixel of a filter."""
        m, n, _ = self.conv_kind.extents(size)
        taps = 1
        if self.conv_kind is Operator.wgrad:
            taps, n = size.r * size.s, size.c
        rows, columns = operands.cover(m, self.tile_m), taps * operands.cover(n, self.tile_n)
        return operands.round_up(rows, self.cluster), operands.round_up(columns, self.cluster_n)

    @property
    def signature(self) -> KernelSignature:
        return self._signature("HopperConv2dParameters", _NUMBERS)
