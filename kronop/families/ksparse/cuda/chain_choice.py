"""The tiles of a fused pair (`chain_mma`), the cheapest of them, and its step."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import replace

from kronop.emit.cuda import operands
from kronop.emit.cuda.cheapest import cheapest
from kronop.emit.cuda.contraction.mma import MmaContract
from kronop.emit.cuda.contraction.mma_choice import lanes_of
from kronop.emit.cuda.contraction.mma_room import OUTPUTS, ROWS, SLAB
from kronop.emit.cuda.contraction.work import Contraction
from kronop.emit.plan import PerRow, Step
from kronop.families.ksparse.cuda import chain_cost
from kronop.families.ksparse.cuda.chain_design import ChainMma, PairProduct
from kronop.families.ksparse.cuda.chain_pair import Pair, pairs
from kronop.families.ksparse.description import KSparseDescription
from kronop.target import Target

_MOST_SUMS = 128
_MOST_SLOT = 40960
_WARPS = (4, 8)
_ROWS_OF_BLOCK = (16, 32, 48, 64, 96, 128)
_DEPTHS = (16, 32, 64, 128, 256)
_STAGES = (2, 3, 4, 6)
# How many of the best tiles of each product are combined with those of the other.
_BEST_OF_EACH = 4
# Asks for all tiles: there are never so many.
_EVERY = 1 << 20

# (modelled cycles, the design that takes them).
Fused = tuple[float, ChainMma]


def candidates(
    first: KSparseDescription,
    second: KSparseDescription,
    target: Target,
    rows: int | None,
    most: int = _EVERY,
) -> list[Fused]:
    """The `most` cheapest designs, the cheapest first; none if nothing fits."""

    def floor(item: ChainMma) -> float:
        return chain_cost.least_of_pair(item, rows, target)

    def judge(item: ChainMma) -> float | None:
        return chain_cost.of_pair(item, rows, target) if item.status(target) else None

    offered = [item for pair in pairs(first, second) for item in proposed(pair, target)]
    return cheapest(offered, floor, judge, most=most)[:most]


def proposed(pair: Pair, target: Target) -> Iterator[ChainMma]:
    """Every combination of the best tiles of both products, for each size of a block."""
    for m, threads in itertools.product(_rows(pair, target), _threads(pair)):
        ones, others = (
            [
                [replace(item, tile=replace(item.tile, stages=stages)) for stages in _STAGES]
                for item in _best(pair, index, m, threads)
            ]
            for index in (0, 1)
        )
        for one, other in itertools.product(ones, others):
            for place, resident in itertools.product(range(len(_STAGES)), (False, True)):
                yield ChainMma(
                    first=one[place],
                    second=other[place],
                    parts=pair.parts,
                    common_lanes=pair.common_lanes,
                    lanes=pair.lanes,
                    stages=_STAGES[place],
                    resident=resident,
                )


def _rows(pair: Pair, target: Target) -> list[int]:
    """Rows that a block may have: shared memory must at least hold their intermediate."""
    second = pair.second
    row = pair.groups[1] * pair.all_lanes[1] * second.contracted * second.source.bytes
    return [m for m in _ROWS_OF_BLOCK if m * row < target.shared_bytes]


def _best(pair: Pair, index: int, m: int, threads: int) -> list[PairProduct]:
    """The cheapest ways to divide one of the two products (`index`) among the warps."""
    own = [
        (sum(item.cycles_of_block), place, item)
        for place, item in enumerate(products(pair, index, m, threads))
    ]
    return [item for _, _, item in heapq.nsmallest(_BEST_OF_EACH, own)]


def _threads(pair: Pair) -> list[int]:
    """Threads that a block may have: powers of two of warps, and multiples of the odd numbers of
    warps that divide the lanes of a product evenly."""
    along = {along for index in (0, 1) for _, along in _lanes(pair, index) if along % 2}
    odd = {along * warps for along in along for warps in (1, 2, 4)}
    most = _WARPS[-1]
    return [32 * warps for warps in sorted({*_WARPS, *(item for item in odd if 3 <= item <= most)})]


def products(pair: Pair, index: int, m: int, threads: int) -> Iterator[PairProduct]:
    """The ways to run one of the two products (`index`) in blocks of `m` rows."""
    work = pair.products[index]
    words = max(1, work.source.bytes // 4)
    widest = max(2 * OUTPUTS, operands.round_up(work.produced, 2 * OUTPUTS))
    for (lanes, along), down, warp_n in itertools.product(
        _lanes(pair, index), (1, 2, 4, 8), (2, 4, 8)
    ):
        across, rest = divmod(threads // 32, along * down)
        warp_m, uneven = divmod(m // ROWS, down)
        if rest or uneven or not warp_m or not across or warp_m > 4:
            continue
        if lanes // along * warp_m * warp_n * 4 * words > _MOST_SUMS:
            continue
        if warp_n * OUTPUTS * across > max(widest, 2 * OUTPUTS * across):
            continue
        for depth in _depths(work, lanes, max(m, warp_n * OUTPUTS * across)):
            tile = MmaContract(
                work=work,
                lanes=lanes,
                warp_m=warp_m,
                warp_n=warp_n,
                warps=(along, down, across, 1),
                k=depth,
                stages=1,
            )
            yield PairProduct(tile=tile, groups=pair.groups[index], lanes=pair.all_lanes[index])


def _depths(work: Contraction, lanes: int, wide: int) -> list[int]:
    """Contracted indices of a stage: no more than there are, rounded up, and not too many bytes."""
    most = operands.round_up(work.contracted, SLAB)
    sizes = [size for size in _DEPTHS if size < most] + [most] * (most <= _DEPTHS[-1])
    bytes_of_step = lanes * wide * work.source.bytes
    return [size for size in sizes if size == SLAB or size * bytes_of_step <= _MOST_SLOT]


def _lanes(pair: Pair, index: int) -> list[tuple[int, int]]:
    """(lanes that a block's warps take at once, number of warps along them)."""
    work, every = pair.products[index], pair.all_lanes[index]
    if pair.lanes == pair.common_lanes:
        return lanes_of(work)
    return [
        (lanes, along)
        for lanes, along in lanes_of(work)
        if pair.lanes % lanes == 0 and lanes <= every
    ]


def chain_step(
    first: KSparseDescription, second: KSparseDescription, design: ChainMma, target: Target
) -> Step:
    """The step that runs both products; the epilogue is the second product's."""
    x, y = first.X.element, second.Y.element
    order = "batch_last" if first.batch_last else "batch_first"
    names = ["_".join(map(str, item.pattern)) for item in (first, second)]
    works = [2 * item.output_columns * item.pattern[2] for item in (first, second)]
    return Step(
        entry=f"ksparse_pair_{x.short}_{'_then_'.join(names)}_{order}_{y.short}"
        f"_{second.epilogue.name}_{target.arch}",
        per_row=PerRow(
            bytes=first.input_columns * x.bytes + second.output_columns * y.bytes,
            operations=sum(works),
        ),
        note=f"{first.pattern} then {second.pattern}, {order}, {design}",
        design=design,
    )
