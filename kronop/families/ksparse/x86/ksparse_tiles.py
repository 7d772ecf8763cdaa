"""A Kronecker-sparse product on AMX tiles, whose lanes are rows or outputs; see ksparse_amx.hpp."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from kronop.artifacts import Status
from kronop.descriptions.datatype import bfloat16
from kronop.emit.design import ENDS
from kronop.emit.x86 import amx
from kronop.emit.x86.planning import keeps_sums
from kronop.families.ksparse.x86.ksparse_design import COPY, TRANSPOSE, KSparseDesign
from kronop.frozen import dataclass

# A block of sums is two tiles wide.
_VECTORS = 2
LANES = _VECTORS * amx.TILE
# Most bytes of the second-level cache for X and results in scratch memory.
_MOST_STATE_BYTES = 1 << 20
# Cycles of a tile of 256 sums besides its tile products, and of each tile product (measured on two
# cores of an Emerald Rapids for whole operations, c = 64 to 768: 275 with 2 tile products, 548 with
# 6, 1821 with 24); cycles to move a single number (counted).
_BLOCK, _EACH_STEP, _NUMBER = 150, 65, 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KSparseTiles(KSparseDesign):
    """A design on AMX tiles, which contracts all k at once."""

    header: ClassVar[str] = "ksparse_amx.hpp"
    tile: ClassVar[int] = amx.TILE
    vectors: ClassVar[int] = _VECTORS

    def __str__(self) -> str:
        return (
            f"on tiles along the {'batch' if self.along_batch else 'outputs'}, {self.row_tile}"
            f" rows by {self.blocks} blocks by {self.outputs} outputs by {self.slices} slices"
        )

    @property
    def depth(self) -> int:
        return self.work.pattern[2]

    @property
    def units(self) -> int:
        """Units of 32 bits along k, padded so that all tile products have equally many."""
        return amx.lines(self.depth, self.work.element)

    @property
    def pitch(self) -> int:
        """Leading dimension of X in scratch memory, in units of 32 bits."""
        # NOTE: with an odd number of cache lines, the units along k start in all sets of a cache.
        return (self.slices | 1) * LANES

    @property
    def panel_bytes(self) -> int:
        """Bytes of a block's packed weights."""
        return self.slices * amx.factor_bytes(self.depth, self.outputs, self.work.element)

    @property
    def state_bytes(self) -> int:
        """Bytes of X and results in a thread's scratch memory."""
        scratch = self.scratch
        return scratch.size - scratch.input

    @property
    def direct(self) -> bool:
        """Whether the epilogue can be skipped: results are the sums, or the sums rounded to
        bf16."""
        epilogue = self.work.epilogue
        is_float = self.work.accumulator.kind == "float"
        return keeps_sums(epilogue, rounded=is_float and epilogue.element_output is bfloat16)

    def status(self) -> Status:
        state = self.state_bytes
        if state <= _MOST_STATE_BYTES:
            return Status.accept()
        return Status.reject(
            f"takes {state} bytes for X and results in each thread, at most {_MOST_STATE_BYTES}"
        )

    @property
    def cycles_of_row(self) -> float:
        _, b, c, d = self.work.pattern
        tiles = d * -(-b // amx.TILE) / amx.TILE
        arithmetic = tiles * (_BLOCK + _EACH_STEP * amx.steps(c, self.work.element))
        return arithmetic + self._read_cycles() + d * b / amx.TILE * self.write_cycles

    @property
    def vector_work(self) -> int:
        return self.work.pattern[0] * int(self.cycles_of_row * amx.VECTOR_RATE)

    @abstractmethod
    def _read_cycles(self) -> float:
        """Cycles to copy a row of X to where tiles read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TilesAlongBatch(KSparseTiles):
    """A design on tiles in which rows of the batch are the rows of a tile of sums."""

    template: ClassVar[str] = "ksparse_tiles_along_batch"
    ends = ENDS
    along_batch: ClassVar[bool] = True

    @property
    def parts(self) -> tuple[int, int, int]:
        blocks = self.row_tile // LANES
        return (
            self.panel_bytes,
            blocks * self.units * self.pitch * amx.UNIT_BYTES,
            blocks * self.outputs * self.slices * LANES * amx.UNIT_BYTES,
        )

    def _read_cycles(self) -> float:
        _, _, c, d = self.work.pattern
        vectors = self.units * d / amx.TILE
        if self.work.x_by_rows:
            return COPY * vectors
        in_squares = self.slices >= amx.TILE or (self.slices == d and amx.TILE % d == 0)
        return TRANSPOSE * vectors if in_squares else _NUMBER * c * d


@dataclass(frozen=True, slots=True, kw_only=True)
class TilesAlongOutputs(KSparseTiles):
    """A design on tiles that reads the rows of X in place if they consist of whole units."""

    template: ClassVar[str] = "ksparse_tiles_along_outputs"
    along_batch: ClassVar[bool] = False

    @property
    def parts(self) -> tuple[int, int, int]:
        return (
            self.panel_bytes,
            LANES * self.units * amx.UNIT_BYTES,
            LANES * self.outputs * amx.UNIT_BYTES,
        )

    def _read_cycles(self) -> float:
        units, (_, _, c, d) = self.units, self.work.pattern
        in_place = units * amx.UNIT_BYTES == c * self.work.element.bytes
        return 0.0 if in_place else COPY * (units * d / amx.TILE)
