"""What a tile of `gradient_group` costs, and the shares of the rows that it is fastest with."""

from __future__ import annotations

from kronop.emit.cuda import operands
from kronop.families.ksparse.cuda.gradient_group import LINE, TEAM_ROWS, GradientGroup
from kronop.target import Target

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


def shares(design: GradientGroup, rows: int, target: Target) -> int:
    """Parts of the rows: as many as take the least time."""
    return _best(design, rows, target.cores)[1]


def cycles(design: GradientGroup, rows: int, target: Target) -> float:
    """Cycles of a call, with the shares added up and lanes brought apart."""
    moved = 0.0
    if design.lanes > 1:
        moved = 2 * (_bytes(design, rows) / (target.cores * _MOVED) + _MOVE)
    return _best(design, rows, target.cores)[0] + moved


def _tiles(design: GradientGroup) -> int:
    """Tiles of all products."""
    work = design.work
    across = operands.cover(work.p, design.p) * operands.cover(work.q, design.q)
    return across * design.products


def _best(design: GradientGroup, rows: int, cores: int) -> tuple[float, int]:
    tiles, steps = _tiles(design), operands.cover(rows, design.k)
    least = operands.cover(rows, _MOST_ROWS)
    rounds = range(1, _MOST_ROUNDS + 1)
    counts = {min(steps, max(least, count * cores // tiles)) for count in rounds}
    return min((_sums(design, count, rows, cores), count) for count in counts)


def _sums(design: GradientGroup, count: int, rows: int, cores: int) -> float:
    """Cycles with so many shares."""
    work = design.work
    turns = operands.cover(_tiles(design) * count, cores)
    steps = operands.cover(operands.cover(rows, design.k), count)
    sums = 4 * min(design.p, work.p) * min(design.q, work.q)
    one = steps * _step(design) + sums / _WRITTEN + _TILE
    partial = 4 * count * design.products * work.p * work.q
    slow = _BROKEN if _is_broken(design) else 1.0
    memory = slow * (_read(design, rows) + partial) / (cores * _MEMORY)
    return FIXED + max(turns * one, memory) + partial / (cores * _ADDED)


def _bytes(design: GradientGroup, rows: int) -> int:
    """Bytes of X and G."""
    work = design.work
    return (work.p + work.q) * design.products * rows * work.element.bytes


def _read(design: GradientGroup, rows: int) -> float:
    """Bytes that memory gives, and what tiles of the same product cost beside."""
    work = design.work
    again = work.p * (operands.cover(work.q, design.q) - 1)
    again += work.q * (operands.cover(work.p, design.p) - 1)
    return _bytes(design, rows) + _AGAIN * again * design.products * rows * work.element.bytes


def _is_broken(design: GradientGroup) -> bool:
    """Whether copies of a stage take single lines along the rows, or parts of lines."""
    work = design.work
    if work.by_rows:
        return design.k == LINE
    if design.q < work.q and design.q % LINE:
        return True
    return design.k == LINE and (work.p % LINE or work.q % LINE) != 0


def _step(design: GradientGroup) -> float:
    """Cycles of a stage."""
    work, element = design.work, design.work.element.bytes
    stage = (min(design.p, work.p) + min(design.q, work.q)) * design.k * element
    copied = stage / _BROUGHT[design.copiers]
    # A stage is asked for when another has been used.
    brought = max(copied, (_LATENCY + copied) / (design.stages - _HELD))
    products = design.p * design.q * design.k / _RATE
    parts = design.p // TEAM_ROWS
    read = parts * (TEAM_ROWS + design.q) * design.k * element / _SHARED
    return max(brought, products, read) + _STEP
