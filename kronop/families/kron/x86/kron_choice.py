"""Planning Kronecker matmuls on CPUs: on vectors or on AMX tiles, and the step of either."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from kronop.artifacts import Status
from kronop.descriptions.datatype import Layout, bfloat16
from kronop.emit.design import Constant, Flat
from kronop.emit.plan import Plan, Step
from kronop.emit.x86.amx import asks_for_tiles, tiles_status
from kronop.emit.x86.planning import (
    aligned,
    common_status,
    element_types,
    far_rows,
    keeps_sums,
    kernel_name,
    parameter_arguments,
    passing_rows,
    run_lengths,
    unroll_status,
    width,
)
from kronop.errors import DescriptionError
from kronop.families.kron.description import KronMatmulDescription, Side
from kronop.families.kron.x86 import kron_amx, kron_launch
from kronop.families.kron.x86.kron_parts import Candidate, Digit, Kind, Pass, Setting
from kronop.families.kron.x86.kron_plan import judged, tile_status
from kronop.target import Target

_MOST_REPORTED = 12
_MOST_SCRATCH = 1 << 28
_TYPICAL_ROWS = 64
# Bytes from one run of results to the next that still count as contiguous.
_NEAR_RUNS = 1024


def supports(description: KronMatmulDescription, target: Target) -> Status:
    """Whether a plan exists, and which size of the tile stands in the way where not."""
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


def candidates(
    description: KronMatmulDescription,
    target: Target,
    count: int,
    rows: int | None = None,
) -> tuple[Plan, ...]:
    """The `count` cheapest legal candidates, the cheapest first, with what it beat.

    Raises:
        DescriptionError: `supports` rejects the description.
    """
    status = supports(description, target)
    if not status:
        raise DescriptionError(status.reason)
    setting = _setting(description, target, rows)
    every = _affordable(setting)
    ranked = sorted(((item.cycles, index, item) for index, (item, ok) in enumerate(every) if ok))
    best = ranked[0][0]
    rejected = [(str(item), status.reason) for item, status in every if not status]
    rejected += [
        (str(item), f"{cycles:.0f} cycles per row, the best takes {best:.0f}")
        for cycles, _, item in ranked[1:]
    ]
    if _asks_for_tiles(description, target):
        tiles = kron_amx.plan(description.contractions)
        vectors = ranked[0][2]
        cycles = _vector_cycles(description, vectors)
        reason = _reason_against_tiles(description, tiles, cycles)
        if not reason:
            step = _tile_step(description, target, tiles)
            slower = f"about {cycles:.0f} cycles per row, on tiles {tiles.cycles:.0f}"
            return (Plan(target=target, steps=(step,), rejected=((str(vectors), slower),)),)
        rejected.insert(0, (str(tiles), reason))
    return tuple(
        Plan(
            target=target,
            steps=(_step(description, target, setting, item),),
            rejected=() if place else tuple(rejected[:_MOST_REPORTED]),
        )
        for place, (_, _, item) in enumerate(ranked[:count])
    )


def _asks_for_tiles(description: KronMatmulDescription, target: Target) -> bool:
    # What is between two factors of int8 is int32.
    return description.X.element is bfloat16 and asks_for_tiles(description.math, target)


def _reason_against_tiles(
    description: KronMatmulDescription, tiles: kron_amx.TilePlan, vector_cycles: float
) -> str:
    """Why vectors, in so many cycles per row, serve a description; empty where tiles do."""
    straight = _straight(description.side)
    if description.X.layout is not straight or description.Y.layout is not straight:
        return "tiles take rows of X and Y that are contiguous along the digits"
    if tiles.bytes > _MOST_SCRATCH:
        return f"takes {tiles.bytes} bytes of scratch in each thread, at most {_MOST_SCRATCH}"
    if tiles.cycles < vector_cycles:
        return ""
    return f"{tiles.cycles:.0f} cycles per row, on vectors about {vector_cycles:.0f}"


def _vector_cycles(description: KronMatmulDescription, vectors: Candidate) -> float:
    products = [(results, vectors.digits[digit].contracted) for digit, results in _results(vectors)]
    return kron_amx.vector_cycles(description.input_columns, products)


def _straight(side: Side) -> Layout:
    """The layout of X and Y whose rows, in the canonical form, are contiguous."""
    return Layout.RowMajor if side is Side.Right else Layout.ColumnMajor


def _setting(
    description: KronMatmulDescription, target: Target, rows: int | None = None
) -> Setting:
    straight = _straight(description.side)
    accumulator, tile = description.math.element_accumulator, description.tile
    x_by_rows = description.X.layout is not straight
    y_by_rows = description.Y.layout is not straight
    by_rows = x_by_rows or y_by_rows
    return Setting(
        contractions=description.contractions,
        target=target,
        width=width(target, accumulator),
        bytes=accumulator.bytes,
        x_by_rows=x_by_rows,
        y_by_rows=y_by_rows,
        converts=description.X.element != accumulator,
        # Only rows that are lanes want other plans where they are few.
        typical_rows=max(1, min(rows, _TYPICAL_ROWS)) if by_rows and rows else _TYPICAL_ROWS,
        rows=None if tile is None else tile.threadblock_shape[0],
        held=None if tile is None else tile.threadblock_shape[1],
        unroll=None if tile is None else tile.threadblock_shape[2],
    )


def _step(
    description: KronMatmulDescription, target: Target, setting: Setting, chosen: Candidate
) -> Step:
    kind, most = chosen.passes[0].kind, chosen.row_tile
    in_vectors = most % setting.width == 0 and kind in (Kind.Rows, Kind.RowsAndLead)
    return _kernel(
        description,
        target,
        header="kron.hpp",
        template="kron_matmul",
        constants=_constants(description, setting, chosen),
        shared_bytes=sum(_scratch(chosen, setting)),
        multiply_adds=_multiply_adds(chosen),
        chosen=str(chosen),
        launch=(
            ("work", _multiply_adds(chosen)),
            ("row_tile", most),
            ("row_multiple", setting.width if in_vectors else 1),
            ("teams", True),
            ("keeps_sums", keeps_sums(description.epilogue)),
            *_far(description, target, in_parts=_is_near(chosen.passes[-1], setting)),
        ),
    )


def _tile_step(
    description: KronMatmulDescription, target: Target, tiles: kron_amx.TilePlan
) -> Step:
    constants = (
        ("kGroup", tiles.group),
        ("kSlice", tiles.bytes),
        *_digit_constants(description, tiles.digits),
    )
    return _kernel(
        description,
        target,
        header="kron_amx.hpp",
        template="kron_amx_matmul",
        constants=constants,
        shared_bytes=tiles.bytes,
        multiply_adds=tiles.multiply_adds,
        chosen=str(tiles),
        launch=(
            ("work", tiles.vector_work),
            ("row_tile", kron_amx.ROWS),
            ("row_multiple", kron_amx.ROWS_AT_ONCE if len(tiles.digits) == 1 else 1),
            ("teams", False),
            ("keeps_sums", keeps_sums(description.epilogue, rounded=True)),
            *_far(description, target, in_parts=True),
        ),
    )


def _kernel(
    description: KronMatmulDescription,
    target: Target,
    *,
    header: str,
    template: str,
    constants: tuple[tuple[str, Constant], ...],
    shared_bytes: int,
    multiply_adds: int,
    chosen: str,
    launch: tuple[tuple[str, Constant], ...],
) -> Step:
    """What steps of both kernels have in common.

    Args:
        launch: `work` of a row, in multiply-adds of vectors; `row_tile`, most rows of a tile, and
            what its rows are a multiple of where there are enough; `teams`, whether threads may
            share a tile; `keeps_sums`, whether the epilogue leaves them as they are with (1, 0);
            `passing_rows` of results and `far_rows` of X are too many for the caches.
    """
    accumulator, element = description.math.element_accumulator, description.X.element
    factors, arguments = len(description.factors), parameter_arguments(description.epilogue)
    sizes = run_lengths([f"{p}x{q}" for p, q in description.contractions])
    return Step(
        entry=kernel_name("kron", element, sizes, target),
        bytes_per_row=description.input_columns * element.bytes
        + description.output_columns * description.Y.element.bytes,
        operations_per_row=2 * multiply_adds,
        note=f"X times {factors} factors: {chosen}",
        design=Flat(
            header=f"kronop_x86/{header}",
            template=f"kronop::{template}",
            parameters=f"kronop::KronParameters<{factors}, {arguments}>",
            types=element_types(element, description.Y.element, accumulator),
            constants=constants,
            signature=kron_launch.signature(description),
            epilogue=description.epilogue,
            threads=0,
            shared_bytes=shared_bytes,
            launch=launch,
        ),
    )


def _multiply_adds(chosen: Candidate) -> int:
    return sum(results * chosen.digits[digit].contracted for digit, results in _results(chosen))


def _results(chosen: Candidate) -> Iterator[tuple[int, int]]:
    """(digit, results in a row) of each mode product."""
    for item in chosen.passes:
        for product in item.products:
            produced = chosen.digits[product.digit].produced
            yield product.digit, item.lead * item.trail * product.left * product.right * produced


def _affordable(setting: Setting) -> list[tuple[Candidate, Status]]:
    """Every candidate; those that take too much scratch are out where others take less."""
    every = judged(setting)
    sizes = [sum(_scratch(item, setting)) for item, _ in every]
    least = min(size for size, (_, status) in zip(sizes, every, strict=True) if status)
    most = max(least, _MOST_SCRATCH)
    return [
        (item, status)
        if size <= most
        else (item, Status.reject(f"takes {size} bytes of scratch in each thread, at most {most}"))
        for size, (item, status) in zip(sizes, every, strict=True)
    ]


def _scratch_status(setting: Setting) -> Status:
    """Whether the rows of the user's tile leave a candidate with little enough scratch."""
    chosen = [item for item, status in judged(setting) if status]
    fixed = [sum(_scratch(dataclasses.replace(item, row_tile=0), setting)) for item in chosen]
    takes = [sum(_scratch(item, setting)) for item in chosen]
    if min(takes) <= max(_MOST_SCRATCH, min(fixed)):
        return Status.accept()
    rows = chosen[0].row_tile
    most = max(
        rows * (_MOST_SCRATCH - base) // (size - base)
        for base, size in zip(fixed, takes, strict=True)
    )
    return Status.reject(
        f"Tile_M of {rows} takes {min(takes)} bytes of scratch in each thread, at most"
        f" {_MOST_SCRATCH}; lower threadblock_shape[0] to {max(1, most)}"
    )


