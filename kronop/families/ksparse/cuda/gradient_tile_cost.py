"""The cost of a tile of `ksparse_gradient`."""

from __future__ import annotations

from kronop.emit.cuda import operands
from kronop.emit.cuda.machine import memory_share, warp_slowness
from kronop.families.ksparse.cuda.gradient_group_cost import FIXED
from kronop.families.ksparse.cuda.gradient_tile import GradientTile
from kronop.families.ksparse.cuda.gradient_tile_sums import HALF
from kronop.target import Target

# Bytes that a multiprocessor has to have in flight to keep memory busy, and those it receives in
# one clock.
_UNDER_WAY = 51 * 1024
_RECEIVED = 18.0
# NOTE: the numbers below were fitted to 172 kernels of 26 problems on one H200 (sm_90a). The
# estimate is 12 % off in the mean; of the tiles that were timed, the cheapest by the model is 2 %
# slower than the fastest.
# Clocks of a quarter of a multiprocessor for one product of 16 x 8 x 8, by the bytes of a sum.
_PRODUCT_CLOCKS = {4: 7.5, 8: 28.0}
# Issue slots of a warp: for one such product, to split an element of an operand, to convert one,
# for each bite (the indices along k that a warp loads at once), each copy, and each tile along k.
_PRODUCT_SLOTS, _SPLIT_SLOTS, _CONVERT_SLOTS = 1.3, 5.4, 1.9
_BITE_SLOTS, _COPY_SLOTS, _TILE_SLOTS = 83.0, 17.6, 90.0
# The share that barriers add if a multiprocessor has one block only. Exponents of the norms that
# combine overlapping times (the larger the exponent, the more the longest time alone counts): of
# products with other instructions, and of both with memory.
_ALONE = 0.17
_SHARPNESS, _MEMORY_SHARPNESS = 1.5, 5.0
# NOTE: measured times were 1.1 to 1.5 times the estimate for tiles near the best, and up to 4 times
# where lanes are taken a few at a time: this factor makes the estimate comparable with that of
# `gradient_group`.
_TAKEN = 1.4


def cycles(design: GradientTile, rows: int, target: Target) -> float:
    """Cycles of a call, including adding the shares up."""
    work = design.work
    a, _, _, d = work.pattern
    bites = work.lead * a * d * rows / HALF
    return FIXED + _TAKEN * _of_bite(design, target) * bites / target.cores


def _of_bite(design: GradientTile, target: Target) -> float:
    """Clocks of a multiprocessor to add 8 indices along k (of one lane) to all results."""
    work = design.work
    tiles = operands.cover(work.p, design.p) * operands.cover(work.q, design.q)
    blocks, warps = design.blocks(target), tiles * design.warps_p * design.warps_q
    products = operands.cover(design.halves_p, 2) * design.halves_q * (3 if work.split else 1)
    multiplied = products * _PRODUCT_CLOCKS[work.math.element_accumulator.bytes]
    multiplied *= warp_slowness(target)
    each = (multiplied, products * _PRODUCT_SLOTS + _other_slots(design))
    busy = sum(clocks**_SHARPNESS for clocks in each) ** (1 / _SHARPNESS)
    busy *= warps / 4 * (1 + _ALONE / blocks)
    read = (min(design.p, work.p) + min(design.q, work.q)) * tiles * HALF * work.element.bytes
    under_way = blocks * (design.stages - 1) * sum(design.stage_bytes)
    share = memory_share(target)
    moved = read / (_RECEIVED * share) * max(1.0, _UNDER_WAY * share / under_way)
    both = busy**_MEMORY_SHARPNESS + moved**_MEMORY_SHARPNESS
    return float(both ** (1 / _MEMORY_SHARPNESS))


def _other_slots(design: GradientTile) -> float:
    """Issue slots of a warp for 8 indices along k besides its products."""
    work, changed = design.work, 0.0
    if work.element.bytes < 8:
        each = _SPLIT_SLOTS if work.split else _CONVERT_SLOTS
        changed = 2 * (design.halves_p + design.halves_q) * each
    warps = design.warps_p * design.warps_q
    copies = (design.p + design.q) * HALF / work.vector / 32
    steps = design.k * (1 if work.along_sums else work.lanes) / HALF
    per_tile = _TILE_SLOTS * warps * design.warps_k / steps
    return changed + _BITE_SLOTS / work.steps + (copies * _COPY_SLOTS + per_tile) / warps
