"""CUDA kernels run on the CPU from the same headers, against the float64 reference."""

from __future__ import annotations

import ctypes
import math
import mmap
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kronop.descriptions.activation import gelu, leaky_relu
from kronop.descriptions.datatype import (
    ColumnMajor,
    DataType,
    Layout,
    RowMajor,
    bfloat16,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    result_type,
)
from kronop.descriptions.epilogue import (
    Epilogue,
    FastLinearCombinationClamp,
    LinearCombination,
    LinearCombinationClamp,
    LinearCombinationGeneric,
)
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.strided import Strided
from kronop.descriptions.tensor import TensorDescription
from kronop.descriptions.tile import TileDescription
from kronop.emit.plan import Step
from kronop.families.kron.declaration import MATMUL
from kronop.families.kron.description import KronMatmulDescription, KronProblem, Side
from kronop.families.ksparse.declaration import PRODUCT
from kronop.families.ksparse.description import KSparseDescription, KSparseProblem
from kronop.target import Target
from tests import support
from tests.emulation.emulator import Emulator

_TARGET = Target.parse("sm_90a")
_RAGGED = [(2, 3), (5, 2), (6, 4)]
# Units in the last place, and how many of them a sum of some hundred rounded terms may be off.
_UNIT = {float64: 2.0**-53, float32: 2.0**-24, float16: 2.0**-11, bfloat16: 2.0**-8}


def numpy_type(element: DataType) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, element.name, element.name))


def values(random: np.random.Generator, shape: tuple[int, ...], element: DataType) -> Any:
    if element.kind == "int":
        return random.integers(-9, 10, shape).astype(numpy_type(element))
    return random.standard_normal(shape).astype(numpy_type(element))


def stored(array: Any, layout: Layout, at_the_end: bool = False) -> Any:
    """The same values, contiguous along what `layout` says, at a 16-byte boundary.

    Or `at_the_end` of memory, wherever they start then.
    """
    moved = array if layout is RowMajor else array.swapaxes(-1, -2)
    if at_the_end:
        place = before_a_closed_page(moved.nbytes, 1)
    else:
        buffer = np.empty(moved.nbytes + 16, np.uint8)
        start = -buffer.ctypes.data % 16
        place = buffer[start : start + moved.nbytes]
    result = place.view(moved.dtype).reshape(moved.shape)
    result[...] = moved
    return result if layout is RowMajor else result.swapaxes(-1, -2)


def poisoned(
    shape: tuple[int, ...],
    element: DataType,
    layout: Layout = RowMajor,
    at_the_end: bool = False,
) -> Any:
    return stored(
        np.full(shape, np.nan if element.kind == "float" else 77).astype(numpy_type(element)),
        layout,
        at_the_end,
    )


