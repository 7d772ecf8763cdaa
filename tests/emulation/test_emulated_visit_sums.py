"""The pass of a visitor tree over sums, run on the CPU from the headers of GPUs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.descriptions.datatype import (
    ColumnMajor,
    DataType,
    Layout,
    RowMajor,
    float16,
    float32,
    float64,
    int8,
    int32,
)
from kronop.descriptions.summed import VisitProblem, parts_bytes, sums_alignment
from kronop.descriptions.visitor import VisitorTree
from kronop.emit.cuda.visit_sums import VisitSums
from kronop.emit.plan import Plan, Step
from kronop.target import Target
from tests.emulation.emulator import Emulator
from tests.emulation.test_emulated_kernels import agree, matrix, wide
from tests.emulation.test_emulated_visitor import operands_of, plain, results_of, strided
from tests.trees import several

_TARGET = Target.parse("sm_80")


Shape = tuple[int, ...]


def run(
    folder: Path,
    tree: VisitorTree,
    sums: DataType,
    output: DataType,
    layout: Layout,
    shapes: list[Shape],
    with_nan: bool = False,
    **more: Any,
) -> None:
    epilogue = tree(output, 1, sums, float64 if sums is float64 else float32, **more)
    made = VisitSums(epilogue=epilogue, sums=sums, along_rows=layout is RowMajor)
    step = Step(entry="tree_over_sums", design=made, note="")
    plan = Plan(target=_TARGET, steps=(step,))
    emulator = Emulator(plan, folder)
    if emulator.gathered:
        return
    for shape in shapes:
        random, batch = np.random.default_rng(11), shape[:-2]
        values = padded(random, shape, sums, layout)
        if with_nan:
            values[..., shape[-2] // 2, shape[-1] // 3] = np.nan
        given = operands_of(epilogue, random, shape)
        results = results_of(epilogue, shape, layout)
        parts = parts_bytes(epilogue, *shape[-2:], math.prod(batch))
        workspace = np.full(parts + 512, 255, np.uint8)
        start = -workspace.ctypes.data % 256
        problem = VisitProblem(
            m=shape[-2],
            n=shape[-1],
            batch=batch,
            sums=matrix(values, False, batch),
            operands=tuple(strided(it.kind, given[it.name], batch) for it in tree.tensors),
            results=tuple(strided(it.kind, results[it.name], batch) for it in tree.results),
            scalars=tuple(given[name] for name in tree.scalars),
            workspace=workspace.ctypes.data + start,
            threads=1,
        )
        emulator.run(plan.launches(problem))
        assert (workspace[start + parts :] == 255).all()
        inputs = {name: item if np.ndim(item) == 0 else wide(item) for name, item in given.items()}
        expected = epilogue.evaluate(wide(values), inputs)
        for item in tree.results:
            compute = sums if item.reduction != "sum" else float32
            agree(results[item.name], expected[item.name], epilogue.element_of(item), compute)


def padded(random: np.random.Generator, shape: Shape, sums: DataType, layout: Layout) -> Any:
    """Sums whose lines are padded to whole vectors, with NaN or a large number behind them."""
    *lead, m, n = shape
    line, count = (n, m) if layout is RowMajor else (m, n)
    pitch = -(-line // sums_alignment(sums)) * sums_alignment(sums)
    kind = np.dtype(sums.name)
    memory = np.full(math.prod(lead) * count * pitch + 64, np.nan if kind.kind == "f" else 2**30)
    memory = memory.astype(kind)
    first = -memory.ctypes.data % 256 // kind.itemsize
    whole = memory[first : first + math.prod(lead) * count * pitch].reshape(*lead, count, pitch)
    found = whole[..., :line] if layout is RowMajor else whole[..., :line].swapaxes(-1, -2)
    found[...] = random.integers(-9, 10, shape) if kind.kind == "i" else random.normal(size=shape)
    return found


# Above and below the tiles of 32 x 128 and of 128 x 32.
_SHAPES: list[Shape] = [
    (1, 1),
    (45, 70),
    (64, 256),
    (130, 3),
    (2, 200, 5),
    (2, 3, 3, 150),
    (1500, 3),
]
CASES: dict[str, tuple[VisitorTree, DataType, DataType, Layout, dict[str, Any]]] = {
    "along rows": (several, float32, float32, RowMajor, {}),
    "along columns": (several, float32, float16, ColumnMajor, {}),
    "doubles": (several, float64, float64, RowMajor, {}),
    "doubles along columns": (plain, float64, float64, ColumnMajor, {}),
    "integers": (plain, int32, int8, RowMajor, {"elements": {"scale": float32, "sums": int32}}),
    "halves": (several, float32, kronop.float16, RowMajor, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_trees_over_sums(folder: Path, name: str) -> None:
    tree, sums, output, layout, more = CASES[name]
    run(folder, tree, sums, output, layout, _SHAPES, **more)
    if sums.kind == "float":
        run(folder, tree, sums, output, layout, [(45, 70), (1500, 3)], with_nan=True, **more)
