"""Tiles of a fused pair (`chain_mma`): what a block takes, its shared memory, its constants."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from kronop.artifacts import Status
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.cuda import contract_banks, contract_mma, operands
from kronop.emit.cuda.contract import Contraction, Order, rows_bytes
from kronop.emit.cuda.contract_banks import Pitch
from kronop.emit.cuda.contract_mma import OUTPUTS, ROWS, SLAB, ContractMmaTile
from kronop.emit.design import Constant
from kronop.families.ksparse.cuda.chain_pair import Pair
from kronop.target import Target

_MOST_SUMS = 128
_MOST_SLOT = 40960
_WARPS = (4, 8)
ROWS_OF_BLOCK = (16, 32, 48, 64, 96, 128)
_DEPTHS = (16, 32, 64, 128, 256)
# Measured with ptxas 13.0: what the ring and its copies hold besides a contraction's registers;
# and where operands are split and a warp has one lane, which contract_mma counts closer.
_REGISTERS_OF_RING, _REGISTERS_OF_SPLIT_RING = 24, 54
# Measured with ptxas 13.0: (2, 48, 192, 1), (1, 192, 48, 2) in float64 spilled 100 bytes without.
_REGISTERS_OF_DOUBLES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainTile:
    """A block's rows, and how its warps share each of both products.

    Attributes:
        first, second: of both products; their rows and threads are the same.
        stages: tiles of X and of the factors that are on their way or in use.
        resident: whether a block keeps all weights of its part.
    """

    first: ContractMmaTile
    second: ContractMmaTile
    stages: int
    resident: bool

    @property
    def tiles(self) -> tuple[ContractMmaTile, ContractMmaTile]:
        return self.first, self.second

    @property
    def m(self) -> int:
        return self.first.m

    @property
    def threads(self) -> int:
        return self.first.threads

    def __str__(self) -> str:
        kept = ", weights resident" if self.resident else ""
        return f"[{self.first}] then [{self.second}], {self.stages} stages{kept}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Shared memory of a block: where regions start, in bytes; elements of a slot of the ring."""

    middle: int
    weights: int
    ring: int
    results: int
    total: int
    slot: int


def units(pair: Pair, tile: ChainTile, index: int) -> int:
    """How many times a block's warps go over their tile of results of a product."""
    work, own = pair.products[index], tile.tiles[index]
    lanes = operands.cover(pair.all_lanes[index], own.lanes)
    return pair.groups[index] * lanes * operands.cover(work.produced, own.n)


def steps(work: Contraction, tile: ContractMmaTile) -> int:
    return operands.cover(work.contracted, tile.k)


def middle_pitch(pair: Pair, tile: ChainTile) -> Pitch:
    """From one row of the middle to the next."""
    depth = steps(pair.second, tile.second) * tile.second.k
    element = pair.second.source
    return contract_banks.pitch(depth, Order.Own, 1, 1, element, False)


def _stage_sizes(
    work: Contraction, tile: ContractMmaTile, math: MathInstruction
) -> tuple[int, int]:
    """Elements of a stage's tile of X and of the weights."""
    x, w, _ = contract_mma.pitches(work, tile, math.element_accumulator)
    return (
        contract_mma.tile_size(work.x_order, tile.lanes, tile.k, tile.m, x.stride),
        contract_mma.tile_size(work.w_order, tile.lanes, tile.k, tile.n, w.stride),
    )


def _middle_bytes(pair: Pair, m: int, pitch: int) -> int:
    matrices = pair.groups[1] * pair.all_lanes[1]
    return matrices * m * pitch * pair.first.source.bytes


def has_room(pair: Pair, m: int, target: Target) -> bool:
    """Whether so many rows of the middle alone, as short as they may be, leave any room."""
    return _middle_bytes(pair, m, pair.second.contracted) < target.shared_bytes


def room(pair: Pair, tile: ChainTile, math: MathInstruction) -> Room:
    """Row offsets, the middle, resident weights, the ring, and a part of the results."""
    element = pair.first.source.bytes
    middle_at = rows_bytes(tile.m)
    weights_at = middle_at + _middle_bytes(pair, tile.m, middle_pitch(pair, tile).stride)
    (x, first), (_, second) = (
        _stage_sizes(work, own, math) for work, own in zip(pair.products, tile.tiles, strict=True)
    )
    kept, slot = 0, max(x + first, second)
    if tile.resident:
        counts = [
            units(pair, tile, index) * steps(pair.products[index], tile.tiles[index])
            for index in (0, 1)
        ]
        kept, slot = first * counts[0] + second * counts[1], x
    ring_at = weights_at + kept * element
    results_at = ring_at + tile.stages * slot * element
    return Room(
        middle=middle_at,
        weights=weights_at,
        ring=ring_at,
        results=results_at,
        total=results_at
        + contract_mma.results_bytes(pair.second, tile.second, math.element_accumulator),
        slot=slot,
    )


def registers(pair: Pair, tile: ChainTile, splits: bool) -> int:
    """An upper estimate of the registers of a thread."""
    return max(
        contract_mma.registers(work, own, splits)
        + (_REGISTERS_OF_SPLIT_RING if splits and own.warp_lanes == 1 else _REGISTERS_OF_RING)
        + (_REGISTERS_OF_DOUBLES if work.source.bytes == 8 else 0)
        for work, own in zip(pair.products, tile.tiles, strict=True)
    )


