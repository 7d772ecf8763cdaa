"""Plans of distances from products: the candidate tiles, and their two steps."""

from __future__ import annotations

from collections.abc import Iterator

from kronop.descriptions.datatype import float32
from kronop.emit.cuda.machine import PRODUCTS_OF_SPLIT
from kronop.emit.plan import Step
from kronop.families.distance.cuda.warp_group_design import ROW_BYTES, ROWS, DistanceWarpGroup
from kronop.families.distance.cuda.warp_group_pipeline import PackedDistances
from kronop.families.distance.description import DistanceDescription
from kronop.families.distance.floors import LeastOfPack
from kronop.families.distance.steps import fields_of, matrix_step, step_of
from kronop.target import Target

# Columns of a tile, for split elements and for others: sums of split elements take two registers.
_COLUMNS = {True: (64, 128, 192), False: (64, 128, 256)}
_MOST_STAGES = 8
# Bytes of shared memory besides stages, at most.
_MOST_FACTS = 7 << 10


def pipelines(what: DistanceDescription, target: Target) -> Iterator[PackedDistances]:
    """The ways to compute a description from products."""
    for symmetric in [False, True][: 1 + what.symmetric]:
        for n in _COLUMNS[what.X1.element is float32]:
            stage = (ROWS + n) * ROW_BYTES
            design = DistanceWarpGroup(
                **fields_of(what),
                symmetric=symmetric,
                expanded=what.expanded,
                n=n,
                stages=min(_MOST_STAGES, (target.shared_bytes - _MOST_FACTS) // stage),
            )
            shape = what.tile and what.tile.threadblock_shape
            if not shape or shape == (ROWS, n, design.slab):
                yield PackedDistances(product=design)


def steps(what: DistanceDescription, target: Target, pipeline: PackedDistances) -> tuple[Step, ...]:
    """The steps of a plan: one packs points, one multiplies them."""
    product, element = pipeline.product, what.X1.element.bytes
    halves = 2 if product.split else 1
    moved = element + halves * product.element.bytes
    least = LeastOfPack(moved=moved, symmetric=product.symmetric)
    note = "points in the order of products, with their norms"
    pack = step_of(what, target, "distance_pack", pipeline.pack, note, least)
    multiply = matrix_step(
        what,
        target,
        product,
        "distance_warp_group",
        expanded=True,
        symmetric=product.symmetric,
        multiplied=product.element.bytes,
        products=PRODUCTS_OF_SPLIT if product.split else 1,
    )
    return pack, multiply
