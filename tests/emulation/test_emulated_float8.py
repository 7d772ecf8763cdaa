"""8-bit floats, widened on their way to products, on the CPU from the same headers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kronop.descriptions.datatype import (
    ColumnMajor,
    DataType,
    bfloat16,
    float8_e4m3fn,
    float8_e5m2,
)
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.tile import TileDescription
from tests.emulation.test_emulated_contract import run
from tests.emulation.test_emulated_kernels import run_ksparse


@pytest.mark.covering(
    batch_last=[False, True],
    element=[float8_e4m3fn, float8_e5m2],
    pattern=[
        (3, 24, 64, 1),
        (1, 33, 41, 1),
        (1, 48, 32, 2),
        (2, 20, 17, 3),
        (2, 40, 36, 4),
        (1, 20, 24, 5),
        (1, 33, 40, 6),
        (1, 32, 24, 8),
        (1, 20, 24, 12),
        (1, 20, 24, 37),
        (1, 20, 24, 64),
    ],
)
def test_patterns(
    folder: Path, pattern: tuple[int, int, int, int], element: DataType, batch_last: bool
) -> None:
    for rows in (1, 40, 64, 71):
        run(folder, pattern, rows, element, batch_last=batch_last)


@pytest.mark.covering(
    batch_last=[False, True],
    element=[float8_e4m3fn, float8_e5m2],
    way=[
        ((2, 3, 5, 3), 37, 1),
        ((2, 2, 2, 1), 37, 1),
        ((1, 48, 20, 4), 37, 1),
        ((2, 12, 32, 16), 64, 16),
    ],
)
def test_on_ordinary_cores(folder: Path, way: Any, element: DataType, batch_last: bool) -> None:
    pattern, rows, alignment = way
    template = run_ksparse(
        folder, pattern, rows, element, batch_last=batch_last, alignment=alignment
    )
    assert template == "kronop::contract_tiles"


@pytest.mark.parametrize("batch_last", [False, True], ids=["first", "last"])
def test_other_layouts(folder: Path, batch_last: bool) -> None:
    for d in (1, 4):
        run(folder, (2, 32, 48, d), 48, float8_e4m3fn, batch_last=batch_last, layout=ColumnMajor)


def test_warps_along_the_contracted_index_and_few_rows(folder: Path) -> None:
    for d in (1, 2):
        tile = TileDescription(
            [64, 32, 32], 3, [2, 1, 2 * d], MathInstruction.tensor_op(float8_e4m3fn)
        )
        run(folder, (1, 40, 130, d), 70, float8_e4m3fn, batch_last=False, tile=tile)
        run(folder, (1, 40, 260, d), 1, float8_e4m3fn, batch_last=d == 2, few=True)


def test_bfloat16_is_what_results_are() -> None:
    from kronop.descriptions.datatype import result_type

    assert result_type(float8_e4m3fn) is result_type(float8_e5m2) is bfloat16
