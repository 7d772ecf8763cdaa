"""Gradients of weights for many rows on sm_90a, run on the CPU, against the reference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kronop.descriptions.datatype import DataType, bfloat16, float16, float32
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.tile import TileDescription
from kronop.families.ksparse.cuda import gradient_warp_group
from kronop.families.ksparse.cuda.gradient_warp_group import GradientWarpGroup
from kronop.target import Target
from tests.emulation import test_emulated_gradient

# Few multiprocessors, so that a block has several tiles.
_TARGET = replace(Target.parse("sm_90a"), cores=3)


def run(
    folder: Path,
    pattern: tuple[int, int, int, int],
    rows: int,
    shape: tuple[int, int, int],
    teams: int,
    stages: int = 2,
    element: DataType = float16,
    **options: Any,
) -> None:
    """`teams` are all of a block; no other kernel would have them all along the rows."""
    instruction = MathInstruction.tensor_op(element)
    tile = TileDescription(list(shape), stages, [1, 1, 4 * teams], instruction)
    options = {"alignment": 8, "tied": False, "tile": tile, "target": _TARGET} | options
    test_emulated_gradient.run(folder, pattern, rows, element, design=GradientWarpGroup, **options)


@pytest.mark.parametrize("batch_last", [False, True])
@pytest.mark.parametrize(
    ("pattern", "rows", "shape", "teams"),
    [
        ((1, 64, 64, 1), 64, (64, 64, 64), 3),
        ((2, 48, 48, 1), 200, (64, 48, 64), 3),
        ((2, 96, 96, 1), 264, (128, 96, 128), 4),
        ((1, 192, 48, 1), 136, (192, 48, 64), 4),
        ((1, 200, 136, 1), 72, (128, 128, 64), 3),
        ((3, 72, 40, 1), 328, (128, 32, 64), 3),
        ((1, 264, 192, 1), 64, (256, 128, 64), 4),
        ((1, 128, 256, 1), 8, (64, 256, 64), 3),
    ],
)
def test_shapes(
    folder: Path, pattern: Any, rows: int, shape: Any, teams: int, batch_last: bool
) -> None:
    run(folder, pattern, rows, shape, teams, batch_last=batch_last)


@pytest.mark.parametrize("batch_last", [False, True])
@pytest.mark.parametrize("pattern", [(2, 48, 64, 3), (1, 64, 56, 8)])
def test_lanes(folder: Path, pattern: Any, batch_last: bool) -> None:
    run(folder, pattern, 88, (64, 64, 64), 3, batch_last=batch_last)
    run(folder, pattern, 88, (64, 32, 64), 3, element=bfloat16, batch_last=batch_last)


@pytest.mark.parametrize("batch_last", [False, True])
def test_epilogues_and_products(folder: Path, batch_last: bool) -> None:
    options: dict[str, Any] = {"batch_last": batch_last, "source": True}
    run(folder, (2, 64, 48, 1), 104, (64, 48, 64), 3, 4, output=float32, **options)
    run(folder, (2, 64, 48, 1), 104, (64, 48, 64), 3, 3, products=3, **options)
    run(folder, (1, 64, 48, 1), 104, (64, 48, 64), 3, 3, tied=True, **options)


def test_few_rows_and_none(folder: Path) -> None:
    run(folder, (3, 64, 48, 1), 1, (64, 48, 64), 3, output=float32)
    run(folder, (3, 64, 48, 1), 0, (64, 48, 64), 3, source=True)
    run(folder, (1, 64, 48, 2), 3, (64, 48, 64), 3, output=float32)
    run(folder, (1, 64, 48, 2), 0, (64, 48, 64), 3)


def test_rows_in_parts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where lanes of all rows have no room, parts of the rows follow each other."""
    monkeypatch.setattr(gradient_warp_group, "_MOST_APART", 1 << 12)
    monkeypatch.setattr(gradient_warp_group, "_ROWS", 8)
    run(folder, (2, 48, 40, 2), 100, (64, 48, 64), 3)
