"""Tiles of pairs of points, by direct differences, on GPUs; see distance_tile.cuh."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import ClassVar

from kronop.artifacts import KernelSignature, Launch, Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.cuda import operands
from kronop.emit.cuda.machine import gpu_of
from kronop.emit.design import Design, Instantiation, named, package_folder
from kronop.families.distance import parts
from kronop.families.distance.description import DistanceProblem
from kronop.families.distance.form import GENERAL_POWERS, Form, TermKind
from kronop.families.distance.size import DistanceSize
from kronop.frozen import dataclass
from kronop.machine import H200, QUARTERS, REGISTERS, WARP, Gpu
from kronop.target import Target

# Cycles of a quarter of a multiprocessor (one scheduler): for a term of 32 pairs in float32; for a
# vectorised load of rows or columns by a thread, for copying an element of the tile, and for a
# slab, per pair of the thread or the tile.
# NOTE: from measurements on one H200 of 30000 x 30000 points of 1024 features, where a cycle takes
# 27.6 ms: with tiles of 128 x 128 x 16, 128 x 128 x 8, 128 x 64 x 8 and 32 x 32 x 8, p = 1 took 71,
# 75, 77 and 104 ms; p = 1.3 took 369 ms with 128 x 64 x 8, and 379 with 64 x 64 x 8.
_CYCLES = {
    TermKind.Zero: 2.9,
    TermKind.Half: 7.5,
    TermKind.One: 1.9,
    TermKind.ThreeHalves: 7.5,
    TermKind.Two: 1.9,
    TermKind.FiveHalves: 7.5,
    TermKind.Three: 3.3,
    TermKind.Four: 3.0,
    TermKind.General: 12.3,
    TermKind.Infinity: 2.1,
    TermKind.Dot: 1.0,
    TermKind.NormA: 0.0,
    TermKind.NormB: 0.0,
    TermKind.Largest: 2.1,
    TermKind.Relative: 13.3,  # One more instruction than of General.
}
_READ, _BROUGHT, _SLAB = 0.43, 23.0, 2.7
# In float64 instructions take twice as long, and a power is a library function.
_DOUBLE, _DOUBLE_POWER = 2, 430
# Cycles of a block besides slabs, and of each of its results; latency of the first slab.
_BLOCK, _RESULT, _LATENCY = 1000, 0.15, 1500
# Warps that keep the four schedulers busy; the same where powers are long dependency chains.
_BUSY_WARPS, _BUSY_POWERS = 8, 20
_MARKS = 8  # bytes
_RUN = 16  # bytes of a vector of rows in shared memory
# Registers besides sums and operands; those of powers in float64; the most that a block may use.
_REGISTERS, _POWER_REGISTERS, _MOST_REGISTERS = 34, 100, 248
_MOST_HELD = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class DistanceTile(Design):
    """A tile of pairs by direct differences: sums stay in registers while features are streamed.

    Attributes:
        source, output: types of the points and of the result.
        tile_m, tile_n: rows and columns of a block's tile.
        tile_k: features of a stage in shared memory; there are two stages (double buffering).
        thread_m, thread_n: rows and columns of a thread.
        symmetric: tiles off the diagonal are computed once, and also stored transposed.
    """

    styles: ClassVar[tuple[str, ...]] = (
        *(kind.name for kind in TermKind),
        "copied",
        "through registers",
        "scaled by a vector",
        "regularized",
        "symmetric",
    )
    ends = ("Y along rows", "Y along columns")

    math: MathInstruction
    source: DataType
    output: DataType
    epilogue: Epilogue
    form: Form
    tile_m: int
    tile_n: int
    tile_k: int
    thread_m: int
    thread_n: int
    symmetric: bool

    def __str__(self) -> str:
        kind = "symmetric " * self.symmetric
        return (
            f"{kind}tiles of {self.tile_m} by {self.tile_n} by {self.tile_k},"
            f" threads of {self.thread_m} by {self.thread_n}"
        )

    @property
    def threads(self) -> int:
        return self.tile_m // self.thread_m * (self.tile_n // self.thread_n)

    @property
    def shared_bytes(self) -> int:
        item = self.math.element_accumulator.bytes
        rows = self.tile_m + self.tile_n + 2 * (_RUN // item) + self.form.vectors
        return 2 * self.tile_k * rows * item + _MARKS + self._totals * item

    @property
    def _totals(self) -> int:
        """Totals of chains of additions, in shared memory: see distance_tile.cuh."""
        exact = (TermKind.Zero, TermKind.Infinity, TermKind.Largest)
        rounded = [kind for kind in self._kinds if kind not in exact]
        return 0 if self._is_double else self.threads * self._sums_of(rounded)

    def _sums_of(self, kinds: Iterable[TermKind]) -> int:
        """How many sums of these terms a thread has."""
        m, n = self.thread_m, self.thread_n
        norms = {TermKind.NormA: m, TermKind.NormB: n}
        return sum(norms.get(kind, m * n) for kind in kinds)

    @property
    def _kinds(self) -> list[TermKind]:
        return [term.kind for term in self.form.terms]

    @property
    def _has_powers(self) -> bool:
        return any(kind in GENERAL_POWERS for kind in self._kinds)

    @property
    def _is_double(self) -> bool:
        return self.math.element_accumulator.bytes == 8

    @property
    def _is_copied(self) -> bool:
        """Whether elements are copied to shared memory without conversion or checks."""
        is_checked = TermKind.General in self._kinds and not self.form.vectors
        same = self.source.bytes == self.math.element_accumulator.bytes
        return same and (self._is_double or not is_checked)

    @property
    def _held(self) -> int:
        """Elements of a thread that are in flight to shared memory."""
        return 0 if self._is_copied else self.tile_k * (self.tile_m + self.tile_n) // self.threads

    @property
    def _registers(self) -> int:
        m, n, sums = self.thread_m, self.thread_n, self._sums_of(self._kinds)
        sums += m * n * (TermKind.Relative in self._kinds)  # A reciprocal of each largest one.
        words = self.math.element_accumulator.bytes // 4
        powers = self._is_double and self._has_powers
        return words * (sums + m + n) + self._held // 4 + _REGISTERS + _POWER_REGISTERS * powers

    @property
    def blocks(self) -> int:
        """Blocks that a multiprocessor holds at once (occupancy)."""
        room = REGISTERS // (self.threads * operands.round_up(self._registers, 8))
        return max(1, min(room, operands.MOST_RESIDENT))

    @property
    def signature(self) -> KernelSignature:
        return parts.signature(self.form, operands.scalar_fields(self.epilogue))

    def style(self, target: Target) -> Iterator[str]:
        yield from {kind.name for kind in self._kinds}
        yield "copied" if self._is_copied else "through registers"
        if self.form.vectors:
            yield "scaled by a vector"
        if self.form.regularized:
            yield "regularized"
        if self.symmetric:
            yield "symmetric"

    def status(self, target: Target) -> Status:
        if not (known := operands.accept_math(self.math)):
            return known
        if self.symmetric and self.tile_m != self.tile_n:
            return Status.reject("tiles of a symmetric result are squares")
        if self.symmetric and not parts.is_symmetric(self.form):
            return Status.reject("the kernel changes where its points are exchanged")
        run = _RUN // self.math.element_accumulator.bytes
        if self.thread_m % run or self.thread_n % run:
            return Status.reject(f"threads read runs of {run} rows and columns")
        if self._registers > _MOST_REGISTERS:
            return Status.reject(f"takes {self._registers} registers of {_MOST_REGISTERS}")
        if self.threads * self._registers > REGISTERS:
            return Status.reject(f"{self.threads} threads take more registers than there are")
        if self.form.vectors * self.tile_k > self.threads:
            return Status.reject(f"{self.form.vectors} vectors have more items than threads")
        if self._held > _MOST_HELD:
            return Status.reject(f"threads bring {self._held} elements at once in registers")
        if self.shared_bytes > target.shared_bytes:
            return Status.reject(f"takes {self.shared_bytes} bytes of shared memory")
        return Status.accept()

    def seconds(self, size: DistanceSize, target: Target) -> float:
        """Modelled time of a problem of that size.

        Blocks run in waves; the last wave, or the only one, may have fewer of them.
        """
        card = gpu_of(target)
        tiles = self._tiles(size.m, size.n) * size.batch
        resident = max(1, min(self.blocks, operands.cover(tiles, target.cores)))
        rounds = operands.cover(tiles, target.cores * resident)
        warps = self.threads / WARP
        wanted = _BUSY_POWERS if self._has_powers else _BUSY_WARPS
        slab = warps * self.tile_k * self._cycles_of_warp(card)
        alone, together = slab * max(1, wanted / warps), slab * max(resident, wanted / warps)
        slabs = operands.cover(size.k, self.tile_k)
        results = self.tile_m * self.tile_n * _RESULT
        cycles = slabs * max(together, alone + _LATENCY) + _LATENCY + resident * (_BLOCK + results)
        written = size.batch * size.m * size.n * self.output.bytes / card.bandwidth
        return max(rounds * cycles / card.hertz, written)

    def _cycles_of_warp(self, card: Gpu) -> float:
        """Cycles of a multiprocessor for a feature of a warp's pairs."""
        m, n, tile_m, tile_n = self.thread_m, self.thread_n, self.tile_m, self.tile_n
        each = sum(_CYCLES[kind] for kind in self._kinds) + self.form.vectors
        each += _READ * (m + n) / (m * n) + _BROUGHT * (tile_m + tile_n) / (tile_m * tile_n)
        each += _SLAB / self.tile_k
        if self._is_double:
            each = _DOUBLE * each + _DOUBLE_POWER * self._has_powers
            each *= H200.gpu.float64 / card.float64
        else:
            each *= H200.gpu.float32 / card.float32
        return m * n * each / QUARTERS

    def _tiles(self, m: int, n: int) -> int:
        rows, columns = operands.cover(m, self.tile_m), operands.cover(n, self.tile_n)
        return (rows + 1) // 2 * (rows | 1) if self.symmetric else rows * columns

    def instantiation(self, target: Target) -> Instantiation:
        return Instantiation(
            header="distance_tile.cuh",
            parameters=parts.parameters_of(self.form, operands.scalar_fields(self.epilogue)),
            types=operands.element_types(self.math, self.source, self.output, self.epilogue),
            constants=(
                *named(self, "threads blocks tile_m tile_n tile_k thread_m thread_n"),
                *parts.constants_of(self.form),
                ("kSymmetric", self.symmetric),
            ),
            folders=(package_folder(__package__),),
            functors=parts.functors_of(self.form, self.math.element_accumulator),
        )

    def launches(self, problem: DistanceProblem, target: Target) -> tuple[Launch, ...]:
        blocks = self._tiles(problem.m, problem.n) * math.prod(problem.batch)
        operands.check_blocks(blocks)
        return (operands.make_launch(self, blocks, parts.values_of(problem, 0)),)
