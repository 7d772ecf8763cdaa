"""A contraction for many rows by the warp groups of sm_90a (`contract_warp_group`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import ClassVar

from kronop.artifacts import Status
from kronop.descriptions.datatype import DataType
from kronop.emit.cuda import operands
from kronop.emit.cuda.contraction import warp_group_chains as chains
from kronop.emit.cuda.contraction.design import INDICES, ContractDesign, Extents, allows_runs
from kronop.emit.cuda.contraction.warp_group_room import TEAM, WarpGroupRoom
from kronop.emit.cuda.contraction.work import Contraction
from kronop.emit.cuda.machine import hertz
from kronop.emit.cuda.operands import View
from kronop.emit.design import Constant, named
from kronop.frozen import dataclass
from kronop.late import imported
from kronop.machine import Feature
from kronop.target import Target

# Registers of a copying, a multiplying and a storing thread; one thread of each of the four teams
# has 512 in all. In order: both operands read from shared memory; lanes deinterleaved in registers;
# split operands; and many copies of several lanes for each thread.
_REGISTERS_DIRECT, _REGISTERS_OF_LANES, _REGISTERS_OF_SPLIT = (
    (88, 168, 88),
    (88, 176, 72),
    (72, 184, 72),
)
_MANY_PIECES, _REGISTERS_OF_MANY = 12, (104, 168, 72)
# Most outputs of a product whose left operand is in registers.
_MOST_OUTPUTS = 192
# Measured with ptxas 13.0: registers besides sums and fragments, for addresses and loops; the same
# if chains of sums are collected, of one lane and of several.
_REGISTERS, _REGISTERS_OF_CHAINS, _REGISTERS_OF_LANE_CHAINS = 32, 24, 56
# Most copies of a thread for a stage: ptxas 13.0 spills the addresses of more.
_MOST_PIECES, _MOST_PIECES_OF_LANES = 16, 18
# Measured with ptxas 13.0: if a team has all lanes and these are more than so many, unpacking
# contiguous lanes takes a further register for each.
_MOST_JOINED = 11


def serves(work: Contraction, target: Target) -> bool:
    """Whether the kernel serves these element types on this target."""
    is_served = work.source.kind == "float" and work.source.bytes in (2, 4)
    return is_served and target.has(Feature.warp_groups)


@dataclass(frozen=True, kw_only=True)
class WarpGroupContract(WarpGroupRoom):
    """A contraction by four warp groups that work at the same time: one copies, two multiply, one
    stores."""

    counts_call: ClassVar[bool] = True
    header: ClassVar[str] = "kronop/contract_warp_group.cuh"
    styles = (
        *(*ContractDesign.styles, "resident", "images", "stages", "halves", "packs"),
        *("teams along rows", "teams along lanes", "teams along outputs", "plain", "split"),
    )

    def style(self, target: Target) -> Iterator[str]:
        yield from super().style(target)
        yield "resident" if self.resident else "images" if self.images else "stages"
        for name in ("rows", "lanes", "outputs"):
            if getattr(self, f"along_{name}") > 1:
                yield f"teams along {name}"
        if self.halves:
            yield "halves"
        if self.packs:
            yield "packs"
        yield "split" if self.work.splits else "plain"

    @property
    def takes_packed(self) -> bool:
        return not self.packs

    @property
    def registers(self) -> int:
        """An upper estimate of the registers of a thread that multiplies."""
        held = self.team_lanes * self.team_m * self.team_n // 2
        if self.work.splits:
            more = _REGISTERS_OF_LANE_CHAINS if self.team_lanes > 1 else _REGISTERS_OF_CHAINS
            return held + chains.outputs(self) + max(32, 16 * self.team_lanes) + more
        if not self.direct:
            held += 4 * self.team_lanes * (2 if self.team_lanes <= 4 else 1)
        if self.lanes == self.team_lanes > _MOST_JOINED:
            held += self.lanes
        return held + _REGISTERS

    @property
    def _pieces(self) -> tuple[int, int]:
        """Copies of X and of W by a thread for a stage; none of W where stages don't copy it."""
        x, w = (
            size * self.lanes * self.k // operands.vector_of(self.work.source) // TEAM
            for size in (self.m, self.n)
        )
        return x, 0 if self.resident or self.images else w

    @property
    def _sorts(self) -> bool:
        """Whether 16-bit lanes are deinterleaved in registers."""
        return self.work.source.bytes == 2 and self.lanes > 1

    @property
    def _is_crowded(self) -> bool:
        """Whether copying threads need more registers than usual."""
        return self._sorts and sum(self._pieces) > _MANY_PIECES

    @property
    def _shares(self) -> tuple[int, int, int]:
        """Registers of a copying, a multiplying and a storing thread."""
        if self._is_crowded:
            return _REGISTERS_OF_MANY
        if self.direct:
            return _REGISTERS_DIRECT
        return _REGISTERS_OF_SPLIT if self.work.splits else _REGISTERS_OF_LANES

    @property
    def lanes_at_once(self) -> int:
        """Lanes of weights that a thread packs at once, where blocks pack them themselves."""
        most = weight_lanes(self.work) // (2 if self._is_crowded else 1)
        return operands.widest_divisor(most, [self.lanes])

    def status(self, target: Target) -> Status:
        wanted = self.shared_bytes
        if wanted > target.shared_bytes:
            return Status.reject(
                f"a tile of {self} wants {wanted} bytes of shared memory, {target.shared_bytes} are"
                " there; use a smaller threadblock_shape or fewer stages"
            )
        pieces = self._pieces
        if max(pieces) > _MOST_PIECES or (self._sorts and sum(pieces) > _MOST_PIECES_OF_LANES):
            return Status.reject(
                f"{self} has {pieces} copies of a thread for a stage, more than it has registers"
                " for; use a smaller Tile_K"
            )
        held, there = self.registers, self._shares[1]
        if held > there or (self.team_n > _MOST_OUTPUTS and not self.direct):
            return Status.reject(
                f"{self} wants about {held} registers of {there}; use a smaller threadblock_shape"
            )
        return Status.accept()

    def seconds(self, size: int, target: Target) -> float:
        imported("kronop.emit.cuda.contraction.warp_group_cost")
        from kronop.emit.cuda.contraction import warp_group_cost

        return warp_group_cost.cycles(self, size, target) / hertz(target)

    def constants(self, target: Target) -> tuple[tuple[str, Constant], ...]:
        work, (x_vector, w_vector, y_vector) = self.work, self.vectors
        registers = ("kCopyRegisters", "kProductRegisters", "kStoreRegisters")
        return (
            ("kThreads", self.threads),
            ("kBlocks", 1),
            *named(self, "stages resident images packs direct"),
            ("kSplit", bool(work.splits)),
            ("kLanes", self.lanes),
            *named(self, "m n k", "kTile"),
            ("kTogether", chains.together(self)),
            ("kChainSlabs", chains.slabs(self)),
            ("kChainN", chains.outputs(self)),
            ("kTeamM", self.team_m),
            ("kTeamsAlongM", self.along_rows),
            ("kTeamsAlongLanes", self.along_lanes),
            ("kTeamsAlongN", self.along_outputs),
            ("kPartM", self.part_rows),
            ("kPartN", self.part_outputs),
            ("kKept", self.kept),
            *named(work, "contracted produced"),
            ("kPlane", work.produced * packed_depth(work)),
            *named(work, "x_order y_order"),
            ("kXVector", x_vector),
            ("kWVector", w_vector),
            ("kWLanes", self.lanes_at_once),
            ("kYVector", y_vector),
            *zip(("kXPitch", "kYPitch"), self.pitches, strict=True),
            ("kXSize", self.x_bytes // work.source.bytes),
            ("kWRoom", self.w_room // work.source.bytes),
            *named(self, "results_at barriers_at"),
            *zip(registers, self._shares, strict=True),
        )

    def allows_vectors(self, name: str, view: View, extents: Extents, width: int) -> int:
        if name == "w":
            at_once, element = self.lanes_at_once, self.element("w")
            return allows_pieces(view, extents, at_once, element) if self.packs else 1
        joins = 1 < self.work.lanes == self.lanes
        order, element = self.order(name), self.element(name)
        return allows_runs(view, extents, order, INDICES[name], width, element, joins)

    def blocks(self, extents: Extents, target: Target) -> int:
        outputs = operands.cover(extents["produced"][0], self.n)
        rows = operands.cover(prod(extents["row"]), self.m)
        lanes = operands.cover(extents["lane"][0], self.lanes)
        return self.blocks_of(outputs * lanes * prod(extents["section"]), rows, target.cores)


def weight_lanes(work: Contraction) -> int:
    """How many neighbouring lanes of the weights one vectorised load has."""
    return operands.widest_divisor(operands.vector_of(work.source), [work.lanes])


def packed_depth(work: Contraction) -> int:
    """Elements from one output of packed weights to the next."""
    return operands.round_up(work.contracted, operands.vector_of(work.source))


def allows_pieces(
    view: View, extents: Mapping[str, Sequence[int]], at_once: int, element: DataType
) -> int:
    """1 if a packing thread may load its `at_once` lanes (for one lane: a vector of contracted
    indices) in one access, else 0."""
    along, width = ("lane", at_once) if at_once > 1 else ("contracted", operands.vector_of(element))
    return operands.allows_vectors(view, extents, along, width, element)
