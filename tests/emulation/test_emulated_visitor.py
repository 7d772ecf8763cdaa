"""Visitor trees of matrix products by blocks, warps and warp groups, run on the CPU from the same
headers."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.core.served import Served
from kronop.descriptions.datatype import (
    ColumnMajor,
    DataType,
    RowMajor,
    float16,
    float32,
    float64,
    int8,
    int32,
)
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.strided import Strided
from kronop.descriptions.tensor import TensorDescription
from kronop.descriptions.tile import TileDescription
from kronop.descriptions.visitor import VisitorEpilogue, VisitorTree
from kronop.emit.plan import Plan
from kronop.emit.plan_text import from_text, to_text
from kronop.families.gemm.cuda import choice, group_choice
from kronop.families.gemm.description import GemmDescription, GemmProblem
from kronop.families.gemm.size import GemmSize
from kronop.target import Target
from tests import support
from tests.emulation.emulator import Emulator
from tests.emulation.test_emulated_gemm_group import plan_of
from tests.emulation.test_emulated_kernels import agree, matrix, poisoned, stored, values, wide
from tests.emulation.tiles import Gathered, build
from tests.trees import several
from tests.x86 import test_gemm_visitor

_TARGET = Target.parse("sm_80")
# Few multiprocessors: blocks take several tiles.
_GROUPS = dataclasses.replace(Target.parse("sm_90a"), cores=4)


plain = kronop.epilogue_visitor(
    lambda accum, scale: (kronop.relu(accum) * scale, accum),
    kinds={"scale": "row"},
    results=("D", "sums"),
)


def run(
    folder: Path,
    tree: VisitorTree,
    element: DataType,
    sizes: tuple[int, int, int],
    tile: TileDescription,
    *,
    output: DataType | None = None,
    layout: Any = RowMajor,
    batch: tuple[int, ...] = (),
    slices: int = 1,
    with_nan: bool = False,
    **more: Any,
) -> None:
    output = output or element
    sums = tile.math_instruction.element_accumulator
    epilogue = tree(output, 1, sums, float64 if sums is float64 else float32, **more)
    operand = TensorDescription(element)
    what = GemmDescription(
        math=tile.math_instruction,
        tile=tile,
        A=operand,
        B=operand,
        Y=TensorDescription(output, layout),
        epilogue=epilogue,
        visitor=True,
    )
    (plan,) = choice.plans(what, _TARGET, 1, None)
    launch(folder, plan, what, sizes, batch, slices, with_nan)


def launch(
    folder: Path,
    plan: Plan,
    what: GemmDescription,
    sizes: tuple[int, int, int],
    batch: tuple[int, ...],
    slices: int = 1,
    with_nan: bool = False,
) -> None:
    """Runs a plan, and compares all results."""
    epilogue: Any = what.epilogue
    tree, element, layout = epilogue.tree, what.A.element, what.Y.layout
    random, sums = np.random.default_rng(11), what.math.element_accumulator
    emulator = Emulator(plan, folder)
    if emulator.gathered:
        return
    m, n, k = sizes
    a = stored(values(random, (*batch, m, k), element), what.A.layout)
    b = stored(values(random, (*batch, k, n), element), what.B.layout)
    if with_nan:
        a[..., m // 2, k // 3] = np.nan
    given = operands_of(epilogue, random, (*batch, m, n))
    results = results_of(epilogue, (*batch, m, n), layout)
    size = GemmSize(m, n, k, math.prod(batch), slices)
    workspace = np.full(plan.workspace_bytes(size, 1) + 256, 255, np.uint8)
    tensors = [strided(item.kind, given[item.name], batch) for item in tree.tensors]
    written = [strided(item.kind, results[item.name], batch) for item in tree.results]
    problem = GemmProblem(
        m=m,
        n=n,
        k=k,
        batch=batch,
        a=matrix(a, False, batch),
        b=matrix(b, False, batch),
        y=written[0],
        z=None,
        bias=None,
        scalars=tuple(given[name] for name in tree.scalars),
        threads=1,
        visited=(*tensors, *written[1:]),
        slices=slices,
        workspace=workspace.ctypes.data + -workspace.ctypes.data % 256,
    )
    emulator.run(plan.launches(problem))
    inputs = {name: item if np.ndim(item) == 0 else wide(item) for name, item in given.items()}
    expected = epilogue.evaluate(wide(a) @ wide(b), inputs)
    for item in tree.results:
        compute = sums if item.reduction != "sum" else float32
        agree(results[item.name], expected[item.name], epilogue.element_of(item), compute)


def operands_of(
    epilogue: VisitorEpilogue, random: np.random.Generator, shape: tuple[int, ...]
) -> dict[str, Any]:
    own = {"tensor": shape, "row": (*shape[:-2], shape[-1]), "column": shape[:-1]}
    found: dict[str, Any] = {}
    for place, item in enumerate(epilogue.tree.operands):
        found[item.name] = (
            float(place + 1)
            if item.kind == "scalar"
            else stored(values(random, own[item.kind], epilogue.element_of(item)), RowMajor)
        )
    return found


def results_of(epilogue: VisitorEpilogue, shape: tuple[int, ...], layout: Any) -> dict[str, Any]:
    own = {"tensor": shape, "row": (*shape[:-2], shape[-1]), "column": shape[:-1]}
    return {
        item.name: poisoned(
            own[item.kind],
            epilogue.element_of(item),
            layout if item.kind == "tensor" else RowMajor,
        )
        for item in epilogue.tree.results
    }


def strided(kind: str, array: Any, batch: tuple[int, ...]) -> Strided:
    """A tensor, a row or a column as kernels take it."""
    if kind == "tensor":
        return matrix(array, False, batch)
    steps = tuple(stride // array.itemsize for stride in array.strides)
    row, column = (0, steps[-1]) if kind == "row" else (steps[-1], 0)
    return Strided(pointer=array.ctypes.data, strides=(row, column), batch=steps[: len(batch)])


def simt(element: DataType, shape: tuple[int, int, int], warps: tuple[int, int]) -> TileDescription:
    return TileDescription(shape, 2, (*warps, 1), MathInstruction.simt(element))


def cores(element: DataType, shape: tuple[int, int, int], warps: tuple[int, int]) -> Any:
    return TileDescription(shape, 3, (*warps, 1), MathInstruction.tensor_op(element))


CASES: dict[str, dict[str, Any]] = {
    "ordinary cores": {"tile": simt(float32, (32, 64, 8), (2, 2)), "sizes": (45, 70, 9)},
    "whole tiles": {"tile": simt(float32, (32, 64, 8), (2, 2)), "sizes": (64, 128, 16)},
    "along columns": {
        "tile": simt(float32, (32, 64, 8), (2, 2)),
        "sizes": (45, 70, 9),
        "layout": ColumnMajor,
    },
    "a batch": {
        "tile": simt(float64, (32, 64, 8), (2, 1)),
        "element": float64,
        "sizes": (33, 20, 5),
        "batch": (2, 3),
    },
    "float16": {
        "tile": cores(float16, (32, 64, 32), (1, 2)),
        "element": float16,
        "sizes": (50, 90, 40),
    },
    "two warps down": {
        "tile": cores(float16, (64, 32, 32), (2, 1)),
        "element": float16,
        "sizes": (64, 64, 32),
    },
    "bytes": {
        "tree": plain,
        "tile": cores(int8, (32, 64, 32), (1, 2)),
        "element": int8,
        "sizes": (40, 70, 70),
        "elements": {"scale": float32, "sums": int32},
    },
    "bytes across": {
        "tile": cores(int8, (64, 64, 64), (2, 2)),
        "element": int8,
        "output": float32,
        "sizes": (70, 70, 70),
    },
    "slices": {
        "tree": plain,
        "tile": simt(float32, (32, 64, 8), (2, 2)),
        "sizes": (40, 70, 50),
        "slices": 3,
    },
    "parts of many rows": {
        "tile": simt(float32, (32, 64, 8), (2, 2)),
        "sizes": (1000, 6, 3),
    },
    "no slices of reductions": {
        "tile": simt(float32, (32, 64, 8), (2, 2)),
        "sizes": (40, 70, 50),
        "slices": 3,
    },
}


@pytest.mark.parametrize("name", CASES)
def test_trees(folder: Path, name: str) -> None:
    case = {"tree": several, "element": float32, **CASES[name]}
    run(folder, **case)


@pytest.mark.parametrize("name", ["ordinary cores", "two warps down", "slices"])
def test_nan_comes_through(folder: Path, name: str) -> None:
    case = {"tree": several, "element": float32, **CASES[name]}
    run(folder, **case, with_nan=True)


def matrices(
    of_b: Any, of_result: Any, tree: VisitorTree = several, element: DataType = float16
) -> GemmDescription:
    """A tree of products whose operands tensor maps can read."""
    return GemmDescription(
        math=MathInstruction.tensor_op(element),
        tile=None,
        A=TensorDescription(element, RowMajor, 16 // element.bytes),
        B=TensorDescription(element, of_b, 16 // element.bytes),
        Y=TensorDescription(element, of_result, 1),
        epilogue=tree(element, 1, float32, float32),
        visitor=True,
    )


@pytest.mark.parametrize(
    ("tree", "element", "tile", "sizes", "layout", "batch"),
    [
        (several, float16, (64, 128, True, 1), (70, 136, 40), RowMajor, ()),
        (several, float16, (128, 128, False, 2), (300, 136, 40), RowMajor, ()),
        (several, float16, (128, 256, False, 1), (140, 264, 72), ColumnMajor, ()),
        (plain, float16, (64, 128, True, 2), (70, 130, 40), ColumnMajor, (2, 3)),
        (several, float32, (128, 128, False, 1), (140, 132, 36), ColumnMajor, (2,)),
    ],
)
def test_warp_groups(
    folder: Path,
    tree: VisitorTree,
    element: DataType,
    tile: Any,
    sizes: tuple[int, int, int],
    layout: Any,
    batch: tuple[int, ...],
) -> None:
    what = matrices(ColumnMajor, layout, tree, element)
    design = next(
        item
        for item in group_choice.products(what, _GROUPS)
        if (item.m, item.n, item.alternate, item.cluster) == tile
    )
    plan = plan_of(what, _GROUPS, design)
    for with_nan in (False, True):
        launch(folder, plan, what, sizes, batch, with_nan=with_nan)


@pytest.mark.parametrize("k", [64, 256, 8192])
def test_aligned_operands_are_of_warp_groups(k: int) -> None:
    """They multiply faster, and their teams take trees while others multiply."""
    target, size = Target.parse("sm_90a"), GemmSize(4096, 4096, k)
    (plan,) = choice.plans(matrices(RowMajor, RowMajor), target, 1, size)
    assert [type(step.design).__name__ for step in plan.steps] == ["GemmGroup"]


def test_sums_that_are_cut_are_of_warps() -> None:
    (plan,) = choice.plans(
        matrices(RowMajor, RowMajor), Target.parse("sm_90a"), 1, GemmSize(4096, 4096, 8192, 1, 4)
    )
    assert type(plan.steps[0].design).__name__ == "GemmMma"


def test_plans_hold_trees() -> None:
    """A plan of a product on a GPU can be written with its tree."""
    target = Target.parse("sm_90a")
    for what in (matrices(RowMajor, RowMajor), matrices(RowMajor, ColumnMajor)):
        for plan in choice.plans(what, target, 100, GemmSize(4096, 4096, 4096)):
            text = to_text(plan, what.epilogue)
            assert from_text(text, target, what.epilogue) == plan


def test_trees_on_amx_tiles(folder: Path) -> None:
    element = kronop.bfloat16
    operation = test_gemm_visitor.operation_of(
        test_gemm_visitor.several, element, "x86-amx", amx=True
    )
    assert type(operation.plan.steps[0].design).__name__ == "TileGemm"
    try:
        kernel = build(operation.plan, folder)
    except Gathered:
        return
    emulated = Served(operation.plan, (kernel,))
    for m, n, k in ((70, 100, 200), (5, 40, 1), (130, 33, 64)):
        random = np.random.default_rng(m)
        a, b = (support.random_array(random, item, element) for item in ((m, k), (k, n)))
        given = test_gemm_visitor.given(operation, (m, n), random)
        test_gemm_visitor.check(
            operation, a, b, given, lambda it: it.run([kernel], planned=emulated)
        )
