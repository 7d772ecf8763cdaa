"""Plans of groups of products: the plan of one product, whose kernels run for each."""

from __future__ import annotations

from dataclasses import replace

from kronop.artifacts import Status
from kronop.emit.emitter import Search
from kronop.emit.plan import Plan
from kronop.families.gemm.cuda.warp_group_design import GemmWarpGroup
from kronop.families.gemm.cuda.warp_group_many import GemmMany
from kronop.families.gemm.description import GemmGroupedDescription
from kronop.families.gemm.each import Each
from kronop.families.gemm.size import GemmSize
from kronop.late import imported
from kronop.target import Target


def _of_one(target: Target) -> Search:
    """What searches for the plans of one product."""
    found: Search = imported(f"kronop.families.gemm.{target.backend}.choice")
    return found


def supports(description: GemmGroupedDescription, target: Target) -> Status:
    """Whether one product can be computed."""
    return _of_one(target).supports(description.product, target)


def plans(
    description: GemmGroupedDescription, target: Target, count: int, size: GemmSize | None
) -> tuple[Plan, ...]:
    """The plans of one product, as plans of many: of one launch where warp groups multiply."""
    found = _of_one(target).plans(description.product, target, count, size)
    return tuple(map(_of_many, found))


def _of_many(plan: Plan) -> Plan:
    if not isinstance(plan.runnable, GemmWarpGroup):
        return replace(plan, pipeline=Each(product=plan.runnable))
    design = GemmMany(wrapped=plan.runnable)
    (step,) = plan.steps
    entry = step.entry.replace("gemm_warp_group", "gemm_many")
    step = replace(step, entry=entry, design=design, note=f"matrix products: {design}")
    return replace(plan, steps=(step,))
