"""Planning of a contraction for many rows on sm_90a (`contract_group`): its tiles, and the step."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from kronop.artifacts import Status
from kronop.descriptions.epilogue import Epilogue
from kronop.emit.cuda import contract_banks, contract_mma, operands
from kronop.emit.cuda import contract_group_chains as chains
from kronop.emit.cuda.contract import Contraction, Order
from kronop.emit.design import Constant
from kronop.target import Target

TEAM_ROWS, TEAM, _TEAM_WARPS = 64, 128, 4
# Teams that multiply.
TEAMS = 2
# Registers of a thread that copies, of one that multiplies and of one that stores: 512 for four
# teams. Where both operands are in shared memory, where lanes are sorted, where operands are split,
# and where a thread has many copies of several lanes.
_REGISTERS_DIRECT, _REGISTERS_OF_LANES, _REGISTERS_OF_SPLIT = (
    (88, 168, 88),
    (88, 176, 72),
    (72, 184, 72),
)
_MANY_PIECES, _REGISTERS_OF_MANY = 12, (104, 168, 72)
# Outputs of products whose left operand is in registers.
_MOST_OUTPUTS = 192
# What addresses and loops take besides sums and fragments, measured with ptxas 13.0; and where
# chains of sums are collected, of one lane or of several.
_REGISTERS, _REGISTERS_OF_CHAINS, _REGISTERS_OF_LANE_CHAINS = 32, 24, 56
# Results of one row of a part that leaves at once, in elements of all lanes, and bytes of a part.
_PART, _PART_BYTES = 64, 4096
_BARRIER, _ALIGNMENT = 8, 1024
# Multiprocessors that have to be busy where all parts of W shall have as many blocks.
_LEAST_BUSY = 0.9
# Weights of a block up to which it packs them itself, and a launch before it is saved.
_MOST_PACKED = 32768
# Lanes of weights that a thread has registers for.
_MOST_PACKED_LANES = 8
# Measured with ptxas 13.0: addresses of more copies of a thread are spilled.
_MOST_PIECES, _MOST_PIECES_OF_LANES = 16, 18
# The same: runs of all of more lanes are taken apart in further registers.
_MOST_JOINED = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTile:
    """What a block takes of a contraction.

    Attributes:
        lanes: lanes of a block; all of them, or what an access brings.
        team_m: how many times 64 rows a team has.
        n: outputs.
        along_lanes, along_outputs: teams that share rows and have lanes or outputs of their own;
            the others have rows of their own.
        k: contracted steps of a stage.
        stages: tiles of X (and of W where it does not stay) that are on their way or in use.
        resident: whether W stays in shared memory.
        halves: whether there is room in shared memory for one half of the results at a time; else
            for all of them.
        images: whether W of a stage comes as an image that was packed before; else threads copy it.
    """

    lanes: int
    team_m: int
    n: int
    along_lanes: int
    k: int
    stages: int
    resident: bool
    along_outputs: int = 1
    halves: bool = False
    images: bool = False

    @property
    def along_rows(self) -> int:
        return TEAMS // (self.along_lanes * self.along_outputs)

    @property
    def m(self) -> int:
        return TEAM_ROWS * self.team_m * self.along_rows

    @property
    def team_n(self) -> int:
        return self.n // self.along_outputs

    @property
    def threads(self) -> int:
        return (TEAMS + 2) * TEAM

    @property
    def team_lanes(self) -> int:
        return self.lanes // self.along_lanes

    def __str__(self) -> str:
        w = "W stays" if self.resident else "W in images" if self.images else "W in stages"
        along = "lanes" if self.along_lanes > 1 else "outputs" if self.along_outputs > 1 else "rows"
        teams = f"{TEAMS} teams along {along}"
        block = f"{self.lanes} lanes x {self.m} x {self.n} x {self.k}, {self.stages} stages"
        results = ", results in halves" if self.halves else ""
        return f"{block}, {teams}, {w}{results}"


def direct(work: Contraction, tile: GroupTile) -> bool:
    """Whether X is multiplied from shared memory as it lies there."""
    return work.source.bytes == 2 and tile.lanes == 1


def weight_lanes(work: Contraction) -> int:
    """Neighbouring lanes of weights that one access brings."""
    return operands.widest_divisor(operands.vector_of(work.source), [work.lanes])


def packed_lanes(work: Contraction) -> int:
    """Lanes of weights that a thread packs at once: all of a few, whose runs are read whole."""
    return work.lanes if work.lanes <= _MOST_PACKED_LANES else weight_lanes(work)


def wants_packing(work: Contraction) -> bool:
    """Whether contiguous weights are in no order for products."""
    return work.source.bytes > 2 or work.lanes > 1


def packs_before(work: Contraction, tile: GroupTile) -> bool:
    """Whether a launch before packs contiguous weights."""
    return tile.images or (wants_packing(work) and not packs(work, tile))


def packs(work: Contraction, tile: GroupTile) -> bool:
    """Whether blocks pack weights themselves: few, that stay, and are in no order for products."""
    few = tile.lanes * tile.n * work.contracted <= _MOST_PACKED
    return tile.resident and few and wants_packing(work)


def planes(splits: bool) -> int:
    """Values that stand for a weight."""
    return 2 if splits else 1


def packed_depth(work: Contraction) -> int:
    """Elements from one output of packed weights to the next."""
    return operands.round_up(work.contracted, operands.vector_of(work.source))


def _part_rows(work: Contraction) -> int:
    """Rows of a part of the results: a warp's, or a team's where memory has rows side by side."""
    return TEAM_ROWS if work.y_order is Order.Rows else TEAM_ROWS // _TEAM_WARPS


def part_outputs(work: Contraction, tile: GroupTile) -> int:
    """Outputs of a part: one run of memory, and few enough for the registers of who stores it."""
    return _part_outputs(_part_rows(work), tile.lanes, tile.team_n, work.output.bytes)


@functools.lru_cache(maxsize=1024)
def _part_outputs(rows: int, lanes: int, own: int, output_bytes: int) -> int:
    row = rows * lanes * output_bytes
    # 16-bit results of one lane leave registers as pairs of matrices of 8 outputs.
    least = 16 if output_bytes == 2 and lanes == 1 else 8
    most = max(least, min(_PART // lanes, _PART_BYTES // row))
    return next(n for n in range(own, 0, -least) if own % n == 0 and n <= most)


def _kept(work: Contraction, tile: GroupTile) -> int:
    """Parts of a team's results that have room in shared memory."""
    parts = tile.team_m * tile.team_n // part_outputs(work, tile)
    return parts // 2 if tile.halves else parts


