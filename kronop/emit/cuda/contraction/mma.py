"""A contraction on the tensor cores (`contract_mma`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from kronop.artifacts import Status
from kronop.emit.cuda import operands
from kronop.emit.cuda.contraction.design import (
    INDICES,
    ContractDesign,
    Extents,
    allows_runs,
    offsets_bytes,
)
from kronop.emit.cuda.contraction.mma_room import SLAB, MmaRoom
from kronop.emit.cuda.operands import View
from kronop.emit.design import Constant, named
from kronop.frozen import dataclass, derived
from kronop.late import imported
from kronop.machine import BLOCK_THREADS, REGISTERS, THREAD_REGISTERS
from kronop.target import Target


@dataclass(frozen=True, kw_only=True)
class MmaContract(MmaRoom):
    """A contraction by the tensor cores of warps."""

    header: ClassVar[str] = "kronop/contract_mma.cuh"
    styles = (*ContractDesign.styles, "plain", "split", "along k")

    def style(self, target: Target) -> Iterator[str]:
        yield from super().style(target)
        yield "split" if self.work.splits else "plain"
        if self.warps[3] > 1:
            yield "along k"

    def status(self, target: Target) -> Status:
        if self.threads > BLOCK_THREADS:
            return Status.reject(
                f"{self.threads} threads for {self}, at most {BLOCK_THREADS}; use fewer warps"
            )
        if self.k % (SLAB * self.warps[3]) or self.warp_n % 2:
            return Status.reject(
                f"{self} does not divide into products; use multiples of {SLAB} for Tile_N and"
                " Tile_K"
            )
        wanted = self.shared_bytes
        if wanted > target.shared_bytes:
            return Status.reject(
                f"a tile of {self} wants {wanted} bytes of shared memory, {target.shared_bytes} are"
                " there; use a smaller threadblock_shape or fewer stages"
            )
        held, most = self.registers, min(THREAD_REGISTERS, REGISTERS // self.threads)
        if held > most:
            return Status.reject(
                f"{self} wants about {held} registers of {most}; use more warps or a"
                " smaller threadblock_shape"
            )
        return Status.accept()

    @derived
    def units(self) -> tuple[float, ...]:
        """Cycles of a block on each unit of the hardware: see `cost.units`."""
        imported("kronop.emit.cuda.contraction.cost")
        from kronop.emit.cuda.contraction import cost

        return cost.units(self)

    def seconds(self, size: int, target: Target) -> float:
        imported("kronop.emit.cuda.contraction.cost")
        from kronop.emit.cuda.contraction import cost

        return cost.of_mma(self, self.units, size, target)

    def constants(self, target: Target) -> tuple[tuple[str, Constant], ...]:
        work, (x_vector, w_vector, y_vector) = self.work, self.vectors
        pitches = (item.stride for item in self.pitches)
        blocks = operands.blocks_of(self.threads, self.registers, self.shared_bytes, target)
        return (
            ("kThreads", self.threads),
            ("kBlocks", blocks),
            *named(self, "stages lanes"),
            *named(self, "m n k", "kTile"),
            *named(self, "warp_lanes warp_m warp_n"),
            *zip(("kWarpsLanes", "kWarpsM", "kWarpsN", "kWarpsK"), self.warps, strict=True),
            ("kSplit", bool(work.splits)),
            *named(work, "contracted produced x_order w_order y_order"),
            ("kXVector", x_vector),
            ("kWVector", w_vector),
            ("kXPairs", self.pairs[0]),
            ("kWPairs", self.pairs[1]),
            ("kYVector", y_vector),
            *zip(("kXPitch", "kWPitch", "kYPitch"), pitches, strict=True),
            ("kTileBytesAt", offsets_bytes(self.m)),
        )

    def allows_vectors(self, name: str, view: View, extents: Extents, width: int) -> int:
        return allows_runs(
            view, extents, self.order(name), INDICES[name], width, self.element(name), self.joins
        )
