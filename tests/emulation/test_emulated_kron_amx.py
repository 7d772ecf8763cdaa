"""Kronecker plans for AMX tiles: on emulated tiles, and on the machine's own where it has them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kronop.descriptions.datatype import bfloat16, float32
from kronop.emit.plan import Plan
from kronop.emit.x86 import planning
from kronop.families.kron.description import KronProblem, Side
from kronop.families.kron.x86 import kron_amx
from kronop.families.kron.x86.kron_tiles import KronTiles
from tests import support
from tests.emulation.tiles import NATIVE, Gathered, before_a_wall, build
from tests.x86.test_x86_kernels import launch, matrix, run_kron
from tests.x86.test_x86_kernels import load as load_native


@pytest.fixture(params=["emulated", pytest.param("native", marks=NATIVE)])
def load_kernel(folder: Path, request: pytest.FixtureRequest) -> Callable[[Plan], Any]:
    def load(plan: Plan) -> Any:
        assert isinstance(plan.steps[0].design, KronTiles)
        return build(plan, folder) if request.param == "emulated" else load_native(plan)

    return load


@pytest.fixture
def run(load_kernel: Callable[[Plan], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """`run_kron` for bf16 on tiles, whatever vectors would take."""
    monkeypatch.setattr(kron_amx, "vector_cycles", lambda *_: math.inf)

    def call(*args: Any, **options: Any) -> None:
        with contextlib.suppress(Gathered):
            run_kron(*args, element=bfloat16, arch="x86-amx", load=load_kernel, **options)

    return call


_SHAPES = {
    "one": [(64, 64)],
    "one_ragged": [(31, 17)],
    "one_deep": [(100, 40)],
    "two": [(32, 32)] * 2,
    "two_ragged": [(33, 50), (65, 20)],
    "two_narrow": [(16, 3), (31, 5)],
    "three": [(40, 6), (37, 18), (33, 31)],
    "three_odd": [(67, 5), (33, 20), (34, 17)],
    "merged": [(8, 8)] * 4,
    "four": [(16, 16)] * 4,
    "tiny": [(2, 3), (5, 2), (6, 4)],
    "column": [(505, 3)],
    "row": [(1, 7)],
    "ones": [(1, 1)] * 3 + [(3, 3)] + [(1, 1)] * 66,
}


@pytest.mark.parametrize("shape", list(_SHAPES.values()), ids=list(_SHAPES))
def test_shapes_and_rows(run: Any, shape: list[tuple[int, int]]) -> None:
    large = math.prod(p for p, _ in shape) > 30000
    for rows in (1, 3) if large else (1, 31, 32, 70):
        run(shape, rows, place=before_a_wall)
    run(shape, 2 if large else 35, scalars=(0.5, 2), in_place=True)


@pytest.mark.parametrize("shape", [_SHAPES["one_ragged"], _SHAPES["two_ragged"]])
def test_strides_and_other_results(run: Any, shape: list[tuple[int, int]]) -> None:
    run(shape, 35, views=("negative",) * 3, scalars=(2, 3))
    run(shape, 35, side=Side.Left, views=("transposed",) * 3)
    run(shape, 33, views=(None, "transposed", None), output=float32)


def test_batches(run: Any) -> None:
    run([(16, 8), (33, 32)], 5, batch=(3, 4), x_batch=(3, 1), f_batch=(1, 4))
    run([(16, 8), (33, 32)], 5, batch=(3,), f_batch=(3,), side=Side.Left, views=("transposed",) * 3)


def test_large_results_pass_the_caches_by(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # And X, which is too large as well, is asked for ahead.
    monkeypatch.setattr(planning, "_PASSING", 0)
    monkeypatch.setattr(planning, "_FAR", 0)
    in_parts = [(33, 200), (5, 150)]
    for shape in ([(32, 32)] * 2, [(64, 96)], [(33, 50), (65, 20)], in_parts, [(8, 7)] * 3):
        for rows, offset in ((70, 0), (33, 2)):
            run(shape, rows, offset=offset)


@pytest.mark.parametrize(
    "shape", [[(33, 17)] * 2, [(3, 5), (7, 17), (5, 16)], [(31, 17)]], ids=["two", "three", "one"]
)
def test_infinities_and_nan_stay_in_their_row(
    shape: list[tuple[int, int]],
    load_kernel: Callable[[Plan], Any],
    run: Any,
) -> None:
    # They are the last numbers of odd digits, next to the zeros that fill these up.
    operation = support.kron_operation("x86-amx", bfloat16, shape)
    kind = support.numpy_type(bfloat16)
    x = np.ones((3, operation.description.input_columns), kind)
    x[1, -1], x[2, -1] = np.inf, np.nan
    y = np.zeros((3, operation.description.output_columns), kind)
    factors = [np.ones(size, kind) for size in shape]
    problem = KronProblem(
        rows=3,
        batch=(),
        x=matrix(x, False),
        factors=tuple(matrix(factor, False) for factor in factors),
        z=None,
        y=matrix(y, False),
        scalars=(1, 0),
        workspace=0,
        threads=1,
    )
    launch(operation.plan, problem, 3, load=load_kernel)
    assert np.isfinite(y[0].astype(float)).all()
    assert np.isposinf(y[1].astype(float)).all()
    assert np.isnan(y[2].astype(float)).all()
