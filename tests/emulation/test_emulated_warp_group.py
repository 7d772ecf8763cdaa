"""Contractions for many rows on sm_90a, run on the CPU, against the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kronop.descriptions.datatype import (
    DataType,
    bfloat16,
    float16,
    float32,
)
from kronop.descriptions.math_instruction import MathInstruction, OpClass
from kronop.descriptions.tile import TileDescription
from kronop.emit.cuda.contraction import warp_group_choice, warp_group_room
from kronop.emit.cuda.contraction.warp_group import WarpGroupContract
from kronop.families.ksparse.cuda import choice
from kronop.target import Target
from tests.emulation.test_emulated_kernels import run_ksparse

_TARGET = Target.parse("sm_90a")


def run(
    folder: Path,
    pattern: tuple[int, int, int, int],
    rows: int,
    element: DataType,
    shape: tuple[int, int, int],
    stages: int = 2,
    *,
    batch_last: bool = False,
    math: MathInstruction | None = None,
    cores: int = 3,
    **options: Any,
) -> None:
    """On few multiprocessors, so that a block has several tiles."""
    math = math or MathInstruction.tensor_op(element)
    tile = TileDescription(list(shape), stages, [4, 4, 1], math)
    options = {"alignment": 16 // element.bytes} | options
    run_ksparse(
        folder,
        pattern,
        rows,
        element,
        batch_last=batch_last,
        tile=tile,
        instruction=math,
        target=replace(_TARGET, cores=cores),
        template=options.pop("template", "contract_warp_group"),
        **options,
    )


@pytest.mark.covering(
    batch_last=[False, True],
    element=[float16, bfloat16, float32],
    way=[((2, 48, 64, 1), 400, (128, 48, 32), 3), ((1, 80, 96, 1), 261, (256, 32, 32), 2)],
)
def test_a_lane(folder: Path, way: Any, element: DataType, batch_last: bool) -> None:
    pattern, rows, (m, *others), stages = way
    shape = (128 if batch_last else m, *others)
    run(folder, pattern, rows, element, shape, stages, batch_last=batch_last)


@pytest.mark.covering(batch_last=[False, True], element=[float16, float32], d=[2, 3, 4, 6, 8, 24])
def test_lanes(folder: Path, d: int, element: DataType, batch_last: bool) -> None:
    rows = 128 if batch_last or d < 4 else 64
    run(folder, (1, 48, 40, d), 150, element, (rows, 16, 16), batch_last=batch_last)


@pytest.mark.covering(
    batch_last=[False, True],
    element=[float16, float32],
    pattern=[(2, 33, 35, 1), (1, 30, 27, 3), (1, 17, 50, 4)],
)
def test_odd_sizes(
    folder: Path, pattern: tuple[int, int, int, int], element: DataType, batch_last: bool
) -> None:
    n = 16 if pattern[3] > 3 else 32
    run(folder, pattern, 133, element, (128, n, 16), batch_last=batch_last, alignment=1)


@pytest.mark.parametrize("element", [float16, float32])
def test_weights_that_stream(folder: Path, element: DataType) -> None:
    run(folder, (1, 128, 1040, 1), 140, element, (128, 64, 32), 4)
    run(folder, (1, 64, 272, 4), 70, element, (128, 32, 16), 3)


@pytest.fixture
def only(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[[Callable[[WarpGroupContract], bool]], None]]:
    """Leaves the planner some tiles alone."""
    every = warp_group_choice.proposed

    def leave(keep: Callable[[WarpGroupContract], bool]) -> None:
        monkeypatch.setattr(
            warp_group_choice, "proposed", lambda *given: filter(keep, every(*given))
        )
        choice._candidates.cache_clear()

    yield leave
    choice._candidates.cache_clear()


@pytest.mark.covering(
    images=[False, True],
    turned=[False, True],
    outputs=[(float16, 56), (float32, 40), (float16, 33)],
    d=[1, 3, 6, 12],
)
def test_packed_weights(
    folder: Path,
    only: Any,
    monkeypatch: pytest.MonkeyPatch,
    d: int,
    outputs: tuple[DataType, int],
    turned: bool,
    images: bool,
) -> None:
    """By a launch before, of more lanes at once than a block has."""
    monkeypatch.setattr(warp_group_room, "_MOST_PACKED", 0)
    monkeypatch.setattr(warp_group_choice, "_LEAST_OF_IMAGES", 1)
    only(lambda tile: tile.images is images)
    element, b = outputs
    alignment = 1 if b == 33 else 16 // element.bytes
    shape, ways = (128, 32, 16), {"batch_last": True, "alignment": alignment}
    run(folder, (2, b, 40, d), 130, element, shape, turned=turned, **ways)


@pytest.mark.covering(
    images=[False, True],
    batch_last=[False, True],
    lanes=[(float16, 3), (float32, 3), (float16, 8), (float32, 9), (float16, 17)],
    order=[(0, 3, 1, 2), (0, 3, 2, 1), (3, 0, 2, 1), (0, 2, 1, 3), (0, 1, 2)],
)
def test_weights_in_any_order(
    folder: Path,
    only: Any,
    monkeypatch: pytest.MonkeyPatch,
    order: tuple[int, ...],
    lanes: tuple[DataType, int],
    batch_last: bool,
    images: bool,
) -> None:
    """Those of lanes apart, of turned products, and one lane for all; none behind them is read."""
    element, d = lanes
    monkeypatch.setattr(warp_group_room, "_MOST_PACKED", 0)
    only(lambda tile: tile.images is images)
    shape = (128 if batch_last or d < 8 else 64, 16, 16)
    run(folder, (2, 48, 40, d), 70, element, shape, batch_last=batch_last, order=order)


@pytest.mark.covering(adds=[False, True], resident=[False, True], d=[2, 3, 6, 8])
def test_teams_along_outputs(folder: Path, only: Any, d: int, resident: bool, adds: bool) -> None:
    only(lambda tile: tile.along_outputs > 1 and tile.resident is resident)
    run(folder, (1, 96, 40, d), 150, float16, (64, 32, 16), adds=adds)


@pytest.mark.parametrize("adds", [False, True])
def test_teams_along_wide_outputs(folder: Path, only: Any, adds: bool) -> None:
    only(lambda tile: tile.along_outputs > 1 and tile.resident)
    run(folder, (1, 96, 40, 8), 150, float16, (64, 48, 16), adds=adds)


@pytest.mark.covering(batch_last=[False, True], element=[float16, float32], d=[1, 3])
def test_a_bias_of_several_tiles(folder: Path, d: int, element: DataType, batch_last: bool) -> None:
    run(folder, (2, 80, 32, d), 300, element, (128, 16, 16), batch_last=batch_last, adds=False)


@pytest.mark.parametrize("batch_last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("shape", [(128, 128, 32), (256, 64, 32), (128, 96, 64)], ids=str)
def test_wide_tiles_of_split_products(
    folder: Path, shape: tuple[int, int, int], batch_last: bool
) -> None:
    """Chains of half of the outputs, the last of them of fewer steps than others."""
    run(folder, (1, shape[1], 84, 1), 300, float32, shape, batch_last=batch_last)


@pytest.mark.parametrize("resident", [False, True], ids=["stages", "stays"])
@pytest.mark.parametrize("contracted", [84, 128, 180])
def test_stages_that_are_multiplied_together(
    folder: Path, only: Any, contracted: int, resident: bool
) -> None:
    """All three of a tile, two of four, three of six, in a ring of two stages."""
    only(lambda tile: tile.resident is resident)
    run(folder, (2, 88, contracted, 1), 300, float32, (128, 96, 32))


def test_results_in_halves(folder: Path, only: Any) -> None:
    only(lambda tile: tile.halves)
    run(folder, (1, 48, 32, 1), 600, float16, (512, 48, 16), batch_last=True)
    for adds in (False, True):
        run(folder, (1, 40, 20, 4), 150, float32, (128, 32, 16), adds=adds)


def test_every_second_tile_of_rows(folder: Path, only: Any) -> None:
    only(lambda tile: tile.resident)
    run(folder, (2, 32, 32, 1), 901, float16, (128, 32, 32), cores=4)


def test_weights_that_stay_and_were_packed_before(
    folder: Path, only: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warp_group_room, "_MOST_PACKED", 0)
    only(lambda tile: tile.resident)
    run(folder, (2, 40, 40, 1), 300, float32, (128, 16, 16), batch_last=True)


def test_weights_that_are_turned(folder: Path) -> None:
    for d, depth in ((1, 32), (4, 16)):
        run(folder, (2, 48, 64, d), 140, float16, (128, 48, depth), turned=True)


def test_tf32_rounds_its_operands(folder: Path) -> None:
    tf32 = MathInstruction([16, 8, 8], float32, float32, float32, OpClass.TensorOp)
    run(folder, (1, 48, 40, 2), 130, float32, (128, 48, 16), math=tf32, unit=float16)


@pytest.mark.parametrize("element", [float16, float32])
def test_images_of_weights(folder: Path, only: Any, element: DataType) -> None:
    only(lambda tile: tile.images)
    run(folder, (2, 80, 72, 1), 700, element, (128, 64, 32), 3, cores=5)
    run(folder, (1, 72, 136, 2), 300, element, (128, 64, 16), batch_last=True, cores=4)


def test_images_of_several_lanes(folder: Path, only: Any) -> None:
    only(lambda tile: tile.images)
    run(folder, (1, 135, 72, 2), 190, float16, (128, 64, 32), cores=4)
    run(folder, (1, 130, 66, 4), 190, float16, (64, 64, 16), 3, cores=2)


@pytest.mark.parametrize(
    ("element", "pattern", "lanes"),
    [(float16, (2, 40, 24, 20), 16), (float32, (2, 40, 20, 12), 8)],
)
def test_images_of_some_lanes(
    folder: Path, only: Any, element: DataType, pattern: Any, lanes: int
) -> None:
    only(lambda tile: tile.images and tile.lanes == lanes)
    run(folder, pattern, 70, element, (64, 16, 16), cores=4)


def test_images_and_results_in_halves(folder: Path, only: Any) -> None:
    only(lambda tile: tile.images and tile.halves)
    run(folder, (2, 70, 24, 1), 300, float32, (256, 64, 16), cores=4)


def test_images_of_lanes_that_are_apart(folder: Path, only: Any) -> None:
    only(lambda tile: tile.images and tile.lanes == 1)
    run(folder, (2, 80, 72, 8), 300, float16, (128, 64, 32), cores=4, template="move_lanes")
