"""Tensor-core kernels run on the CPU from the same headers, against the float64 reference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kronop.descriptions.activation import gelu
from kronop.descriptions.datatype import (
    ColumnMajor,
    DataType,
    RowMajor,
    bfloat16,
    float16,
    float32,
    float64,
)
from kronop.descriptions.epilogue import LinearCombinationClamp, LinearCombinationGeneric
from kronop.descriptions.math_instruction import MathInstruction, OpClass
from kronop.emit.plan import Step
from kronop.families.kron.cuda import pipeline
from kronop.families.kron.cuda.pass_design import TiledPass
from kronop.families.kron.description import Side
from tests.emulation import test_emulated_kernels as kernels
from tests.emulation.test_emulated_kernels import run_kron

_BATCHES: dict[str, Any] = {"batch": (2, 1), "factor_batch": (2, 1)}


def run(
    folder: Path, factors: list[tuple[int, int]], rows: int, element: DataType, **options: Any
) -> tuple[Step, ...]:
    instruction = MathInstruction.tensor_op(element)
    # What is between two 16-bit factors has the significand of float16.
    between = float16 if element.bytes == 2 else None
    options = {"math_instruction": instruction, "intermediate": between} | options
    return run_kron(folder, factors, rows, element, **options)


@pytest.mark.covering(
    element=[float32, float64, float16, bfloat16],
    side=list(Side),
    way=[([(8, 8)] * 3, 5, False), ([(16, 16)] * 2, 40, True), ([(6, 7), (5, 5), (9, 4)], 5, True)],
)
def test_element_types(folder: Path, way: Any, side: Side, element: DataType) -> None:
    factors, rows, source = way
    alignment = 1 if (5, 5) in factors else 16 // element.bytes
    run(folder, factors, rows, element, side=side, alignment=alignment, source=source)


def test_a_nan_stays_one_where_operands_are_rounded(folder: Path) -> None:
    tf32 = MathInstruction([16, 8, 8], float32, float32, float32, OpClass.TensorOp)
    for factors in ([(8, 8)] * 3, [(4, 4), (4, 5), (4, 2), (7, 3)]):
        run(folder, factors, 3, float32, math_instruction=tf32, intermediate=float16, with_nan=True)


@pytest.mark.parametrize(
    "factors",
    [
        [(8, 8)],
        [(128, 128)],
        [(127, 31)],
        [(1, 7), (3, 1)],
        [(5, 5)] * 4,
        [(32, 32)] * 2,
        [(64, 16), (8, 64)],
        [(52, 50), (65, 20)],
    ],
)
def test_shapes(folder: Path, factors: list[tuple[int, int]]) -> None:
    run(folder, factors, 3, float32, source=True)
    run(folder, factors, 3, float32, side=Side.Left, alignment=4)


def test_tf32_rounds_its_operands(folder: Path) -> None:
    tf32 = MathInstruction([16, 8, 8], float32, float32, float32, OpClass.TensorOp)
    # TF32 has the significand of float16.
    options = {"math_instruction": tf32, "intermediate": float16, "alignment": 4}
    run_kron(folder, [(8, 8), (40, 24)], 20, float32, **options)
    with pytest.raises(AssertionError):
        run_kron(folder, [(8, 8), (40, 24)], 20, float32, math_instruction=tf32)


@pytest.mark.covering(
    side=list(Side),
    element=[float32, float64, bfloat16],
    way=[
        ([(2, 2)] * 7, 20),
        ([(64, 64)] * 2, 3),
        ([(86, 86), (40, 30)], 1),
        ([(7, 7), (31, 31)], 40),
    ],
)
def test_plans_for_few_rows(folder: Path, way: Any, element: DataType, side: Side) -> None:
    right = {"alignment": 16 // element.bytes, "source": True} if side is Side.Right else {}
    run(folder, *way, element, few=True, side=side, **right)


def test_a_cluster_adds_a_source_to_results_that_it_does_not_stage(folder: Path) -> None:
    run(folder, [(86, 86), (40, 30)], 1, float32, few=True, alignment=4, source=True)


@pytest.mark.parametrize("rows", [1, 300])
def test_tiles_beyond_the_last_row_and_several_tiles_of_a_block(folder: Path, rows: int) -> None:
    run(folder, [(8, 8)] * 2, rows, float32, alignment=4)
    run(folder, [(8, 8)] * 2, rows, float32, alignment=4, source=True)
    run(folder, [(3, 5), (7, 2)], rows, float32)


@pytest.mark.parametrize("factor_batch", [(), (3,), (2, 1)])
def test_batches(folder: Path, factor_batch: tuple[int, ...]) -> None:
    run(folder, [(2, 3), (5, 2)], 3, float32, batch=(2, 3), factor_batch=factor_batch)
    run(folder, [(8, 8)], 200, float32, batch=(2, 3), factor_batch=factor_batch, side=Side.Left)


@pytest.mark.parametrize("element", [float32, float64, float16])
def test_tiny_factors_are_multiplied_out(folder: Path, element: DataType) -> None:
    run(folder, [(2, 2)] * 7, 5, element, source=True)
    run(folder, [(2, 3), (3, 2), (4, 1)], 5, element, side=Side.Left)
    run(folder, [(2, 3), (2, 2)], 3, element, batch=(2, 3), factor_batch=(3,))


def test_epilogues(folder: Path) -> None:
    generic = LinearCombinationGeneric(gelu(float32), float32, 1, float32, float32)
    clamp = LinearCombinationClamp(float16, 1, float32, float32)
    for epilogue in (generic, clamp):
        run(folder, [(2, 3), (5, 2)], 5, float32, epilogue=epilogue)
        layouts = (RowMajor, RowMajor, ColumnMajor)
        run(folder, [(2, 3), (5, 2)], 5, float32, epilogue=epilogue, layouts=layouts)


def test_batches_of_small_matrices_share_tiles(folder: Path) -> None:
    run(folder, [(8, 8)], 8, float32, batch=(2, 37), side=Side.Left, alignment=4)
    run(folder, [(3, 5)], 6, float32, batch=(2, 37), side=Side.Left, source=True)
    run(folder, [(8, 8)], 1, float32, batch=(2, 3, 11), factor_batch=(2, 1, 1))


@pytest.mark.parametrize(
    ("factor", "rows", "element", "pieces"),
    [
        ((4, 4), 512, float32, 16),
        ((4, 3), 520, float32, 13),
        ((16, 16), 148, float32, 1),
        ((8, 8), 1000, float16, 5),
        ((3, 5), 192, float64, 6),
    ],
)
def test_pieces_of_contiguous_rows_fill_a_tile(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    factor: tuple[int, int],
    rows: int,
    element: DataType,
    pieces: int,
) -> None:
    """A digit alone, from the left, has no other index for the rows of a tile."""
    seen = []
    cut = TiledPass._cut

    def noted(*arguments: object) -> tuple[int | None, int]:
        found = cut(*arguments)  # type: ignore[arg-type]
        seen.append(found[1])
        return found

    monkeypatch.setattr(TiledPass, "_cut", noted)
    alignment = 16 // element.bytes
    run(folder, [factor], rows, element, side=Side.Left, alignment=alignment, source=True)
    assert seen == [pieces]


@pytest.mark.parametrize(
    ("side", "rows", "shared_bytes"), [(Side.Right, 3, 8192), (Side.Left, 130, 20480)]
)
def test_intermediates_in_parts(
    folder: Path, monkeypatch: pytest.MonkeyPatch, side: Side, rows: int, shared_bytes: int
) -> None:
    """With little shared memory, so that small products take several passes; contiguous rows have
    parts of 64."""
    monkeypatch.setattr(pipeline, "_PART_BYTES", 1 << 12)
    small = replace(kernels._TARGET, shared_bytes=shared_bytes)
    monkeypatch.setattr(kernels, "_TARGET", small)
    factors = [(13, 13), (13, 13), (17, 17)]
    for element, options in ((float32, {"source": True}), (float16, _BATCHES)):
        assert len(run(folder, factors, rows, element, side=side, **options)) > 1