def fits(
    pair: Pair, tile: ChainTile, splits: bool, math: MathInstruction, target: Target
) -> Status:
    """Whether `chain_mma` can run this tile: the one rule."""
    wanted = room(pair, tile, math)
    if wanted.total > target.shared_bytes:
        return Status.reject(
            f"wants {wanted.total} bytes of shared memory, {target.shared_bytes} are there"
        )
    held, most = registers(pair, tile, splits), operands.REGISTERS // tile.threads
    if held > min(255, most):
        return Status.reject(f"wants about {held} registers of {min(255, most)}")
    return Status.accept()


def threads(pair: Pair) -> list[int]:
    """Threads of a block: so many that an odd number of warps along lanes has its share as well."""
    along = {along for index in (0, 1) for _, along in _lanes(pair, index) if along % 2}
    odd = {along * warps for along in along for warps in (1, 2, 4)}
    most = _WARPS[-1]
    return [32 * warps for warps in sorted({*_WARPS, *(item for item in odd if 3 <= item <= most)})]


def proposed(pair: Pair, index: int, m: int, threads: int) -> Iterator[ContractMmaTile]:
    """Tiles of one of both products for blocks of `m` rows."""
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
            yield ContractMmaTile(
                lanes=lanes,
                warp_m=warp_m,
                warp_n=warp_n,
                warps=(along, down, across, 1),
                k=depth,
                stages=1,
            )


def _depths(work: Contraction, lanes: int, wide: int) -> list[int]:
    """Contracted steps of a stage: not far beyond those there are, and not too many bytes."""
    most = operands.round_up(work.contracted, SLAB)
    sizes = [size for size in _DEPTHS if size < most] + [most] * (most <= _DEPTHS[-1])
    bytes_of_step = lanes * wide * work.source.bytes
    return [size for size in sizes if size == SLAB or size * bytes_of_step <= _MOST_SLOT]


def _lanes(pair: Pair, index: int) -> list[tuple[int, int]]:
    """Lanes of a unit, and warps along them."""
    work, every = pair.products[index], pair.all_lanes[index]
    if pair.lanes == pair.common_lanes:
        return contract_mma.lanes_of(work)
    return [
        (lanes, along)
        for lanes, along in contract_mma.lanes_of(work)
        if pair.lanes % lanes == 0 and lanes <= every
    ]


def constants(
    math: MathInstruction,
    splits: bool,
    pair: Pair,
    tile: ChainTile,
    epilogue: Epilogue,
    target: Target,
) -> tuple[tuple[str, Constant], ...]:
    """The trait struct of `chain_mma`."""
    space = room(pair, tile, math)
    x_vector, y_vector = (
        contract_mma.vectors(pair.first, tile.first)[0],
        contract_mma.vectors(pair.second, tile.second)[2],
    )
    pitches = [
        contract_mma.pitches(work, own, math.element_accumulator)
        for work, own in zip(pair.products, tile.tiles, strict=True)
    ]
    return (
        ("kThreads", tile.threads),
        ("kBlocks", blocks(pair, tile, splits, math, target)),
        ("kStages", tile.stages),
        ("kResident", tile.resident),
        ("kTileM", tile.m),
        ("kSplit", splits),
        ("kParts", pair.parts),
        ("kCommonLanes", pair.common_lanes),
        ("kPartLanes", pair.lanes),
        ("kXOrder", int(pair.first.x_order)),
        ("kYOrder", int(pair.second.y_order)),
        ("kXVector", x_vector),
        ("kYVector", y_vector),
        ("kXPitch", pitches[0][0].stride),
        ("kMiddlePitch", middle_pitch(pair, tile).stride),
        ("kYPitch", pitches[1][2].stride),
        *_of_both(pair, tile, (pitches[0][1].stride, pitches[1][1].stride)),
        ("kMiddleAt", space.middle),
        ("kWeightsAt", space.weights),
        ("kRingAt", space.ring),
        ("kSlot", space.slot),
        ("kResultsAt", space.results),
        ("kSaturate", operands.saturates(epilogue)),
    )


def _of_both(
    pair: Pair, tile: ChainTile, pitches: tuple[int, int]
) -> tuple[tuple[str, Constant], ...]:
    """Constants that both products have."""
    products, tiles = pair.products, tile.tiles
    return (
        ("kPairGroups", pair.groups),
        ("kPairAllLanes", pair.all_lanes),
        ("kPairContracted", tuple(work.contracted for work in products)),
        ("kPairProduced", tuple(work.produced for work in products)),
        ("kPairLanes", tuple(own.lanes for own in tiles)),
        ("kPairTileN", tuple(own.n for own in tiles)),
        ("kPairTileK", tuple(own.k for own in tiles)),
        ("kPairWarpLanes", tuple(own.warp_lanes for own in tiles)),
        ("kPairWarpM", tuple(own.warp_m for own in tiles)),
        ("kPairWarpN", tuple(own.warp_n for own in tiles)),
        ("kPairWarpsLanes", tuple(own.warps[0] for own in tiles)),
        ("kPairWarpsM", tuple(own.warps[1] for own in tiles)),
        ("kPairWarpsN", tuple(own.warps[2] for own in tiles)),
        ("kPairWOrder", tuple(int(work.w_order) for work in products)),
        (
            "kPairWVector",
            tuple(
                contract_mma.vectors(work, own)[1]
                for work, own in zip(products, tiles, strict=True)
            ),
        ),
        ("kPairWPitch", pitches),
    )


def blocks(pair: Pair, tile: ChainTile, splits: bool, math: MathInstruction, target: Target) -> int:
    """Blocks that a multiprocessor holds at once."""
    held, wanted = registers(pair, tile, splits), room(pair, tile, math).total
    resident = operands.resident_blocks(tile.threads, held, wanted, target)
    return operands.affordable_blocks(resident, tile.threads, held)
