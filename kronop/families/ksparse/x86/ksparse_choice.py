"""Plans of Kronecker-sparse products on CPUs: on vectors or, if these are faster and the
instruction asks for them, on AMX tiles; ksparse.hpp explains what a plan means."""

from __future__ import annotations

from kronop.artifacts import Status
from kronop.descriptions.datatype import Layout
from kronop.emit.plan import Plan, Step
from kronop.emit.x86 import amx
from kronop.emit.x86.planning import common_status, kernel_name
from kronop.families.ksparse.description import KSparseDescription
from kronop.families.ksparse.x86 import ksparse_amx, ksparse_plan
from kronop.families.ksparse.x86.ksparse_design import KSparseDesign, KSparseWork
from kronop.families.ksparse.x86.ksparse_vectors import TYPICAL_ROWS, KSparseVectors
from kronop.target import Target

_MOST_REPORTED = 12


def supports(description: KSparseDescription, target: Target) -> Status:
    """Whether a plan exists; if not, the reason names the size of the user's tile to change."""
    if amx.asks_for_tiles(description.math, target):
        return amx.tiles_status(description.tile)
    status = common_status(description.math, description.tile, target)
    if not status:
        return status
    reasons = [item.status() for item in ksparse_plan.designs(_setting(description, target))]
    return Status.accept() if any(reasons) else reasons[-1]


def plans(
    description: KSparseDescription, target: Target, count: int, rows: int | None
) -> tuple[Plan, ...]:
    """The plans of the `count` cheapest legal candidates, which don't depend on the batch; the
    first plan lists those that it beat."""
    setting = _setting(description, target)
    every = [(item, item.status()) for item in ksparse_plan.designs(setting)]
    ranked = _ranked([item for item, ok in every if ok], target)
    best: KSparseDesign = ranked[0]
    beaten = ranked[1:]
    rejected = [(str(item), status.reason) for item, status in every if not status]
    taken: list[KSparseDesign] = [*ranked[:count]]
    if amx.asks_for_tiles(description.math, target):
        tiles = ksparse_amx.design(setting.work)
        reason = ksparse_amx.reason_against(tiles, best.cycles_of_row)
        if reason:
            rejected.insert(0, (str(tiles), reason))
        else:
            best, beaten = tiles, ranked
            taken.insert(0, tiles)
    than = f"cycles per row and i, the best takes {best.cycles_of_row:.0f}"
    rejected += [(str(item), f"{item.cycles_of_row:.0f} {than}") for item in beaten]
    return tuple(
        Plan(
            target=target,
            steps=(_step(description, target, item),),
            rejected=() if place else tuple(rejected[:_MOST_REPORTED]),
        )
        for place, item in enumerate(taken[:count])
    )


def cheapest_on_vectors(description: KSparseDescription, target: Target) -> KSparseVectors:
    """The cheapest design on vectors."""
    legal = [item for item in ksparse_plan.designs(_setting(description, target)) if item.status()]
    return _ranked(legal, target)[0]


def _ranked(legal: list[KSparseVectors], target: Target) -> list[KSparseVectors]:
    """The cheapest first."""
    return sorted(legal, key=lambda item: item.seconds(TYPICAL_ROWS, target))


def _setting(description: KSparseDescription, target: Target) -> ksparse_plan.Setting:
    straight = Layout.ColumnMajor if description.batch_last else Layout.RowMajor
    work = KSparseWork(
        element=description.X.element,
        output=description.Y.element,
        accumulator=description.math.element_accumulator,
        epilogue=description.epilogue,
        vector_bytes=target.vector_bytes,
        pattern=description.pattern,
        x_by_rows=description.X.layout is not straight,
        y_by_rows=description.Y.layout is not straight,
    )
    shape = None if description.tile is None else description.tile.threadblock_shape
    return ksparse_plan.Setting(work=work, target=target, shape=shape)


def _step(description: KSparseDescription, target: Target, design: KSparseDesign) -> Step:
    sizes = "_".join(map(str, description.pattern)) + "_last" * description.batch_last
    return design.step(
        kernel_name("ksparse", description.X.element, sizes, target),
        f"one Kronecker-sparse factor: {design}",
    )
