"""Contractions on the tensor cores, run on the CPU from the same headers, against the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kronop.descriptions.datatype import (
    ColumnMajor,
    DataType,
    Layout,
    RowMajor,
    bfloat16,
    float16,
    float32,
    float64,
)
from kronop.descriptions.math_instruction import MathInstruction, OpClass
from kronop.descriptions.tile import TileDescription
from kronop.families.kron.description import Side
from tests.emulation.test_emulated_kernels import run_kron, run_ksparse


def run(
    folder: Path,
    pattern: tuple[int, int, int, int],
    rows: int,
    element: DataType = float32,
    *,
    batch_last: bool,
    **options: Any,
) -> None:
    instruction = MathInstruction.tensor_op(element)
    options |= {"batch_last": batch_last, "instruction": instruction, "template": "contract_mma"}
    run_ksparse(folder, pattern, rows, element, **options)


@pytest.mark.covering(
    batch_last=[False, True],
    element=[float32, float64, float16, bfloat16],
    pattern=[
        (1, 48, 32, 2),
        (2, 40, 36, 4),
        (3, 24, 64, 1),
        (1, 32, 24, 8),
        (2, 20, 17, 3),
        (1, 33, 40, 6),
    ],
)
def test_patterns(
    folder: Path, pattern: tuple[int, int, int, int], element: DataType, batch_last: bool
) -> None:
    for rows in (1, 40, 71):
        run(folder, pattern, rows, element, batch_last=batch_last)


@pytest.mark.covering(batch_last=[False, True], element=[float32, float16], d=[5, 12, 24, 37])
def test_lanes_that_blocks_share(folder: Path, d: int, element: DataType, batch_last: bool) -> None:
    run(folder, (1, 20, 24, d), 19, element, batch_last=batch_last)


@pytest.mark.covering(batch_last=[False, True], element=[float32, float16], d=[1, 4])
def test_other_layouts(folder: Path, d: int, element: DataType, batch_last: bool) -> None:
    run(folder, (2, 20, 24, d), 48, element, batch_last=batch_last, layout=ColumnMajor)


def test_tf32_rounds_its_operands(folder: Path) -> None:
    tf32 = MathInstruction([16, 8, 8], float32, float32, float32, OpClass.TensorOp)
    run_ksparse(folder, (1, 48, 40, 2), 30, batch_last=False, instruction=tf32, unit=float16)


def test_a_tile_of_ones_own_with_warps_along_the_contracted_index(folder: Path) -> None:
    for element, d in ((float32, 1), (float16, 1), (float64, 2)):
        tile = TileDescription([64, 32, 32], 3, [2, 1, 2 * d], MathInstruction.tensor_op(element))
        run(folder, (1, 40, 130, d), 70, element, batch_last=False, tile=tile)


@pytest.mark.covering(
    batch_last=[False, True],
    element=[float32, float64, bfloat16],
    way=[((1, 40, 260, 2), 1), ((2, 33, 200, 1), 3)],
)
def test_plans_for_few_rows(folder: Path, way: Any, element: DataType, batch_last: bool) -> None:
    pattern, rows = way
    run(folder, pattern, rows, element, batch_last=batch_last, few=True)


@pytest.mark.parametrize("element", [float32, float64, bfloat16])
def test_plans_of_factors_for_few_rows(folder: Path, element: DataType) -> None:
    math = MathInstruction.tensor_op(element)
    between = element if element is bfloat16 else None
    run_kron(
        folder,
        [(3, 4), (300, 40)],
        2,
        element,
        source=True,
        few=True,
        math_instruction=math,
        intermediate=between,
    )


@pytest.mark.covering(
    side=list(Side),
    element=[float32, float64, float16],
    way=[
        ([(136, 40)], 37, {"source": True}),
        ([(3, 4), (130, 24), (2, 2)], 5, {"source": True}),
        ([(144, 16), (130, 17)], 3, {"batch": (2,), "factor_batch": (2,)}),
    ],
)
def test_large_kronecker_factors(folder: Path, way: Any, element: DataType, side: Side) -> None:
    factors, rows, options = way
    options = {"side": side, "math_instruction": MathInstruction.tensor_op(element), **options}
    between = float16 if element is float16 else None
    run_kron(folder, factors, rows, element, intermediate=between, **options)


@pytest.mark.covering(
    rows=[1, 5, 38],
    factors=[[(129, 33)], [(131, 9), (11, 3)], [(3, 3), (133, 17)]],
    way=[
        (float16, Side.Right, (RowMajor, RowMajor, RowMajor)),
        (bfloat16, Side.Left, (RowMajor, ColumnMajor, RowMajor)),
        (float16, Side.Right, (ColumnMajor, ColumnMajor, RowMajor)),
    ],
)
def test_odd_rows_of_16_bits_are_read_to_their_end_and_no_further(
    folder: Path, way: Any, factors: list[tuple[int, int]], rows: int
) -> None:
    """With an odd count of elements the first one is the second half of a word of memory."""
    element, side, layouts = way
    run_kron(
        folder,
        [(q, p) for p, q in factors] if side is Side.Left else factors,
        rows,
        element,
        side=side,
        layouts=layouts,
        source=rows == 5,
        few=rows == 1,
        math_instruction=MathInstruction.tensor_op(element),
        intermediate=element,
        at_the_end=True,
    )


@pytest.mark.covering(x=list(Layout), f=list(Layout), y=list(Layout))
def test_layouts_of_kronecker_operands(folder: Path, x: Layout, f: Layout, y: Layout) -> None:
    math = MathInstruction.tensor_op(float16)
    options: dict[str, Any] = {"layouts": (x, f, y), "math_instruction": math}
    run_kron(folder, [(4, 8), (136, 24)], 16, float16, intermediate=float16, **options)