def _scratch(chosen: Candidate, setting: Setting) -> tuple[int, ...]:
    """Bytes of panels, of two states, and of the middles, as kron.hpp lays them out."""
    state = aligned(chosen.state * setting.bytes)
    middle = aligned(chosen.row_tile * chosen.middle * setting.bytes)
    return (
        aligned(chosen.panels * setting.bytes),
        state,
        state,
        middle,
        middle if len(chosen.passes) > 2 else 0,
    )


def _constants(
    description: KronMatmulDescription, setting: Setting, chosen: Candidate
) -> tuple[tuple[str, Constant], ...]:
    products = [product for item in chosen.passes for product in item.products]
    ends = [
        sum(len(item.products) for item in chosen.passes[: index + 1])
        for index in range(len(chosen.passes))
    ]
    tiles = {product.digit: product.tile for product in products}
    every = [tiles[index] for index in range(len(chosen.digits))]
    return (
        ("kWidth", setting.width),
        ("kRowTile", chosen.row_tile),
        ("kState", chosen.state),
        *_digit_constants(description, chosen.digits),
        ("kPanel", tuple(tile.panel for tile in every)),
        ("kTileRows", tuple(tile.rows for tile in every)),
        ("kTileVectors", tuple(tile.vectors for tile in every)),
        ("kTileWidth", tuple(tile.width for tile in every)),
        ("kUnroll", tuple(tile.unroll for tile in every)),
        ("kPasses", len(chosen.passes)),
        ("kPassKind", tuple(int(item.kind) for item in chosen.passes)),
        ("kPassEnd", tuple(ends)),
        ("kLanes", tuple(item.lanes for item in chosen.passes)),
        ("kPad", tuple(item.pad for item in chosen.passes)),
        ("kOrder", tuple(product.digit for product in products)),
        ("kLeft", tuple(product.left for product in products)),
        ("kRight", tuple(product.right for product in products)),
        ("kInPlace", tuple(int(product.in_place) for product in products)),
    )


