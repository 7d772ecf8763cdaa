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
from kronop.families.gemm.x86.design import HostGemm
from kronop.families.gemm.x86.many import HostMany
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
    """The plans of one product, as plans of many: of one launch on CPUs, and where warp groups
    multiply."""
    found = _of_one(target).plans(description.product, target, count, size)
    return tuple(map(_of_many, found))


def _of_many(plan: Plan) -> Plan:
    product = plan.runnable
    design: GemmMany | HostMany
    if isinstance(product, GemmWarpGroup):
        design, own = GemmMany(wrapped=product), "gemm_warp_group"
    elif isinstance(product, HostGemm):
        design, own = HostMany(wrapped=product), "gemm"
    else:
        return replace(plan, pipeline=Each(product=product))
    (step,) = plan.steps
    entry = step.entry.replace(own, "gemm_many", 1)
    step = replace(step, entry=entry, design=design, note=f"matrix products: {design}")
    return replace(plan, steps=(step,))
