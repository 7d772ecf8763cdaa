"""Planning of a contraction of many lanes side by side (`contract_broad`): tiles of whole runs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from kronop.artifacts import Status
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.tile import TileDescription
from kronop.emit.cuda import contract_banks, contract_group, contract_mma, operands
from kronop.emit.cuda.contract import Contraction, Order
from kronop.emit.plan import Constant
from kronop.target import Target

# Rows, outputs and contracted steps of a warp's products.
ROWS, OUTPUTS, SLAB = 16, 16, 16
_TEAM_WARPS, _MOST_TEAMS, _COPIERS = 4, 3, 1
# NOTE: registers of a thread that copies and of one that multiplies, without spills by ptxas 13.0:
# by the teams that multiply and, of three teams, by the bytes of an element.
_REGISTERS = {1: (96, 232), 2: (96, 208)}
_REGISTERS_OF_THREE = {2: (56, 152), 4: (80, 144)}
_MOST_STAGES, _LEAST_STAGES = 6, 2
# Bytes of a run of lanes.
_LEAST_RUN, _MOST_RUN = 16, 128
_BARRIER, _ALIGNMENT = 8, 1024
# Cycles of a tile, of its steps and of parts of its results: modelled, not measured.
_TILE, _STEP, _PART, _SPLIT = 600.0, 320.0, 450.0, 2.5
_MEMORY, _BROUGHT, _RUN, _CALL = 13.0, 24.0, 64, 6000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BroadTile:
    """What a block takes of a contraction.

    Attributes:
        lanes: lanes of a block, and of each of its warps.
        warp_lanes: those of one access.
        n: outputs.
        stages: tiles of X that are on their way or in use.
    """

    lanes: int
    warp_lanes: int
    n: int
    stages: int

    @property
    def m(self) -> int:
        return ROWS

    @property
    def k(self) -> int:
        return SLAB

    @property
    def teams(self) -> int:
        """Teams of four warps that multiply."""
        return operands.cover(self.lanes // self.warp_lanes * (self.n // OUTPUTS), _TEAM_WARPS)

    @property
    def threads(self) -> int:
        return (self.teams + _COPIERS) * contract_group.TEAM

    def __str__(self) -> str:
        block = f"{self.lanes} lanes x {self.m} x {self.n} x {self.k}, {self.stages} stages"
        return f"{block}, {self.teams} teams along lanes and outputs, {_COPIERS} of copies, W stays"


def _pitches(work: Contraction, tile: BroadTile) -> tuple[int, int]:
    """From one row of X and of the results to the next in shared memory."""
    x = contract_banks.pitch(
        tile.k * tile.lanes, Order.Lanes, tile.lanes, tile.warp_lanes, work.source, True
    )
    y = contract_banks.deposit_pitch(
        OUTPUTS * tile.lanes, Order.Lanes, tile.lanes, tile.warp_lanes, work.output
    )
    return x.stride, y


def _x_bytes(work: Contraction, tile: BroadTile) -> int:
    size = _pitches(work, tile)[0] * tile.m * work.source.bytes
    return operands.round_up(size, _ALIGNMENT)


def _results_at(work: Contraction, tile: BroadTile) -> int:
    weights = tile.lanes * tile.n * work.contracted * work.source.bytes
    return tile.stages * _x_bytes(work, tile) + weights


def _barriers_at(work: Contraction, tile: BroadTile) -> int:
    results = _pitches(work, tile)[1] * ROWS + OUTPUTS * tile.lanes
    at = _results_at(work, tile) + results * work.output.bytes
    return operands.round_up(at, operands.VECTOR_BYTES)


def shared_bytes(work: Contraction, tile: BroadTile) -> int:
    """Stages, weights, results on their way, and barriers."""
    return _barriers_at(work, tile) + operands.round_up((2 * tile.stages + 2) * _BARRIER, 16)


def fits(work: Contraction, tile: BroadTile, target: Target) -> Status:
    """Whether `contract_broad` can run this tile: the one rule."""
    wanted = shared_bytes(work, tile)
    if wanted > target.shared_bytes:
        return Status.reject(
            f"a tile of {tile} wants {wanted} bytes of shared memory, {target.shared_bytes} are"
            " there; use a smaller threadblock_shape or fewer stages"
        )
    if tile.teams > _MOST_TEAMS:
        return Status.reject(
            f"{tile} wants {tile.teams} teams of {_MOST_TEAMS}; use a smaller Tile_N"
        )
    return Status.accept()


def serves(work: Contraction, target: Target) -> bool:
    """Whether lanes are side by side, and there is such a kernel for them."""
    return (
        contract_group.serves(work, target)
        and (work.x_order, work.y_order) == (Order.Lanes, Order.Lanes)
        and work.contracted % SLAB == 0
        and work.output is work.source
    )


def proposed(
    work: Contraction, target: Target, given: TileDescription | None
) -> Iterator[BroadTile]:
    """Tiles to consider: all that a user's tile leaves open, or of several sizes."""
    if not serves(work, target):
        return
    outputs = operands.round_up(work.produced, OUTPUTS)
    access = operands.vector_of(work.source)
    for lanes, n in itertools.product(_lanes(work), range(OUTPUTS, outputs + 1, OUTPUTS)):
        for stages in range(_MOST_STAGES, _LEAST_STAGES - 1, -1):
            tile = BroadTile(
                lanes=lanes,
                warp_lanes=operands.widest_divisor(access, [lanes]),
                n=n,
                stages=stages,
            )
            if given is not None:
                shape = (tile.m, tile.n, tile.k)
                if (*shape, tile.stages, tile.threads) == (
                    *given.threadblock_shape,
                    given.stages,
                    32 * given.warps,
                ):
                    yield tile
            elif fits(work, tile, target):
                yield tile
                break


