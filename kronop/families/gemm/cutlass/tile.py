"""The tile of a matrix product by CUTLASS 2.x: operands as its kernel sees them, shared memory."""

from __future__ import annotations

from kronop.artifacts import Field, KernelSignature, Scalar
from kronop.descriptions.datatype import (
    INTERLEAVE,
    AnyLayout,
    DataType,
    InterleavedLayout,
    Layout,
)
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.math_instruction import MathInstruction, OpClass
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS
from kronop.emit.cuda import operands
from kronop.emit.design import Design
from kronop.families.gemm.cutlass import words
from kronop.families.gemm.vocabulary import Swizzle
from kronop.frozen import dataclass

_WARP = 32
# Bytes in shared memory of what one thread computes for all, at most; columns by which CUTLASS pads
# rows of results there, at most; rows of results in shared memory of each row of warps, at most.
_PREPARED, _PADDING, _ROWS = 512, 16, 16
_POINTERS = ("a", "b", "result", "source", "bias", "partial")
_NUMBERS = ("m", "n", "k", "ld_a", "ld_b", "ld_source", "ld_result", "ld_partial")
_BATCHES = ("batch", "a_batch", "b_batch", "source_batch", "result_batch")
_REST = ("bias_row", "bias_column", "slices", "depth", "adds_up")


@dataclass(frozen=True, slots=True, kw_only=True)
class CutlassTile(Design):
    """How a kernel of CUTLASS 2.x divides a product.

    Attributes:
        source, output: types of the operands and of the result.
        layout_a, layout_b, layout_c: layouts of A, B, and of C and D.
        alignment_a, alignment_b, alignment_c: elements of an access.
        tile_m, tile_n, tile_k: rows, columns and steps of a block's tile.
        warps_m, warps_n, warps_k: warps along each.
        stages: tiles of operands that are in shared memory at once.
        swizzle: the order in which tiles are taken.
    """

    math: MathInstruction
    source: DataType
    output: DataType
    epilogue: Epilogue
    layout_a: AnyLayout
    layout_b: AnyLayout
    layout_c: AnyLayout
    alignment_a: int
    alignment_b: int
    alignment_c: int
    tile_m: int
    tile_n: int
    tile_k: int
    warps_m: int
    warps_n: int
    warps_k: int
    stages: int
    swizzle: Swizzle

    def __str__(self) -> str:
        warps = f"{self.warps_m} x {self.warps_n} x {self.warps_k} warps"
        tile = f"{self.tile_m} x {self.tile_n} x {self.tile_k}"
        return f"CUTLASS 2.x, tiles of {tile}, {warps}, {self.stages} stages"

    @property
    def is_simt(self) -> bool:
        return self.math.opcode_class is OpClass.Simt

    @property
    def interleaved(self) -> bool:
        return isinstance(self.layout_c, InterleavedLayout)

    @property
    def swapped(self) -> bool:
        """Whether the transposed product is computed, since CUTLASS's results are row-major."""
        return self.layout_c is Layout.ColumnMajor

    @property
    def kernel_layouts(self) -> tuple[AnyLayout, AnyLayout]:
        """Those of the operands of the product that is computed."""
        if not self.swapped:
            return self.layout_a, self.layout_b
        return words.FLIPPED[self.layout_b], words.FLIPPED[self.layout_a]

    @property
    def result_layout(self) -> AnyLayout:
        return Layout.RowMajor if self.swapped else self.layout_c

    @property
    def kernel_alignments(self) -> tuple[int, int]:
        first, second = self.alignment_a, self.alignment_b
        return (second, first) if self.swapped else (first, second)

    @property
    def operand_names(self) -> str:
        """What the left and the right operand of the product that is computed are for the user."""
        return "BA" if self.swapped else "AB"

    @property
    def index_names(self) -> str:
        """What its rows, columns and steps are for the user."""
        return "NMK" if self.swapped else "MNK"

    @property
    def panel(self) -> int:
        """Columns of a panel of interleaved operands; 1 for others."""
        return INTERLEAVE if self.interleaved else 1

    @property
    def tile(self) -> tuple[int, int, int]:
        """The tile of the product that is computed."""
        m, n = (self.tile_n, self.tile_m) if self.swapped else (self.tile_m, self.tile_n)
        return m, n, self.tile_k

    @property
    def warps(self) -> tuple[int, int, int]:
        m, n = (self.warps_n, self.warps_m) if self.swapped else (self.warps_m, self.warps_n)
        return m, n, self.warps_k

    @property
    def threads(self) -> int:
        return _WARP * self.warps_m * self.warps_n * self.warps_k

    @property
    def stage_bytes(self) -> int:
        """Bytes of one stage of both operands."""
        padding = 2 * max(0, _WARP // self.tile_k * 4 // self.source.bytes) if self.is_simt else 0
        return (self.tile_m + self.tile_n + padding) * self.tile_k * self.source.bytes

    @property
    def shared_bytes(self) -> int:
        _, n, _ = self.tile
        m_warps, _, k_warps = self.warps
        rows = m_warps * k_warps * _ROWS
        results = rows * (n + _PADDING) * self.math.element_accumulator.bytes
        return max(self.stages * self.stage_bytes, results) + _PREPARED

    @property
    def signature(self) -> KernelSignature:
        scalars = Field("scalars", operands.scalar_kind(self.epilogue), operands.SCALARS)
        return KernelSignature(
            "CutlassParameters",
            (
                *(Field(name, Scalar.POINTER) for name in _POINTERS),
                *(Field(name, Scalar.INT64) for name in _NUMBERS),
                *(Field(name, Scalar.INT64, MOST_BATCH_DIMENSIONS) for name in _BATCHES),
                *(Field(name, Scalar.INT64) for name in _REST),
                scalars,
            ),
        )
