"""Plans of distances from products: tiles that are candidates, and their two steps."""

from __future__ import annotations

from collections.abc import Iterator

from kronop.descriptions.datatype import float32
from kronop.emit.cuda.machine import PRODUCTS_OF_SPLIT
from kronop.emit.plan import Step
from kronop.families.distance import parts
from kronop.families.distance.cuda.group_design import (
    ROW_BYTES,
    ROWS,
    DistanceGroup,
    DistancePack,
)
from kronop.families.distance.description import DistanceDescription
from kronop.families.distance.floors import LeastOfMatrix, LeastOfPack
from kronop.target import Target

# Columns of a tile, with and without elements that are split: their sums take registers twice.
_COLUMNS = {True: (64, 128, 192), False: (64, 128, 256)}
_MOST_STAGES = 8
# Bytes of shared memory besides stages, at most.
_MOST_FACTS = 7 << 10


def designs(what: DistanceDescription, target: Target) -> Iterator[DistanceGroup]:
    """The ways to compute what is described from products."""
    for symmetric in [False, True][: 1 + what.symmetric]:
        for n in _COLUMNS[what.X1.element is float32]:
            stage = (ROWS + n) * ROW_BYTES
            design = DistanceGroup(
                math=what.math,
                source=what.X1.element,
                output=what.Y.element,
                epilogue=what.epilogue,
                form=what.kernel,
                symmetric=symmetric,
                expanded=what.expanded,
                n=n,
                stages=min(_MOST_STAGES, (target.shared_bytes - _MOST_FACTS) // stage),
            )
            shape = what.tile and what.tile.threadblock_shape
            if not shape or shape == (ROWS, n, design.slab):
                yield design


def steps(what: DistanceDescription, target: Target, design: DistanceGroup) -> tuple[Step, ...]:
    """The steps of a plan: points are packed, and multiplied."""
    element = what.X1.element
    names = [
        parts.kernel_name(name, element, what.kernel, what.epilogue, target)
        for name in ("distance_pack", "distance_group")
    ]
    halves = 2 if design.split else 1
    return (
        Step(
            entry=names[0],
            design=DistancePack(product=design),
            bytes_per_row=0,
            operations_per_row=0,
            note="points in the order of products, with their norms",
            least=LeastOfPack(
                moved=element.bytes + halves * design.element.bytes,
                symmetric=design.symmetric,
            ),
        ),
        Step(
            entry=names[1],
            design=design,
            bytes_per_row=what.Y.element.bytes,
            operations_per_row=what.kernel.operations,
            note=f"kernels of pairs of points: {design}",
            least=LeastOfMatrix(
                form=what.kernel,
                element=element.bytes,
                sums=what.math.element_accumulator.name,
                expanded=True,
                symmetric=design.symmetric,
                multiplied=design.element.bytes,
                products=PRODUCTS_OF_SPLIT if design.split else 1,
            ),
        ),
    )
