"""Plans of quantized Kronecker products on GPUs: one kernel, or the product and then its rows."""

from __future__ import annotations

from dataclasses import replace

from kronop.artifacts import Status
from kronop.descriptions.math_instruction import OpClass
from kronop.emit.cuda import operands
from kronop.emit.plan import PerRow, Plan, Step
from kronop.families.kron.cuda import kron_choice
from kronop.families.quantized.cuda.pair_design import PairDesign
from kronop.families.quantized.cuda.rows_design import CudaRows
from kronop.families.quantized.description import QuantizedKronDescription
from kronop.families.quantized.two_steps import rounded
from kronop.target import Target


def supports(description: QuantizedKronDescription, target: Target) -> Status:
    return kron_choice.supports(description.product, target)


def plans(
    description: QuantizedKronDescription, target: Target, count: int, size: int | None
) -> tuple[Plan, ...]:
    """One step where a row and both digits' matrices fit a block, else those of the product and one
    for its rows."""
    what = description
    design, rejected = _pair(what, target)
    if design is None:
        rows = CudaRows(element=what.X.element, columns=what.output_columns, bits=what.bits)
        found = rounded(kron_choice.plans(what.product, target, count, size), what, rows)
        return tuple(replace(plan, rejected=(*plan.rejected, *rejected)) for plan in found)
    shape = operands.shape_name(what.factors)
    step = Step(
        entry=f"quantized_pair_{what.X.element.short}_{shape}_s{what.bits}_{target.arch}",
        design=design,
        per_row=PerRow(
            bytes=what.input_columns * what.X.element.bytes + what.row_bytes + 4,
            operations=2 * design.multiply_adds,
        ),
        note=f"product of digits {design.contracted} by {design.produced}, a scale for each"
        " row and its integers",
    )
    return (Plan(target=target, steps=(step,), rejected=rejected),)


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