def _digit_constants(
    description: KronMatmulDescription, digits: Sequence[Digit]
) -> tuple[tuple[str, Constant], ...]:
    return (
        ("kSaturate", description.epilogue.saturates),
        ("kFactors", len(description.factors)),
        ("kFactorRows", tuple(p for p, _ in description.contractions)),
        ("kFactorColumns", tuple(q for _, q in description.contractions)),
        ("kDigits", len(digits)),
        ("kDigitFactor", (*(digit.first for digit in digits), len(description.factors))),
        ("kContracted", tuple(digit.contracted for digit in digits)),
        ("kProduced", tuple(digit.produced for digit in digits)),
    )


def _is_near(last: Pass, setting: Setting) -> bool:
    """Whether results of a register tile are contiguous, or not far apart.

    NOTE: 8^4 in float32, runs 2 KiB apart and half a line a store: 1.6 times as long past the
    caches; 8^3 in float64, 512 bytes apart, 0.65 times (Zen 3).
    """
    return last.kind is Kind.Whole and last.products[-1].right * setting.bytes <= _NEAR_RUNS


def _far(
    description: KronMatmulDescription, target: Target, in_parts: bool
) -> tuple[tuple[str, Constant], ...]:
    """From which rows on results and X are too many for the caches.

    NOTE: with half a line a store and lines that are not neighbours, 16 x 8^6 took 1.4 times as
    long past the caches (Zen 3); with whole lines it took half the time (Emerald Rapids).
    """
    results = description.output_columns * description.Y.element.bytes
    x = description.input_columns * description.X.element.bytes
    return (
        ("passing_rows", passing_rows(results, target, in_parts=in_parts)),
        ("far_rows", far_rows(x)),
    )
