"""Which convolutions CUTLASS 3.x has, and which problems its kernels take."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kronop import doors
from kronop.artifacts import Status
from kronop.descriptions.tile import KernelScheduleType, TileSchedulerType
from kronop.emit.cuda.cutlass import checks, hopper_checks
from kronop.families.conv2d.cuda.patches import beyond_counts, patches
from kronop.families.conv2d.cutlass.hopper.tile import WARPS, HopperConv2dTile
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.conv2d.vocabulary import Operator
from kronop.families.gemm.cuda.warp_group_problem import GRANULE
from kronop.target import Target

_CLUSTERS, _MOST_BLOCKS = (1, 2, 4), 8  # Along M and N; of a cluster.
_MOST_COLUMNS = 2**16 - 1  # Blocks of a grid along y.


def status(design: HopperConv2dTile, target: Target) -> Status:
    """Whether CUTLASS has the design's kernel, it fits the target, and headers are installed."""
    rules: tuple[Callable[[HopperConv2dTile], str], ...] = (
        lambda _: hopper_checks.served(target),
        hopper_checks.types,
        _kind,
        hopper_checks.schedules,
        _words,
        hopper_checks.alignments,
        lambda it: hopper_checks.tiles(it, 1, it.columns),
        lambda item: checks.shared(item, target),
        lambda _: doors.cutlass_missing[0](),
    )
    return Status.first_of(rule(design) for rule in rules)


def _kind(design: HopperConv2dTile) -> str:
    if design.conv_kind is Operator.fprop or design.source.bytes == 2:
        return ""
    return (
        f"warp groups multiply {design.source.name} contiguous along the sums alone, which operands"
        f" of a {design.conv_kind.name} are not"
    )


def _words(design: HopperConv2dTile) -> str:
    schedule, scheduler, (m, n, k) = (
        design.kernel_schedule,
        design.tile_scheduler,
        design.cluster_shape,
    )
    # Of the kernel for convolutions, which has one team of four warps that multiply.
    if design.warps != WARPS:
        return f"{design.warps} warps; convolutions of CUTLASS 3.x have {WARPS}"
    if schedule is not KernelScheduleType.ScheduleAuto:
        return f"CUTLASS 3.x has no {schedule.value} convolutions; leave out the schedule"
    if scheduler is not TileSchedulerType.Default:
        return "a block of CUTLASS 3.x's convolutions computes one tile; leave out the scheduler"
    if m not in _CLUSTERS or n not in _CLUSTERS or m * n > _MOST_BLOCKS or k > 1:
        return (
            f"a cluster of {design.cluster_shape} blocks; they are 1, 2 or 4 along M and N, and"
            f" {_MOST_BLOCKS} at most"
        )
    return ""


def status_of(design: HopperConv2dTile, size: Conv2dSize) -> Status:
    """Whether the kernel takes convolutions of that size."""
    return Status.first_of(_reasons(design, size))


def _reasons(design: HopperConv2dTile, size: Conv2dSize) -> Iterator[str]:
    kind = design.conv_kind
    extents = {name: getattr(size, name) for name in ("n", "h", "w", "c", "k", "p", "q")}
    yield from (f"no {name.upper()}" for name, extent in extents.items() if not extent)
    if size.groups > 1:
        yield f"{size.groups} groups, which CUTLASS 3.x does not have"
    if size.slices > 1:
        yield f"sums in {size.slices} slices, which CUTLASS 3.x does not cut"
    if size.flipped:
        yield "flipped filters, which CUTLASS 3.x does not have"
    read = {"C": size.c} if kind is Operator.fprop else {"C": size.c, "K": size.k}
    for name, count in read.items():
        if count * design.source.bytes % GRANULE:
            yield (
                f"{name} = {count} of {design.source.name}; tensor maps have rows of multiples of"
                f" {GRANULE} bytes"
            )
    found = patches(kind, size)
    for h, w in found:
        yield from h.reasons("H")
        yield from w.reasons("W")
    if len(found) > 1:
        yield f"strides of {size.stride_h} x {size.stride_w}; dgrad of CUTLASS 3.x takes 1 x 1"
    yield from beyond_counts(kind, size)
    if design.tiles_of(size)[1] > _MOST_COLUMNS:
        yield f"more than {_MOST_COLUMNS} tiles along N"
