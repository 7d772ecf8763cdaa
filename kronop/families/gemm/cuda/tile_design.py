"""Products by ordinary (SIMT) cores; see gemm_tile.cuh."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from kronop.artifacts import Status
from kronop.emit.cuda import operands
from kronop.emit.cuda.machine import ordinary_products
from kronop.emit.design import Instantiation, named
from kronop.families.gemm.cuda.blocks import ACCESS_STYLES, TREE_STYLES, GemmBlocks
from kronop.frozen import dataclass
from kronop.machine import BLOCK_THREADS, ISSUED, REGISTERS, WARP
from kronop.target import Target

_PADDING = 16  # bytes
# Instructions of a thread for a copy.
_OF_COPY = 3
# Registers besides sums and operands; the most that a thread may have.
_REGISTERS, _MOST_REGISTERS = 44, 248
# Further registers if elements are converted while they are copied, and for 8-byte elements.
_CONVERTED, _WIDE = 12, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmTile(GemmBlocks):
    """Sums of a tile stay in registers while slabs of both operands are streamed.

    Attributes:
        thread_m, thread_n: rows and columns of a thread.
    """

    styles: ClassVar[tuple[str, ...]] = (
        *("A along M", "A along K", "B along N", "B along K"),
        *("copied", "through registers", *TREE_STYLES, *ACCESS_STYLES),
    )
    ends = ("Y along rows", "Y along columns")
    kind = "tile"

    thread_m: int
    thread_n: int

    def __str__(self) -> str:
        return (
            f"tiles of {self.tile_m} x {self.tile_n} x {self.tile_k}, threads of {self.thread_m} x"
            f" {self.thread_n}"
        )

    @property
    def threads(self) -> int:
        return self.tile_m // self.thread_m * (self.tile_n // self.thread_n)

    @property
    def shared_bytes(self) -> int:
        item = self.math.element_accumulator.bytes
        slabs = 2 * self.tile_k * ((self.tile_m + self.tile_n) * item + 2 * _PADDING)
        holders = self.tile_n // self.thread_n, self.tile_m // self.thread_m
        return max(slabs + self.places_bytes, self.shared_of_tree(holders))

    @property
    def registers(self) -> int:
        words = self.math.element_accumulator.bytes // 4
        held = self.thread_m * self.thread_n + self.thread_m + self.thread_n
        brought = self.tile_k * (self.tile_m + self.tile_n) // self.threads + _CONVERTED
        brought = _WIDE * (words - 1) if self._is_copied else brought
        return words * held + brought + self.registers_of_tree + _REGISTERS

    @property
    def pieces(self) -> int:
        run = operands.VECTOR_BYTES // self.math.element_accumulator.bytes
        return self.thread_m * self.thread_n // (run * run)

    @property
    def read_of_step(self) -> int:
        # Lanes of a warp are 4 x 8; what several of them read is read once (broadcast).
        lines = 4 * self.thread_m + 8 * self.thread_n
        return self.threads // WARP * lines * self.math.element_accumulator.bytes

    def cycles_of_step(self, target: Target) -> float:
        sums, count = self.math.element_accumulator, self.tile_m * self.tile_n
        multiply = count / ordinary_products(target, sums.kind, sums.bytes)
        # Instructions of a thread: multiply-adds, loads of 16 bytes, copies with their addresses.
        loads = (self.thread_m + self.thread_n) * sums.bytes / operands.VECTOR_BYTES
        copies = _OF_COPY * (self.tile_m + self.tile_n) + self.instructions_of_places(self._units)
        return max(multiply, (count + self.threads * loads + copies) / ISSUED)

    @property
    def _is_copied(self) -> bool:
        """Whether elements are copied to shared memory unchanged."""
        return self.source is self.math.element_accumulator

    @property
    def _units(self) -> tuple[int, int]:
        """Elements of A and of B that are copied at once."""
        vectors = ((self.vector_a, self.across_a), (self.vector_b, self.across_b))
        # Unchanged elements that go to different lines are copied one by one.
        unit_a, unit_b = (1 if self._is_copied and not across else of for of, across in vectors)
        return unit_a, unit_b

    def style(self, target: Target) -> Iterator[str]:
        yield from self.layout_words()
        yield "copied" if self._is_copied else "through registers"
        yield from self.tree_words()

    def status(self, target: Target) -> Status:
        for known in (
            operands.accept_math(self.math),
            operands.accept_element(self.source, target),
        ):
            if not known:
                return known
        if self.threads > BLOCK_THREADS:
            return Status.reject(f"{self.threads} threads, a block has at most {BLOCK_THREADS}")
        most = min(_MOST_REGISTERS, REGISTERS // self.threads)
        if self.registers > most:
            return Status.reject(
                f"threads of {self.thread_m} x {self.thread_n} take about {self.registers}"
                f" registers of {most}"
            )
        if self.shared_bytes > target.shared_bytes:
            return Status.reject(
                f"a block takes 2 slabs of ({self.tile_m} + {self.tile_n}) x {self.tile_k} sums ="
                f" {self.shared_bytes} bytes of shared memory, {target} has {target.shared_bytes}"
            )
        return self._status_of_lines()

    def _status_of_lines(self) -> Status:
        """Whether threads share slabs evenly; one line is not copied in several rounds."""
        unit_a, unit_b = self._units
        longest = max(self.tile_k, self.tile_m // unit_a, self.tile_n // unit_b)
        if longest > self.threads:
            return Status.reject(
                f"lines of {longest} copies are longer than {self.threads} threads"
            )
        return self.status_of_copies(self._units)

    def instantiation(self, target: Target) -> Instantiation:
        constants = (("kBlocks", self.blocks(target)), *named(self, "thread_m thread_n"))
        return self.instantiated(constants)
