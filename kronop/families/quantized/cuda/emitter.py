"""Quantized Kronecker products on GPUs: in one kernel, or the product and then its rows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from kronop.artifacts import Launch, Status
from kronop.descriptions.math_instruction import OpClass
from kronop.emit.cuda import operands
from kronop.emit.plan import Plan, Step
from kronop.families.kron.cuda.emitter import CudaKronEmitter
from kronop.families.quantized.cuda.pair_design import PairDesign
from kronop.families.quantized.cuda.rows_design import CudaRows
from kronop.families.quantized.description import QuantizedKronDescription, QuantizedKronProblem
from kronop.families.quantized.two_steps import TwoSteps
from kronop.target import Target


class CudaEmitter(TwoSteps):
    """Plans one step where a row and both digits' matrices fit a block, else those of the product
    and one for its rows."""

    product = CudaKronEmitter()

    def rows_design(self, what: QuantizedKronDescription, target: Target) -> CudaRows:
        return CudaRows(element=what.X.element, columns=what.output_columns, bits=what.bits)

    def candidates(
        self, description: QuantizedKronDescription, target: Target, count: int, size: Any = None
    ) -> tuple[Plan, ...]:
        what = description
        design, rejected = _pair(what, target)
        if design is None:
            plans = super().candidates(what, target, count, size)
            return tuple(replace(plan, rejected=(*plan.rejected, *rejected)) for plan in plans)
        shape = operands.shape_name(what.factors)
        step = Step(
            entry=f"quantized_pair_{what.X.element.short}_{shape}_s{what.bits}_{target.arch}",
            design=design,
            bytes_per_row=what.input_columns * what.X.element.bytes + what.row_bytes + 4,
            operations_per_row=2 * design.multiply_adds,
            note=f"product of digits {design.contracted} by {design.produced}, a scale for each"
            " row and its integers",
        )
        return (Plan(target=target, steps=(step,), rejected=rejected),)

    def workspace_bytes(self, plan: Plan, rows: int, threads: int) -> int:
        if isinstance(plan.steps[0].design, PairDesign):
            return 0
        return super().workspace_bytes(plan, rows, threads)

    def launches(self, plan: Plan, problem: QuantizedKronProblem) -> tuple[Launch, ...]:
        """One launch, or those of the product and that of its rows; none if there are no rows."""
        design = plan.steps[0].design
        if not isinstance(design, PairDesign):
            return super().launches(plan, problem)
        has_rows = problem.product.rows * math.prod(problem.product.batch)
        return (design.launch(0, plan.target, problem),) if has_rows else ()


def _pair(
    what: QuantizedKronDescription, target: Target
) -> tuple[PairDesign | None, tuple[tuple[str, str], ...]]:
    """(the fastest kernel for all steps if there is one, those that are impossible and why)."""
    found: list[PairDesign] = []
    rejected: list[tuple[str, str]] = []
    for split in range(1, len(what.factors)):
        for stages in (2, 1):
            design = PairDesign(
                element=what.X.element,
                factors=what.factors,
                split=split,
                bits=what.bits,
                stages=stages,
            )
            status = _status(what, design, target)
            if status:
                found.append(design)
                break
            name = f"one kernel, {split} factors in the first digit, {stages} stages"
            rejected.append((name, status.reason))
    return min(found, key=lambda item: item.multiply_adds, default=None), tuple(rejected)


def _status(what: QuantizedKronDescription, design: PairDesign, target: Target) -> Status:
    if what.tile is not None:
        return Status.reject("a tile description is for the product's own kernels")
    if what.math.opcode_class is not OpClass.TensorOp:
        return Status.reject(f"runs on tensor cores, not by {what.math}")
    return design.status(target)
