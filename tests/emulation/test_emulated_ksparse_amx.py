"""Kronecker-sparse plans on AMX tiles: emulated ones, and the machine's own where it has them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.descriptions.datatype import bfloat16, float32, int8, int32
from kronop.descriptions.strided import NOTHING
from kronop.emit.plan import Plan
from kronop.emit.x86 import planning
from kronop.families.ksparse.declaration import PRODUCT
from kronop.families.ksparse.description import KSparseProblem
from kronop.families.ksparse.x86 import ksparse_amx
from kronop.families.ksparse.x86.ksparse_tiles import (
    KSparseTiles,
    TilesAlongBatch,
    TilesAlongOutputs,
)
from tests import support
from tests.emulation.tiles import NATIVE, Gathered, before_a_wall, build
from tests.x86.test_x86_kernels import launch, matrix, run_ksparse
from tests.x86.test_x86_kernels import load as load_native


@pytest.fixture(params=["emulated", pytest.param("native", marks=NATIVE)])
def load_kernel(folder: Path, request: pytest.FixtureRequest) -> Callable[[Plan], Any]:
    def load(plan: Plan) -> Any:
        assert isinstance(plan.steps[0].design, KSparseTiles)
        return build(plan, folder) if request.param == "emulated" else load_native(plan)

    return load


@pytest.fixture
def run(load_kernel: Callable[[Plan], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """`run_ksparse` on tiles, whatever vectors would take; returns the plan's step."""
    monkeypatch.setattr(ksparse_amx, "reason_against", lambda *_: "")

    def call(*args: Any, element: Any = bfloat16, epilogue: Any = None, **options: Any) -> Any:
        epilogue = epilogue or (linear(int32, int32) if element is int8 else None)
        options |= {"element": element, "epilogue": epilogue}
        try:
            step, _ = run_ksparse(*args, arch="x86-amx", load=load_kernel, **options)
        except Gathered as gathered:
            return gathered.plan.steps[0]
        return step

    return call


def linear(output: Any, accumulator: Any) -> kronop.LinearCombination:
    return kronop.LinearCombination(output, 1, accumulator, accumulator)


# Along the outputs: whole steps and others, one tile and several, of one number.
_ROWS = {
    "whole": (3, 64, 64, 1),
    "ragged": (2, 33, 100, 1),
    "overlap": (1, 20, 37, 1),
    "narrow": (4, 3, 5, 1),
    "deep": (1, 16, 200, 1),
    "steps": (1, 30, 144, 1),
    "one": (2, 1, 1, 1),
}
# Along the batch: squares of groups of slices, of stretches of them, single numbers.
_LANES = {
    "pairs": (2, 48, 40, 2),
    "eight": (1, 33, 37, 8),
    "sixteen": (2, 5, 33, 16),
    "stretches": (1, 17, 9, 48),
    "overlap": (1, 7, 34, 20),
    "odd": (2, 9, 13, 3),
    "few": (1, 40, 3, 4),
    "column": (2, 1, 70, 5),
    "ones": (3, 1, 1, 32),
}


@pytest.mark.covering(
    last=[False, True], element=[bfloat16, int8], pattern=[*_ROWS.values(), *_LANES.values()]
)
def test_patterns_and_rows(run: Any, pattern: Any, element: Any, last: bool) -> None:
    for rows in (1, 15, 17, 33, 70):
        step = run(pattern, rows, element=element, last=last, place=before_a_wall)
    run(pattern, 35, element=element, last=last, bias=True, scalars=(2, 3), in_place=True)
    along_outputs = pattern[3] == 1 and not last
    assert isinstance(step.design, TilesAlongOutputs if along_outputs else TilesAlongBatch)


@pytest.mark.covering(
    last=[False, True],
    element=[bfloat16, int8],
    pattern=[(2, 20, 40, 1), (2, 20, 37, 4), (1, 5, 9, 17)],
)
def test_any_strides(run: Any, pattern: Any, element: Any, last: bool) -> None:
    for rows in (7, 40):
        run(pattern, rows, element=element, last=last, views=("negative",) * 3, scalars=(2, 3))
        for places in ((0, 1, 2), (0,), (1,), (2,)):
            views = ["transposed" if place in places else None for place in range(3)]
            run(pattern, rows, element=element, last=last, views=views, bias=True)
        run(pattern, rows, element=element, last=last, views=(None, "turned", None))


