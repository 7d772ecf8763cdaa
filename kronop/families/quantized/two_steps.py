"""The product, rounded to X's type in the workspace, and then its rows: what every target can do.

The kernels of the product are those of the Kronecker family.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kronop.artifacts import Launch
from kronop.descriptions.datatype import DataType
from kronop.descriptions.strided import Strided
from kronop.emit.cuda.operands import round_up
from kronop.emit.design import Design, Pipeline, Runnable
from kronop.emit.plan import PerRow, Plan, Step
from kronop.families.quantized.description import QuantizedKronDescription, QuantizedKronProblem
from kronop.frozen import dataclass
from kronop.target import Target

_ALIGNMENT = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsProblem:
    """Rows of numbers to be rounded.

    Attributes:
        rows: how many.
        y: address of the numbers.
        to: the address of the integers and that of the scales.
        clip: what largest magnitudes are multiplied by.
        threads: most threads that a host kernel may use.
    """

    rows: int
    y: int
    to: tuple[int, int]
    clip: float
    threads: int

    @property
    def values(self) -> dict[str, int | float]:
        """The parameters that the kernels of all targets have."""
        q, scales = self.to
        return {"y": self.y, "q": q, "scales": scales, "rows": self.rows, "clip": self.clip}


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsDesign(Design):
    """A way to round rows that are in the workspace; its problems are RowsProblems."""

    epilogue = None

    element: DataType
    columns: int
    bits: int

    @property
    def row_bytes(self) -> int:
        return self.columns * self.bits // 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounded(Pipeline):
    """A product and then its rows; a size is M times the batch."""

    product: Runnable
    rows: RowsDesign

    @property
    def parts(self) -> tuple[Runnable, ...]:
        return self.product, self.rows

    def workspace(self, size: int, target: Target, threads: int) -> int:
        """What the product needs for itself, and then its result."""
        y_bytes = size * self.rows.columns * self.rows.element.bytes
        return self._before_y(size, target, threads) + y_bytes

    def _before_y(self, size: int, target: Target, threads: int) -> int:
        return round_up(self.product.workspace(size, target, threads), _ALIGNMENT)

    def launches(self, problem: QuantizedKronProblem, target: Target) -> tuple[Launch, ...]:
        product, rows = problem.product, problem.product.all_rows
        y = product.workspace + self._before_y(rows, target, product.threads)
        to_round = RowsProblem(
            rows=rows,
            y=y,
            to=(product.y.pointer, problem.scales),
            clip=problem.clip,
            threads=product.threads,
        )
        first = self.launches_of(0, replace(product, y=self._numbers(product.y, y)), target)
        return (*first, *self.launches_of(1, to_round, target))

    def _numbers(self, integers: Strided, pointer: int) -> Strided:
        """The product at that address, in the order of its integers."""

        def of_numbers(stride: int) -> int:
            return stride // self.rows.row_bytes * self.rows.columns

        batch = tuple(map(of_numbers, integers.batch))
        return Strided(pointer=pointer, strides=(of_numbers(integers.row), 1), batch=batch)


def rounded(
    products: Iterable[Plan], what: QuantizedKronDescription, rows: RowsDesign
) -> tuple[Plan, ...]:
    """Plans of the product, each with its rows as the last step."""

    def with_rows(plan: Plan) -> Plan:
        last = Step(
            entry=f"quantized_rows_{what.X.element.short}_{what.output_columns}"
            f"_s{what.bits}_{plan.target.arch}",
            design=rows,
            per_row=PerRow(
                bytes=what.output_columns * what.X.element.bytes + what.row_bytes + 4,
                operations=4 * what.output_columns,
            ),
            note="a scale for each row of the product, and its integers",
        )
        pipeline = Rounded(product=plan.runnable, rows=rows)
        return replace(plan, steps=(*plan.steps, last), pipeline=pipeline)

    return tuple(map(with_rows, products))
