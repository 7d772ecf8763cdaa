"""Plans of Kronecker matmuls on CPUs: one kernel for all factors, on vectors or on AMX tiles.

With the tile instruction, shapes for which tiles are no faster still run on vectors; the results
between two factors are then not rounded to bf16.
"""

from __future__ import annotations

import dataclasses

from kronop.artifacts import Status
from kronop.descriptions.datatype import Layout, bfloat16
from kronop.emit.plan import Plan, Step
from kronop.emit.x86.amx import asks_for_tiles, tiles_status
from kronop.emit.x86.planning import common_status, kernel_name, run_lengths, unroll_status
from kronop.families.kron.description import KronMatmulDescription, Side
from kronop.families.kron.x86 import kron_amx
from kronop.families.kron.x86.kron_design import MOST_SCRATCH, KronDesign
from kronop.families.kron.x86.kron_parts import KronWork, Setting
from kronop.families.kron.x86.kron_plan import Candidate, judged, tile_status
from kronop.families.kron.x86.kron_tiles import KronTiles
from kronop.target import Target

_MOST_REPORTED = 12
_TYPICAL_ROWS = 64


def supports(description: KronMatmulDescription, target: Target) -> Status:
    """Whether a plan exists; if not, the reason names the size of the user's tile to change."""
    if _asks_for_tiles(description, target):
        return tiles_status(description.tile)
    status = common_status(description.math, description.tile, target)
    if not status or description.tile is None:
        return status
    status = unroll_status(description.tile.threadblock_shape[2])
    if not status:
        return status
    setting = _setting(description, target)
    status = tile_status(setting)
    return status and _scratch_status(setting)


def plans(
    description: KronMatmulDescription, target: Target, count: int, rows: int | None
) -> tuple[Plan, ...]:
    """The plans of the `count` cheapest legal candidates, the cheapest first; the first plan lists
    those that it beat."""
    setting = _setting(description, target, rows)
    every = _affordable(setting)
    ranked = sorted((item[0], index, item[1]) for index, (item, ok) in enumerate(every) if ok)
    best, _, vectors = ranked[0]
    rejected = [(str(item), status.reason) for (_, item), status in every if not status]
    rejected += [
        (str(item), f"{cycles:.0f} cycles per row, the best takes {best:.0f}")
        for cycles, _, item in ranked[1:]
    ]
    if _asks_for_tiles(description, target):
        own, tiles = kron_amx.design(setting.work)
        cycles = kron_amx.vector_cycles(description.input_columns, vectors.products())
        reason = _reason_against(tiles, description, target, own, cycles)
        if not reason:
            slower = f"about {cycles:.0f} cycles per row, on tiles {own:.0f}"
            step = _step(description, target, tiles)
            return (Plan(target=target, steps=(step,), rejected=((str(vectors), slower),)),)
        rejected.insert(0, (str(tiles), reason))
    return tuple(
        Plan(
            target=target,
            steps=(_step(description, target, item),),
            rejected=() if place else tuple(rejected[:_MOST_REPORTED]),
        )
        for place, (_, _, item) in enumerate(ranked[:count])
    )


def _asks_for_tiles(description: KronMatmulDescription, target: Target) -> bool:
    # Only bf16: results between two factors of int8 would be int32, which tiles can't multiply.
    return description.X.element is bfloat16 and asks_for_tiles(description.math, target)


def _reason_against(
    tiles: KronTiles,
    description: KronMatmulDescription,
    target: Target,
    cycles: float,
    vector_cycles: float,
) -> str:
    """The reason why a description runs on vectors; empty if it runs on tiles."""
    straight = _straight(description.side)
    if description.X.layout is not straight or description.Y.layout is not straight:
        return "tiles take rows of X and Y that are contiguous along the digits"
    status = tiles.status(target)
    if not status:
        return status.reason
    if cycles < vector_cycles:
        return ""
    return f"{cycles:.0f} cycles per row, on vectors about {vector_cycles:.0f}"


def _straight(side: Side) -> Layout:
    """The layout of X and Y that is contiguous along rows in the canonical form."""
    return Layout.RowMajor if side is Side.Right else Layout.ColumnMajor


def _setting(
    description: KronMatmulDescription, target: Target, rows: int | None = None
) -> Setting:
    straight = _straight(description.side)
    tile = description.tile
    work = KronWork(
        element=description.X.element,
        output=description.Y.element,
        accumulator=description.math.element_accumulator,
        epilogue=description.epilogue,
        vector_bytes=target.vector_bytes,
        contractions=description.contractions,
    )
    x_by_rows = description.X.layout is not straight
    y_by_rows = description.Y.layout is not straight
    by_rows = x_by_rows or y_by_rows
    return Setting(
        work=work,
        target=target,
        width=work.width,
        bytes=work.bytes,
        x_by_rows=x_by_rows,
        y_by_rows=y_by_rows,
        converts=work.converts,
        # The number of rows only changes plans whose lanes are rows.
        typical_rows=max(1, min(rows, _TYPICAL_ROWS)) if by_rows and rows else _TYPICAL_ROWS,
        rows=None if tile is None else tile.threadblock_shape[0],
        held=None if tile is None else tile.threadblock_shape[1],
        unroll=None if tile is None else tile.threadblock_shape[2],
    )


def _step(description: KronMatmulDescription, target: Target, design: KronDesign) -> Step:
    sizes = run_lengths([f"{p}x{q}" for p, q in description.contractions])
    return design.step(
        kernel_name("kron", description.X.element, sizes, target),
        f"X times {len(description.factors)} factors: {design}",
    )


def _affordable(setting: Setting) -> list[tuple[Candidate, Status]]:
    """Every candidate with its status: those with too much scratch are rejected, unless all legal
    ones have too much."""
    every = judged(setting)
    least = min(design.shared_bytes for (_, design), status in every if status)
    most = max(least, MOST_SCRATCH)
    return [(item, item[1].scratch_status(most) and status) for item, status in every]


def _scratch_status(setting: Setting) -> Status:
    """Whether some candidate's scratch memory is small enough with the user's rows."""
    chosen = [item for (_, item), status in judged(setting) if status]
    fixed = [dataclasses.replace(item, row_tile=0).shared_bytes for item in chosen]
    takes = [item.shared_bytes for item in chosen]
    if min(takes) <= max(MOST_SCRATCH, min(fixed)):
        return Status.accept()
    rows = chosen[0].row_tile
    most = max(
        rows * (MOST_SCRATCH - base) // (size - base)
        for base, size in zip(fixed, takes, strict=True)
    )
    return Status.reject(
        f"Tile_M of {rows} takes {min(takes)} bytes of scratch in each thread, at most"
        f" {MOST_SCRATCH}; lower threadblock_shape[0] to {max(1, most)}"
    )