def _pitches(work: Contraction, tile: GroupTile) -> tuple[int, int]:
    """From one run of X and of the results to the next in shared memory."""
    spread = work.source.bytes > 2
    run = {Order.Own: tile.k, Order.Rows: tile.m, Order.Lanes: tile.k * tile.lanes}[work.x_order]
    x = contract_banks.pitch(run, work.x_order, tile.lanes, tile.team_lanes, work.source, spread)
    run = {
        Order.Own: part_outputs(work, tile),
        Order.Rows: _part_rows(work),
        Order.Lanes: part_outputs(work, tile) * tile.lanes,
    }[work.y_order]
    y = contract_banks.deposit_pitch(run, work.y_order, tile.lanes, tile.team_lanes, work.output)
    return x.stride, y


def _x_size(work: Contraction, tile: GroupTile) -> int:
    if direct(work, tile):
        return tile.k * tile.m
    pitch = _pitches(work, tile)[0]
    runs = {
        Order.Own: tile.lanes * tile.m,
        Order.Rows: tile.lanes * tile.k,
        Order.Lanes: tile.m,
    }
    return pitch * runs[work.x_order]


def _w_size(work: Contraction, tile: GroupTile, splits: bool) -> int:
    return planes(splits) * tile.lanes * tile.k * tile.n


def _results_bytes(work: Contraction, tile: GroupTile) -> int:
    pitch, rows = _pitches(work, tile)[1], _part_rows(work)
    runs = {
        Order.Own: tile.lanes * rows,
        Order.Rows: tile.lanes * part_outputs(work, tile),
        Order.Lanes: rows,
    }
    elements = _units(work, tile) * _kept(work, tile) * pitch * runs[work.y_order]
    # What is added to results: of two tiles.
    elements += 2 * tile.n * tile.lanes
    return operands.round_up(elements * work.output.bytes, operands.VECTOR_BYTES)


def _units(work: Contraction, tile: GroupTile) -> int:
    """Results that are stored apart from others."""
    return TEAMS // tile.along_lanes * TEAM_ROWS // _part_rows(work)


