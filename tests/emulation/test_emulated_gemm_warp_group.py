"""Matrix products by warp groups, run on the CPU from the same headers, against the reference."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kronop.descriptions.activation import gelu
from kronop.descriptions.datatype import (
    FLOAT8,
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
    result_type,
)
from kronop.descriptions.epilogue import (
    Epilogue,
    LinearCombination,
    LinearCombinationClamp,
    LinearCombinationGeneric,
)
from kronop.descriptions.math_instruction import MathInstruction, OpClass
from kronop.descriptions.tensor import TensorDescription
from kronop.emit.design import Pipeline
from kronop.emit.plan import Plan
from kronop.families.gemm.cuda import choice, warp_group_choice, warp_group_split
from kronop.families.gemm.cuda.warp_group_design import GemmWarpGroup
from kronop.families.gemm.cuda.warp_group_many import GemmMany
from kronop.families.gemm.description import GemmDescription, GemmGroupedProblem, GemmProblem
from kronop.families.gemm.size import GemmSize
from kronop.target import Target
from tests.emulation.emulator import Emulator
from tests.emulation.test_emulated_kernels import (
    agree,
    matrix,
    poisoned,
    stored,
    values,
    wide,
)

# Few multiprocessors: blocks take several tiles.
_TARGET = replace(Target.parse("sm_90a"), cores=4)


def math_of(element: DataType, split: bool) -> MathInstruction:
    if element is float32 and not split:
        return MathInstruction([16, 8, 8], float32, float32, float32, OpClass.TensorOp)
    return MathInstruction.tensor_op(element)


def plan_of(what: GemmDescription, target: Target, design: GemmWarpGroup) -> Plan:
    """The plan of a design."""
    found = warp_group_choice.with_split(design)
    pipeline = found if isinstance(found, Pipeline) else None
    return Plan(target=target, steps=choice.steps(what, target, found), pipeline=pipeline)


def run(
    folder: Path,
    element: DataType,
    sizes: tuple[int, int, int],
    *,
    tile: tuple[int, int, bool],
    cluster: int = 1,
    layouts: tuple[Layout, Layout, Layout] = (RowMajor, ColumnMajor, RowMajor),
    batch: tuple[int, ...] = (),
    shared_b: bool = False,
    source: bool = False,
    bias: bool = False,
    epilogue: Epilogue | None = None,
    with_nan: bool = False,
    split: bool = False,
    alignment: int | None = None,
    stages: int | None = None,
    backward: bool = False,
) -> None:
    """Runs a tile (rows, columns, whether teams take tiles in turn), and compares.

    Args:
        stages: as a user asks for; None for as many as fit.
        backward: rows of the result, and problems of A, step backward in memory.
    """
    random = np.random.default_rng(11)
    instruction = math_of(element, split)
    sums = instruction.element_accumulator
    epilogue = epilogue or LinearCombination(result_type(element), 1, sums, sums)
    output = epilogue.element_output
    full = alignment or 16 // element.bytes
    what = GemmDescription(
        math=instruction,
        tile=None,
        A=TensorDescription(element, layouts[0], full),
        B=TensorDescription(element, layouts[1], full),
        Y=TensorDescription(output, layouts[2]),
        epilogue=epilogue,
    )
    design = next(
        item
        for item in warp_group_choice.products(what, _TARGET)
        if (item.m, item.n, item.alternate) == tile and item.cluster == cluster
    )
    design = replace(design, stages=stages or design.stages)
    assert design.status(_TARGET)
    plan = plan_of(what, _TARGET, design)
    emulator = Emulator(plan, folder)
    if emulator.gathered:
        return
    m, n, k = sizes
    a = padded(values(random, (*batch, m, k), element), layouts[0], full)
    b_batch = () if shared_b else batch
    b = padded(values(random, (*b_batch, k, n), element), layouts[1], full)
    if with_nan:
        a[..., m // 2, k // 3] = np.nan
    y, beside = room_for((*batch, m, n), output, layouts[2])
    if backward:
        a, y = np.flip(a, 0), np.flip(y, -2)
    z = stored(values(random, (*batch, m, n), output), layouts[2]) if source else None
    added = values(random, (n,), output) if bias else None
    scalars = epilogue.epilogue_type(2, 3 if source else 0)
    size = GemmSize(m, n, k, math.prod(batch))
    workspace = np.full(plan.workspace_bytes(size, 1) + 256, 255, np.uint8)
    problem = GemmProblem(
        workspace=workspace.ctypes.data + -workspace.ctypes.data % 256,
        m=m,
        n=n,
        k=k,
        batch=batch,
        a=matrix(a, False, batch),
        b=matrix(b, False, batch),
        y=matrix(y, False, batch),
        z=None if z is None else matrix(z, False, batch),
        bias=None if added is None else matrix(np.broadcast_to(added, (1, n)), False),
        scalars=scalars.scalars,
        threads=1,
    )
    emulator.run(plan.launches(problem))
    expected = what.reference(
        wide(a),
        wide(b),
        None if z is None else wide(z),
        scalars,
        None if added is None else wide(added),
    )
    agree(y, expected, output, float16 if element is float32 and not split else sums)
    assert (wide(beside) == _BESIDE).all()


# What is in memory behind each row of results.
_BESIDE = 55


def room_for(shape: tuple[int, ...], element: DataType, layout: Layout) -> tuple[Any, Any]:
    """A poisoned result whose lines begin at multiples of 16 bytes, and what lies behind these."""
    y = padded(poisoned(shape, element), layout, 16 // element.bytes)
    lines = y if layout is RowMajor else y.swapaxes(-1, -2)
    beside = np.lib.stride_tricks.as_strided(
        lines[..., -1:], (*lines.shape[:-1], -lines.shape[-1] % (16 // element.bytes) + 1)
    )[..., 1:]
    beside[...] = _BESIDE
    return y, beside


def padded(array: Any, layout: Layout, multiple: int) -> Any:
    """The same values, with lines that begin at multiples of so many elements."""
    moved = array if layout is RowMajor else array.swapaxes(-1, -2)
    extent = -(-moved.shape[-1] // multiple) * multiple
    room = stored(np.zeros((*moved.shape[:-1], extent), moved.dtype), RowMajor)
    result = room[..., : moved.shape[-1]]
    result[...] = moved
    return result if layout is RowMajor else result.swapaxes(-1, -2)


_LAYOUTS = [(a, b) for a in (RowMajor, ColumnMajor) for b in (RowMajor, ColumnMajor)]


@pytest.mark.parametrize("cluster", [1, 2])
@pytest.mark.parametrize("tile", [(128, 256, False), (128, 128, True)])
def test_tiles(folder: Path, tile: tuple[int, int, bool], cluster: int) -> None:
    for sizes in ((300, 520, 200), (70, 130, 72), (1, 8, 8)):
        run(folder, float16, sizes, tile=tile, cluster=cluster, source=sizes[0] == 300, bias=True)


_OTHERS = [(64, 256, True), (64, 128, True), (128, 128, False)]


@pytest.mark.parametrize("tile", _OTHERS)
def test_other_tiles(folder: Path, tile: tuple[int, int, bool]) -> None:
    run(folder, bfloat16, (200, 300, 136), tile=tile, source=True)


@pytest.mark.parametrize("tile", _OTHERS)
def test_other_tiles_in_clusters(folder: Path, tile: tuple[int, int, bool]) -> None:
    """Of operands that are contiguous across K, with the fewest stages."""
    layouts = (ColumnMajor, RowMajor, RowMajor)
    run(folder, bfloat16, (200, 300, 136), tile=tile, cluster=2, layouts=layouts, stages=2)


@pytest.mark.parametrize(
    ("element", "epilogue"),
    [
        (int8, LinearCombinationClamp(int8, 1, int32, int32)),
        (float16, LinearCombination(float64, 1, float32, float32)),
    ],
)
def test_results_of_other_sizes(folder: Path, element: DataType, epilogue: Epilogue) -> None:
    """Of 1 byte, and of 8 bytes, which no map writes."""
    run(folder, element, (200, 144, 96), tile=(128, 128, True), epilogue=epilogue, source=True)


def test_memory_in_other_directions(folder: Path) -> None:
    run(folder, float16, (70, 136, 72), tile=(128, 128, True), batch=(3,), backward=True)


@pytest.mark.parametrize("layouts", _LAYOUTS)
def test_layouts(folder: Path, layouts: tuple[Layout, Layout]) -> None:
    for result in (RowMajor, ColumnMajor):
        run(
            folder,
            float16,
            (136, 264, 72),
            tile=(128, 128, True),
            cluster=2,
            layouts=(*layouts, result),
            bias=True,
        )


@pytest.mark.parametrize("element", FLOAT8)
def test_8_bit_floats(folder: Path, element: DataType) -> None:
    for layout in (RowMajor, ColumnMajor):
        layouts = (RowMajor, ColumnMajor, layout)
        run(folder, element, (200, 300, 272), tile=(128, 128, False), layouts=layouts, bias=True)


@pytest.mark.parametrize("element", [float32, int8])
def test_elements_along_k(folder: Path, element: DataType) -> None:
    for tile in ((128, 256, False), (128, 128, True)):
        run(folder, element, (200, 300, 100), tile=tile, cluster=2, source=True)


def test_batches_nothing_to_sum_and_nan(folder: Path) -> None:
    for batch, shared in (((3,), False), ((2, 3), True)):
        run(folder, float16, (70, 136, 72), tile=(128, 128, True), batch=batch, shared_b=shared)
    for k in (0, 8):
        run(folder, float16, (70, 136, k), tile=(128, 128, True), source=True)
    for element in (float16, float32):
        run(folder, element, (70, 136, 40), tile=(128, 128, True), with_nan=True)


def test_an_activation(folder: Path) -> None:
    epilogue = LinearCombinationGeneric(gelu(float32), float16, 1, float32, float32)
    run(folder, float16, (70, 136, 72), tile=(128, 128, True), epilogue=epilogue, bias=True)


@pytest.mark.parametrize("layouts", _LAYOUTS)
def test_three_products(folder: Path, layouts: tuple[Layout, Layout]) -> None:
    for sizes, batch in (((200, 136, 100), ()), ((70, 130, 33), (2,)), ((5, 3, 1), ())):
        for result in (RowMajor, ColumnMajor):
            run(
                folder,
                float32,
                sizes,
                tile=(128, 128, False),
                cluster=2,
                layouts=(*layouts, result),
                batch=batch,
                shared_b=bool(batch),
                source=True,
                bias=True,
                split=True,
                alignment=1,
                with_nan=sizes[2] == 100,
            )


def test_split_in_turns(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches whose planes would take much memory."""
    monkeypatch.setattr(warp_group_split, "_MOST_BYTES", 2 * 4 * 2 * (70 + 136) * 40)
    assert warp_group_split.at_once(GemmSize(70, 136, 40)) == 2
    run(
        folder,
        float32,
        (70, 136, 40),
        tile=(128, 128, False),
        cluster=2,
        batch=(5,),
        split=True,
        alignment=1,
    )


