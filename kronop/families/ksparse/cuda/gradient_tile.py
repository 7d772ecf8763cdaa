"""Tiles of `ksparse_gradient`: what a block sums up, what fits, what it costs."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from kronop.artifacts import Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction, MathOperation
from kronop.descriptions.tile import TileDescription
from kronop.emit.cuda import operands
from kronop.target import Target

HALF = 8  # Indices of a digit that are rows, or columns, of one product of the tensor cores.
SLAB_BYTES = 128
_MOST_HALVES = 8
_MOST_STEPS = 4
_ACROSS = 8
_STAGES = 3
# Bytes that a multiprocessor should have under way to keep memory busy, and that it gets in one
# clock.
_UNDER_WAY = 51 * 1024
_BYTES_A_CLOCK = 18.0
# NOTE: what follows was fitted to 172 kernels of 26 problems, timed on one H200 (sm_90a): it is
# 12 % off in the mean; the cheapest of the tiles that were timed is 2 % slower than the fastest.
# Clocks of a quarter of a multiprocessor for one product of 16 x 8 x 8, by the bytes of a sum.
_PRODUCT_CLOCKS = {4: 7.5, 8: 28.0}
# Issue slots of a warp: for one such product, to split or to convert one number of an operand, for
# each bite, for each copy and for each tile along k.
_PRODUCT_SLOTS, _SPLIT_SLOTS, _CONVERT_SLOTS = 1.3, 5.4, 1.9
_BITE_SLOTS, _COPY_SLOTS, _TILE_SLOTS = 83.0, 17.6, 90.0
# What barriers add for a multiprocessor with one block, and how sharply the larger of two times
# that overlap decides: of products and other instructions, of both and memory.
_ALONE = 0.17
_SHARPNESS, _MEMORY_SHARPNESS = 1.5, 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """What is to be summed up.

    Attributes:
        p, q: sizes of the digits of G and X.
        lanes: neighbours in memory that are read as one; 1 where k or the digit is contiguous.
        apart: whether each lane has a matrix of its own.
        along_sums: whether k is contiguous in memory.
        vector: elements of one copy.
        math: the multiply-add.
    """

    p: int
    q: int
    lanes: int
    apart: bool
    along_sums: bool
    vector: int
    math: MathInstruction

    @property
    def element(self) -> DataType:
        return self.math.element_a

    @property
    def chunk(self) -> int:
        """Elements of 16 bytes."""
        return operands.vector_of(self.element)

    @property
    def split(self) -> bool:
        """Whether products are made of three."""
        return self.math.math_operation is MathOperation.multiply_add_fast_f32

    @property
    def matrices(self) -> int:
        """Sums that a block has apart from each other."""
        return self.lanes if self.apart else 1

    @property
    def steps(self) -> int:
        """Steps of 8 along k (with several lanes: of one lane) that a warp loads at once."""
        if self.along_sums:
            return self.chunk // 2
        return 2 if self.lanes == 1 else math.gcd(self.lanes, min(self.chunk, _MOST_STEPS))

    @property
    def bite(self) -> int:
        """Indices along k that a warp loads at once: elements, or rows where k is strided."""
        return HALF * self.steps if self.along_sums or self.lanes == 1 else HALF


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientTile:
    """A block's tile: halves_p x halves_q times 8 results a warp, `k` indices at a time."""

    halves_p: int
    halves_q: int
    warps_p: int
    warps_q: int
    warps_k: int
    k: int
    stages: int

    @property
    def p(self) -> int:
        return HALF * self.halves_p * self.warps_p

    @property
    def q(self) -> int:
        return HALF * self.halves_q * self.warps_q

    @property
    def threads(self) -> int:
        return 32 * self.warps_p * self.warps_q * self.warps_k

    def __str__(self) -> str:
        warps = f"{self.warps_p} x {self.warps_q} x {self.warps_k} warps"
        return f"{self.p} x {self.q} x {self.k}, {warps}, {self.stages} stages"


