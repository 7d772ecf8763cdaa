"""Designs of Kronecker-sparse products on AMX tiles, and whether tiles are faster than vectors.

ksparse_amx.hpp explains what a plan means.
"""

from __future__ import annotations

import dataclasses

from kronop.emit.x86 import amx
from kronop.families.ksparse.x86.ksparse_design import KSparseWork
from kronop.families.ksparse.x86.ksparse_plan import blocks_of
from kronop.families.ksparse.x86.ksparse_tiles import (
    LANES,
    KSparseTiles,
    TilesAlongBatch,
    TilesAlongOutputs,
)

# Bytes of the second-level cache for a thread's X and results in scratch memory; and most bytes of
# packed weights of a work item.
_STATE_BYTES, _PANEL_BYTES = 384 * 1024, 1 << 20
_ROWS_ALONG_BATCH, _ROWS_ALONG_OUTPUTS = 512, 128


def design(work: KSparseWork) -> KSparseTiles:
    """The design on tiles; there is one for each pattern."""
    made: KSparseTiles
    if work.pattern[3] == 1 and not (work.x_by_rows or work.y_by_rows):
        made = TilesAlongOutputs(
            work=work, blocks=1, slices=1, outputs=_outputs(work, 1), row_tile=_ROWS_ALONG_OUTPUTS
        )
    else:
        slices = work.slices_along_batch
        made = TilesAlongBatch(
            work=work, blocks=1, slices=slices, outputs=_outputs(work, slices), row_tile=LANES
        )
        fitting = max(1, _STATE_BYTES // made.state_bytes)
        made = dataclasses.replace(made, row_tile=min(_ROWS_ALONG_BATCH, fitting * LANES))
    return dataclasses.replace(made, blocks=blocks_of(work, made.panel_bytes))


def reason_against(tiles: KSparseTiles, vector_cycles: float) -> str:
    """The reason why a pattern runs on vectors; empty if it runs on tiles.

    Args:
        vector_cycles: cycles of the best design on vectors, for one row of the batch and one i.
    """
    status = tiles.status()
    if not status:
        return status.reason
    _, b, c, d = tiles.work.pattern
    cycles = max(vector_cycles, b * c * d / amx.VECTOR_RATE)
    if tiles.cycles_of_row < cycles:
        return ""
    return f"{tiles.cycles_of_row:.0f} cycles per row and i, on vectors about {cycles:.0f}"


def _outputs(work: KSparseWork, slices: int) -> int:
    """Outputs of a work item: whole blocks (except for the last item), about equally many in each
    item."""
    _, b, c, _ = work.pattern
    most = max(1, _PANEL_BYTES // (slices * amx.factor_bytes(c, LANES, work.element)))
    blocks = -(-b // LANES)
    parts = -(-blocks // most)
    return min(b, -(-blocks // parts) * LANES)
