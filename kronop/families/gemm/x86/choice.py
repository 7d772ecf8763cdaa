"""Plans of matrix products on CPUs: the candidate with the least modelled time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Protocol

from kronop.artifacts import Status
from kronop.descriptions.datatype import int8
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.tensor import TensorDescription
from kronop.descriptions.tile import TileDescription
from kronop.emit.choice import cheapest_plans
from kronop.emit.plan import Plan, Step
from kronop.emit.x86 import amx, planning
from kronop.families.gemm.description import GemmDescription
from kronop.families.gemm.floors import product_step
from kronop.families.gemm.size import USUAL, GemmSize
from kronop.families.gemm.x86.design import HostGemm, VectorGemm
from kronop.families.gemm.x86.pairs import PAIRED_BYTES, PairGemm
from kronop.families.gemm.x86.tiles import TileGemm
from kronop.target import Target

# Rows of a tile; when packed, they fill vectors of 16 bytes, which are transposed.
_ROWS, _VECTORS, _ROW_BYTES = (12, 8, 6, 4, 2), (4, 3, 2, 1), 16
# Bytes of a packed row of a slab: a panel of columns fits in the first-level cache.
_SLAB_BYTES = 1024
# Rows that are packed at once: with a slab they take a third of the second-level cache.
_BLOCK_ROWS = 192
# The most rows and columns of a work item.
_MOST_ROWS, _MOST_COLUMNS = 768, 1024
# A kernel is compiled for a size only if its time is less than this fraction of the usual one's.
KEPT = 0.8


class Described(Protocol):
    """What a product's design depends on, in descriptions of several families."""

    @property
    def math(self) -> MathInstruction: ...
    @property
    def tile(self) -> TileDescription | None: ...
    @property
    def A(self) -> TensorDescription: ...
    @property
    def Y(self) -> TensorDescription: ...
    @property
    def epilogue(self) -> Epilogue: ...


def supports(description: Described, target: Target) -> Status:
    """Whether vectors or AMX tiles can do the math and the user's tile."""
    math = description.math
    if amx.asks_for_tiles(math, target):  # The rules for the user's tile are those of vectors.
        math = MathInstruction.simt(math.element_a)
    status = planning.common_status(math, description.tile, target)
    if not status:
        return status
    if description.tile is not None and description.tile.has_schedules:
        return Status.reject(
            "the tile has a cluster_shape, schedules or a tile_scheduler, which are of warp groups"
            " on sm_90a; leave them out"
        )
    every = [(item, item.status(target)) for item in designs_of(description, target)]
    # The reason of the last, least demanding design is reported against a user's tile.
    return next((found for _, found in every if found), every[-1][1])


def plans(
    description: GemmDescription, target: Target, count: int, size: GemmSize | None
) -> tuple[Plan, ...]:
    """The plans of the `count` cheapest candidates: see `cheapest_plans`."""
    usual = USUAL[target.backend]
    size = size or usual
    designs = list(designs_of(description, target))
    able = [item for item in designs if item.status(target)]
    kept = min(able, key=lambda item: item.seconds(usual, target))
    return cheapest_plans(
        designs,
        lambda item: (_step(description, target, item),),
        target=target,
        size=size,
        count=count,
        scale=lambda item: KEPT if item == kept else 1,
    )


def designs_of(what: Described, target: Target, *, gathered: bool = False) -> Iterator[HostGemm]:
    """The candidates; those for operands that are `gathered` serve families of their own."""
    if amx.asks_for_tiles(what.math, target):
        extent = 2 * amx.TILE
        yield TileGemm(**_common(what, target, extent, extent, what.A.element.bytes, gathered))
        return
    sums = what.math.added_in.bytes
    fitting = [rows for rows in _ROWS if rows * sums % _ROW_BYTES == 0]
    kind, packed = (PairGemm, PAIRED_BYTES) if what.A.element is int8 else (VectorGemm, sums)
    for rows, vectors in itertools.product(fitting, _VECTORS):
        columns = vectors * target.vector_bytes // sums
        common = _common(what, target, rows, columns, packed, gathered)
        yield kind(**common, rows=rows, vectors=vectors)


def _common(
    what: Described,
    target: Target,
    rows: int,
    columns: int,
    packed_bytes: int,
    gathered: bool,
) -> dict[str, Any]:
    """The fields that all designs have. Blocks are the user's, or consist of whole tiles."""
    given = what.tile.threadblock_shape if what.tile else None
    most_rows, most_columns, depth = given or (
        _MOST_ROWS // rows * rows,
        _MOST_COLUMNS // columns * columns,
        _SLAB_BYTES // packed_bytes,
    )
    return {
        "source": what.A.element,
        "output": what.Y.element,
        "accumulator": what.math.added_in,
        "epilogue": what.epilogue,
        "vector_bytes": target.vector_bytes,
        "block_rows": max(rows, min(most_rows, _BLOCK_ROWS) // rows * rows),
        "most_rows": most_rows,
        "most_columns": most_columns,
        "depth": depth,
        "gathered": gathered,
    }


def _step(what: GemmDescription, target: Target, design: HostGemm) -> Step:
    element, sizes = what.A.element, f"{what.Y.element.short}_{what.epilogue.name}"
    return product_step(
        planning.kernel_name("gemm", element, sizes, target),
        what,
        design,
        multiplied=design.multiplied,
        sums=what.math.added_in,
        note="matrix products:",
    )