def _x_bytes(work: Contraction, tile: GroupTile) -> int:
    """Bytes of X in a stage; what follows starts where products want it."""
    return operands.round_up(_x_size(work, tile) * work.source.bytes, _ALIGNMENT)


def _w_room(work: Contraction, tile: GroupTile, splits: bool) -> int:
    """The same of W."""
    room = operands.round_up(_w_size(work, tile, splits) * work.source.bytes, _ALIGNMENT)
    return 0 if tile.resident else room


def _results_at(work: Contraction, tile: GroupTile, splits: bool) -> int:
    steps = operands.cover(work.contracted, tile.k)
    stages = tile.stages * (_x_bytes(work, tile) + _w_room(work, tile, splits))
    kept = steps * _w_size(work, tile, splits) * work.source.bytes
    return stages + (kept if tile.resident else 0)


def _barriers_at(work: Contraction, tile: GroupTile, splits: bool) -> int:
    return _results_at(work, tile, splits) + _results_bytes(work, tile)


def shared_bytes(work: Contraction, tile: GroupTile, splits: bool) -> int:
    """Stages, W where it stays, results on their way, and barriers."""
    barriers = (2 * tile.stages + 2 * _units(work, tile) + 3) * _BARRIER
    return _barriers_at(work, tile, splits) + operands.round_up(barriers, operands.VECTOR_BYTES)


def most_stages(
    work: Contraction, tile: GroupTile, splits: bool, counts: range, target: Target
) -> int | None:
    """The largest of these counts of stages that shared memory has room for."""
    stage = _x_bytes(work, tile) + _w_room(work, tile, splits)
    rest = shared_bytes(work, tile, splits) - tile.stages * (stage + 2 * _BARRIER)
    # Barriers end at whole accesses, with or without one more.
    fitting = (target.shared_bytes - rest + operands.VECTOR_BYTES) // (stage + 2 * _BARRIER)
    for count in range(min(counts[-1], fitting), counts[0] - 1, -1):
        filled = replace(tile, stages=count)
        if shared_bytes(work, filled, splits) <= target.shared_bytes:
            return count
    return None


def registers(work: Contraction, tile: GroupTile, splits: bool) -> int:
    """An upper estimate of the registers of a thread that multiplies."""
    held = tile.team_lanes * tile.team_m * tile.team_n // 2
    if splits:
        more = _REGISTERS_OF_LANE_CHAINS if tile.team_lanes > 1 else _REGISTERS_OF_CHAINS
        return held + chains.outputs(tile) + max(32, 16 * tile.team_lanes) + more
    if not direct(work, tile):
        held += 4 * tile.team_lanes * (2 if tile.team_lanes <= 4 else 1)
    if tile.lanes == tile.team_lanes > _MOST_JOINED:
        held += tile.lanes
    return held + _REGISTERS


def _pieces(work: Contraction, tile: GroupTile) -> tuple[int, int]:
    """Copies of a thread for a stage, of X and of W; W that stays is there before."""
    x, w = (
        size * tile.lanes * tile.k // operands.vector_of(work.source) // TEAM
        for size in (tile.m, tile.n)
    )
    return x, 0 if tile.resident or tile.images else w


def _sorts(work: Contraction, tile: GroupTile) -> bool:
    """Whether lanes of 16 bits are sorted in registers."""
    return work.source.bytes == 2 and tile.lanes > 1


def _is_crowded(work: Contraction, tile: GroupTile) -> bool:
    """Whether those who copy need more registers than usual."""
    return _sorts(work, tile) and sum(_pieces(work, tile)) > _MANY_PIECES


def _shares(work: Contraction, tile: GroupTile, splits: bool) -> tuple[int, int, int]:
    """Registers of a thread that copies, of one that multiplies and of one that stores."""
    if _is_crowded(work, tile):
        return _REGISTERS_OF_MANY
    if direct(work, tile):
        return _REGISTERS_DIRECT
    return _REGISTERS_OF_SPLIT if splits else _REGISTERS_OF_LANES


def _lanes_at_once(work: Contraction, tile: GroupTile) -> int:
    """Lanes of weights that a thread of a block packs at once."""
    most = weight_lanes(work) // (2 if _is_crowded(work, tile) else 1)
    return operands.widest_divisor(most, [tile.lanes])


