"""What all kernels of CUTLASS 2.x have in common, for matrix products and for convolutions that run
as matrix products: tiles, warps, stages."""

from __future__ import annotations

from typing import ClassVar

from kronop.descriptions.datatype import DataType
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.math_instruction import MathInstruction, OpClass
from kronop.emit.cuda.cutlass import words
from kronop.emit.design import Design, package_folder
from kronop.frozen import dataclass
from kronop.machine import H200, MEASURED, WARP

# NVRTC warns that some of CUTLASS's constants become definitions.
OPTIONS = ("-diag-suppress=20044",)
# Of CUTLASS 3.x also of defaulted functions and of unused variables. Assertions are calls, which
# would serialise products of warp groups (wgmma).
HOPPER_OPTIONS = ("-DNDEBUG", *OPTIONS, "-diag-suppress=20012", "-diag-suppress=177")
# Replacements for headers of CUTLASS 3.x, which must be found before the originals.
HOPPER_FOLDER = f"{package_folder(__package__)}/overrides"
# The fraction of the rate of warp-level MMAs, of those in float64, and of ordinary cores that these
# kernels reach. NOTE: on an H200 they reached 0.46 of torch's products of float16.
_OF_WARPS, _OF_DOUBLES, _OF_ORDINARY = 0.826, 0.5, 0.5
SECONDS_OF_LAUNCH = 5e-6
# In shared memory, at most: padding of a row of results, in elements; rows of results for each row
# of warps.
_PADDING, _ROWS = 16, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class CutlassDesign(Design):
    """A kernel of CUTLASS 2.x, which sm_80 and all later GPUs run.

    Attributes:
        source, output: types of the operands and of the result.
        alignment_a, alignment_b, alignment_c: elements of an access.
        tile_m, tile_n, tile_k: rows, columns and steps of a block's tile.
        warps_m, warps_n, warps_k: warps along each.
        stages: tiles of operands that are in shared memory at once.
        prepared_bytes: at most, of what one thread computes for all, in shared memory.
    """

    # CUTLASS's code can't be emulated on a CPU: tests on a GPU run each kind.
    styles: ClassVar[tuple[str, ...]] = ()
    prepared_bytes: ClassVar[int] = 512

    math: MathInstruction
    source: DataType
    output: DataType
    epilogue: Epilogue
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

    def __str__(self) -> str:
        warps = f"{self.warps_m} x {self.warps_n} x {self.warps_k} warps"
        tile = f"{self.tile_m} x {self.tile_n} x {self.tile_k}"
        return f"CUTLASS 2.x, tiles of {tile}, {warps}, {self.stages} stages"

    @property
    def is_simt(self) -> bool:
        return self.math.opcode_class is OpClass.Simt

    @property
    def interleaved(self) -> bool:
        """Whether operands and results are in panels of columns."""
        return False

    @property
    def swapped(self) -> bool:
        """Whether the transposed product is computed, since CUTLASS's results are row-major."""
        return False

    @property
    def kernel_alignments(self) -> tuple[int, int]:
        """The alignments of A and B of the product that is computed."""
        first, second = self.alignment_a, self.alignment_b
        return (second, first) if self.swapped else (first, second)

    @property
    def index_names(self) -> str:
        """The user's names for the M, N and K of the product that is computed."""
        return "NMK" if self.swapped else "MNK"

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
    def tile_constants(self) -> tuple[tuple[str, int], ...]:
        """The constants of a kernel that say how it divides the product that is computed."""
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
            ("kSharedBytes", self.shared_bytes),
        )

    @property
    def element_types(self) -> tuple[tuple[str, str], ...]:
        """The types of a kernel that follow from the elements and the multiply-add."""
        sums, element = self.math.element_accumulator, words.ELEMENTS[self.source]
        return (
            ("ElementA", element),
            ("ElementB", element),
            ("ElementOutput", words.ELEMENTS[self.output]),
            ("ElementAccumulator", words.ELEMENTS[sums]),
            ("OperatorClass", words.CLASSES[self.math.opcode_class]),
            ("Operator", words.operator_of(self.math)),
            ("Output", self.output.cxx),
            ("Accumulator", sums.cxx),
            ("Sum", self.math.added_in.cxx),
        )

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
        return max(self.stages * self.stage_bytes, results) + self.prepared_bytes

    @property
    def rate(self) -> float:
        """Multiply-adds of an H200's multiprocessor in a cycle, used for all GPUs: scaled to
        theirs, candidates for GeForce cards would be ranked in another order, which was not
        measured."""
        size, card = self.source.bytes, H200.gpu
        if self.is_simt:
            return _OF_ORDINARY * (card.float64 if size == 8 else card.float32)
        return (_OF_DOUBLES if size == 8 else _OF_WARPS) * MEASURED.warp_products[size]
