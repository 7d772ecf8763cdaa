"""Plans of convolutions on CPUs: the candidate with the least modelled time."""

from __future__ import annotations

from collections.abc import Iterator

from kronop.artifacts import Status
from kronop.emit.choice import cheapest_plans
from kronop.emit.plan import Plan, Step
from kronop.emit.x86 import planning
from kronop.families.conv2d.description import Conv2dDescription
from kronop.families.conv2d.floors import convolution_step
from kronop.families.conv2d.size import USUAL, Conv2dSize
from kronop.families.conv2d.x86.design import HostConv2d
from kronop.families.gemm.x86 import choice as products
from kronop.target import Target


def supports(description: Conv2dDescription, target: Target) -> Status:
    """Whether vectors or AMX tiles can do the math and the user's tile."""
    return products.supports(description, target)


def plans(
    description: Conv2dDescription, target: Target, count: int, size: Conv2dSize | None
) -> tuple[Plan, ...]:
    """The plans of the `count` cheapest candidates: see `cheapest_plans`."""
    usual = USUAL[target.backend]
    designs = list(_designs(description, target))
    able = [item for item in designs if item.status(target)]
    kept = min(able, key=lambda item: item.seconds(usual, target))
    return cheapest_plans(
        designs,
        lambda item: (_step(description, target, item),),
        target=target,
        size=size or usual,
        count=count,
        scale=lambda item: products.KEPT if item == kept else 1,
    )


def _designs(what: Conv2dDescription, target: Target) -> Iterator[HostConv2d]:
    for item in products.designs_of(what, target, gathered=True):
        yield HostConv2d(kind=what.conv_kind, wrapped=item)


def _step(what: Conv2dDescription, target: Target, design: HostConv2d) -> Step:
    sizes = f"{what.conv_kind.name}_{what.Y.element.short}_{what.epilogue.name}"
    return convolution_step(
        planning.kernel_name("conv2d", what.A.element, sizes, target),
        what,
        design,
        multiplied=design.wrapped.multiplied,
        sums=what.math.added_in,
        note="a convolution:",
    )
