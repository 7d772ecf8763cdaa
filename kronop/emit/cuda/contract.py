"""Planning of a contraction on the ordinary cores (`contract_tiles`): its tiles."""

from __future__ import annotations

import enum
import itertools
from dataclasses import dataclass

from kronop.artifacts import Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.tile import TileDescription
from kronop.emit.cuda import operands
from kronop.emit.design import Constant
from kronop.target import Target

MOST_LANES = 8
MOST_THREADS = 256
_OFFSETS_OF_A_ROW = 3 * 8


class Order(enum.IntEnum):
    """Which index of an operand is contiguous in memory, as in `contract.cuh`."""

    Own = 0
    Rows = 1
    Lanes = 2

    # That of enums is written in Python: planning looks up orders some ten thousand times.
    __hash__ = int.__hash__


@dataclass(frozen=True, slots=True, kw_only=True)
class Contraction:
    """What a step computes: sizes, element types, promised alignments and orders of memory.

    Tiles are chosen for so many `rows`, those of all `groups`: a plan knows no batch. Where X and Y
    are contiguous along rows they are so for `run` of them, and start anew; None where the call
    decides it.
    """

    contracted: int
    produced: int
    lanes: int
    rows: int
    source: DataType
    output: DataType
    x_alignment: int
    w_alignment: int
    y_alignment: int
    x_order: Order
    w_order: Order
    y_order: Order
    groups: int = 1
    run: int | None = None

    def __hash__(self) -> int:
        # A plan looks up what it knows of one or two contractions many thousand times.
        return hash((self.contracted, self.produced, self.lanes, self.rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractTile:
    """lanes x m x n results of a block, thread_m x thread_n of a thread; k steps at a time."""

    lanes: int
    m: int
    n: int
    k: int
    thread_m: int
    thread_n: int
    stages: int

    @property
    def threads(self) -> int:
        return self.lanes * (self.m // self.thread_m) * (self.n // self.thread_n)

    def __str__(self) -> str:
        block = f"{self.lanes} lanes x {self.m} x {self.n} x {self.k}"
        return f"{block}, {self.thread_m} x {self.thread_n} a thread"


def vectors(work: Contraction, tile: ContractTile) -> tuple[int, int, int]:
    """Elements of one access to X, W and Y: what is promised, as far as it divides the tile."""

    def widest(promise: int, order: Order, own: int, across: int) -> int:
        size = {Order.Own: own, Order.Rows: across, Order.Lanes: tile.lanes}[order]
        return operands.widest_divisor(promise, [size])

    return (
        widest(work.x_alignment, work.x_order, tile.k, tile.m),
        widest(work.w_alignment, work.w_order, tile.k, tile.n),
        widest(work.y_alignment, work.y_order, tile.n, tile.m),
    )


def shared_bytes(tile: ContractTile, accumulator: DataType) -> int:
    """Row offsets, and the larger of the stages of both operands' tiles and the results."""
    pad = operands.vector_of(accumulator)
    stage = sum(tile.lanes * (tile.k * (width + pad) + pad) for width in (tile.m, tile.n))
    # The shorter side is padded where Y is contiguous along it: the worse of both orders.
    results = tile.lanes * (tile.m * tile.n + pad * max(tile.m, tile.n) + pad)
    return rows_bytes(tile.m) + max(tile.stages * stage, results) * accumulator.bytes


def rows_bytes(rows: int) -> int:
    """Bytes of the offsets of a block's rows."""
    return operands.round_up(_OFFSETS_OF_A_ROW * rows, operands.VECTOR_BYTES)


def registers(tile: ContractTile, work: Contraction, accumulator: DataType) -> int:
    """An upper estimate of the registers of a thread."""
    words = accumulator.bytes // 4
    x_vector, w_vector, _ = vectors(work, tile)
    x_staged, w_staged = (tile.lanes * tile.k * size / tile.threads for size in (tile.m, tile.n))
    # An access on its way holds its value and its 64-bit address with what guards it.
    accesses = x_staged / x_vector + w_staged / w_vector
    sums = tile.thread_m * tile.thread_n + tile.thread_m + tile.thread_n
    return round((sums + x_staged + w_staged + 8) * words + 6 * accesses) + 64


def fits(tile: ContractTile, work: Contraction, accumulator: DataType, target: Target) -> Status:
    """Whether `contract_tiles` can run this tile: the one rule."""
    if tile.m % (tile.thread_m * 4) or tile.n % tile.thread_n or tile.n % 4:
        return Status.reject(f"a tile of {tile} does not divide among threads; use multiples of 4")
    if tile.stages > 2:
        return Status.reject(f"{tile.stages} stages, the kernel has 1 or 2; use stages 2")
    if not 32 <= tile.threads <= 1024 or tile.threads % 32:
        return Status.reject(
            f"{tile.threads} threads for {tile}, expected a multiple of 32 of at most 1024;"
            " change warp_count"
        )
    wanted = shared_bytes(tile, accumulator)
    if wanted > target.shared_bytes:
        return Status.reject(
            f"a tile of {tile} wants {wanted} bytes of shared memory in {tile.stages} stages,"
            f" {target.shared_bytes} are there; use a smaller threadblock_shape"
        )
    wanted_registers = registers(tile, work, accumulator)
    if wanted_registers > min(255, 65536 // tile.threads):
        return Status.reject(
            f"{tile} wants about {wanted_registers} registers of {min(255, 65536 // tile.threads)};"
            " use more warps or a smaller threadblock_shape"
        )
    return Status.accept()


def candidates(
    work: Contraction, accumulator: DataType, target: Target, tile: TileDescription | None
) -> tuple[list[tuple[float, ContractTile]], list[tuple[str, str]]]:
    """Tiles that fit, cheapest first, and those that do not, with the reason."""
    accepted: list[tuple[float, ContractTile]] = []
    rejected: list[tuple[str, str]] = []
    for candidate in _given(work, tile) if tile is not None else _proposed(work, accumulator):
        status = fits(candidate, work, accumulator, target)
        if status:
            accepted.append((_cost(candidate, work, accumulator, target), candidate))
        else:
            rejected.append((str(candidate), status.reason))
    if tile is not None and not accepted and not rejected:
        rejected.append(("threadblock_shape", _unshared(work, tile)))
    accepted.sort(key=lambda item: item[0])
    return accepted, rejected


def _lanes(work: Contraction) -> int:
    """Consecutive lanes of a block: several only where X or Y is contiguous along them."""
    if Order.Lanes not in (work.x_order, work.y_order):
        return 1
    return min(work.lanes, MOST_LANES)


def _unshared(work: Contraction, tile: TileDescription) -> str:
    m, n, _ = tile.threadblock_shape
    results = _lanes(work) * m * n
    fitting = [
        str(warps)
        for warps in range(1, 33)
        if results % (32 * warps) == 0 and (each := results // (32 * warps)) & (each - 1) == 0
    ]
    hint = f"warps in all that divide them: {', '.join(fitting)}" if fitting else "Tile_M or Tile_N"
    return (
        f"{_lanes(work)} x {m} x {n} results do not divide among {32 * tile.warps}"
        " threads, each with 1 to 16 rows and outputs (a power of two);"
        f" change warp_count or threadblock_shape ({hint})"
    )


def _proposed(work: Contraction, accumulator: DataType) -> list[ContractTile]:
    widest = 8 if accumulator.bytes == 4 else 4
    lanes = _lanes(work)
    steps = min(16, max(2, 1 << (work.contracted - 1).bit_length()))
    return [
        ContractTile(
            lanes=lanes,
            m=m * thread_m,
            n=n * thread_n,
            k=k,
            thread_m=thread_m,
            thread_n=thread_n,
            stages=2,
        )
        for thread_m, thread_n in itertools.product(operands.powers_of_two(1, widest), repeat=2)
        for m, n in itertools.product(operands.powers_of_two(4, 64), operands.powers_of_two(1, 64))
        for k in {min(8, steps), steps}
        if lanes * m * n <= MOST_THREADS and thread_m * m <= 256
    ]


def _given(work: Contraction, tile: TileDescription) -> list[ContractTile]:
    m, n, k = tile.threadblock_shape
    lanes = _lanes(work)
    shapes = [
        ContractTile(
            lanes=lanes, m=m, n=n, k=k, thread_m=thread_m, thread_n=thread_n, stages=tile.stages
        )
        for thread_m, thread_n in itertools.product(operands.powers_of_two(1, 16), repeat=2)
        if m % thread_m == 0 and n % thread_n == 0
    ]
    return [shape for shape in shapes if shape.threads == 32 * tile.warps]


def _cost(tile: ContractTile, work: Contraction, accumulator: DataType, target: Target) -> float:
    """Issue slots of one useful result: arithmetic, shared and device memory, and waste."""
    waste = operands.cover(work.produced, tile.n) * tile.n / work.produced
    lanes_waste = operands.cover(work.lanes, tile.lanes) * tile.lanes / work.lanes
    steps = operands.round_up(work.contracted, tile.k)
    # Four results share what a 16-byte access brings; the bank rate is one word a lane.
    words = accumulator.bytes / 4
    reads = words * (1 / tile.thread_m + 1 / tile.thread_n) / 2
    memory = (1 / tile.m + 1 / tile.n) * work.source.bytes * 4
    rows_waste = 1 + tile.m / 2048
    per_step = words * 1.0 + reads + memory + 4 / (tile.thread_m * tile.thread_n) / 4
    blocks = operands.resident_blocks(
        tile.threads, registers(tile, work, accumulator), shared_bytes(tile, accumulator), target
    )
    resident = min(blocks * tile.threads, 256)
    idle = 1 + 0.4 * max(0.0, 1 - resident / 256)
    fixed = 24 / tile.k * (1 / (tile.thread_m * tile.thread_n) + 0.02)
    return (per_step + fixed) * steps * waste * lanes_waste * rows_waste * idle


def constants(
    work: Contraction,
    tile: ContractTile,
    accumulator: DataType,
    epilogue: Epilogue | None,
    target: Target,
) -> tuple[tuple[str, Constant], ...]:
    """The trait struct of `contract_tiles`."""
    vector = operands.vector_of(accumulator)
    vector_m, vector_n = min(vector, tile.thread_m), min(vector, tile.thread_n)
    x_vector, w_vector, y_vector = vectors(work, tile)
    wanted, held = shared_bytes(tile, accumulator), registers(tile, work, accumulator)
    blocks = operands.affordable_blocks(
        operands.resident_blocks(tile.threads, held, wanted, target), tile.threads, held
    )
    return (
        ("kThreads", tile.threads),
        ("kBlocks", blocks),
        ("kStages", tile.stages),
        ("kLanes", tile.lanes),
        ("kTileM", tile.m),
        ("kTileN", tile.n),
        ("kTileK", tile.k),
        ("kThreadM", tile.thread_m),
        ("kThreadN", tile.thread_n),
        ("kVectorM", vector_m),
        ("kVectorN", vector_n),
        ("kUnroll", max(1, min(tile.k, 512 // (tile.thread_m * tile.thread_n)))),
        ("kContracted", work.contracted),
        ("kProduced", work.produced),
        ("kXOrder", int(work.x_order)),
        ("kWOrder", int(work.w_order)),
        ("kYOrder", int(work.y_order)),
        ("kXVector", x_vector),
        ("kWVector", w_vector),
        ("kYVector", y_vector),
        ("kPad", vector),
        ("kTileBytesAt", rows_bytes(tile.m)),
        ("kSaturate", operands.saturates(epilogue)),
    )
