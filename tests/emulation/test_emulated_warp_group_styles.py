"""Every pair of ways to go about a contraction for many rows, run on the CPU."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kronop.descriptions.datatype import ColumnMajor, DataType, Layout, RowMajor, float16, float32
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.cuda.contraction import warp_group_chains, warp_group_choice
from kronop.emit.cuda.contraction.warp_group import WarpGroupContract
from kronop.families.ksparse.cuda import choice
from kronop.families.ksparse.declaration import PRODUCT
from kronop.target import Target
from tests import support
from tests.covering import pairs
from tests.emulation.test_emulated_kernels import run_ksparse

_TARGET = Target.parse("sm_90a")
_Pattern = tuple[int, int, int, int]
# Element type, pattern, layouts of X and Y, and the tile.
_CASES: list[tuple[DataType, _Pattern, Layout, Layout, str]] = [
    (
        float32,
        (1, 96, 16, 17),
        RowMajor,
        RowMajor,
        "8 lanes x 64 x 16 x 16, 3 stages, 2 teams along lanes, W in images",
    ),
    (
        float16,
        (2, 64, 72, 1),
        RowMajor,
        RowMajor,
        "1 lanes x 256 x 48 x 64, 5 stages, 2 teams along rows, W in stages",
    ),
    (
        float32,
        (1, 96, 96, 1),
        ColumnMajor,
        ColumnMajor,
        "1 lanes x 128 x 96 x 32, 7 stages, 2 teams along rows, W stays, results in halves",
    ),
    (
        float16,
        (1, 40, 20, 3),
        RowMajor,
        ColumnMajor,
        "3 lanes x 128 x 48 x 16, 8 stages, 2 teams along outputs, W stays, results in halves",
    ),
    (
        float16,
        (1, 96, 96, 1),
        ColumnMajor,
        RowMajor,
        "1 lanes x 128 x 96 x 32, 8 stages, 2 teams along rows, W stays",
    ),
    (
        float32,
        (1, 48, 40, 4),
        ColumnMajor,
        RowMajor,
        "4 lanes x 128 x 32 x 16, 3 stages, 2 teams along lanes, W in images, results in halves",
    ),
    (
        float32,
        (1, 96, 96, 1),
        RowMajor,
        RowMajor,
        "1 lanes x 128 x 96 x 32, 4 stages, 2 teams along rows, W in images, results in halves",
    ),
    (
        float16,
        (1, 40, 20, 3),
        ColumnMajor,
        RowMajor,
        "3 lanes x 64 x 48 x 32, 8 stages, 2 teams along outputs, W in images",
    ),
    (
        float16,
        (1, 96, 96, 1),
        RowMajor,
        ColumnMajor,
        "1 lanes x 256 x 96 x 64, 5 stages, 2 teams along rows, W stays, results in halves",
    ),
    (
        float16,
        (1, 96, 16, 17),
        RowMajor,
        ColumnMajor,
        "8 lanes x 128 x 16 x 16, 5 stages, 2 teams along lanes, W stays",
    ),
    (
        float16,
        (1, 96, 96, 1),
        ColumnMajor,
        ColumnMajor,
        "1 lanes x 128 x 96 x 32, 8 stages, 2 teams along rows, W in stages",
    ),
    (
        float32,
        (1, 96, 16, 17),
        RowMajor,
        RowMajor,
        "4 lanes x 64 x 32 x 16, 8 stages, 2 teams along outputs, W stays",
    ),
    (
        float16,
        (1, 96, 16, 17),
        ColumnMajor,
        ColumnMajor,
        "1 lanes x 256 x 64 x 16, 8 stages, 2 teams along rows, W in images",
    ),
    (
        float32,
        (1, 96, 16, 17),
        RowMajor,
        RowMajor,
        "4 lanes x 128 x 16 x 16, 4 stages, 2 teams along rows, W in images",
    ),
    (
        float32,
        (1, 96, 96, 1),
        RowMajor,
        RowMajor,
        "1 lanes x 128 x 96 x 32, 4 stages, 2 teams along rows, W stays",
    ),
    (
        float16,
        (1, 96, 16, 17),
        ColumnMajor,
        ColumnMajor,
        "1 lanes x 128 x 96 x 16, 8 stages, 2 teams along rows, W stays",
    ),
    (
        float16,
        (2, 64, 72, 1),
        RowMajor,
        RowMajor,
        "1 lanes x 128 x 48 x 64, 8 stages, 2 teams along rows, W stays",
    ),
    (
        float16,
        (1, 96, 96, 1),
        RowMajor,
        RowMajor,
        "1 lanes x 256 x 96 x 32, 8 stages, 2 teams along rows, W in stages, results in halves",
    ),
]


def _style(design: WarpGroupContract) -> tuple[Any, ...]:
    """What tells kernels of one template apart, sizes aside."""
    work, together = design.work, warp_group_chains.together(design)
    return (
        design.direct,
        work.splits,
        (design.weights, design.packs),
        (design.along_lanes > 1, design.along_outputs > 1),
        work.x_order,
        work.y_order,
        together > 1,
        design.lanes > 1,
        design.team_m > 1,
        # One round of stages, results in halves, whole stages and whole tiles of outputs.
        work.contracted <= design.k * together,
        design.halves,
        work.contracted % design.k == 0,
        work.produced % design.n == 0,
    )


def _steps(
    element: DataType, pattern: _Pattern, x: Layout, y: Layout
) -> dict[str, WarpGroupContract]:
    """All steps of this kind that the planner considers, by their tile."""
    description = support.ksparse_operation("sm_90a", element, pattern, layout=x).description
    description = replace(description, Y=replace(description.Y, layout=y))
    plans = PRODUCT.emitters["cuda"].candidates(description, _TARGET, 999)
    designs = (plan.steps[-1].design for plan in plans)
    return {str(item): item for item in designs if isinstance(item, WarpGroupContract)}


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Leaves the planner one tile alone."""
    every = warp_group_choice.proposed

    def leave(tile: str) -> None:
        offered = lambda *given: (item for item in every(*given) if str(item) == tile)  # noqa: E731
        monkeypatch.setattr(warp_group_choice, "proposed", offered)
        choice._candidates.cache_clear()

    yield leave
    choice._candidates.cache_clear()


@pytest.mark.parametrize(("element", "pattern", "x", "y", "tile"), _CASES)
def test_styles(
    folder: Path,
    only: Any,
    element: DataType,
    pattern: _Pattern,
    x: Layout,
    y: Layout,
    tile: str,
) -> None:
    only(tile)
    run_ksparse(
        folder,
        pattern,
        300,
        element,
        batch_last=False,
        layout=x,
        y_layout=y,
        instruction=MathInstruction.tensor_op(element),
        # Blocks have several tiles each.
        target=replace(_TARGET, cores=4),
        template="contract_warp_group",
    )


def test_no_pair_of_styles_is_missing() -> None:
    ran = {_style(_steps(*case)[tile]) for *case, tile in _CASES}
    layouts = (RowMajor, ColumnMajor)
    patterns = [(1, 96, 16, 17), (2, 64, 72, 1), (1, 96, 96, 1), (1, 48, 40, 4), (1, 40, 20, 3)]
    considered = itertools.product((float32, float16), patterns, layouts, layouts)
    there = {_style(step) for case in considered for step in _steps(*case).values()}
    assert set().union(*map(pairs, there)) == set().union(*map(pairs, ran))
