"""Matrix products by CUTLASS 2.x: cutlass_gemm.cuh."""

from __future__ import annotations

from typing import ClassVar

from kronop.artifacts import Field, KernelSignature, Launch, Scalar, Status
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
from kronop.emit.cuda.machine import hertz, memory_bytes_per_cycle
from kronop.emit.design import Design, Instantiation, package_folder
from kronop.families.gemm.cutlass import checks, launching, words
from kronop.families.gemm.description import GemmProblem
from kronop.families.gemm.size import GemmSize
from kronop.families.gemm.vocabulary import Swizzle
from kronop.frozen import dataclass
from kronop.machine import H200, MEASURED, WARP
from kronop.target import Target

# NVRTC warns of constants of CUTLASS's that it makes definitions of.
_OPTIONS = ("-diag-suppress=20044",)
# Bytes in shared memory of what one thread computes for all, at most; columns by which CUTLASS pads
# rows of results there, at most; rows of results in shared memory of each row of warps, at most.
_PREPARED, _PADDING, _ROWS = 512, 16, 16
_POINTERS = ("a", "b", "result", "source", "bias", "partial")
_NUMBERS = ("m", "n", "k", "ld_a", "ld_b", "ld_source", "ld_result", "ld_partial")
_BATCHES = ("batch", "a_batch", "b_batch", "source_batch", "result_batch")
_REST = ("bias_row", "bias_column", "slices", "depth", "adds_up")
# The shares of what products of warps, of them in float64, and ordinary cores do that these kernels
# reach. NOTE: on an H200 they were measured to have 0.46 of torch's products of float16.
_OF_WARPS, _OF_DOUBLES, _OF_ORDINARY = 0.826, 0.5, 0.5
_SECONDS_OF_LAUNCH = 5e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class CutlassGemm(Design):
    """A kernel of CUTLASS 2.x, which sm_80 and all later GPUs run.

    Attributes:
        source, output: types of the operands and of the result.
        layout_a, layout_b, layout_c: layouts of A, B, and of C and D.
        alignment_a, alignment_b, alignment_c: elements of an access.
        tile_m, tile_n, tile_k: rows, columns and steps of a block's tile.
        warps_m, warps_n, warps_k: warps along each.
        stages: tiles of operands that are in shared memory at once.
        swizzle: the order in which tiles are taken.
    """

    # CUTLASS's code can't be emulated on a CPU: tests on a GPU run each kind.
    styles: ClassVar[tuple[str, ...]] = ()

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
        return WARP * self.warps_m * self.warps_n * self.warps_k

    @property
    def stage_bytes(self) -> int:
        """Bytes of one stage of both operands."""
        padding = 2 * max(0, WARP // self.tile_k * 4 // self.source.bytes) if self.is_simt else 0
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

    def status(self, target: Target) -> Status:
        """Whether CUTLASS has this kernel, it fits, and the headers are installed."""
        return checks.status(self, target)

    def seconds(self, size: GemmSize, target: Target) -> float:
        """Modelled time of a problem of that size."""
        tiles = operands.cover(size.m, self.tile_m) * operands.cover(size.n, self.tile_n)
        rounds = operands.cover(tiles * size.batch, target.cores)
        steps = operands.round_up(size.k, self.tile_k)
        multiply = rounds * self.tile_m * self.tile_n * steps / self._rate
        elements = (size.m + size.n) * size.k * self.source.bytes
        moved = size.batch * (elements + size.m * size.n * self.output.bytes)
        memory = moved / (memory_bytes_per_cycle(target) * target.cores)
        return max(multiply, memory) / hertz(target) + _SECONDS_OF_LAUNCH

    @property
    def _rate(self) -> float:
        """Multiply-adds of an H200's multiprocessor in a cycle, which stand for those of all cards:
        in proportion to their own, candidates for GeForce cards would come in another order, which
        was not measured."""
        size, card = self.source.bytes, H200.gpu
        if self.is_simt:
            return _OF_ORDINARY * (card.float64 if size == 8 else card.float32)
        return (_OF_DOUBLES if size == 8 else _OF_WARPS) * MEASURED.warp_products[size]

    def instantiation(self, target: Target) -> Instantiation:
        scalar = operands.scalar_kind(self.epilogue).cxx
        return Instantiation(
            header="cutlass_gemm.cuh",
            template="kronop::cutlass_gemm",
            parameters=f"kronop::CutlassParameters<{scalar}>",
            types=self._types(),
            constants=self._constants(),
            folders=(package_folder(__package__),),
            options=_OPTIONS,
            cuda_headers=True,
            cutlass_headers=True,
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
