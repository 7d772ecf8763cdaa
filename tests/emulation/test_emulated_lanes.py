"""Contractions with many lanes, run on the CPU from the same headers, against the reference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kronop.descriptions.datatype import DataType, bfloat16, float16, float32
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.tile import TileDescription
from kronop.emit.cuda import contract_group, contract_mma, contract_parted
from kronop.target import Target
from tests.emulation.emulator import host_compiler
from tests.emulation.test_emulated_kernels import folder, run_ksparse

pytestmark = pytest.mark.skipif(
    host_compiler() is None, reason="no g++ to build the emulation with"
)
__all__ = ["folder"]

_TARGET = replace(Target.parse("sm_90a"), cores=3)


@pytest.fixture
def parted(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other tile is cheaper, and a launch takes few rows."""
    monkeypatch.setattr(contract_parted, "cost", lambda *_: 0.0)
    monkeypatch.setattr(contract_parted, "_ROWS", 64)
    monkeypatch.setattr(contract_parted, "_MOST_WORKSPACE", 1)


def run(
    folder: Path,
    pattern: tuple[int, int, int, int],
    rows: int,
    element: DataType,
    shape: tuple[int, int, int],
    teams: int = 2,
    **options: Any,
) -> str:
    math = MathInstruction.tensor_op(element)
    tile = TileDescription(list(shape), 2, [2, 2 * teams + 2, 1], math)
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


@pytest.fixture
def broad(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other kernel has tiles."""
    monkeypatch.setattr(contract_mma, "proposed", lambda *_: iter(()))
    monkeypatch.setattr(contract_group, "proposed", lambda *_: iter(()))


@pytest.mark.parametrize("element", [float16, bfloat16, float32])
@pytest.mark.parametrize("d", [12, 24, 32, 96])
@pytest.mark.parametrize("teams", [1, 2])
def test_runs_of_lanes(folder: Path, broad: None, d: int, element: DataType, teams: int) -> None:
    if d == 12 and teams == 1 and element.bytes == 2:
        pytest.skip("twelve lanes are six warps")
    last = run(folder, (2, 80, 48, d), 50, element, (16, 32, 16), teams=teams)
    assert last == "kronop::contract_broad"


@pytest.mark.parametrize("element", [float16, float32])
def test_runs_of_lanes_that_are_not_aligned(folder: Path, broad: None, element: DataType) -> None:
    teams = 3 if element.bytes == 2 else 1
    run(folder, (1, 40, 16, 36), 37, element, (16, 16, 16), teams=teams, alignment=1)
