"""Matrix products by CUTLASS 2.x: cutlass_gemm.cuh."""

from __future__ import annotations

from collections.abc import Mapping

from kronop.artifacts import Field, KernelSignature, Launch, Scalar, Status
from kronop.descriptions.datatype import (
    INTERLEAVE,
    AnyLayout,
    InterleavedLayout,
    Layout,
)
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS
from kronop.emit.cuda import operands
from kronop.emit.cuda.cutlass import words
from kronop.emit.cuda.cutlass.design import OPTIONS, CutlassDesign
from kronop.emit.cuda.machine import hertz, memory_bytes_per_cycle, ordinary_products, warp_products
from kronop.emit.design import Instantiation, package_folder
from kronop.families.gemm.cutlass import checks, headers, launching
from kronop.families.gemm.description import GemmProblem
from kronop.families.gemm.size import GemmSize
from kronop.families.gemm.vocabulary import Swizzle
from kronop.frozen import dataclass
from kronop.target import Target

_POINTERS = ("a", "b", "result", "source", "bias", "partial")
_NUMBERS = ("m", "n", "k", "ld_a", "ld_b", "ld_source", "ld_result", "ld_partial")
_BATCHES = ("batch", "a_batch", "b_batch", "source_batch", "result_batch")
_REST = ("bias_row", "bias_column", "slices", "depth", "adds_up")
# The shares of what products of warps, of them in float64, and ordinary cores do that these kernels
# reach. NOTE: on an H200 they were measured to have 0.46 of torch's products of float16.
_OF_WARPS, _OF_DOUBLES, _OF_ORDINARY = 0.826, 0.5, 0.5
_SECONDS_OF_LAUNCH = 5e-6
_FLIPPED: Mapping[AnyLayout, Layout] = {
    Layout.RowMajor: Layout.ColumnMajor,
    Layout.ColumnMajor: Layout.RowMajor,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CutlassGemm(CutlassDesign):
    """A matrix product by a kernel of CUTLASS 2.x.

    Attributes:
        layout_a, layout_b, layout_c: layouts of A, B, and of C and D.
        swizzle: the order in which tiles are taken.
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
        """Those of the operands of the product that is computed."""
        if not self.swapped:
            return self.layout_a, self.layout_b
        return _FLIPPED[self.layout_b], _FLIPPED[self.layout_a]

    @property
    def result_layout(self) -> AnyLayout:
        return Layout.RowMajor if self.swapped else self.layout_c

    @property
    def operand_names(self) -> str:
        """What the left and the right operand of the product that is computed are for the user."""
        return "BA" if self.swapped else "AB"

    @property
    def panel(self) -> int:
        """Columns of a panel of interleaved operands; 1 for others."""
        return INTERLEAVE if self.interleaved else 1

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

    def status(self, target: Target) -> Status:
        """Whether CUTLASS has this kernel, it fits, and the headers are installed."""
        return checks.status(self, target)

    def seconds(self, size: GemmSize, target: Target) -> float:
        """Modelled time of a problem of that size."""
        tiles = operands.cover(size.m, self.tile_m) * operands.cover(size.n, self.tile_n)
        rounds = operands.cover(tiles * size.batch, target.cores)
        steps = operands.round_up(size.k, self.tile_k)
        multiply = rounds * self.tile_m * self.tile_n * steps / self._rate(target)
        elements = (size.m + size.n) * size.k * self.source.bytes
        moved = size.batch * (elements + size.m * size.n * self.output.bytes)
        memory = moved / (memory_bytes_per_cycle(target) * target.cores)
        return max(multiply, memory) / hertz(target) + _SECONDS_OF_LAUNCH

    def _rate(self, target: Target) -> float:
        """Multiply-adds of a multiprocessor in a cycle."""
        size = self.source.bytes
        if self.is_simt:
            return _OF_ORDINARY * ordinary_products(target, self.source.kind, size)
        return (_OF_DOUBLES if size == 8 else _OF_WARPS) * warp_products(target, size)

    def instantiation(self, target: Target) -> Instantiation:
        scalar = operands.scalar_kind(self.epilogue).cxx
        return Instantiation(
            header="cutlass_gemm.cuh",
            template="kronop::cutlass_gemm",
            parameters=f"kronop::CutlassParameters<{scalar}>",
            types=self._types(),
            constants=self._constants(),
            folders=(package_folder(__package__), headers.found().folder),
            options=OPTIONS,
            cuda_headers=True,
        )

    def _types(self) -> tuple[tuple[str, str], ...]:
        sums, element = self.math.element_accumulator, words.ELEMENTS[self.source]
        left, right = self.kernel_layouts
        return (
            ("ElementA", element),
            ("ElementB", element),
            ("ElementOutput", words.ELEMENTS[self.output]),
            ("ElementAccumulator", words.ELEMENTS[sums]),
            ("LayoutA", words.LAYOUTS[left]),
            ("LayoutB", words.LAYOUTS[right]),
            ("LayoutC", words.LAYOUTS[self.result_layout]),
            ("OperatorClass", words.CLASSES[self.math.opcode_class]),
            ("Operator", words.operator_of(self.math)),
            ("Output", self.output.cxx),
            ("Accumulator", sums.cxx),
            ("Sum", self.math.added_in.cxx),
        )

    def _constants(self) -> tuple[tuple[str, int | bool], ...]:
        (m, n, k), warps = self.tile, self.warps
        left, right = self.kernel_alignments
        shape = self.math.instruction_shape
        return (
            ("kThreads", self.threads),
            ("kBlocks", 1),
            ("kTileM", m),
            ("kTileN", n),
            ("kTileK", k),
            ("kWarpM", m // warps[0]),
            ("kWarpN", n // warps[1]),
            ("kWarpK", k // warps[2]),
            ("kInstructionM", shape[0]),
            ("kInstructionN", shape[1]),
            ("kInstructionK", shape[2]),
            ("kStages", self.stages),
            ("kAlignmentA", left),
            ("kAlignmentB", right),
            ("kAlignmentC", self.alignment_c),
            ("kInterleave", self.panel),
            ("kSwizzle", self.swizzle.width),
            ("kSharedBytes", self.shared_bytes),
        )

    def workspace_bytes(self, size: GemmSize, target: Target) -> int:
        """Bytes for the sums of slices."""
        return launching.workspace_bytes(self, size)

    def launches(self, index: int, target: Target, problem: GemmProblem) -> tuple[Launch, ...]:
        """One launch, or one for slices and one that adds up their sums.

        Raises:
            ArgumentError: a stride or an extent is not as CUTLASS's kernels take them.
        """
        return launching.launches(self, index, target, problem)
