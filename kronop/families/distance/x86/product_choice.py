"""Plans of products of kernel matrices on the host."""

from __future__ import annotations

from kronop.artifacts import Status
from kronop.emit.plan import Plan
from kronop.emit.x86.planning import common_status
from kronop.families.distance.description import KernelMatmulDescription
from kronop.families.distance.product_size import KernelMatmulSize
from kronop.families.distance.steps import fields_of, least_of_matmul, step_of
from kronop.families.distance.x86.product_design import ProductTiles
from kronop.target import Target


def supports(description: KernelMatmulDescription, target: Target) -> Status:
    """Whether vectors can do the math."""
    return common_status(description.math, None, target)


def plans(
    description: KernelMatmulDescription, target: Target, count: int, size: KernelMatmulSize | None
) -> tuple[Plan, ...]:
    """The plan, which is the same for all sizes."""
    what = description
    design = ProductTiles(
        **fields_of(what),
        vector_bytes=target.vector_bytes,
        rows=4 if len(what.kernel.terms) == 1 else 2,
        vectors=2,
    )
    note, least = "products of kernel matrices", least_of_matmul(what)
    return (Plan(target=target, steps=(step_of(what, target, "product", design, note, least),)),)
