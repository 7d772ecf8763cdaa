"""The product, rounded to X's type in the workspace, and then its rows: what every target can do.

The kernels of the product are those of the Kronecker family.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

from kronop.artifacts import Launch, Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.strided import StridedMatrix
from kronop.emit.cuda.operands import round_up
from kronop.emit.design import Design
from kronop.emit.emitter import Emitter
from kronop.emit.plan import Plan, Step
from kronop.families.kron.description import KronMatmulDescription, KronProblem
from kronop.families.quantized.description import QuantizedKronDescription, QuantizedKronProblem
from kronop.target import Target

_ALIGNMENT = 256


class RowsDesign(Design):
    """A way to round rows that are in the workspace."""

    __slots__ = ()

    element: DataType
    columns: int
    bits: int

    @property
    def epilogue(self) -> None:
        return None

    @property
    def row_bytes(self) -> int:
        return self.columns * self.bits // 8

    @abstractmethod
    def launch(
        self, index: int, target: Target, rows: int, y: int, problem: QuantizedKronProblem
    ) -> Launch:
        """The launch as step `index` for rows of numbers at address `y`."""


class TwoSteps(ABC):
    """An emitter of plans whose last step rounds the rows of a product.

    Attributes:
        product: the emitter of the product.
    """

    __slots__ = ()

    product: ClassVar[Emitter[KronMatmulDescription, KronProblem]]

    @abstractmethod
    def rows_design(self, what: QuantizedKronDescription, target: Target) -> RowsDesign:
        """How rows are rounded."""

    def instruction(self, element: DataType, target: Target) -> MathInstruction:
        return self.product.instruction(element, target)

    def supports(self, description: QuantizedKronDescription, target: Target) -> Status:
        return self.product.supports(description.product, target)

    def plan(self, description: QuantizedKronDescription, target: Target, size: Any = None) -> Plan:
        return self.candidates(description, target, 1, size)[0]

    def candidates(
        self, description: QuantizedKronDescription, target: Target, count: int, size: Any = None
    ) -> tuple[Plan, ...]:
        what = description
        last = Step(
            entry=f"quantized_rows_{what.X.element.short}_{what.output_columns}"
            f"_s{what.bits}_{target.arch}",
            design=self.rows_design(what, target),
            bytes_per_row=what.output_columns * what.X.element.bytes + what.row_bytes + 4,
            operations_per_row=4 * what.output_columns,
            note="a scale for each row of the product, and its integers",
        )
        found = self.product.candidates(what.product, target, count, size)
        return tuple(replace(plan, steps=(*plan.steps, last)) for plan in found)

    def workspace_bytes(self, plan: Plan, rows: int, threads: int) -> int:
        """The product, and the workspace that its own steps need."""
        *_, last = plan.steps
        assert isinstance(last.design, RowsDesign)
        y_bytes = rows * last.design.columns * last.design.element.bytes
        return _before_y(self.product.workspace_bytes(_product(plan), rows, threads)) + y_bytes

    def launches(self, plan: Plan, problem: QuantizedKronProblem) -> tuple[Launch, ...]:
        """Those of the product, and that of its rows; none if there are no rows."""
        product, design = problem.product, plan.steps[-1].design
        assert isinstance(design, RowsDesign)
        rows = product.rows * math.prod(product.batch)
        if not rows:
            return ()
        own = self.product.workspace_bytes(_product(plan), rows, product.threads)
        pointer = product.workspace + _before_y(own)

        def of_numbers(stride: int) -> int:
            return stride // design.row_bytes * design.columns

        y = StridedMatrix(
            pointer=pointer,
            row=of_numbers(product.y.row),
            column=1,
            batch=tuple(map(of_numbers, product.y.batch)),
        )
        first = self.product.launches(_product(plan), replace(product, y=y))
        last = design.launch(len(plan.steps) - 1, plan.target, rows, pointer, problem)
        return (*first, last)


def _product(plan: Plan) -> Plan:
    """The steps of the product."""
    return replace(plan, steps=plan.steps[:-1])


def _before_y(own: int) -> int:
    return round_up(own, _ALIGNMENT)
