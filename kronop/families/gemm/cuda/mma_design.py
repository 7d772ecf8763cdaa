"""Products by warp-level MMAs; see gemm_mma.cuh."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import ClassVar

from kronop.artifacts import Status
from kronop.descriptions.datatype import FLOAT8, DataType, float16, float32, float64
from kronop.descriptions.math_instruction import MathOperation
from kronop.emit.cuda import operands
from kronop.emit.cuda.machine import PRODUCTS_OF_SPLIT, warp_products
from kronop.emit.design import Instantiation, named
from kronop.families.gemm.cuda.blocks import ACCESS_STYLES, TREE_STYLES, GemmBlocks
from kronop.frozen import dataclass
from kronop.machine import BLOCK_THREADS, ISSUED, REGISTERS, THREAD_REGISTERS, WARP, Feature
from kronop.target import Target

_LEAST_COPY = 4
# Bytes along K of one MMA; the same for float64, and for float32 that is rounded to 16 bits.
_STEP_BYTES, _WIDE_STEP_BYTES = 32, 64
# Registers besides sums, fragments and elements that are copied through registers.
# NOTE: of float64, ptxas 13.5 for sm_90a: a warp of 32 x 32 takes 160 to 168 in all, one of 64 x 32
# 253 to 255 and no spills.
_REGISTERS, _REGISTERS_OF_DOUBLES = 62, 31
_MOST_HELD = 64
# Cycles of a scheduler for a warp's asynchronous copy, and for its loads and stores through
# registers; the slowdown of a slab by long code, for each further 64 bytes along K. NOTE: fitted to
# all tiles at 43 sizes and types on an H100; docs/gotchas.md.
_CYCLES_OF_COPY, _CYCLES_OF_HELD, _SLOWING, _SHORT_BYTES = 4, 16, 0.1, 64
# Registers to transpose bytes of an operand; those, for each loaded register, to convert 8-bit
# floats to float16, as sm_90a multiplies them.
_TURNED, _QUARTERS = 20, 4


class Way(enum.IntEnum):
    """How operands are multiplied: unchanged; float32 as TF32; split in two TF32 numbers, in three
    products; rounded to 16 bits."""

    Plain = 0
    Tf32 = 1
    SplitTf32 = 2
    Rounded = 3


# Registers of rounded or split operands, for each loaded one. NOTE: rounded ones can do without.
# With 64 x 64 sums of a warp none are left for them: row-major A and column-major B spill nothing
# (NVRTC 13.5), other layouts up to 90 bytes, 190 with an alignment of 1.
_MORE = {Way.Plain: 0.0, Way.Tf32: 0.75, Way.SplitTf32: 1.75, Way.Rounded: 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmMma(GemmBlocks):
    """Warps multiply slabs that are copied asynchronously.

    The instruction shapes [16, 8, 8] and [16, 8, 16] of 16-bit floats are one here: both run as
    [16, 8, 16], whose sums are the same products in the same precision.

    Attributes:
        stages: stages of the pipeline in shared memory.
        warps_m, warps_n: warps along the rows and columns of a tile.
    """

    styles: ClassVar[tuple[str, ...]] = (
        *("A along M", "A along K", "B along N", "B along K"),
        *("copied", "through registers", "float16 sums", "bytes across", "8-byte elements"),
        *("Plain", "Tf32", "SplitTf32", "Rounded", *TREE_STYLES, *ACCESS_STYLES),
    )
    ends = ("Y along rows", "Y along columns")
    kind = "mma"

    stages: int
    warps_m: int
    warps_n: int

    def __str__(self) -> str:
        return (
            f"tensor cores of {self.warps_m} x {self.warps_n} warps, tiles of {self.tile_m} x"
            f" {self.tile_n} x {self.tile_k}, {self.stages} stages"
        )

    @property
    def threads(self) -> int:
        return WARP * self.warps_m * self.warps_n

    @property
    def shared_bytes(self) -> int:
        slabs = self.stages * (self.tile_m + self.tile_n) * self.tile_k * self.source.bytes
        return max(
            slabs + self.places_bytes, self.shared_of_tree((4 * self.warps_n, 8 * self.warps_m))
        )

    @property
    def way(self) -> Way:
        operation = self.math.math_operation
        if self.source is not float32:
            return Way.Plain
        if operation is MathOperation.multiply_add_fast_f32:
            return Way.SplitTf32
        return Way.Tf32 if operation is MathOperation.multiply_add else Way.Rounded

    @property
    def multiplied(self) -> DataType:
        return self.math.math_operation.rounded or self.source

    @property
    def step(self) -> int:
        """Contracted indices of an MMA."""
        wide = self.source is float64 or self.way is Way.Rounded
        return (_WIDE_STEP_BYTES if wide else _STEP_BYTES) // self.source.bytes

    @property
    def warp_tile(self) -> tuple[int, int]:
        return self.tile_m // self.warps_m, self.tile_n // self.warps_n

    @property
    def registers(self) -> int:
        m, n = self.warp_tile
        sums = m * n * self.math.element_accumulator.bytes // (4 * WARP)
        # Double-buffered fragments: one step is multiplied, the next is loaded and rounded.
        loaded = (m + n) * self.step * self.multiplied.bytes // (4 * WARP)
        others = _REGISTERS_OF_DOUBLES if self.source is float64 else _REGISTERS
        others += _QUARTERS * (self.source in FLOAT8) * loaded
        others += _TURNED * (self.source.bytes == 1) * sum(self._across)
        # Of gathered elements, addresses besides.
        held = self._held * (3 if self.is_gathered else 2) // 2
        least = sums + 2 * loaded + held + others
        most = least + int(_MORE[self.way] * loaded)
        return most if self.way is Way.SplitTf32 else max(least, min(most, THREAD_REGISTERS))

    @property
    def _held(self) -> int:
        """Elements of a thread that are in flight to shared memory through registers."""
        narrow = ((self.tile_m, self.vector_a), (self.tile_n, self.vector_b))
        elements = sum(rows for rows, vector in narrow if not self._copies(vector)) * self.tile_k
        return operands.cover(elements, self.threads)

    def _copies(self, vector: int) -> bool:
        return vector * self.source.bytes >= _LEAST_COPY

    @property
    def _units(self) -> tuple[int, int]:
        """Elements of A and of B that are copied at once."""
        unit_a, unit_b = (
            vector if self._copies(vector) else 1 for vector in (self.vector_a, self.vector_b)
        )
        return unit_a, unit_b

    @property
    def cycles_of_copies(self) -> float:
        sides = ((self.tile_m, self.vector_a), (self.tile_n, self.vector_b))
        cycles = sum(
            rows * (_CYCLES_OF_COPY / vector if self._copies(vector) else _CYCLES_OF_HELD)
            for rows, vector in sides
        )
        return (cycles + self.instructions_of_places(self._units)) / ISSUED

    @property
    def slowing(self) -> float:
        is_long = self.way is Way.SplitTf32 or not self._copies(min(self.vector_a, self.vector_b))
        more = self.tile_k * self.source.bytes / _SHORT_BYTES - 1
        return 1 + _SLOWING * more if is_long else 1.0

    @property
    def pieces(self) -> int:
        m, n = self.warp_tile
        return m // 16 * (n // (32 if self.across_b and self.source.bytes == 1 else 8))

    @property
    def read_of_step(self) -> int:
        m, n = self.warp_tile
        return self.threads // WARP * (m + n) * self.source.bytes

    def cycles_of_step(self, target: Target) -> float:
        rate = warp_products(target, self.multiplied.bytes)
        products = PRODUCTS_OF_SPLIT if self.way is Way.SplitTf32 else 1
        return products * self.tile_m * self.tile_n / rate

    def style(self, target: Target) -> Iterator[str]:
        yield from self.layout_words()
        vectors = (self.vector_a, self.vector_b)
        words = {
            "copied": any(map(self._copies, vectors)),
            "through registers": not all(map(self._copies, vectors)),
            "float16 sums": self.math.element_accumulator is float16,
            "bytes across": self.source.bytes == 1 and (self.across_a or self.across_b),
            "8-byte elements": self.source.bytes == 8,
        }
        yield from (word for word, has in words.items() if has)
        yield self.way.name
        yield from self.tree_words()

    def status(self, target: Target) -> Status:
        for found in (self._status_of_math(target), self._status_of_tile(), self._room(target)):
            if not found:
                return found
        return Status.accept()

    def _status_of_math(self, target: Target) -> Status:
        math = self.math
        if not operands.multiplies(math):
            return Status.reject(f"tensor cores of a GPU do not have {math}")
        status = operands.accept_element(self.source, target)
        # Both shapes of float16 are one; older tensor cores have it in two parts.
        if status and not (self.source is float16 and target.has(Feature.half_products)):
            status = operands.accept_products(math, target)
        return status

    def _status_of_tile(self) -> Status:
        tile = f"{self.tile_m} x {self.tile_n} x {self.tile_k}"
        if self.threads > BLOCK_THREADS:
            return Status.reject(f"{self.threads} threads, a block has at most {BLOCK_THREADS}")
        if self.tile_m % self.warps_m or self.tile_n % self.warps_n:
            return Status.reject(
                f"a tile of {tile} is not one of {self.warps_m} x {self.warps_n} warps"
            )
        least = [32 if self.source.bytes == 1 and across else 16 for across in self._across]
        (m, n), (rows, columns) = self.warp_tile, least
        if m % rows or n % columns:
            return Status.reject(
                f"a warp has {m} x {n} of a tile of {tile}, which is to be a multiple of {rows} x"
                f" {columns}"
            )
        if self.tile_k % self.step:
            return Status.reject(
                f"Tile_K is {self.tile_k}, which is to be a multiple of {self.step}"
            )
        if self.stages < 2:
            return Status.reject("1 stage: copies need another one while a slab is multiplied")
        return self.status_of_copies(self._units)

    @property
    def _across(self) -> tuple[bool, bool]:
        return self.across_a, self.across_b

    def _room(self, target: Target) -> Status:
        if self.shared_bytes > target.shared_bytes:
            return Status.reject(
                f"a block takes {self.stages} stages x ({self.tile_m} x {self.tile_k} +"
                f" {self.tile_k} x {self.tile_n}) x {self.source.bytes} = {self.shared_bytes} bytes"
                f" of shared memory, {target} has {target.shared_bytes}"
            )
        if self.registers > THREAD_REGISTERS:
            m, n = self.warp_tile
            return Status.reject(
                f"a warp of {m} x {n} takes about {self.registers} registers of {THREAD_REGISTERS}"
            )
        if self.threads * operands.round_up(self.registers, 8) > REGISTERS:
            return Status.reject(
                f"{self.threads} threads take about {self.registers} registers each, of {REGISTERS}"
            )
        if self._held > _MOST_HELD:
            return Status.reject(f"threads bring {self._held} elements at once in registers")
        return Status.accept()

    def instantiation(self, target: Target) -> Instantiation:
        m, n = self.warp_tile
        constants = (
            ("kBlocks", self.blocks(target)),
            *named(self, "stages warps_m"),
            ("kWarpM", m),
            ("kWarpN", n),
            ("kWay", int(self.way)),
        )
        return self.instantiated(constants, ("Rounded", self.multiplied.cxx))
