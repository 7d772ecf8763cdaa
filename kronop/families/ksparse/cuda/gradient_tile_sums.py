"""The sums of `ksparse_gradient`, and how it reads their operands.

Here k counts along the sums: over the rows and, for tied weights, over groups and lanes.
"""

from __future__ import annotations

import math

from kronop.descriptions.math_instruction import MathOperation
from kronop.descriptions.strided import Strided
from kronop.emit.cuda import operands
from kronop.families.ksparse.cuda.gradient_sums import Sums
from kronop.frozen import dataclass, derived

HALF = 8  # Indices of a digit that are rows, or columns, of one product of the tensor cores.
_MOST_STEPS = 4
# With tied weights and at least so many lanes (or bytes of lanes), k runs along the lanes, which
# are contiguous; with fewer, rows are read and their lanes unpacked.
_LONG_RUN, _LONG_RUN_BYTES = 16, 64
_MOST_APART = 4


@dataclass(frozen=True, kw_only=True)
class TileSums(Sums):
    """The sums of a gradient, and how `ksparse_gradient` reads X and G.

    Attributes:
        vector: elements of one copy to shared memory.
    """

    vector: int

    @derived
    def along_sums(self) -> bool:
        """Whether k is contiguous in memory."""
        is_long = self.pattern[3] >= min(_LONG_RUN, _LONG_RUN_BYTES // self.element.bytes)
        return self.by_rows or (self.tied and is_long)

    @derived
    def lanes(self) -> int:
        """How many neighbouring lanes a block reads together; 1 if k or the digit is contiguous."""
        d = self.pattern[3]
        if self.along_sums:
            return 1
        return d if self.tied else max(it for it in range(1, _MOST_APART + 1) if d % it == 0)

    @derived
    def products(self) -> int:
        """How many independent products there are; a block has one of them."""
        return math.prod(self.product_axes)

    @property
    def product_axes(self) -> tuple[int, int, int]:
        """The extents of the products: of `lead`, of the groups i, and of the sets of lanes that
        blocks take."""
        a, _, _, d = self.pattern
        return (self.lead, 1, 1) if self.tied else (self.lead, a, d // self.lanes)

    @derived
    def split(self) -> bool:
        """Whether each product is made of three products of TF32."""
        return self.math.math_operation is MathOperation.multiply_add_fast_f32

    @derived
    def matrices(self) -> int:
        """How many separate matrices of sums a block has."""
        return 1 if self.tied else self.lanes

    @derived
    def steps(self) -> int:
        """How many times 8 indices along k (with several lanes: of one lane) a warp loads at
        once."""
        chunk = operands.vector_of(self.element)
        if self.along_sums:
            return chunk // 2
        return 2 if self.lanes == 1 else math.gcd(self.lanes, min(chunk, _MOST_STEPS))

    @derived
    def bite(self) -> int:
        """Indices along k that a warp loads at once: elements, or rows if k is strided."""
        return HALF * self.steps if self.along_sums or self.lanes == 1 else HALF

    def positions(self, rows: int) -> tuple[int, tuple[int, int, int]]:
        """(elements along the last axis of k, extents of the axes of k, counted in copies)."""
        a, _, _, d = self.pattern
        if self.by_rows:
            outer = (a, d) if self.tied else (1, 1)
            return rows, (*outer, operands.cover(rows, self.vector))
        if not self.tied:
            return 1, (1, 1, rows)
        if self.along_sums:
            return d, (rows, a, d // self.vector)
        return 1, (1, rows, a)

    def operand(self, name: str, item: Strided, size: int) -> dict[str, int | tuple[int, ...]]:
        """The launch parameters of X or G, whose columns are (i, own, l) with `size` indices
        `own`."""
        d, column = self.pattern[3], item.column
        group = size * d * column
        if self.by_rows:
            outer = (group, column) if self.tied else (0, 0)
            axes = (*outer, self.vector * item.row)
        elif not self.tied:
            axes = (0, 0, item.row)
        elif self.along_sums:
            axes = (item.row, group, self.vector * column)
        else:
            axes = (0, item.row, group)
        lead = item.batch[0] if item.batch else 0
        return {
            name: item.pointer,
            f"{name}_sum": axes,
            f"{name}_own": d * column,
            f"{name}_lane": column,
            f"{name}_matrix": (lead, group, self.lanes * column),
        }
