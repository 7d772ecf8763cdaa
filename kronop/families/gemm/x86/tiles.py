"""Matrix products on AMX tiles; see gemm_tiles.hpp."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from kronop.artifacts import Status
from kronop.descriptions.datatype import DataType
from kronop.emit.x86 import amx, planning
from kronop.families.gemm.size import GemmSize
from kronop.families.gemm.x86.design import HostGemm
from kronop.frozen import dataclass
from kronop.target import Target

# Cycles to pack an element; for a vector of results, with the epilogue; and further ones for a
# block of 32 by 32 sums, which are loaded to and stored from tile registers.
_PACK, _FINISH, _BLOCK = 0.15, 8.0, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class TileGemm(HostGemm):
    """AMX: the sums of a block of two by two tiles stay in tile registers."""

    tile = 2 * amx.TILE, 2 * amx.TILE
    styles: ClassVar[tuple[str, ...]] = ("bfloat16", "int8")
    template: ClassVar[str] = "gemm_tiles"
    packing: ClassVar[int] = 64
    speed: ClassVar[int] = 16

    def __str__(self) -> str:
        blocks = f"{self.most_rows} by {self.most_columns} by {self.depth}"
        return f"AMX tiles in blocks of {blocks}"

    @property
    def multiplied(self) -> DataType:
        return self.source

    @property
    def unit(self) -> int:
        return amx.LINE_BYTES // self.source.bytes

    @property
    def packed_bytes(self) -> int:
        return self.source.bytes

    def style(self, target: Target) -> Iterator[str]:
        yield self.source.name

    def status(self, target: Target) -> Status:
        """Whether blocks consist of whole tiles."""
        return self.blocking.status()

    def seconds(self, size: GemmSize, target: Target) -> float:
        """Modelled time of one thread for a problem of that size."""
        rows, columns = self.tile
        blocks = -(-size.m // rows) * -(-size.n // columns)
        slabs = -(-size.k // self.depth)
        core = planning.core_of(target)
        products = 4 * blocks * amx.steps(size.k, self.source) * core.tile_cycles
        packed = size.m * -(-size.n // self.most_columns) + size.n * -(-size.m // self.most_rows)
        finished = blocks * (rows * columns / self.width * _FINISH + slabs * _BLOCK)
        return size.batch * (products + finished + size.k * packed * _PACK) / core.hertz
