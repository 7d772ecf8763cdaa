"""The tile of a matrix product by CUTLASS 2.x: its operands as the kernel sees them."""

from __future__ import annotations

from collections.abc import Mapping

from kronop.artifacts import Field, KernelSignature, Scalar
from kronop.descriptions.datatype import INTERLEAVE, AnyLayout, InterleavedLayout, Layout
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS
from kronop.emit.cuda import operands
from kronop.emit.cuda.cutlass.design import CutlassDesign
from kronop.families.gemm.vocabulary import Swizzle
from kronop.frozen import dataclass

_POINTERS = ("a", "b", "result", "source", "bias", "partial")
_NUMBERS = ("m", "n", "k", "ld_a", "ld_b", "ld_source", "ld_result", "ld_partial")
_BATCHES = ("batch", "a_batch", "b_batch", "source_batch", "result_batch")
_REST = ("bias_row", "bias_column", "slices", "depth", "adds_up")
_FLIPPED: Mapping[AnyLayout, Layout] = {
    Layout.RowMajor: Layout.ColumnMajor,
    Layout.ColumnMajor: Layout.RowMajor,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CutlassTile(CutlassDesign):
    """How a kernel of CUTLASS 2.x divides a product into tiles.

    Attributes:
        layout_a, layout_b, layout_c: layouts of A, B, and of C and D.
        swizzle: the order of the tiles.
    """

    layout_a: AnyLayout
    layout_b: AnyLayout
    layout_c: AnyLayout
    swizzle: Swizzle

    @property
    def interleaved(self) -> bool:
        return isinstance(self.layout_c, InterleavedLayout)

    @property
    def swapped(self) -> bool:
        return self.layout_c is Layout.ColumnMajor

    @property
    def kernel_layouts(self) -> tuple[AnyLayout, AnyLayout]:
        """The layouts of the operands of the product that is computed."""
        if not self.swapped:
            return self.layout_a, self.layout_b
        return _FLIPPED[self.layout_b], _FLIPPED[self.layout_a]

    @property
    def result_layout(self) -> AnyLayout:
        return Layout.RowMajor if self.swapped else self.layout_c

    @property
    def operand_names(self) -> str:
        """The user's names for the left and the right operand of the product that is computed."""
        return "BA" if self.swapped else "AB"

    @property
    def panel(self) -> int:
        """Columns of a panel of interleaved operands; 1 for others."""
        return INTERLEAVE if self.interleaved else 1

    @property
    def signature(self) -> KernelSignature:
        return KernelSignature(
            "CutlassParameters",
            (
                *(Field(name, Scalar.POINTER) for name in _POINTERS),
                *(Field(name, Scalar.INT64) for name in _NUMBERS),
                *(Field(name, Scalar.INT64, MOST_BATCH_DIMENSIONS) for name in _BATCHES),
                *(Field(name, Scalar.INT64) for name in _REST),
                operands.scalar_fields(self.epilogue),
            ),
        )
