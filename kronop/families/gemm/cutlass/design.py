"""Matrix products by CUTLASS 2.x: cutlass_gemm.cuh."""

from __future__ import annotations

from typing import ClassVar

from kronop.artifacts import Launch, Status
from kronop.emit.cuda import operands
from kronop.emit.cuda.machine import hertz, memory_bytes_per_cycle
from kronop.emit.design import Instantiation, package_folder
from kronop.families.gemm.cutlass import checks, headers, launching, words
from kronop.families.gemm.cutlass.tile import CutlassTile
from kronop.families.gemm.description import GemmProblem
from kronop.families.gemm.size import GemmSize
from kronop.frozen import dataclass
from kronop.target import Target

# NVRTC warns of constants of CUTLASS's that it makes definitions of.
_OPTIONS = ("-diag-suppress=20044",)
# Multiply-adds of a multiprocessor in a cycle by bytes of an element, on tensor cores and on
# ordinary ones, and cycles of a second. NOTE: half of what warp groups reach on an H200, where 2.x
# kernels were measured to have 0.46 of torch's products of float16.
_TENSOR_PRODUCTS = {8: 64, 4: 512, 2: 1024, 1: 2048}
_SIMT_PRODUCTS = {8: 32, 4: 64}
_SECONDS_OF_LAUNCH = 5e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class CutlassGemm(CutlassTile):
    """A kernel of CUTLASS 2.x, which sm_80 and all later GPUs run."""

    # CUTLASS's code can't be emulated on a CPU: tests on a GPU run each kind.
    styles: ClassVar[tuple[str, ...]] = ()

    def status(self, target: Target) -> Status:
        """Whether CUTLASS has this kernel, it fits, and the headers are installed."""
        return checks.status(self, target)

    def seconds(self, size: GemmSize, target: Target) -> float:
        """Modelled time of a problem of that size."""
        rates = _SIMT_PRODUCTS if self.is_simt else _TENSOR_PRODUCTS
        tiles = operands.cover(size.m, self.tile_m) * operands.cover(size.n, self.tile_n)
        rounds = operands.cover(tiles * size.batch, target.cores)
        steps = operands.round_up(size.k, self.tile_k)
        multiply = rounds * self.tile_m * self.tile_n * steps / rates[self.source.bytes]
        elements = (size.m + size.n) * size.k * self.source.bytes
        moved = size.batch * (elements + size.m * size.n * self.output.bytes)
        memory = moved / (memory_bytes_per_cycle(target) * target.cores)
        return max(multiply, memory) / hertz(target) + _SECONDS_OF_LAUNCH

    def instantiation(self, target: Target) -> Instantiation:
        scalar = operands.scalar_kind(self.epilogue).cxx
        return Instantiation(
            header="cutlass_gemm.cuh",
            template="kronop::cutlass_gemm",
            parameters=f"kronop::CutlassParameters<{scalar}>",
            types=self._types(),
            constants=self._constants(),
            folders=(package_folder(__package__), headers.found().folder),
            options=_OPTIONS,
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
