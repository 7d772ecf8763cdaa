"""Matrix products on AMX tiles: emulated ones, and the machine's own where it has them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kronop
from kronop import compiler
from kronop.descriptions.datatype import bfloat16, float32, int8, int32
from kronop.emit.plan import Plan
from kronop.emit.render import render
from kronop.families.gemm.operation import GemmOperationUniversal
from kronop.families.gemm.x86 import cutting
from kronop.families.gemm.x86.tiles import TileGemm
from tests.emulation.tiles import NATIVE, Gathered, build
from tests.x86.test_gemm import Check


def _native(plan: Plan) -> Any:
    (binary,) = compiler.compile_sources(render(plan), plan.target)
    return compiler.load(binary, plan.target)


@pytest.fixture(params=["emulated", pytest.param("native", marks=NATIVE)])
def load(folder: Path, request: pytest.FixtureRequest) -> Callable[[Plan], Any]:
    return (lambda plan: build(plan, folder)) if request.param == "emulated" else _native


def _linear(output: Any, sums: Any) -> kronop.LinearCombination:
    return kronop.LinearCombination(output, 1, sums, sums)


_EPILOGUES = {
    "bfloat16": (bfloat16, _linear(bfloat16, float32)),
    "float32": (bfloat16, _linear(float32, float32)),
    "int8": (int8, _linear(int32, int32)),
    "clamp": (int8, kronop.LinearCombinationClamp(int8, 1, int32, int32)),
}


def _check(load: Callable[[Plan], Any], name: str) -> Check | None:
    """What checks products of small blocks; None where kernels are gathered."""
    element, epilogue = _EPILOGUES[name]
    operand = kronop.TensorDescription(element)
    tile = kronop.TileDescription((64, 96, 64), 1, (1, 1, 1), kronop.MathInstruction.amx(element))
    operation = GemmOperationUniversal(
        "x86-amx",
        tile,
        operand,
        operand,
        kronop.TensorDescription(epilogue.element_output),
        epilogue,
    )
    assert isinstance(operation.plan.steps[0].design, TileGemm)
    try:
        kernel = load(operation.plan)
    except Gathered:
        return None
    return Check(operation, lambda it: it.run([kernel], planned=operation.plan))


_LAYOUTS = ("plain", "transposed", "backwards", "apart")


@pytest.mark.parametrize("name", list(_EPILOGUES))
def test_sizes_and_layouts(load: Any, name: str) -> None:
    check = _check(load, name)
    if check is None:
        return
    # Whole tiles and parts of them, along each extent; several blocks, and slabs of 64.
    sizes = ((32, 32, 64), (1, 1, 1), (16, 33, 130), (33, 16, 31), (70, 100, 200), (5, 40, 0))
    for at, size in enumerate(sizes):
        for more in range(4):
            first, second, third = (_LAYOUTS[(at + more * step) % 4] for step in (1, 2, 3))
            check(size, (first, second, third), (2, -1) if at % 2 else (), bias=more == 2)
    check((40, 34, 70), batch=((2, 1), (3,)))
    check((40, 34, 70), scalars=(1, 3), in_place=True)


@pytest.mark.parametrize("name", ["bfloat16", "int8"])
def test_slices(load: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting.planning, "OPERATIONS_PER_THREAD", 1)
    monkeypatch.setattr(cutting, "_LEAST_SLICE", 64)
    cutting.cut.cache_clear()
    check = _check(load, name)
    if check is not None:
        check((20, 33, 300), ("plain", "transposed", "plain"), bias=True, threads=8)
    cutting.cut.cache_clear()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_special_values_stay_where_they_belong(load: Any, value: float) -> None:
    check = _check(load, "float32")
    if check is None:
        return
    for m, n, k in ((13, 70, 33), (60, 7, 64)):
        a, b = np.ones((m, k)), np.ones((k, n))
        a[m - 1, k - 1] = b[k - 2, n - 1] = value
        expected = np.full((m, n), k, np.float32)
        expected[m - 1], expected[:, n - 1] = value, value
        np.testing.assert_array_equal(check.product(a, b), expected)
