"""Contractions with many lanes, run on the CPU from the same headers, against the reference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kronop.descriptions.datatype import DataType, bfloat16, float16, float32
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.tile import TileDescription
from kronop.families.ksparse.cuda import contract_parted
from kronop.target import Target
from tests.emulation.test_emulated_kernels import run_ksparse

_TARGET = replace(Target.parse("sm_90a"), cores=3)


@pytest.fixture
def parted(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other tile is cheaper, and a launch takes few rows."""
    monkeypatch.setattr(contract_parted.Parted, "seconds", lambda *_: 0.0)
    monkeypatch.setattr(contract_parted, "_ROWS", 64)
    monkeypatch.setattr(contract_parted, "_MOST_WORKSPACE", 1)


def run(
    folder: Path,
    pattern: tuple[int, int, int, int],
    rows: int,
    element: DataType,
    shape: tuple[int, int, int],
    **options: Any,
) -> str:
    math = MathInstruction.tensor_op(element)
    tile = TileDescription(list(shape), 2, [4, 4, 1], math)
    options = {"alignment": 16 // element.bytes} | options
    return run_ksparse(
        folder,
        pattern,
        rows,
        element,
        batch_last=False,
        tile=tile,
        instruction=math,
        target=_TARGET,
        **options,
    )


@pytest.mark.parametrize("element", [float16, bfloat16, float32])
@pytest.mark.parametrize("d", [2, 3, 12, 32])
def test_lanes_apart(folder: Path, parted: None, d: int, element: DataType) -> None:
    assert run(folder, (2, 80, 48, d), 150, element, (128, 48, 16)) == "kronop::move_lanes"


@pytest.mark.parametrize("element", [float16, float32])
@pytest.mark.parametrize("pattern", [(1, 24, 40, 5), (1, 8, 16, 131)])
def test_any_number_of_lanes(
    folder: Path, parted: None, pattern: tuple[int, int, int, int], element: DataType
) -> None:
    last = run(folder, pattern, 35, element, (128, 16, 16), alignment=1)
    assert last == "kronop::move_lanes"
