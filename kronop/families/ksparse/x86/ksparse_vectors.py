"""A Kronecker-sparse product on the vectors of a CPU, whose lanes are rows or outputs."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar

from kronop.artifacts import Status
from kronop.families.ksparse.x86.ksparse_design import COPY, TRANSPOSE, KSparseDesign
from kronop.frozen import dataclass
from kronop.machine import CPU_LINE, FITTED_CPU

# Cycles per vector; the kernel's header explains where each arises.
_TILE, _PACK, _FEWEST_SUMS = 8.0, 1.5, 10
# Rows of the batch that amortise the packing of weights.
TYPICAL_ROWS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class KSparseVectors(KSparseDesign):
    """A design on vectors, with register tiles of `tile` single numbers by `vectors` vectors."""

    header: ClassVar[str] = "ksparse.hpp"

    tile: int
    vectors: int
    depth: int

    def __str__(self) -> str:
        return (
            f"lanes along the {'batch' if self.along_batch else 'outputs'}, tiles of {self.tile}"
            f" by {self.vectors} vectors, {self.row_tile} rows by {self.blocks} blocks by"
            f" {self.outputs} outputs by {self.slices} slices,"
            f" {self.depth} contraction steps at once"
        )

    @property
    def vector_work(self) -> int:
        return self.multiply_adds

    @property
    def streams(self) -> bool:
        """Only if a vector is a whole cache line of Y, and its sums are complete."""
        work = self.work
        whole = work.vector_bytes >= CPU_LINE and self.depth == work.pattern[2]
        return whole and self.direct and self.is_along_y

    @property
    @abstractmethod
    def row_unit(self) -> int:
        """The rows of an item are a multiple of this."""

    def status(self) -> Status:
        """Whether the user's tile consists of whole vectors."""
        if self.row_tile % self.row_unit:
            return Status.reject(
                f"Tile_M of {self.row_tile} rows is no multiple of {self.row_unit} lanes;"
                f" use a multiple of {self.work.width} in threadblock_shape[0]"
            )
        return Status.accept()

    @property
    def cycles_of_row(self) -> float:
        _, b, c, d = self.work.pattern
        width = self.work.width
        each, tiles, sums = self._tiles()
        depth_parts, output_parts = math.ceil(c / self.depth), math.ceil(b / self.outputs)
        arithmetic = c * each + depth_parts * (tiles * _TILE + 2 * sums)
        reading = output_parts * c * d / width * self._read_cycles()
        writing = sums * self.write_cycles
        packing = _PACK * b * c * d / TYPICAL_ROWS
        return arithmetic + reading + writing + packing

    @abstractmethod
    def _tiles(self) -> tuple[float, float, float]:
        """For one row: (cycles of all register tiles for one k, number of tiles, vectors of
        sums)."""

    @abstractmethod
    def _read_cycles(self) -> float:
        """Cycles to copy a vector of X to where register tiles read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorsAlongBatch(KSparseVectors):
    """Lanes are rows: every weight is multiplied by vectors of rows of X."""

    template: ClassVar[str] = "ksparse_along_batch"
    along_batch: ClassVar[bool] = True

    @property
    def row_unit(self) -> int:
        return self.lanes

    @property
    def pitch(self) -> int:
        # NOTE: with an odd number of cache lines, indices k start in all sets of a cache.
        return (self.slices | 1) * self.lanes

    @property
    def parts(self) -> tuple[int, int, int]:
        size, blocks = self.work.bytes, -(-self.row_tile // self.lanes)
        return (
            self.slices * self.work.pattern[2] * self.outputs * size,
            blocks * self.depth * self.pitch * size,
            blocks * self.outputs * self.slices * self.lanes * size,
        )

    def _tiles(self) -> tuple[float, float, float]:
        _, b, _, d = self.work.pattern
        return (
            d * column_cycles(b, self.tile, self.vectors) / self.lanes,
            d * -(-b // self.tile) / self.lanes,
            d * b / self.work.width,
        )

    def _read_cycles(self) -> float:
        if self.work.x_by_rows:
            return COPY
        width = self.work.width
        return TRANSPOSE if self.depth * self.work.pattern[3] >= width else 2.0 * width


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorsAlongOutputs(KSparseVectors):
    """Lanes are outputs: every element of X is multiplied by vectors of weights."""

    template: ClassVar[str] = "ksparse_along_outputs"
    along_batch: ClassVar[bool] = False

    @property
    def row_unit(self) -> int:
        return self.work.width

    @property
    def pitch(self) -> int:
        # NOTE: with an odd number of cache lines, rows start in all sets of a cache.
        line = max(1, CPU_LINE // self.work.bytes)
        return (-(-self.depth // line) | 1) * line

    @property
    def parts(self) -> tuple[int, int, int]:
        size, width = self.work.bytes, self.work.width
        outputs = -(-self.outputs // width) * width
        return (
            self.work.pattern[2] * outputs * size,
            self.row_tile * self.pitch * size,
            self.row_tile * outputs * size,
        )

    def _tiles(self) -> tuple[float, float, float]:
        b, width = self.work.pattern[1], self.work.width
        full, rest = divmod(b, self.lanes)
        single = -(-rest // width)
        cycles = full * _tile_cycles(self.tile, self.vectors) + single * _tile_cycles(self.tile, 1)
        return cycles / self.tile, (full + single) / self.tile, math.ceil(b / width)

    def _read_cycles(self) -> float:
        return COPY if self.work.converts else 0.0


def column_cycles(outputs: int, tile: int, vectors: int) -> float:
    """Cycles of the register tiles that cover `outputs` single numbers, for one k."""
    full, rest = divmod(outputs, tile)
    return full * _tile_cycles(tile, vectors) + (_tile_cycles(rest, vectors) if rest else 0)


def _tile_cycles(tile: int, vectors: int) -> float:
    """Cycles of one register tile for one k: a CPU starts as many loads as multiply-adds, and the
    fewest sums just hide their latency."""
    return max(tile * vectors, tile + vectors, _FEWEST_SUMS) / FITTED_CPU.arithmetic
