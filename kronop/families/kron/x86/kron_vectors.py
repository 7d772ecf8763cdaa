"""A Kronecker matmul on the vectors of a CPU (`kron_matmul`): passes over digits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from kronop.emit.design import ENDS, Constant, arrays, named
from kronop.emit.x86.planning import aligned, keeps_sums, panel_elements
from kronop.families.kron.x86.kron_design import KronDesign
from kronop.families.kron.x86.kron_parts import Kind, Pass
from kronop.frozen import dataclass
from kronop.target import Target

# Runs of results at most so many bytes apart still count as contiguous.
_NEAR_RUNS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class KronVectors(KronDesign):
    """A design on vectors: `passes` in order, each of which multiplies between two states."""

    header: ClassVar[str] = "kron.hpp"
    template: ClassVar[str] = "kron_matmul"
    has_teams: ClassVar[bool] = True
    styles = tuple(kind.name for kind in Kind)
    ends = ENDS

    passes: tuple[Pass, ...]
    row_tile: int

    def style(self, target: Target) -> Iterator[str]:
        yield from {item.kind.name for item in self.passes}

    def __str__(self) -> str:
        passes = [
            f"{item.kind.name} {'*'.join(str(product.digit + 1) for product in item.products)}"
            f" by {item.lanes}"
            for item in self.passes
        ]
        return f"{', then '.join(passes)} (digits by lanes), {self.row_tile} rows"

    @property
    def middle(self) -> int:
        """Most elements of a row in an intermediate between passes; 0 for a single pass."""
        read = self.passes[1:]
        return max(
            (item.lead * item.contracted * (item.trail + item.pad) for item in read), default=0
        )

    @property
    def peak(self) -> int:
        """Most elements of a row that a state holds."""
        return max(item.peak for item in self.passes)

    @property
    def state(self) -> int:
        """Elements of a state."""
        return max(item.peak * item.lanes for item in self.passes)

    @property
    def panels(self) -> int:
        """Elements of all packed factors."""
        return sum(
            panel_elements(digit.contracted, digit.produced, product.tile.panel)
            for item in self.passes
            for product in item.products
            for digit in [self.digits[product.digit]]
        )

    @property
    def shared_bytes(self) -> int:
        """Bytes of the panels, of two states, and of the intermediates, laid out as in kron.hpp."""
        size = self.work.bytes
        middles = min(2, len(self.passes) - 1)
        return (
            aligned(self.panels * size)
            + 2 * aligned(self.state * size)
            + middles * aligned(self.row_tile * self.middle * size)
        )

    def products(self) -> Iterator[tuple[int, int]]:
        for item in self.passes:
            for product in item.products:
                digit = self.digits[product.digit]
                around = item.lead * item.trail * product.left * product.right
                yield around * digit.produced, digit.contracted

    @property
    def vector_work(self) -> int:
        return self.multiply_adds

    @property
    def row_multiple(self) -> int:
        width, across = self.work.width, (Kind.Rows, Kind.RowsAndLead)
        in_vectors = self.row_tile % width == 0 and self.passes[0].kind in across
        return width if in_vectors else 1

    @property
    def keeps_sums(self) -> bool:
        return keeps_sums(self.work.epilogue)

    @property
    def stores_in_parts(self) -> bool:
        """Whether the results of a register tile are contiguous or near each other, so that stores
        of less than a cache line may bypass the caches.

        NOTE: with streaming stores, 8^4 in float32 (runs 2 KiB apart, half a line a store) took 1.6
        times as long, and 8^3 in float64 (512 bytes apart) 0.65 times (Zen 3). 16 x 8^6, whose
        lines are not neighbours, took 1.4 times as long (Zen 3); with stores of whole lines half
        the time (Emerald Rapids).
        """
        last = self.passes[-1]
        return last.kind is Kind.Whole and last.products[-1].right * self.work.bytes <= _NEAR_RUNS

    @property
    def constants(self) -> tuple[tuple[str, Constant], ...]:
        products = [product for item in self.passes for product in item.products]
        ends = [
            sum(len(item.products) for item in self.passes[: index + 1])
            for index in range(len(self.passes))
        ]
        tiles = {product.digit: product.tile for product in products}
        every = [tiles[index] for index in range(len(self.digits))]
        return (
            ("kWidth", self.work.width),
            *named(self, "row_tile state"),
            *self.digit_constants,
            ("kPanel", tuple(tile.panel for tile in every)),
            *arrays(every, "kTile", "rows vectors width"),
            ("kUnroll", tuple(tile.unroll for tile in every)),
            ("kPassKind", tuple(int(item.kind) for item in self.passes)),
            ("kPassEnd", tuple(ends)),
            *arrays(self.passes, "k", "lanes pad"),
            ("kOrder", tuple(product.digit for product in products)),
            *arrays(products, "k", "left right in_place"),
        )