def matrix(array: Any, swapped: bool, batch: tuple[int, ...] = ()) -> Strided:
    array = np.broadcast_to(array, (*batch, *array.shape[-2:]))
    *lead, row, column = (stride // array.itemsize for stride in array.strides)
    row, column = (column, row) if swapped else (row, column)
    return Strided(pointer=array.ctypes.data, strides=(row, column), batch=tuple(lead))


def wide(array: Any) -> Any:
    return array.astype(np.int64 if array.dtype.kind == "i" else np.float64)


def agree(result: Any, expected: Any, element: DataType, intermediate: DataType) -> None:
    if element.kind == "int":
        np.testing.assert_array_equal(wide(result), expected)
        return
    result, numbers = wide(result), ~np.isnan(expected)
    np.testing.assert_array_equal(~np.isnan(result), numbers)
    largest = np.abs(expected[numbers]).max(initial=1)
    bound = (2 * _UNIT[element] + 64 * _UNIT.get(intermediate, 0)) * largest
    assert np.abs(result - expected)[numbers].max(initial=0) <= bound


def linear(element: DataType) -> LinearCombination:
    accumulator = MathInstruction.simt(element).element_accumulator
    return LinearCombination(result_type(element), 1, accumulator, accumulator)


def run_kron(
    folder: Path,
    factors: list[tuple[int, int]],
    rows: int,
    element: DataType = float32,
    *,
    side: Side = Side.Right,
    alignment: int = 1,
    layouts: tuple[Layout, Layout, Layout] = (RowMajor, RowMajor, RowMajor),
    batch: tuple[int, ...] = (),
    factor_batch: tuple[int, ...] = (),
    source: bool = False,
    epilogue: Epilogue | None = None,
    math_instruction: MathInstruction | None = None,
    intermediate: DataType | None = None,
    few: bool = False,
    at_the_end: bool = False,
    with_nan: bool = False,
) -> tuple[Step, ...]:
    """Runs, compares, and returns the plan's steps.

    `with_nan`: the first element of X is the NaN that GPUs make, all of whose bits are set.
    `layouts` are those of X, F and Y; with `few` the plan is that for so few rows. `at_the_end`:
    operands and results lie before pages that nobody may touch, wherever they start then.
    """
    random, emitter = np.random.default_rng(7), MATMUL.emitters["cuda"]
    math_instruction = math_instruction or MathInstruction.simt(element)
    epilogue = epilogue or linear(element)
    output = epilogue.element_output
    x_layout, f_layout, y_layout = layouts
    description = KronMatmulDescription(
        math=math_instruction,
        tile=None,
        X=TensorDescription(element, x_layout, alignment),
        F=TensorDescription(element, f_layout),
        Y=TensorDescription(output, y_layout, min(alignment, 16 // output.bytes)),
        epilogue=epilogue,
        factors=tuple(factors),
        side=side,
    )
    plan = emitter.plan(description, _TARGET, rows * math.prod(batch) if few else None)
    emulator = Emulator(plan, folder)
    if emulator.gathered:
        return plan.steps
    x_shape, y_shape = description.x_shape(rows), description.y_shape(rows)
    x = stored(values(random, (*batch, *x_shape), element), x_layout, at_the_end)
    if with_nan:
        x.view(f"u{x.itemsize}").flat[0] = 2 ** (8 * x.itemsize - 1) - 1
    matrices = [
        stored(values(random, (*factor_batch, *shape), element), f_layout, at_the_end)
        for shape in factors
    ]
    y = poisoned((*batch, *y_shape), output, y_layout, at_the_end)
    z = stored(values(random, y.shape, output), y_layout, at_the_end) if source else None
    scalars = epilogue.epilogue_type(2, 3 if source else 0)
    workspace = np.full(plan.workspace_bytes(rows * math.prod(batch), 1) + 256, 255, np.uint8)
    left = side is Side.Left
    problem = KronProblem(
        rows=rows,
        batch=batch,
        x=matrix(x, left, batch),
        factors=tuple(matrix(item, left, batch) for item in matrices),
        z=None if z is None else matrix(z, left, batch),
        y=matrix(y, left, batch),
        scalars=scalars.scalars,
        workspace=workspace.ctypes.data + -workspace.ctypes.data % 256,
        threads=1,
    )
    emulator.run(plan.launches(problem))
    expected = description.reference(
        wide(x), [wide(item) for item in matrices], None if z is None else wide(z), scalars
    )
    agree(y, expected, output, intermediate or math_instruction.element_accumulator)
    return plan.steps


@pytest.mark.parametrize("rows", [1, 3, 100])
@pytest.mark.parametrize("side", Side)
def test_ragged_factors(folder: Path, rows: int, side: Side) -> None:
    assert len(run_kron(folder, _RAGGED, rows, side=side, source=True)) == 1


@pytest.mark.parametrize(
    "factors", [[(1, 7)], [(127, 31)], [(505, 3)], [(3, 505)], [(31, 29)] * 2, [(9, 20), (3, 3)]]
)
def test_odd_factors(folder: Path, factors: list[tuple[int, int]]) -> None:
    run_kron(folder, factors, 5)
    run_kron(folder, factors, 5, side=Side.Left)


@pytest.mark.parametrize(("base", "count", "steps"), [(8, 5, 1), (16, 4, 2), (8, 6, 2)])
def test_powers_with_wide_accesses(folder: Path, base: int, count: int, steps: int) -> None:
    assert len(run_kron(folder, [(base, base)] * count, 1, alignment=4)) == steps


def test_many_factors_are_cut_into_passes(folder: Path) -> None:
    factors = [(1, 1)] * 35 + [(2, 3)] + [(1, 1)] * 34
    assert len(run_kron(folder, factors, 3)) > 1


@pytest.mark.parametrize("factor_batch", [(), (2, 1), (1, 3), (2, 3)])
def test_batches_broadcast(folder: Path, factor_batch: tuple[int, ...]) -> None:
    run_kron(folder, _RAGGED, 3, batch=(2, 3), factor_batch=factor_batch)
    run_kron(folder, [(40, 3), (2, 2)], 1, batch=(2, 3), factor_batch=factor_batch, side=Side.Left)


@pytest.mark.parametrize("element", [float64, float16, bfloat16, int32, int64, int8])
def test_element_types(folder: Path, element: DataType) -> None:
    run_kron(folder, _RAGGED, 7, element, source=True)
    # The second pass reads intermediates in the accumulator type and factors in their own.
    assert len(run_kron(folder, [(40, 36), (3, 2)], 3, element, source=True)) == 2
    assert len(run_kron(folder, [(16, 16)] * 4, 1, element)) == 2
    run_kron(
        folder,
        [(64, 16), (40, 8)],
        3,
        element,
        side=Side.Left,
        layouts=(ColumnMajor, RowMajor, ColumnMajor),
    )


@pytest.mark.parametrize(
    "epilogue",
    [
        LinearCombinationClamp(float16, 1, float32, float32),
        LinearCombinationGeneric(gelu(float32), float32, 1, float32, float32),
        LinearCombinationGeneric(leaky_relu(float32), float32, 1, float32, float32),
        LinearCombinationClamp(int8, 1, int32, int32),
        LinearCombination(int8, 1, int32, int32),
        FastLinearCombinationClamp(int8, 1),
        LinearCombination(float16, 1, int32, int32),
        LinearCombination(bfloat16, 1, int32, int32),
        LinearCombination(float64, 1, int32, int32),
        LinearCombinationClamp(float16, 1, int32, int32),
        LinearCombinationClamp(bfloat16, 1, int32, int32),
    ],
    ids=lambda item: f"{item.name}-{item.element_accumulator.name}-{item.element_output.name}",
)
def test_epilogues(folder: Path, epilogue: Epilogue) -> None:
    element = int32 if epilogue.element_accumulator == int32 else float32
    run_kron(folder, _RAGGED, 5, element, epilogue=epilogue)


def test_no_rows_launch_nothing(folder: Path) -> None:
    run_kron(folder, _RAGGED, 0)


def before_a_closed_page(size: int, alignment: int) -> Any:
    """So many bytes at that alignment, as near as it allows a page that nobody may touch."""
    page = mmap.PAGESIZE
    whole = -(-size // page) * page
    pages = mmap.mmap(-1, whole + page)
    place = np.frombuffer(pages, np.uint8)
    end = ctypes.c_void_p(place.ctypes.data + whole)
    assert ctypes.CDLL(None).mprotect(end, ctypes.c_size_t(page), 0) == 0
    start = (whole - size) // alignment * alignment
    return place[start : start + size]


def guarded(values: Any, order: tuple[int, ...]) -> Any:
    """The values with axes in that order in memory, before a page that nobody may read.

    Of an axis that is not in `order`, the first value stands for all.
    """
    missing = [axis for axis in range(values.ndim) if axis not in order]
    first = values[tuple(slice(0, 1) if axis in missing else slice(None) for axis in range(4))]
    memory = np.ascontiguousarray(first.transpose(*missing, *order))
    there = before_a_closed_page(memory.nbytes, 16).view(memory.dtype).reshape(memory.shape)
    there[...] = memory
    back = np.argsort([*missing, *order])
    return np.broadcast_to(there.transpose(*back), values.shape)


def run_ksparse(
    folder: Path,
    pattern: tuple[int, int, int, int],
    rows: int,
    element: DataType = float32,
    *,
    batch_last: bool,
    alignment: int = 1,
    instruction: MathInstruction | None = None,
    unit: DataType | None = None,
    layout: Layout = RowMajor,
    y_layout: Layout | None = None,
    tile: TileDescription | None = None,
    few: bool = False,
    target: Target = _TARGET,
    turned: bool = False,
    order: tuple[int, ...] = (),
    adds: bool = True,
    template: str = "",
) -> str:
    """Runs, compares, and returns the kernel's template; `unit` is what operands are rounded to.

    Where it `adds`, the results get a source of their size and a bias, else a bias alone.

    Weights are a view of (a, c, b, d) where `turned`, as in a backward. With an `order` of axes in
    memory nothing may be read behind them; an axis that it lacks is broadcast. Of the candidates,
    the first with `template` is taken.
    """
    random, emitter = np.random.default_rng(7), PRODUCT.emitters["cuda"]
    tensor = TensorDescription(element, layout, alignment)
    instruction = instruction or MathInstruction.simt(element)
    output = result_type(element)
    description = KSparseDescription(
        math=instruction,
        tile=tile,
        X=tensor,
        W=support.weights_description(element, pattern, alignment),
        Y=TensorDescription(output, y_layout or layout, min(alignment, 16 // output.bytes)),
        epilogue=linear(element),
        pattern=pattern,
        batch_last=batch_last,
    )
    most = 999 if template else 1
    plans = emitter.candidates(description, target, most, rows if few else None)
    plan = next(plan for plan in plans if template in support.templates(plan)[-1])
    emulator = Emulator(plan, folder)
    if emulator.gathered:
        return support.templates(plan)[-1]
    x = stored(values(random, description.x_shape(rows), element), layout)
    z = stored(values(random, description.y_shape(rows), output), y_layout or layout)
    a, b, c, d = pattern
    shape = (a, c, b, d) if turned else pattern
    weights = stored(values(random, shape, element), RowMajor)
    weights = weights.transpose(0, 2, 1, 3) if turned else weights
    weights = guarded(weights, order) if order else weights
    bias = values(random, (description.output_columns,), output)
    y = poisoned(z.shape, output, y_layout or layout)
    scalars = description.epilogue.epilogue_type(2, 3)
    workspace = np.full(plan.workspace_bytes(rows, 1) + 256, 255, np.uint8)
    problem = KSparseProblem(
        rows=rows,
        x=matrix(x, batch_last),
        weights=support.strided(weights, 4),
        z=matrix(z, batch_last) if adds else None,
        bias=support.strided(bias, 1),
        y=matrix(y, batch_last),
        scalars=scalars.scalars,
        workspace=(workspace.ctypes.data + 255) // 256 * 256,
        threads=1,
    )
    emulator.run(plan.launches(problem))
    source = wide(z) if adds else np.zeros_like(wide(z))
    expected = description.reference(wide(x), wide(weights), source, wide(bias), scalars)
    agree(y, expected, output, unit or instruction.element_accumulator)
    return support.templates(plan)[-1]


@pytest.mark.covering(
    batch_last=[False, True],
    alignment=[1, 4],
    pattern=[
        (2, 3, 5, 3),
        (2, 2, 2, 1),
        (1, 2, 2, 2),
        (3, 5, 7, 5),
        (2, 3, 2, 64),
        (1, 48, 20, 4),
    ],
)
def test_ksparse(
    folder: Path, pattern: tuple[int, int, int, int], alignment: int, batch_last: bool
) -> None:
    for rows in (1, 36, 37):
        run_ksparse(folder, pattern, rows, batch_last=batch_last, alignment=alignment)


def test_ksparse_of_a_large_batch(folder: Path) -> None:
    run_ksparse(folder, (2, 12, 20, 1), 1000, batch_last=False, alignment=4)


@pytest.mark.parametrize("element", [float64, float16, bfloat16, int32, int64, int8])
def test_ksparse_element_types(folder: Path, element: DataType) -> None:
    run_ksparse(
        folder, (2, 12, 20, 4), 50, element, batch_last=False, alignment=16 // element.bytes
    )
    run_ksparse(folder, (2, 12, 20, 1), 50, element, batch_last=True, alignment=1)
