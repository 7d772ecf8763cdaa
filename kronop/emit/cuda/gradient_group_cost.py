"""What a tile of `gradient_group` costs, and the shares of the rows that it is fastest with."""

from __future__ import annotations

from kronop.emit.cuda import gradient_group, operands
from kronop.emit.cuda.gradient_group import GradientGroupTile, GroupSums
from kronop.target import Target

# Rows where nobody says how many there are.
MANY_ROWS = 16384
# As in contract_group_cost: bytes of memory, of what copies bring (by the teams that copy) and of
# shared memory a cycle of one multiprocessor; cycles until a copied stage is there, and stages that
# are not on their way; multiply-adds a cycle; cycles of a step, of a tile and of a launch.
_MEMORY, _BROUGHT, _SHARED = 16.5, {1: 18.0, 2: 27.0}, 128.0
_LATENCY, _HELD = 2060.0, 1.4
_RATE = 2048.0
_STEP, _TILE, _CALL = 60.0, 1500.0, 3500.0
# Of a call, whatever its size: the first copies, and the launch that adds shares up.
FIXED = _LATENCY + 2 * _CALL
# Bytes of sums that a block writes in a cycle.
_WRITTEN = 32.0
# Rounds of tiles that are considered.
_MOST_ROUNDS = 16


def tiles_of(work: GroupSums, tile: GradientGroupTile) -> int:
    """Tiles of all products."""
    across = operands.cover(work.p, tile.p) * operands.cover(work.q, tile.q)
    return across * work.products


def shares(work: GroupSums, tile: GradientGroupTile, rows: int, cores: int) -> int:
    """Parts of the rows: as many as take the least time."""
    return _best(work, tile, rows, cores)[1]


def cycles(work: GroupSums, tile: GradientGroupTile, rows: int, target: Target) -> float:
    """Cycles of a call, with the shares added up and lanes brought apart."""
    moved = 0.0
    if work.lanes > 1:
        operand = (work.p + work.q) * work.products * rows * work.element.bytes
        moved = 2 * operand / (target.cores * _MEMORY) + 2 * _CALL
    return _best(work, tile, rows, target.cores)[0] + moved


def _best(work: GroupSums, tile: GradientGroupTile, rows: int, cores: int) -> tuple[float, int]:
    tiles, steps = tiles_of(work, tile), operands.cover(rows, tile.k)
    counts = {min(steps, max(1, rounds * cores // tiles)) for rounds in range(1, _MOST_ROUNDS + 1)}
    return min((_sums(work, tile, count, rows, cores), count) for count in counts)


def _sums(work: GroupSums, tile: GradientGroupTile, count: int, rows: int, cores: int) -> float:
    """Cycles with so many shares."""
    tiles, element = tiles_of(work, tile), work.element.bytes
    turns = operands.cover(tiles * count, cores)
    steps = operands.cover(operands.cover(rows, tile.k), count)
    sums = 4 * min(tile.p, work.p) * min(tile.q, work.q)
    one = steps * _step(work, tile) + sums / _WRITTEN + _TILE
    read = (work.p + work.q) * work.products * rows * element / (cores * _MEMORY)
    results = work.products * work.p * work.q
    # What was just written is read from the level-2 cache.
    added = results * (4 * count + 2 * element) / (cores * _WRITTEN)
    return FIXED + max(turns * one, read) + added


def _step(work: GroupSums, tile: GradientGroupTile) -> float:
    """Cycles of a stage."""
    stage = (min(tile.p, work.p) + min(tile.q, work.q)) * tile.k * work.element.bytes
    arriving = max(0.5, tile.stages - _HELD) * stage / _LATENCY
    brought = stage / min(_BROUGHT[tile.copiers], arriving)
    products = tile.p * tile.q * tile.k / _RATE
    parts = tile.p // gradient_group.TEAM_ROWS
    read = parts * (gradient_group.TEAM_ROWS + tile.q) * tile.k * work.element.bytes / _SHARED
    return max(brought, products, read) + _STEP
