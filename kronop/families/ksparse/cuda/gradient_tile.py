"""Sums by `ksparse_gradient`, with warp-level MMAs: its tile, its resources, its launch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

from kronop.artifacts import Field, KernelSignature, Launch, Scalar, Status
from kronop.emit.cuda import operands
from kronop.emit.cuda.machine import memory_share, warp_slowness
from kronop.emit.design import Constant, Instantiation, named, package_folder
from kronop.families.ksparse.cuda.gradient_sums import GradientSums
from kronop.families.ksparse.cuda.gradient_tile_sums import HALF, TileSums
from kronop.families.ksparse.cuda.gradient_warp_group_cost import FIXED
from kronop.families.ksparse.gradient_description import KSparseGradientProblem
from kronop.frozen import dataclass, derived
from kronop.machine import BLOCK_THREADS, REGISTERS, THREAD_REGISTERS
from kronop.target import Target

SLAB_BYTES = 128
_ACROSS = 8
_AXES = 3
# Bytes that a multiprocessor needs in flight to keep memory busy, and those it receives in one
# clock.
_UNDER_WAY = 51 * 1024
_RECEIVED = 18.0
# NOTE: the constants below were fitted to 172 kernels of 26 problems on one H200 (sm_90a). The
# estimate is 12 % off in the mean; of the measured tiles, the cheapest by the model is 2 % slower
# than the fastest.
# Clocks of a scheduler for one MMA of 16 x 8 x 8, by the bytes of a sum.
_PRODUCT_CLOCKS = {4: 7.5, 8: 28.0}
# Issue slots of a warp: for one such MMA, to split an element of an operand, to convert one, for
# each bite (the indices along k that a warp loads at once), each copy, and each tile along k.
_PRODUCT_SLOTS, _SPLIT_SLOTS, _CONVERT_SLOTS = 1.3, 5.4, 1.9
_BITE_SLOTS, _COPY_SLOTS, _TILE_SLOTS = 83.0, 17.6, 90.0
# The fraction that barriers add if a multiprocessor has one block only. Exponents of the norms that
# combine overlapping times (the larger, the closer to the maximum): of MMAs with other
# instructions, and of both with memory.
_ALONE = 0.17
_SHARPNESS, _MEMORY_SHARPNESS = 1.5, 5.0
# NOTE: measured times were 1.1 to 1.5 times the estimate for tiles near the best, and up to 4 times
# if a few lanes are processed at a time: this factor makes the estimate comparable with that of
# `gradient_warp_group`.
_TAKEN = 1.4
_SIGNATURE = KernelSignature(
    "KSparseGradientParameters",
    (
        *(Field(name, Scalar.POINTER) for name in ("x", "g", "partial")),
        *(Field(name, Scalar.INT64) for name in ("shares", "tiles")),
        *(Field(name, Scalar.INT64, _AXES) for name in ("extent", "x_sum", "g_sum")),
        Field("run", Scalar.INT64),
        *(Field(name, Scalar.INT64, _AXES) for name in ("pass_step", "tile_step")),
        *(Field(name, Scalar.INT64) for name in ("x_own", "g_own", "x_lane", "g_lane")),
        *(Field(name, Scalar.INT64, _AXES) for name in ("matrix", "x_matrix", "g_matrix")),
    ),
)


@dataclass(frozen=True, kw_only=True)
class GradientTile(GradientSums):
    """A block's tile. Each warp has 8 halves_p x 8 halves_q results, and adds up `k` indices of the
    sums at a time."""

    signature = _SIGNATURE
    lets_next_begin: ClassVar[bool] = False
    styles = ("along", "across", "lanes", "tied", "apart", "plain", "split")

    work: TileSums
    halves_p: int
    halves_q: int
    warps_p: int
    warps_q: int
    warps_k: int
    k: int
    stages: int

    def style(self, target: Target) -> Iterator[str]:
        work = self.work
        yield "along" if work.along_sums else "lanes" if work.lanes > 1 else "across"
        yield "tied" if work.tied else "apart"
        yield "split" if work.split else "plain"

    def __str__(self) -> str:
        warps = f"{self.warps_p} x {self.warps_q} x {self.warps_k} warps"
        return f"{self.p} x {self.q} x {self.k}, {warps}, {self.stages} stages"

    @property
    def label(self) -> str:
        work = self.work
        order = "along" if work.along_sums else f"lanes{work.lanes}"
        kind = "tied" if work.tied else "apart"
        return f"ksparse_gradient_{work.element.short}_{work.p}x{work.q}_{order}_{kind}"

    @property
    def p(self) -> int:
        return HALF * self.halves_p * self.warps_p

    @property
    def q(self) -> int:
        return HALF * self.halves_q * self.warps_q

    @property
    def threads(self) -> int:
        return 32 * self.warps_p * self.warps_q * self.warps_k

    @derived
    def stage_bytes(self) -> tuple[int, int]:
        """Bytes of G's and of X's part of a stage."""
        work = self.work
        if work.along_sums:
            element = work.element.bytes
            return self.p * self.k * element, self.q * self.k * element
        return self.k * _pitch(self.p, work), self.k * _pitch(self.q, work)

    @derived
    def shared_bytes(self) -> int:
        """The stages, or, if that is more, the partial sums of the warps along k, which reuse the
        stages' memory."""
        sums = self.work.matrices * self.q * self.work.math.element_accumulator.bytes
        rows = 2 * HALF * operands.cover(self.halves_p, 2) * self.warps_p
        return max(self.stages * sum(self.stage_bytes), (self.warps_k - 1) * sums * rows)

    @property
    def across(self) -> int:
        """How many threads copy neighbouring elements of memory."""
        work = self.work
        if work.along_sums:
            return self.k // work.vector
        wide = min(max(self.p, self.q), max(work.p, work.q))
        chunks = operands.cover(wide * work.lanes, work.vector)
        return max(self.threads // self.k, min(_ACROSS, 1 << (chunks - 1).bit_length()))

    @property
    def positions(self) -> int:
        """Positions of a tile along k: vectors if k is contiguous, else single indices."""
        return self.k // self.work.vector if self.work.along_sums else self.k

    @derived
    def registers(self) -> int:
        """An upper estimate of the registers of a thread."""
        work = self.work
        words = work.math.element_accumulator.bytes // 4
        blocks = operands.cover(self.halves_p, 2)
        parts = 2 if work.split else 1
        chain = work.steps if work.tied else 1
        sums = work.matrices * blocks * self.halves_q * 4
        found = 0 if words == 2 else self.halves_q * 4
        loaded = self.halves_p * work.steps * 2 + self.halves_q * work.steps * 2 * parts
        return words * (sums + found + loaded + chain * 4 * parts) + 44

    def status(self, target: Target) -> Status:
        if self.threads > BLOCK_THREADS or self.stages < 2:
            return Status.reject(
                f"{self} has {self.threads} threads and {self.stages} stages, expected at most"
                f" {BLOCK_THREADS} threads and at least 2 stages"
            )
        work = self.work
        slab = SLAB_BYTES // work.element.bytes
        if work.along_sums and self.k % slab:
            return Status.reject(f"{self}: Tile_K is no multiple of {slab}; k is contiguous")
        loaded = work.bite * self.warps_k
        if self.k % loaded:
            return Status.reject(f"{self}: Tile_K is no multiple of {loaded}, what its warps load")
        count = self.across
        if self.threads % count or (not work.along_sums and self.k * count % self.threads):
            return Status.reject(
                f"{self}: {self.threads} threads do not divide the copies of a tile"
            )
        if self.shared_bytes > target.shared_bytes:
            return Status.reject(
                f"{self} wants {self.shared_bytes} bytes of shared memory, {target.shared_bytes}"
                " are there; use a smaller threadblock_shape"
            )
        held, most = self.registers, min(THREAD_REGISTERS, REGISTERS // self.threads)
        if held > most:
            return Status.reject(f"{self} wants about {held} registers of {most}; use more warps")
        return Status.accept()

    def blocks(self, target: Target) -> int:
        """Blocks that a multiprocessor holds at once (occupancy)."""
        return operands.blocks_of(self.threads, self.registers, self.shared_bytes, target)

    def _cycles(self, rows: int, target: Target) -> float:
        work = self.work
        a, _, _, d = work.pattern
        bites = work.lead * a * d * rows / HALF
        return FIXED + _TAKEN * _of_bite(self, target) * bites / target.cores

    def instantiation(self, target: Target) -> Instantiation:
        return Instantiation(
            header="ksparse_gradient.cuh",
            parameters="kronop::KSparseGradientParameters",
            types=self.types,
            constants=self._constants(target),
            folders=(package_folder(__package__),),
        )

    def _constants(self, target: Target) -> tuple[tuple[str, Constant], ...]:
        work, (bytes_p, bytes_q) = self.work, self.stage_bytes
        return (
            ("kThreads", self.threads),
            ("kBlocks", self.blocks(target)),
            ("kStages", self.stages),
            *named(work, "p q"),
            *named(self, "p q", "kTile"),
            *named(self, "halves_p halves_q warps_p warps_q warps_k"),
            *named(work, "along_sums lanes matrices vector"),
            *named(self, "positions across"),
            ("kBites", self.k // work.bite),
            ("kSteps", work.steps),
            ("kPitchP", _pitch(self.p, work)),
            ("kPitchQ", _pitch(self.q, work)),
            ("kBytesP", bytes_p),
            ("kBytesQ", bytes_q),
            ("kSplit", work.split),
        )

    def _counts(self, rows: int, target: Target) -> tuple[int, int, int]:
        """(number of shares, tiles along k, blocks of a launch)."""
        work = self.work
        _, extents = work.positions(rows)
        tiles = operands.cover(math.prod(extents), self.positions)
        blocks = operands.cover(work.p, self.p) * operands.cover(work.q, self.q) * work.products
        shares = min(tiles, max(1, self.blocks(target) * target.cores // blocks))
        return shares, tiles, blocks * shares

    def shares(self, rows: int, target: Target) -> int:
        return self._counts(rows, target)[0]

    def workspace(self, size: int, target: Target, threads: int) -> int:
        """Bytes of all shares: each holds the sums of all products."""
        work = self.work
        of_product = work.matrices * work.p * work.q * work.math.element_accumulator.bytes
        return max(1, self.shares(size, target)) * work.products * of_product

    def launches(self, problem: KSparseGradientProblem, target: Target) -> tuple[Launch, ...]:
        work, (shares, tiles, blocks) = self.work, self._counts(problem.rows, target)
        run, extents = work.positions(problem.rows)
        values: dict[str, int | tuple[int, ...]] = {
            "partial": problem.workspace,
            "shares": shares,
            "tiles": tiles,
            "extent": extents,
            "run": run,
            "pass_step": _digits(self.threads // self.across, extents),
            "tile_step": _digits(self.positions * shares, extents),
            "matrix": work.product_axes,
        }
        values |= work.operand("x", problem.x, work.q) | work.operand("g", problem.g, work.p)
        return (operands.make_launch(self, blocks, values),)


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
    """Issue slots of a warp for 8 indices along k besides its MMAs."""
    work, changed = design.work, 0.0
    if work.element.bytes < 8:
        each = _SPLIT_SLOTS if work.split else _CONVERT_SLOTS
        changed = 2 * (design.halves_p + design.halves_q) * each
    warps = design.warps_p * design.warps_q
    copies = (design.p + design.q) * HALF / work.vector / 32
    steps = design.k * (1 if work.along_sums else work.lanes) / HALF
    per_tile = _TILE_SLOTS * warps * design.warps_k / steps
    return changed + _BITE_SLOTS / work.steps + (copies * _COPY_SLOTS + per_tile) / warps


def _pitch(tile: int, work: TileSums) -> int:
    """Leading dimension in bytes of an operand in shared memory, if k is not contiguous.

    It is 8 modulo 16 words, so a warp that reads four rows of eight neighbours has no bank
    conflicts.
    """
    words = operands.cover(tile * work.lanes * work.element.bytes, 4)
    return 4 * ((words + 7) // 16 * 16 + 8)


def _digits(position: int, extents: tuple[int, int, int]) -> tuple[int, int, int]:
    """The digits of a position, the last one fastest; the first one may exceed its extent."""
    rest, last = divmod(position, extents[2])
    first, middle = divmod(rest, extents[1])
    return first, middle, last
