"""What a tile of `gradient_group` costs, and the shares of the rows that it is fastest with."""

from __future__ import annotations

from kronop.emit.cuda import operands
from kronop.families.ksparse.cuda import gradient_group
from kronop.families.ksparse.cuda.gradient_group import GradientGroupTile, GroupSums
from kronop.target import Target

# Rows where nobody says how many there are.
MANY_ROWS = 16384
# NOTE: fitted, then rounded; of 288 tiles with their shares of 35 problems (16 bits, batch 25088,
# one H200) the estimate is 8 % off in the mean, and the choice takes 2 % longer than the best in
# the mean, 10 % at worst.
# Bytes of memory, of what copies bring (by the teams that copy), of sums that a block writes and of
# shared memory, a cycle of one multiprocessor.
_MEMORY, _BROUGHT, _WRITTEN, _SHARED = 17.6, {1: 36.0, 2: 41.0}, 31.0, 130.0
# How much slower memory is where the copies of a stage take short or broken runs of it, and what
# is read again for another tile, from the level-2 cache.
_BROKEN, _AGAIN = 1.04, 0.09
# Cycles until a copied stage is there, and stages that are not on their way; multiply-adds a cycle;
# cycles of a step, of a tile and of a launch.
_LATENCY, _HELD = 1420.0, 1.18
_RATE = 1720.0
_STEP, _TILE, _CALL = 62.0, 1060.0, 5800.0
# Of the launch that adds shares up: its cycles, and bytes that a multiprocessor reads in one.
_ADD, _ADDED = 4600.0, 19.4
# Of a call, whatever its size.
FIXED = _CALL + _ADD
# Of a launch that brings lanes apart: bytes, read and written, in a cycle of one multiprocessor,
# and its cycles.
_MOVED, _MOVE = 17.3, 7000.0
# Rounds of tiles that are considered.
_MOST_ROUNDS = 16
# Rows that tensor cores add up; they truncate each sum, by 5e-5 of it.
_MOST_ROWS = 32768


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
        moved = 2 * (_bytes(work, rows) / (target.cores * _MOVED) + _MOVE)
    return _best(work, tile, rows, target.cores)[0] + moved


def _best(work: GroupSums, tile: GradientGroupTile, rows: int, cores: int) -> tuple[float, int]:
    tiles, steps = tiles_of(work, tile), operands.cover(rows, tile.k)
    least = operands.cover(rows, _MOST_ROWS)
    rounds = range(1, _MOST_ROUNDS + 1)
    counts = {min(steps, max(least, count * cores // tiles)) for count in rounds}
    return min((_sums(work, tile, count, rows, cores), count) for count in counts)


def _sums(work: GroupSums, tile: GradientGroupTile, count: int, rows: int, cores: int) -> float:
    """Cycles with so many shares."""
    turns = operands.cover(tiles_of(work, tile) * count, cores)
    steps = operands.cover(operands.cover(rows, tile.k), count)
    sums = 4 * min(tile.p, work.p) * min(tile.q, work.q)
    one = steps * _step(work, tile) + sums / _WRITTEN + _TILE
    partial = 4 * count * work.products * work.p * work.q
    slow = _BROKEN if _is_broken(work, tile) else 1.0
    memory = slow * (_read(work, tile, rows) + partial) / (cores * _MEMORY)
    return FIXED + max(turns * one, memory) + partial / (cores * _ADDED)


def _bytes(work: GroupSums, rows: int) -> int:
    """Bytes of X and G."""
    return (work.p + work.q) * work.products * rows * work.element.bytes


def _read(work: GroupSums, tile: GradientGroupTile, rows: int) -> float:
    """Bytes that memory gives, and what tiles of the same product cost beside."""
    again = work.p * (operands.cover(work.q, tile.q) - 1)
    again += work.q * (operands.cover(work.p, tile.p) - 1)
    return _bytes(work, rows) + _AGAIN * again * work.products * rows * work.element.bytes


def _is_broken(work: GroupSums, tile: GradientGroupTile) -> bool:
    """Whether copies of a stage take single lines along the rows, or parts of lines."""
    line = gradient_group.LINE
    if work.along_sums:
        return tile.k == line
    if tile.q < work.q and tile.q % line:
        return True
    return tile.k == line and (work.p % line or work.q % line) != 0


def _step(work: GroupSums, tile: GradientGroupTile) -> float:
    """Cycles of a stage."""
    element = work.element.bytes
    stage = (min(tile.p, work.p) + min(tile.q, work.q)) * tile.k * element
    copied = stage / _BROUGHT[tile.copiers]
    # A stage is asked for when another has been used.
    brought = max(copied, (_LATENCY + copied) / (tile.stages - _HELD))
    products = tile.p * tile.q * tile.k / _RATE
    parts = tile.p // gradient_group.TEAM_ROWS
    read = parts * (gradient_group.TEAM_ROWS + tile.q) * tile.k * element / _SHARED
    return max(brought, products, read) + _STEP