_EPILOGUES = {
    "float32": (bfloat16, linear(float32, float32)),
    "gelu": (
        bfloat16,
        kronop.LinearCombinationGeneric(kronop.gelu(float32), bfloat16, 1, float32, float32),
    ),
    "int8": (int8, kronop.LinearCombinationClamp(int8, 1, int32, int32)),
    "fast": (int8, kronop.FastLinearCombinationClamp(int8, 1)),
}


@pytest.mark.covering(
    last=[False, True], pattern=[(2, 20, 37, 1), (2, 20, 37, 4)], name=list(_EPILOGUES)
)
def test_other_results(run: Any, name: str, pattern: Any, last: bool) -> None:
    element, epilogue = _EPILOGUES[name]
    for rows in (16, 70):
        run(pattern, rows, element=element, epilogue=epilogue, last=last)
        run(pattern, rows, element=element, epilogue=epilogue, last=last, bias=True)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("element", [bfloat16, int8], ids=lambda item: item.name)
def test_outputs_in_parts(
    run: Any, element: Any, last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ksparse_amx, "_PANEL_BYTES", 1)
    for pattern in ((2, 70, 40, 1), (2, 70, 40, 4)):
        step = run(pattern, 45, element=element, last=last, bias=True, scalars=(1, 2))
        assert step.design.outputs == 32
        run(pattern, 45, element=element, last=last)


def test_large_results_pass_the_caches_by(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # And X, which is too large as well, is asked for ahead.
    monkeypatch.setattr(planning, "_PASSING", 0)
    monkeypatch.setattr(planning, "_FAR", 0)
    for pattern in ((2, 64, 32, 1), (2, 32, 40, 2), (1, 50, 20, 1)):
        for offset in (0, 16):
            run(pattern, 96, last=True, offset=offset)
            run(pattern, 96, offset=offset)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("pattern", [(1, 17, 33, 1), (2, 17, 33, 3), (1, 5, 7, 16)])
def test_infinities_and_nan_stay_in_their_row(
    run: Any, load_kernel: Callable[[Plan], Any], pattern: Any, last: bool
) -> None:
    # They are the last numbers of odd contractions, next to the zeros that fill these up.
    operation = support.ksparse_operation("x86-amx", bfloat16, pattern, batch_last=last)
    kind, (a, b, c, d) = support.numpy_type(bfloat16), pattern
    x = np.ones((3, a, c, d), kind)
    x[1, :, -1], x[2, :, -1] = np.inf, np.nan
    x = x.reshape(3, -1)
    w = np.ones(pattern, kind)
    w[:, -1, 0] = np.inf
    y = _result(operation, load_kernel, x, w, last).reshape(3, a, b, d)
    if b > 1:
        assert (y[0, :, :-1] == c).all()
    assert np.isposinf(y[0, :, -1]).all()
    assert np.isposinf(y[1]).all()
    assert np.isnan(y[2]).all()


def test_sums_of_int8_wrap(run: Any, load_kernel: Callable[[Plan], Any]) -> None:
    contracted = 2**31 // 2**14 + 4
    operation = support.ksparse_operation("x86-amx", int8, (1, 1, contracted, 1))
    x, w = (np.full(shape, -128, np.int8) for shape in ((1, contracted), (1, 1, contracted, 1)))
    y = _result(operation, load_kernel, x, w, False)
    assert y.item() == contracted * 2**14 - 2**32


def _result(
    operation: Any, load: Callable[[Plan], Any], rows: Any, weights: Any, last: bool
) -> Any:
    """What a kernel makes of rows of X, as rows in float64."""
    x = np.ascontiguousarray(rows.T) if last else rows
    description, count = operation.description, len(rows)
    y = np.zeros(description.y_shape(count), support.numpy_type(description.Y.element))
    problem = KSparseProblem(
        rows=count,
        x=matrix(x, last),
        weights=support.strided(weights, 4),
        z=None,
        bias=NOTHING,
        y=matrix(y, last),
        scalars=(1, 0),
        workspace=0,
        threads=1,
    )
    plan = PRODUCT.emitters["x86"].plan(description, kronop.Target.parse("x86-amx"))
    launch(plan, problem, count, load=load)
    return (y.T if last else y).astype(np.float64)