def fits(work: Contraction, tile: GroupTile, splits: bool, target: Target) -> Status:
    """Whether `contract_group` can run this tile: the one rule."""
    wanted = shared_bytes(work, tile, splits)
    if wanted > target.shared_bytes:
        return Status.reject(
            f"a tile of {tile} wants {wanted} bytes of shared memory, {target.shared_bytes} are"
            " there; use a smaller threadblock_shape or fewer stages"
        )
    pieces = _pieces(work, tile)
    if max(pieces) > _MOST_PIECES or (_sorts(work, tile) and sum(pieces) > _MOST_PIECES_OF_LANES):
        return Status.reject(
            f"{tile} has {pieces} copies of a thread for a stage, more than it has registers for;"
            " use a smaller Tile_K"
        )
    held, there = registers(work, tile, splits), _shares(work, tile, splits)[1]
    if held > there or (tile.team_n > _MOST_OUTPUTS and not direct(work, tile)):
        return Status.reject(
            f"{tile} wants about {held} registers of {there}; use a smaller threadblock_shape"
        )
    return Status.accept()


def serves(work: Contraction, target: Target) -> bool:
    """Whether there is such a kernel for these element types on this machine."""
    return target.arch == "sm_90a" and work.source.kind == "float" and work.source.bytes in (2, 4)


def pack_constants(
    work: Contraction, tile: GroupTile, splits: bool
) -> tuple[tuple[str, Constant], ...]:
    """What the step that packs weights for a tile has of its own."""
    own = (("kLanes", packed_lanes(work)), ("kPlanes", planes(splits)))
    if not tile.images:
        return (*own, ("kPitch", packed_depth(work)))
    return (
        *own,
        ("kTileLanes", tile.lanes),
        ("kTileN", tile.n),
        ("kTileK", tile.k),
    )


def blocks(parts: int, rows: int, resident: bool, cores: int) -> int:
    """Blocks of a launch over so many tiles of rows of each part of W: one for each multiprocessor.

    Where W stays they are a few less if all parts have as many of them then, at the same rows.
    """
    even = cores // parts * parts
    return min(even if resident and even >= _LEAST_BUSY * cores else cores, parts * rows)


def constants(
    work: Contraction, tile: GroupTile, splits: bool, epilogue: Epilogue | None
) -> tuple[tuple[str, Constant], ...]:
    """The trait struct of `contract_group`."""
    x_vector, _, y_vector = contract_mma.vectors(work, tile)
    x_pitch, y_pitch = _pitches(work, tile)
    copy_registers, product_registers, store_registers = _shares(work, tile, splits)
    return (
        ("kThreads", tile.threads),
        ("kBlocks", 1),
        ("kStages", tile.stages),
        ("kResident", tile.resident),
        ("kImages", tile.images),
        ("kPacks", packs(work, tile)),
        ("kDirect", direct(work, tile)),
        ("kSplit", splits),
        ("kLanes", tile.lanes),
        ("kTileM", tile.m),
        ("kTileN", tile.n),
        ("kTileK", tile.k),
        ("kTogether", chains.together(work, tile) if splits else 1),
        ("kChainSlabs", chains.slabs(tile)),
        ("kChainN", chains.outputs(tile)),
        ("kTeamM", tile.team_m),
        ("kGroupsM", tile.along_rows),
        ("kGroupsLanes", tile.along_lanes),
        ("kGroupsN", tile.along_outputs),
        ("kPartM", _part_rows(work)),
        ("kPartN", part_outputs(work, tile)),
        ("kKept", _kept(work, tile)),
        ("kContracted", work.contracted),
        ("kProduced", work.produced),
        ("kPlane", work.produced * packed_depth(work)),
        ("kXOrder", int(work.x_order)),
        ("kYOrder", int(work.y_order)),
        ("kXVector", x_vector),
        ("kWVector", operands.vector_of(work.source)),
        ("kWLanes", _lanes_at_once(work, tile)),
        ("kYVector", y_vector),
        ("kXPitch", x_pitch),
        ("kYPitch", y_pitch),
        ("kXSize", _x_bytes(work, tile) // work.source.bytes),
        ("kWRoom", _w_room(work, tile, splits) // work.source.bytes),
        ("kResultsAt", _results_at(work, tile, splits)),
        ("kBarriersAt", _barriers_at(work, tile, splits)),
        ("kCopyRegisters", copy_registers),
        ("kProductRegisters", product_registers),
        ("kStoreRegisters", store_registers),
        ("kSaturate", operands.saturates(epilogue)),
    )
