"""How a Kronecker-sparse product is cut up for AMX tiles, and whether tiles are worth it.

See ksparse_amx.hpp for what a plan means.
"""

from __future__ import annotations

import dataclasses

from kronop.emit.x86 import amx
from kronop.families.ksparse.x86.ksparse_design import KSparseWork
from kronop.families.ksparse.x86.ksparse_plan import blocks_of
from kronop.families.ksparse.x86.ksparse_tiles import (
    LANES,
    VECTOR_RATE,
    KSparseTiles,
    TilesAlongBatch,
    TilesAlongOutputs,
)

# What a thread's X and its results in scratch should take of the second-level cache; packed weights
# of an item of work.
_STATE_BYTES, _PANEL_BYTES = 384 * 1024, 1 << 20
_ROWS_ALONG_BATCH, _ROWS_ALONG_OUTPUTS = 512, 128


def design(work: KSparseWork) -> KSparseTiles:
    """The one way that tiles have for a pattern."""
    made: KSparseTiles
    if work.pattern[3] == 1 and not (work.x_by_rows or work.y_by_rows):
        made = TilesAlongOutputs(
            work=work,
            blocks=1,
            slices=1,
            outputs=_outputs(work, 1),
            row_tile=_ROWS_ALONG_OUTPUTS,
        )
    else:
        slices = work.slices_along_batch
        made = TilesAlongBatch(
            work=work,
            blocks=1,
            slices=slices,
            outputs=_outputs(work, slices),
            row_tile=LANES,
        )
        fitting = max(1, _STATE_BYTES // made.state_bytes)
        made = dataclasses.replace(made, row_tile=min(_ROWS_ALONG_BATCH, fitting * LANES))
    return dataclasses.replace(made, blocks=blocks_of(work, made.panel_bytes))


def reason_against(tiles: KSparseTiles, vector_cycles: float) -> str:
    """Why vectors serve a pattern; empty where tiles do.

    Args:
        vector_cycles: of the best design on vectors, per row of the batch and i.
    """
    status = tiles.status()
    if not status:
        return status.reason
    _, b, c, d = tiles.work.pattern
    cycles = max(vector_cycles, b * c * d / VECTOR_RATE)
    if tiles.cycles < cycles:
        return ""
    return f"{tiles.cycles:.0f} cycles per row and i, on vectors about {cycles:.0f}"


def _outputs(work: KSparseWork, slices: int) -> int:
    """Outputs of an item, in parts of about the same size: whole blocks, but for the last."""
    _, b, c, _ = work.pattern
    most = max(1, _PANEL_BYTES // (slices * amx.factor_bytes(c, LANES, work.element)))
    blocks = -(-b // LANES)
    parts = -(-blocks // most)
    return min(b, -(-blocks // parts) * LANES)
