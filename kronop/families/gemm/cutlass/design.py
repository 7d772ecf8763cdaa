"""Matrix products by CUTLASS 2.x: cutlass_gemm.cuh."""

from __future__ import annotations

from kronop.artifacts import Launch, Status
from kronop.emit.cuda import operands
from kronop.emit.cuda.cutlass import words
from kronop.emit.cuda.cutlass.design import OPTIONS, SECONDS_OF_LAUNCH, CutlassDesign
from kronop.emit.cuda.cutlass.hopper import HopperDesign
from kronop.emit.cuda.machine import hertz, memory_bytes_per_cycle
from kronop.emit.design import Instantiation, package_folder
from kronop.families.gemm.cutlass import checks, launching
from kronop.families.gemm.cutlass.tile import CutlassTile
from kronop.families.gemm.description import GemmProblem
from kronop.families.gemm.size import GemmSize
from kronop.frozen import dataclass
from kronop.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class CutlassGemm(CutlassTile):
    """A matrix product by a kernel of CUTLASS 2.x."""

    kind = "gemm"

    def status(self, target: Target) -> Status:
        """Whether CUTLASS has this kernel, it fits, and the headers are installed."""
        return checks.status(self, target)

    def seconds(self, size: GemmSize, target: Target) -> float:
        """Modelled time of a problem of that size."""
        return seconds_of_tiles(self, size, target, self.rate) + SECONDS_OF_LAUNCH

    def instantiation(self, target: Target) -> Instantiation:
        scalar = operands.scalar_kind(self.epilogue).cxx
        return Instantiation(
            header="cutlass_gemm.cuh",
            parameters=f"kronop::CutlassParameters<{scalar}>",
            types=self._types(),
            constants=self._constants(),
            folders=(package_folder(__package__),),
            options=OPTIONS,
            cuda_headers=True,
            cutlass_headers=True,
        )

    def _types(self) -> tuple[tuple[str, str], ...]:
        left, right = self.kernel_layouts
        return (
            *self.element_types,
            ("LayoutA", words.LAYOUTS[left]),
            ("LayoutB", words.LAYOUTS[right]),
            ("LayoutC", words.LAYOUTS[self.result_layout]),
        )

    def _constants(self) -> tuple[tuple[str, int | bool], ...]:
        return (
            *self.tile_constants,
            ("kInterleave", self.panel),
            ("kSwizzle", self.swizzle.width),
        )

    def workspace(self, size: GemmSize, target: Target, threads: int) -> int:
        """Bytes for the sums of split-K slices."""
        return launching.workspace_bytes(self, size)

    def launches(self, problem: GemmProblem, target: Target) -> tuple[Launch, ...]:
        """One launch, or two for split-K: the slices, and adding up their sums.

        Raises:
            ArgumentError: a stride or an extent is not supported by CUTLASS's kernels.
        """
        return launching.launches(self, problem, target)


def seconds_of_tiles(
    tile: CutlassDesign | HopperDesign, size: GemmSize, target: Target, rate: float
) -> float:
    """Modelled time of a kernel whose multiprocessors do `rate` multiply-adds in a cycle."""
    tiles = operands.cover(size.m, tile.tile_m) * operands.cover(size.n, tile.tile_n)
    rounds = operands.cover(tiles * size.batch, target.cores)
    steps = operands.round_up(size.k, tile.tile_k)
    multiply = rounds * tile.tile_m * tile.tile_n * steps / rate
    elements = (size.m + size.n) * size.k * tile.source.bytes
    moved = size.batch * (elements + size.m * size.n * tile.output.bytes)
    memory = moved / (memory_bytes_per_cycle(target) * target.cores)
    return max(multiply, memory) / hertz(target)
