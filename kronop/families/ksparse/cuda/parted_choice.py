"""The candidate products with separated lanes."""

from __future__ import annotations

from dataclasses import replace

from kronop.descriptions.tile import TileDescription
from kronop.emit.cuda import operands
from kronop.emit.cuda.contraction import warp_group_choice
from kronop.emit.cuda.contraction.warp_group import serves
from kronop.emit.cuda.contraction.work import Contraction, Order
from kronop.families.ksparse.cuda.contract_parted import Parted
from kronop.families.ksparse.cuda.lanes import MOST_LANES
from kronop.target import Target


def proposed(work: Contraction, target: Target, given: TileDescription | None) -> list[Parted]:
    """The products that fit, in no order; none if moving lanes does not pay."""
    if work.splits is None or not _serves(work, target):
        return []
    apart = replace(
        work,
        x_order=Order.Own,
        w_order=Order.Own,
        y_order=Order.Own,
        x_alignment=operands.vector_of(work.source),
        y_alignment=operands.vector_of(work.output),
    )
    designs = warp_group_choice.proposed(apart, target, given)
    return [Parted(product=item) for item in designs if item.status(target)]


def _serves(work: Contraction, target: Target) -> bool:
    """Whether lanes are interleaved in memory, and the kernel that moves them supports them."""
    return (
        serves(work, target)
        and (work.x_order, work.y_order) == (Order.Lanes, Order.Lanes)
        and work.output.bytes in (2, 4)
        and work.contracted % operands.vector_of(work.source) == 0
        and work.produced % operands.vector_of(work.output) == 0
        and work.lanes <= MOST_LANES
    )
