"""The tile of a matrix product by CUTLASS 3.x: its warp groups, clusters and shared memory."""

from __future__ import annotations

from kronop.descriptions.datatype import AnyLayout, DataType
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.tile import EpilogueScheduleType, KernelScheduleType, TileSchedulerType
from kronop.emit.design import Design
from kronop.frozen import dataclass

# Warps along each index of a block whose warp groups alternate tiles.
IN_TURN = (4, 1, 1)
# Threads of a warp group; warp groups of a block, one of which copies.
_WARP_GROUP, _WARP_GROUPS = 128, 3
# Bytes of shared memory for barriers, at most.
_BARRIERS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class HopperTile(Design):
    """How a kernel of CUTLASS 3.x divides a product into tiles.

    Attributes:
        source, output: types of the operands and of the result.
        tile_m, tile_n, tile_k: rows, columns and steps of a tile.
        layout_a, layout_b, alignment_a, alignment_b: layouts and alignments of A and B.
        stages: stages of the pipeline in shared memory.
        warps: warps along each index, as described.
        cluster_shape: blocks of a cluster, each of which multicasts its share of B.
        kernel_schedule, epilogue_schedule, tile_scheduler: as described.
    """

    threads = _WARP_GROUP * _WARP_GROUPS

    math: MathInstruction
    source: DataType
    output: DataType
    epilogue: Epilogue
    tile_m: int
    tile_n: int
    tile_k: int
    layout_a: AnyLayout
    layout_b: AnyLayout
    alignment_a: int
    alignment_b: int
    stages: int
    warps: tuple[int, int, int]
    cluster_shape: tuple[int, int, int]
    kernel_schedule: KernelScheduleType
    epilogue_schedule: EpilogueScheduleType
    tile_scheduler: TileSchedulerType

    def __str__(self) -> str:
        teams = "in turn" if self.alternate else "shared"
        clusters = f", clusters of {self.cluster}" if self.cluster > 1 else ""
        tile = f"{self.tile_m} x {self.tile_n} x {self.tile_k}"
        return f"CUTLASS 3.x, tiles of {tile} {teams}, {self.stages} stages{clusters}"

    @property
    def alternate(self) -> bool:
        """Whether warp groups alternate tiles (ping-pong) or share each (cooperative)."""
        return self.warps == IN_TURN

    @property
    def cluster(self) -> int:
        """Blocks of a cluster, along M."""
        return self.cluster_shape[0]

    @property
    def stage_bytes(self) -> int:
        """Bytes of one stage of both operands."""
        return (self.tile_m + self.tile_n) * self.tile_k * self.source.bytes

    @property
    def shared_bytes(self) -> int:
        return self.stages * self.stage_bytes + _BARRIERS
