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
from kronop.families.conv2d.x86.depthwise_design import HostDepthwise
from kronop.families.conv2d.x86.design import HostConv2d
from kronop.families.gemm.x86 import choice as products
from kronop.target import Target

# Tiles of depthwise convolutions: vectors, and rows with many and with few registers.
_VECTORS, _ROWS, _FEW_ROWS, _MANY_REGISTERS = 2, 6, 4, 32
# The most rows and channels of a work item, and pixels of a filter at once.
_MOST_ROWS, _MOST_CHANNELS, _DEPTH = 384, 512, 64


def supports(description: Conv2dDescription, target: Target) -> Status:
    """Whether vectors or AMX tiles can do the math and the user's tile."""
    return products.supports(description, target)


def plans(
    description: Conv2dDescription, target: Target, count: int, size: Conv2dSize | None
) -> tuple[Plan, ...]:
    """The plans of the `count` cheapest candidates: see `cheapest_plans`."""
    usual = USUAL[target.backend]
    known = size or usual
    designs = list(_designs(description, target))
    every: list[HostConv2d | HostDepthwise] = [
        *designs,
        *_depthwise(description, target, known),
    ]
    able = [item for item in designs if item.status(target)]
    kept = min(able, key=lambda item: item.seconds(usual, target))
    return cheapest_plans(
        every,
        lambda item: (_step(description, target, item),),
        target=target,
        size=known,
        count=count,
        scale=lambda item: products.KEPT if item == kept else 1,
    )


def _designs(what: Conv2dDescription, target: Target) -> Iterator[HostConv2d]:
    for item in products.designs_of(what, target, gathered=True):
        yield HostConv2d(kind=what.conv_kind, wrapped=item)


def _depthwise(
    what: Conv2dDescription, target: Target, size: Conv2dSize
) -> Iterator[HostDepthwise]:
    if not HostDepthwise.serves(size) or what.tile is not None or what.by_taps:
        return
    rows = _ROWS if target.registers >= _MANY_REGISTERS else _FEW_ROWS
    panel = _VECTORS * target.vector_bytes // what.math.added_in.bytes
    yield HostDepthwise(
        kind=what.conv_kind,
        source=what.A.element,
        output=what.Y.element,
        accumulator=what.math.added_in,
        epilogue=what.epilogue,
        vector_bytes=target.vector_bytes,
        block_rows=rows,
        most_rows=_MOST_ROWS // rows * rows,
        most_columns=_MOST_CHANNELS // panel * panel,
        depth=_DEPTH,
        gathered=True,
        rows=rows,
        vectors=_VECTORS,
    )


def _step(what: Conv2dDescription, target: Target, design: HostConv2d | HostDepthwise) -> Step:
    sizes = f"{what.conv_kind.name}_{what.Y.element.short}_{what.epilogue.name}"
    return convolution_step(
        planning.kernel_name(design.family, what.A.element, sizes, target),
        what,
        design,
        multiplied=design.multiplied,
        sums=what.math.added_in,
        note="a convolution:",
    )
