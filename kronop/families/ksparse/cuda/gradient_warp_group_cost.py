"""The cost of a tile of `gradient_warp_group`, and the number of shares of the rows."""

from __future__ import annotations

from kronop.emit.cuda import operands
from kronop.emit.cuda.machine import memory_share
from kronop.families.ksparse.cuda.gradient_room import LINE, TEAM_ROWS, GradientRoom
from kronop.target import Target

# NOTE: fitted, then rounded. For 288 pairs of a tile and a number of shares, of 35 problems (16
# bits, batch 25088, one H200), the estimate is 8 % off in the mean, and the choice takes 2 % longer
# than the best in the mean, 10 % at worst.
# Bytes of a multiprocessor in one cycle: loaded from memory, written by its copies (by the number
# of copying teams), of sums that a block writes, and read from shared memory.
_MEMORY, _BROUGHT, _WRITTEN, _SHARED = 17.6, {1: 36.0, 2: 41.0}, 31.0, 130.0
# The factor by which memory is slower if copies access short or broken runs; and the relative cost
# of a byte that another tile reads again from the level-2 cache.
_BROKEN, _AGAIN = 1.04, 0.09
# Latency of copying a stage in cycles, and how many stages are in use, not being copied;
# multiply-adds in a cycle, as fitted with the others; cycles of a stage, of a tile and of a launch.
_LATENCY, _HELD = 1420.0, 1.18
_RATE = 1720.0
_STEP, _TILE, _CALL = 62.0, 1060.0, 5800.0
# The launch that adds up the shares: its cycles, and the bytes that a multiprocessor reads in one
# cycle.
_ADD, _ADDED = 4600.0, 19.4
# Cycles of a call of any size.
FIXED = _CALL + _ADD
# A launch that separates lanes: bytes that a multiprocessor reads and writes in one cycle, and the
# launch's cycles.
_MOVED, _MOVE = 17.3, 7000.0
# Most tiles of a persistent block that are considered.
_MOST_ROUNDS = 16
# Most rows of a share. Tensor cores truncate when they accumulate, so longer sums would be less
# accurate: so many rows lose 5e-5 of a sum.
_MOST_ROWS = 32768


def shares(design: GradientRoom, rows: int, target: Target) -> int:
    """The number of shares, parts of the rows, with the least time."""
    return _best(design, rows, target)[1]


def cycles(design: GradientRoom, rows: int, target: Target) -> float:
    """Cycles of a call, adding up the shares and separating lanes included."""
    moved = 0.0
    if design.lanes > 1:
        moved = 2 * (_bytes(design, rows) / _in_cycle(_MOVED, target) + _MOVE)
    return _best(design, rows, target)[0] + moved


def _in_cycle(moved: float, target: Target) -> float:
    """Bytes that all multiprocessors move in a cycle, if one of an H200 moves `moved`."""
    return target.cores * moved * memory_share(target)


def _tiles(design: GradientRoom) -> int:
    """The number of tiles of all products together."""
    work = design.work
    across = operands.cover(work.p, design.p) * operands.cover(work.q, design.q)
    return across * design.products


def _best(design: GradientRoom, rows: int, target: Target) -> tuple[float, int]:
    tiles, steps = _tiles(design), operands.cover(rows, design.k)
    least = operands.cover(rows, _MOST_ROWS)
    rounds = range(1, _MOST_ROUNDS + 1)
    counts = {min(steps, max(least, count * target.cores // tiles)) for count in rounds}
    return min((_sums(design, count, rows, target), count) for count in counts)


def _sums(design: GradientRoom, count: int, rows: int, target: Target) -> float:
    """Cycles of the sums with `count` shares, adding these up included."""
    work = design.work
    waves = operands.cover(_tiles(design) * count, target.cores)
    steps = operands.cover(operands.cover(rows, design.k), count)
    sums = 4 * min(design.p, work.p) * min(design.q, work.q)
    one = steps * _step(design) + sums / _WRITTEN + _TILE
    partial = 4 * count * design.products * work.p * work.q
    slow = _BROKEN if _is_broken(design) else 1.0
    memory = slow * (_read(design, rows) + partial) / _in_cycle(_MEMORY, target)
    return FIXED + max(waves * one, memory) + partial / _in_cycle(_ADDED, target)


def _bytes(design: GradientRoom, rows: int) -> int:
    """Bytes of X and G."""
    work = design.work
    return (work.p + work.q) * design.products * rows * work.element.bytes


def _read(design: GradientRoom, rows: int) -> float:
    """Bytes read from memory, plus the cost, in such bytes, of what other tiles of the same product
    read again."""
    work = design.work
    again = work.p * (operands.cover(work.q, design.q) - 1)
    again += work.q * (operands.cover(work.p, design.p) - 1)
    return _bytes(design, rows) + _AGAIN * again * design.products * rows * work.element.bytes


def _is_broken(design: GradientRoom) -> bool:
    """Whether the copies of a stage access single cache lines or parts of them, rather than longer
    runs."""
    work = design.work
    if work.by_rows:
        return design.k == LINE
    if design.q < work.q and design.q % LINE:
        return True
    return design.k == LINE and (work.p % LINE or work.q % LINE) != 0


def _step(design: GradientRoom) -> float:
    """Cycles of a stage."""
    work, element = design.work, design.work.element.bytes
    stage = (min(design.p, work.p) + min(design.q, work.q)) * design.k * element
    copied = stage / _BROUGHT[design.copiers]
    # A stage is copied only after another has been used, so few stages expose the latency.
    brought = max(copied, (_LATENCY + copied) / (design.stages - _HELD))
    products = design.p * design.q * design.k / _RATE
    parts = design.p // TEAM_ROWS
    read = parts * (TEAM_ROWS + design.q) * design.k * element / _SHARED
    return max(brought, products, read) + _STEP