@pytest.mark.parametrize(
    ("tile", "layout"), [((128, 256, False), RowMajor), ((128, 128, True), ColumnMajor)]
)
def test_groups(folder: Path, tile: tuple[int, int, bool], layout: Layout) -> None:
    """Results that are contiguous along M have a bias, too."""
    what = GemmDescription(
        math=math_of(float16, False),
        tile=None,
        A=TensorDescription(float16, RowMajor, 8),
        B=TensorDescription(float16, RowMajor, 8),
        Y=TensorDescription(float16, layout),
        epilogue=LinearCombination(float16, 1, float32, float32),
    )
    design = next(
        GemmMany(wrapped=item)
        for item in warp_group_choice.products(what, _TARGET)
        if (item.m, item.n, item.alternate) == tile and item.cluster == 2
    )
    (step,) = choice.steps(what, _TARGET, design.wrapped)
    entry = step.entry.replace("warp_group", "many")
    plan = Plan(target=_TARGET, steps=(replace(step, design=design, entry=entry),))
    emulator = Emulator(plan, folder)
    if emulator.gathered:
        return
    random, problems, checks = np.random.default_rng(3), [], []
    # One with nothing to sum, and more products than one launch holds.
    for m, n, k in ((300, 136, 200), (8, 8, 8), (70, 264, 0), (1, 3, 72)) * 15:
        a, b = (padded(values(random, shape, float16), RowMajor, 8) for shape in ((m, k), (k, n)))
        y = poisoned((m, n), float16, layout)
        bias = values(random, (n,), float16)
        problems.append(
            GemmProblem(
                m=m,
                n=n,
                k=k,
                batch=(),
                a=matrix(a, False),
                b=matrix(b, False),
                y=matrix(y, False),
                z=None,
                bias=matrix(bias[None], False) if layout is ColumnMajor else None,
                scalars=(2.0, 0.0),
                threads=1,
            )
        )
        checks.append((a, b, bias, y))
    group = GemmGroupedProblem(problems=tuple(problems))
    launches = plan.launches(group)
    assert len(launches) == 2
    emulator.run(launches)
    for a, b, bias, y in checks:
        added = wide(bias) if layout is ColumnMajor else 0
        agree(y, 2 * (wide(a) @ wide(b)) + added, float16, float32)