def _lanes(work: Contraction) -> list[int]:
    """Lanes of a block: whole accesses that share all lanes evenly, or all of them."""
    access, size = operands.vector_of(work.source), work.source.bytes
    least, most = _LEAST_RUN // size, _MOST_RUN // size
    even = [
        lanes
        for lanes in range(least, min(most, work.lanes) + 1, access)
        if work.lanes % lanes == 0
    ]
    return even or ([work.lanes] if 4 <= work.lanes <= most and work.lanes % 4 == 0 else [])


def cycles(work: Contraction, tile: BroadTile, splits: bool, target: Target) -> float:
    """Cycles of a call: what is slowest of memory, copies and products, tile after tile."""
    outputs = operands.cover(work.produced, tile.n)
    x = tile.lanes * tile.m * work.contracted * work.source.bytes
    y = tile.lanes * tile.m * tile.n * work.output.bytes
    run = tile.lanes * work.source.bytes * (1 if tile.lanes < work.lanes else tile.k)
    share = min(1.0, run / _RUN)
    memory = (x / outputs + y) / (_MEMORY * share)
    used = work.contracted / tile.k * _STEP * (_SPLIT if splits else 1)
    used += tile.n / OUTPUTS * _PART + _TILE
    tiles = operands.cover(work.rows, tile.m) * outputs * operands.cover(work.lanes, tile.lanes)
    turns = max(1.0, tiles / target.cores)
    weights = tile.lanes * tile.n * work.contracted
    return turns * max(memory, x / (_BROUGHT * share), used) + _CALL + weights / 4


def constants(
    work: Contraction, tile: BroadTile, splits: bool, epilogue: Epilogue | None
) -> tuple[tuple[str, Constant], ...]:
    """The trait struct of `contract_broad`."""
    x_vector, _, y_vector = contract_mma.vectors(work, tile)
    x_pitch, y_pitch = _pitches(work, tile)
    of_three = _REGISTERS_OF_THREE[work.source.bytes]
    copying, multiplying = _REGISTERS.get(tile.teams, of_three)
    return (
        ("kThreads", tile.threads),
        ("kBlocks", 1),
        ("kStages", tile.stages),
        ("kBroad", True),
        ("kResident", True),
        ("kPacks", True),
        ("kDirect", False),
        ("kSplit", splits),
        ("kLanes", tile.lanes),
        ("kWarpLanes", tile.warp_lanes),
        ("kTileM", tile.m),
        ("kTileN", tile.n),
        ("kTileK", tile.k),
        ("kTeamM", 1),
        ("kGroupsM", 1),
        ("kGroupsLanes", tile.teams),
        ("kPartN", OUTPUTS),
        ("kContracted", work.contracted),
        ("kProduced", work.produced),
        ("kPlane", 0),
        ("kXOrder", int(work.x_order)),
        ("kYOrder", int(work.y_order)),
        ("kXVector", x_vector),
        ("kWVector", operands.vector_of(work.source)),
        ("kWLanes", operands.widest_divisor(4, [work.lanes, tile.lanes])),
        ("kYVector", y_vector),
        ("kXPitch", x_pitch),
        ("kYPitch", y_pitch),
        ("kXSize", _x_bytes(work, tile) // work.source.bytes),
        ("kWRoom", 0),
        ("kResultsAt", _results_at(work, tile)),
        ("kBarriersAt", _barriers_at(work, tile)),
        ("kCopyThreads", _COPIERS * contract_group.TEAM),
        ("kCopyRegisters", copying),
        ("kProductRegisters", multiplying),
        ("kSaturate", operands.saturates(epilogue)),
    )