def pitch(tile: int, work: Sums) -> int:
    """Bytes from row to row of an operand whose rows are not along k.

    8 modulo 16 words: four rows and eight neighbours of a digit then meet no bank twice.
    """
    words = operands.cover(tile * work.lanes * work.element.bytes, 4)
    return 4 * ((words + 7) // 16 * 16 + 8)


def stage_bytes(tile: GradientTile, work: Sums) -> tuple[int, int]:
    """Bytes of G's and of X's part of a stage."""
    if work.along_sums:
        return tile.p * tile.k * work.element.bytes, tile.q * tile.k * work.element.bytes
    return tile.k * pitch(tile.p, work), tile.k * pitch(tile.q, work)


def shared_bytes(tile: GradientTile, work: Sums) -> int:
    """The stages, or what the warps along k leave for the first one."""
    gathered = (tile.warps_k - 1) * work.matrices * tile.q * work.math.element_accumulator.bytes
    rows = 2 * HALF * operands.cover(tile.halves_p, 2) * tile.warps_p
    return max(tile.stages * sum(stage_bytes(tile, work)), gathered * rows)


def across(tile: GradientTile, work: Sums) -> int:
    """Threads whose copies are neighbours in memory."""
    if work.along_sums:
        return tile.k // work.vector
    chunks = operands.cover(min(max(tile.p, tile.q), max(work.p, work.q)) * work.lanes, work.vector)
    return max(tile.threads // tile.k, min(_ACROSS, 1 << (chunks - 1).bit_length()))


def registers(tile: GradientTile, work: Sums) -> int:
    """An upper estimate of the registers of a thread."""
    words = work.math.element_accumulator.bytes // 4
    blocks = operands.cover(tile.halves_p, 2)
    parts = 2 if work.split else 1
    chain = 1 if work.apart else work.steps
    sums = work.matrices * blocks * tile.halves_q * 4
    found = 0 if words == 2 else tile.halves_q * 4
    loaded = tile.halves_p * work.steps * 2 + tile.halves_q * work.steps * 2 * parts
    return words * (sums + found + loaded + chain * 4 * parts) + 44


def fits(tile: GradientTile, work: Sums, target: Target) -> Status:
    """Whether `ksparse_gradient` can run this tile: the one rule."""
    if tile.threads > 1024 or tile.stages < 2:
        return Status.reject(
            f"{tile} has {tile.threads} threads and {tile.stages} stages, expected at most 1024"
            " threads and at least 2 stages"
        )
    slab = SLAB_BYTES // work.element.bytes
    if work.along_sums and tile.k % slab:
        return Status.reject(f"{tile}: Tile_K is no multiple of {slab}; k is contiguous")
    if tile.k % (work.bite * tile.warps_k):
        return Status.reject(
            f"{tile}: Tile_K is no multiple of {work.bite * tile.warps_k}, what its warps load"
        )
    count = across(tile, work)
    if tile.threads % count or (not work.along_sums and tile.k * count % tile.threads):
        return Status.reject(f"{tile}: {tile.threads} threads do not divide the copies of a tile")
    wanted = shared_bytes(tile, work)
    if wanted > target.shared_bytes:
        return Status.reject(
            f"{tile} wants {wanted} bytes of shared memory, {target.shared_bytes} are there;"
            " use a smaller threadblock_shape"
        )
    held, most = registers(tile, work), min(255, operands.REGISTERS // tile.threads)
    if held > most:
        return Status.reject(f"{tile} wants about {held} registers of {most}; use more warps")
    return Status.accept()


def resident(tile: GradientTile, work: Sums, target: Target) -> int:
    """Blocks that a multiprocessor holds."""
    held, shared = registers(tile, work), shared_bytes(tile, work)
    return operands.affordable_blocks(
        operands.resident_blocks(tile.threads, held, shared, target), tile.threads, held
    )


def cost(tile: GradientTile, work: Sums, target: Target) -> float:
    """Clocks of a multiprocessor for 8 indices along k (of one lane) and all results."""
    tiles = operands.cover(work.p, tile.p) * operands.cover(work.q, tile.q)
    blocks, warps = resident(tile, work, target), tiles * tile.warps_p * tile.warps_q
    products = operands.cover(tile.halves_p, 2) * tile.halves_q * (3 if work.split else 1)
    multiplied = products * _PRODUCT_CLOCKS[work.math.element_accumulator.bytes]
    each = (multiplied, products * _PRODUCT_SLOTS + _other_slots(tile, work))
    busy = sum(clocks**_SHARPNESS for clocks in each) ** (1 / _SHARPNESS)
    busy *= warps / 4 * (1 + _ALONE / blocks)
    read = (min(tile.p, work.p) + min(tile.q, work.q)) * tiles * HALF * work.element.bytes
    under_way = blocks * (tile.stages - 1) * sum(stage_bytes(tile, work))
    moved = read / _BYTES_A_CLOCK * max(1.0, _UNDER_WAY / under_way)
    both = busy**_MEMORY_SHARPNESS + moved**_MEMORY_SHARPNESS
    return float(both ** (1 / _MEMORY_SHARPNESS))


def _other_slots(tile: GradientTile, work: Sums) -> float:
    """Issue slots of a warp for 8 indices along k besides its products."""
    changed = 0.0
    if work.element.bytes < 8:
        each = _SPLIT_SLOTS if work.split else _CONVERT_SLOTS
        changed = 2 * (tile.halves_p + tile.halves_q) * each
    warps = tile.warps_p * tile.warps_q
    copies = (tile.p + tile.q) * HALF / work.vector / 32
    steps = tile.k * (1 if work.along_sums else work.lanes) / HALF
    per_tile = _TILE_SLOTS * warps * tile.warps_k / steps
    return changed + _BITE_SLOTS / work.steps + (copies * _COPY_SLOTS + per_tile) / warps


def candidates(
    work: Sums, target: Target, tile: TileDescription | None
) -> tuple[list[tuple[float, GradientTile]], list[tuple[str, str]]]:
    """Tiles that fit, cheapest first, and those that do not, with the reason."""
    accepted: list[tuple[float, GradientTile]] = []
    rejected: list[tuple[str, str]] = []
    for candidate in _proposed(work) if tile is None else _given(tile):
        status = fits(candidate, work, target)
        if status:
            accepted.append((cost(candidate, work, target), candidate))
        else:
            rejected.append((str(candidate), status.reason))
    if not accepted and not rejected:
        rejected.append(("threadblock_shape", "Tile_M and Tile_N are no 8, 16, 32 or 64 a warp"))
    accepted.sort(key=lambda item: item[0])
    return accepted, rejected


def _proposed(work: Sums) -> list[GradientTile]:
    slab = SLAB_BYTES // work.element.bytes
    sizes = operands.powers_of_two(1, _MOST_HALVES)
    warps = [
        shape
        for shape in itertools.product((1, 2, 4), (1, 2, 4), (1, 2, 4, 8))
        if math.prod(shape) in (4, 8)
    ]
    found = []
    for halves_p, halves_q, (warps_p, warps_q, warps_k) in itertools.product(sizes, sizes, warps):
        needed_p, needed_q = (operands.cover(size, HALF) for size in (work.p, work.q))
        if halves_p * warps_p >= 2 * needed_p or halves_q * warps_q >= 2 * needed_q:
            continue  # Half of the tile or more would be padding.
        for repeats in (1, 2, 4, 8):
            k = repeats * (slab if work.along_sums else work.bite)
            found.append(
                GradientTile(
                    halves_p=halves_p,
                    halves_q=halves_q,
                    warps_p=warps_p,
                    warps_q=warps_q,
                    warps_k=warps_k,
                    k=k,
                    stages=_STAGES,
                )
            )
    return found


def _given(tile: TileDescription) -> list[GradientTile]:
    (p, q, k), (warps_p, warps_q, warps_k) = tile.threadblock_shape, tile.warp_count
    halves_p, halves_q = p // (HALF * warps_p), q // (HALF * warps_q)
    allowed = operands.powers_of_two(1, _MOST_HALVES)
    whole = p == HALF * halves_p * warps_p and q == HALF * halves_q * warps_q
    if not whole or halves_p not in allowed or halves_q not in allowed:
        return []
    return [
        GradientTile(
            halves_p=halves_p,
            halves_q=halves_q,
            warps_p=warps_p,
            warps_q=warps_q,
            warps_k=warps_k,
            k=k,
            stages=tile.stages,
        )
    ]
