"""Planning of a contraction on the tensor cores (`contract_mma`): its tiles, and the step."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kronop.artifacts import Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.tile import TileDescription
from kronop.emit.cuda import contract_banks, operands
from kronop.emit.cuda.contract import Contraction, Order, rows_bytes
from kronop.emit.cuda.contract_banks import Pitch
from kronop.emit.design import Constant
from kronop.target import Target

# Contracted steps of a warp's products, and the rows and outputs of one product.
SLAB, ROWS, OUTPUTS = 16, 16, 8
_MOST_SUMS, _MOST_STAGES = 128, 4
_MOST_THREADS, _MOST_DEPTH = 256, 128
_DEPTHS = (16, 32, 64, 128, 256, 512)
# Of memory, which no run of a step should use in part.
_SECTOR_BYTES = 32
# Results of a warp, in products, up to which more than two may share the contracted index.
_FEW_PRODUCTS = 4
# Measured with ptxas 13.4: what addresses and loops take besides sums and fragments.
_REGISTERS = 68
# Of a thread, on their way through registers: kMost of Pairs in contract_operands.cuh.
_MOST_PAIRS = 16
# Tiles of which figures are kept while a plan is made, which asks several times for each.
_KEPT = 1 << 14


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractMmaTile:
    """What a block and its warps take of a contraction.

    Attributes:
        lanes: lanes of a block; all of them, or what an access brings.
        warp_m, warp_n: how many times 16 rows and 8 outputs a warp has, of each of its lanes.
        warps: warps along lanes, rows, outputs and the contracted index.
        k: contracted steps of a stage.
        stages: tiles of the operands that are on their way or in use.
    """

    lanes: int
    warp_m: int
    warp_n: int
    warps: tuple[int, int, int, int]
    k: int
    stages: int

    @property
    def m(self) -> int:
        return self.warp_m * ROWS * self.warps[1]

    @property
    def n(self) -> int:
        return self.warp_n * OUTPUTS * self.warps[2]

    @property
    def threads(self) -> int:
        lanes, m, n, k = self.warps
        return 32 * lanes * m * n * k

    @property
    def warp_lanes(self) -> int:
        return self.lanes // self.warps[0]

    @property
    def part(self) -> tuple[int, int]:
        """Rows and outputs of a part of the results where Y is not contiguous along rows."""
        return ROWS * self.warps[1], self.n

    @property
    def part_by_rows(self) -> tuple[int, int]:
        """The same where it is."""
        return self.m, OUTPUTS * self.warps[2]

    def __str__(self) -> str:
        block = f"{self.lanes} lanes x {self.m} x {self.n} x {self.k}, {self.stages} stages"
        warps = " x ".join(map(str, self.warps))
        return f"{block}, {warps} warps of {self.warp_m * ROWS} x {self.warp_n * OUTPUTS}"


class Block(Protocol):
    """What is asked of a tile here."""

    @property
    def lanes(self) -> int: ...


def joined(work: Contraction, tile: Block) -> bool:
    """Whether a block has all lanes, so that runs along them go on along the own index."""
    return 1 < work.lanes == tile.lanes


def vectors(work: Contraction, tile: Block) -> tuple[int, int, int]:
    """Elements of one access to X, W and Y, as far as sizes allow; a launch checks the strides."""
    return _vectors(work, tile.lanes)


@functools.lru_cache(maxsize=1024)
def _vectors(work: Contraction, lanes: int) -> tuple[int, int, int]:
    def widest(order: Order, own: int, element: DataType) -> int:
        most = operands.vector_of(element)
        if order is Order.Rows:
            return most if work.run is None else operands.widest_divisor(most, [work.run])
        if order is Order.Own:
            return operands.widest_divisor(most, [own])
        if 1 < work.lanes == lanes:
            return operands.widest_divisor(most, [own * work.lanes])
        return operands.widest_divisor(most, [lanes, work.lanes])

    w = widest(work.w_order, work.contracted, work.source)
    if work.w_order is Order.Rows:
        w = operands.widest_divisor(operands.vector_of(work.source), [work.produced])
    return (
        widest(work.x_order, work.contracted, work.source),
        w,
        widest(work.y_order, work.produced, work.output),
    )


def pairs(work: Contraction, tile: ContractMmaTile) -> tuple[bool, bool]:
    """Whether X and W come in pairs through registers where memory allows no vectors.

    An asynchronous copy brings four bytes at least, so that 16-bit elements at odd places would
    come one by one. Not where no call of the plan can need it: it takes registers of all of them.
    """

    def needed(order: Order, vector: int) -> bool:
        if work.source.bytes != 2 or tile.lanes > 1 or order is Order.Lanes:
            return False
        return vector == 1

    x, w, _ = vectors(work, tile)
    unknown = work.x_order is Order.Rows and work.run is None
    return needed(work.x_order, 1 if unknown else x), needed(work.w_order, w)


@functools.lru_cache(maxsize=_KEPT)
def pitches(
    work: Contraction, tile: ContractMmaTile, accumulator: DataType
) -> tuple[Pitch, Pitch, Pitch]:
    """From one run of X, W and of the results to the next in shared memory."""
    spread = work.w_order is Order.Lanes

    def operand(order: Order, wide: int) -> Pitch:
        run = {Order.Own: tile.k, Order.Rows: wide, Order.Lanes: tile.k * tile.lanes}[order]
        return contract_banks.pitch(run, order, tile.lanes, tile.warp_lanes, work.source, spread)

    rows, outputs = tile.part_by_rows if work.y_order is Order.Rows else tile.part
    run = {Order.Own: outputs, Order.Rows: rows, Order.Lanes: outputs * tile.lanes}[work.y_order]
    pairs = work.source.bytes == 1 and work.x_order is Order.Rows
    results = contract_banks.results_pitch(run, work.y_order, tile.lanes, accumulator, pairs)
    return operand(work.x_order, tile.m), operand(work.w_order, tile.n), results


def tile_size(order: Order, lanes: int, own: int, wide: int, pitch: int) -> int:
    """Elements of a tile of an operand, as `Layout` in contract_operands.cuh has it."""
    return pitch * {Order.Own: lanes * wide, Order.Rows: lanes * own, Order.Lanes: wide}[order]


@functools.lru_cache(maxsize=_KEPT)
def shared_bytes(work: Contraction, tile: ContractMmaTile, accumulator: DataType) -> int:
    """Row offsets, and the larger of all stages and of one part of the results."""
    x, w, _ = (item.stride for item in pitches(work, tile, accumulator))
    stage = tile_size(work.x_order, tile.lanes, tile.k, tile.m, x)
    stage += tile_size(work.w_order, tile.lanes, tile.k, tile.n, w)
    results = results_bytes(work, tile, accumulator)
    return rows_bytes(tile.m) + max(tile.stages * stage * work.source.bytes, results)


@functools.lru_cache(maxsize=_KEPT)
def results_bytes(work: Contraction, tile: ContractMmaTile, accumulator: DataType) -> int:
    """Bytes of one part of the results, once for each warp along the contracted index."""
    rows, outputs = tile.part_by_rows if work.y_order is Order.Rows else tile.part
    pitch = pitches(work, tile, accumulator)[2].stride
    size = tile_size(work.y_order, tile.lanes, outputs, rows, pitch)
    return size * accumulator.bytes * tile.warps[3]


@functools.lru_cache(maxsize=_KEPT)
def registers(work: Contraction, tile: ContractMmaTile, splits: bool) -> int:
    """An upper estimate of the registers of a thread: sums, fragments, and pieces on their way."""
    lanes, m, n = tile.warp_lanes, tile.warp_m, tile.warp_n
    words = max(1, work.source.bytes // 4)
    sums = lanes * m * n * 4 * words
    if work.source.bytes <= 2:
        fragments = 2 * lanes * n + 4 * lanes
        # Contiguous lanes are unpacked from what an access brings.
        joins = Order.Lanes in (work.x_order, work.w_order)
        fragments += (4 * lanes + 8 * (work.source.bytes == 1)) * joins
    else:
        # Two steps of eight: W's split, X's as they are but for one lane, and sums of a chain.
        fragments = 4 * lanes * n * words * (1 + splits) + 8 * lanes * words
        # Several lanes are unpacked from what an access brings.
        fragments += (8 + 4 * n + 12 * (lanes > 1)) * splits
    x, w, _ = vectors(work, tile)
    pieces = 0
    for size, vector, paired in zip((tile.m, tile.n), (x, w), pairs(work, tile), strict=True):
        elements = operands.cover(tile.lanes * tile.k * size, tile.threads)
        always = paired and vector == 1
        pieces += min(elements, 2 * _MOST_PAIRS) if always else operands.cover(elements, vector)
    return sums + fragments + pieces + _REGISTERS


def fits(
    work: Contraction,
    tile: ContractMmaTile,
    splits: bool,
    accumulator: DataType,
    target: Target,
) -> Status:
    """Whether `contract_mma` can run this tile: the one rule."""
    if tile.threads > 1024:
        return Status.reject(f"{tile.threads} threads for {tile}, at most 1024; use fewer warps")
    if tile.k % (SLAB * tile.warps[3]) or tile.warp_n % 2:
        return Status.reject(
            f"{tile} does not divide into products; use multiples of {SLAB} for Tile_N and Tile_K"
        )
    wanted = shared_bytes(work, tile, accumulator)
    if wanted > target.shared_bytes:
        return Status.reject(
            f"a tile of {tile} wants {wanted} bytes of shared memory, {target.shared_bytes} are"
            " there; use a smaller threadblock_shape or fewer stages"
        )
    held, most = registers(work, tile, splits), operands.REGISTERS // tile.threads
    if held > min(255, most):
        return Status.reject(
            f"{tile} wants about {held} registers of {min(255, most)}; use more warps or a smaller"
            " threadblock_shape"
        )
    return Status.accept()


def proposed(work: Contraction, tile: TileDescription | None) -> Iterator[ContractMmaTile]:
    """Tiles to consider: all that a user's tile leaves open, or of several sizes."""
    for lanes, along in lanes_of(work):
        for shape in _warps(work, lanes // along, tile):
            warp_m, warp_n, (m, n, k), depth, stages = shape
            candidate = ContractMmaTile(
                lanes=lanes,
                warp_m=warp_m,
                warp_n=warp_n,
                warps=(along, m, n, k),
                k=depth,
                stages=stages,
            )
            if tile is not None:
                given = (*tile.threadblock_shape, 32 * tile.warps)
                if (candidate.m, candidate.n, candidate.k, candidate.threads) == given:
                    yield candidate
            elif 128 <= candidate.threads <= _MOST_THREADS:
                yield candidate


def lanes_of(work: Contraction) -> list[tuple[int, int]]:
    """Lanes of a block, and warps along them: where lanes are contiguous, whole accesses."""
    if Order.Lanes not in (work.x_order, work.w_order, work.y_order):
        return [(1, 1)]
    access = operands.vector_of(work.source)
    sizes = {access, 2 * access} if work.lanes > 2 * access else {work.lanes}
    return [
        (lanes, along)
        for lanes in sorted(sizes)
        for along in range(1, lanes + 1)
        if lanes % along == 0 and lanes // along <= access
    ]


_Shape = tuple[int, int, tuple[int, int, int], int, int]


def _warps(work: Contraction, lanes: int, tile: TileDescription | None) -> Iterator[_Shape]:
    """Products of a warp of so many lanes, warps along rows, outputs and k, k and stages."""
    words = max(1, work.source.bytes // 4)
    depth = operands.round_up(work.contracted, SLAB)
    stages = range(1, _MOST_STAGES + 1)
    least = 0
    if Order.Own in (work.x_order, work.w_order):
        least = min(_SECTOR_BYTES // work.source.bytes, depth)
    if tile is not None:
        stages = range(tile.stages, tile.stages + 1)
    outputs = operands.round_up(work.produced, 2 * OUTPUTS)
    for warp_m, warp_n in itertools.product((1, 2, 4), (2, 4, 8)):
        if lanes * warp_m * warp_n * 4 * words > _MOST_SUMS:
            continue
        shared = (1, 2, 4, 8) if lanes * warp_m * warp_n <= _FEW_PRODUCTS else (1, 2)
        for m, n, k in itertools.product((1, 2, 4, 8), (1, 2, 4, 8), shared):
            wide = warp_n * OUTPUTS * n
            if tile is None and wide > max(2 * OUTPUTS, 2 * outputs):
                continue
            if tile is None:
                most = min(_MOST_DEPTH // work.source.bytes * k, depth)
                depths = [size for size in _DEPTHS if max(SLAB * k, least) <= size <= most]
            else:
                depths = [tile.threadblock_shape[2]]
            for size, count in itertools.product(depths, stages):
                steps = operands.cover(work.contracted, size)
                if tile is not None or (count <= steps and (count > 1 or steps == 1)):
                    yield warp_m, warp_n, (m, n, k), size, count


def constants(
    math: MathInstruction,
    splits: bool,
    work: Contraction,
    tile: ContractMmaTile,
    epilogue: Epilogue | None,
    target: Target,
) -> tuple[tuple[str, Constant], ...]:
    """The trait struct of `contract_mma`."""
    accumulator = math.element_accumulator
    x_vector, w_vector, y_vector = vectors(work, tile)
    x_pitch, w_pitch, y_pitch = (item.stride for item in pitches(work, tile, accumulator))
    paired = pairs(work, tile)
    held, wanted = registers(work, tile, splits), shared_bytes(work, tile, accumulator)
    blocks = operands.affordable_blocks(
        operands.resident_blocks(tile.threads, held, wanted, target), tile.threads, held
    )
    along_lanes, along_m, along_n, along_k = tile.warps
    return (
        ("kThreads", tile.threads),
        ("kBlocks", blocks),
        ("kStages", tile.stages),
        ("kLanes", tile.lanes),
        ("kTileM", tile.m),
        ("kTileN", tile.n),
        ("kTileK", tile.k),
        ("kWarpLanes", tile.warp_lanes),
        ("kWarpM", tile.warp_m),
        ("kWarpN", tile.warp_n),
        ("kWarpsLanes", along_lanes),
        ("kWarpsM", along_m),
        ("kWarpsN", along_n),
        ("kWarpsK", along_k),
        ("kSplit", splits),
        ("kContracted", work.contracted),
        ("kProduced", work.produced),
        ("kXOrder", int(work.x_order)),
        ("kWOrder", int(work.w_order)),
        ("kYOrder", int(work.y_order)),
        ("kXVector", x_vector),
        ("kWVector", w_vector),
        ("kXPairs", paired[0]),
        ("kWPairs", paired[1]),
        ("kYVector", y_vector),
        ("kXPitch", x_pitch),
        ("kWPitch", w_pitch),
        ("kYPitch", y_pitch),
        ("kTileBytesAt", rows_bytes(tile.m)),
        ("kSaturate", operands.saturates(epilogue)),
    )


def allows_vectors(
    view: operands.View,
    extents: Mapping[str, Sequence[int]],
    order: Order,
    own: str,
    wide: str,
    width: int,
    element: DataType,
    joins: bool,
) -> int:
    """1 where memory is as the plan's accesses of `width` elements want it."""
    along = {Order.Own: own, Order.Rows: wide, Order.Lanes: "lane"}[order]
    if order is Order.Rows and width > 1:
        # A piece has neighbours of the last axis, the fastest: others may be contiguous in vain.
        axes = [
            (stride, size)
            for stride, size in zip(view.strides[wide], extents[wide], strict=True)
            if size > 1
        ]
        if axes and axes[-1][0] != 1:
            return 0
        # Nor may a piece cross the end of such a run.
        if len(axes) > 1 and axes[-1][1] % width:
            return 0
    if order is Order.Lanes and joins and width > 1:
        # A run goes on from the lanes to the own index.
        if extents[own][0] > 1 and view.strides[own] != extents["lane"]:
            return 0
        rest = {name: row for name, row in view.strides.items() if name != own}
        view = operands.View(pointer=view.pointer, strides=rest)
    return operands.allows_vectors(view, extents, along, width, element)
