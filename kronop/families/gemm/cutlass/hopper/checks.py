"""Which matrix products CUTLASS 3.x has, checked before anything is compiled.

These are the rules that depend on layouts and schedules; those of all its kernels are in
`emit/cuda/cutlass`.
"""

from __future__ import annotations

from collections.abc import Callable

from kronop import doors
from kronop.artifacts import Status
from kronop.descriptions.datatype import ColumnMajor, RowMajor
from kronop.descriptions.tile import KernelScheduleType, TileSchedulerType
from kronop.emit.cuda.cutlass import checks, hopper_checks
from kronop.families.gemm.cutlass.hopper.tile import IN_TURN, HopperTile
from kronop.target import Target

_WARPS = {
    KernelScheduleType.TmaWarpSpecializedPingpong: IN_TURN,
    KernelScheduleType.TmaWarpSpecializedCooperative: (8, 1, 1),
}
_CLUSTERS = ((1, 1, 1), (2, 1, 1), (4, 1, 1))
_SWIZZLED = 8  # Rows of a swizzle.


def status(design: HopperTile, target: Target) -> Status:
    """Whether CUTLASS has the design's kernel, it fits the target, and headers are installed."""
    rules: tuple[Callable[[HopperTile], str], ...] = (
        lambda _: hopper_checks.served(target),
        hopper_checks.types,
        hopper_checks.schedules,
        _words,
        _layouts,
        hopper_checks.alignments,
        lambda it: hopper_checks.tiles(it, 1 if it.alternate else 2, _SWIZZLED * it.cluster),
        lambda item: checks.shared(item, target),
        lambda _: doors.cutlass_missing[0](),
    )
    return Status.first_of(rule(design) for rule in rules)


def _words(design: HopperTile) -> str:
    if design.tile_scheduler is TileSchedulerType.StreamK:
        return "no kernel here cuts sums among blocks as stream-K does; take split_k_slices"
    if design.warps not in _WARPS.values():
        return f"{design.warps} warps; ping-pong has (4, 1, 1), cooperative (8, 1, 1)"
    schedule = design.kernel_schedule
    wanted = _WARPS.get(schedule, design.warps)
    if wanted != design.warps:
        return f"{schedule.name} has {wanted} warps, not {design.warps}"
    if design.cluster_shape not in _CLUSTERS:
        return f"a cluster of {design.cluster_shape} blocks; they are 1, 2 or 4 along M"
    return ""


def _layouts(design: HopperTile) -> str:
    for name, layout, wanted in (
        ("A", design.layout_a, RowMajor),
        ("B", design.layout_b, ColumnMajor),
    ):
        if layout is not wanted:
            return f"{name} is {layout.value}; maps of CUTLASS 3.x run along K here: {wanted.value}"
    return ""
