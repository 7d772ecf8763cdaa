"""Distances from products of warp groups, run on the CPU from the CUDA headers, against float64."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kronop.descriptions.datatype import DataType, bfloat16, float16, float32, float64
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.strided import Strided
from kronop.descriptions.tensor import TensorDescription
from kronop.emit.plan import Plan
from kronop.families.distance.cuda import group_choice
from kronop.families.distance.cuda.group_pipeline import PackedDistances
from kronop.families.distance.declaration import MATRIX
from kronop.families.distance.description import (
    DistanceDescription,
    DistanceProblem,
    Value,
    varying,
)
from kronop.families.distance.kernels import (
    Cosine,
    Gaussian,
    Kernel,
    Linear,
    Polynomial,
    PowerNorm,
)
from kronop.families.distance.size import DistanceSize
from kronop.target import Target
from tests.emulation.emulator import Emulator
from tests.emulation.test_emulated_kernels import linear, numpy_type, wide

# Few multiprocessors, so that a block has several tiles.
_TARGET = replace(Target.parse("sm_90a"), cores=3)
_SQUARES = PowerNorm(2.0, root=False)


def describe(kernel: Kernel, element: DataType, **options: Any) -> DistanceDescription:
    tensor = TensorDescription(element)
    output = options.pop("output", element)
    regularization = options.pop("regularization", None)
    return DistanceDescription(
        math=MathInstruction.simt(element),
        tile=None,
        X1=tensor,
        X2=tensor,
        Y=TensorDescription(output),
        epilogue=linear(output),
        kernel=kernel.bound(0, regularization).form,
        **{"expanded": True} | options,
    )


def strided(array: Any) -> Strided:
    steps = tuple(step // array.itemsize for step in array.strides)
    return Strided(pointer=array.ctypes.data, strides=(*steps[-2:],), batch=steps[:-2])


def _batches(x1: Any, x2: Any) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """The strides over the batch of X1, of X2, and of both."""
    of_x1, of_x2 = strided(x1).batch, strided(x2).batch
    return (of_x1,), (of_x2,), (of_x1, of_x2)


def points(
    random: np.random.Generator,
    shape: tuple[int, ...],
    element: DataType,
    layout: str = "rows",
    offset: float = 0.0,
) -> Any:
    """Points of `shape`, contiguous along features or points, or along neither."""
    made = (random.standard_normal(shape) + offset).astype(numpy_type(element))
    if layout == "columns":
        return np.ascontiguousarray(made.swapaxes(-1, -2)).swapaxes(-1, -2)
    if layout == "apart":
        room = np.empty((*shape[:-1], 2 * shape[-1] + 1), made.dtype)[..., 1::2]
        room[...] = made
        return room
    return made


def run(
    folder: Path,
    x1: Any,
    x2: Any,
    element: DataType = float32,
    kernel: Kernel = _SQUARES,
    *,
    n: int = 64,
    stages: int = 3,
    values: tuple[Any, ...] = (),
    diagonal: int = 0,
    z: Any = None,
    y: Any = None,
    symmetric: bool = False,
    **options: Any,
) -> Any:
    """Runs on arrays, whose leading dimensions are alike; the results, and what they should be."""
    what = describe(kernel, element, symmetric=symmetric, **options)
    found = (item.product for item in group_choice.pipelines(what, _TARGET))
    design = next(item for item in found if item.n == n and item.symmetric == symmetric)
    pipeline = PackedDistances(product=replace(design, stages=stages))
    assert pipeline.status(_TARGET)
    steps = group_choice.steps(what, _TARGET, pipeline)
    plan = Plan(target=_TARGET, steps=steps, pipeline=pipeline)
    emulator = Emulator(plan, folder)
    if emulator.gathered:
        return None
    batch, m, count, k = x1.shape[:-2], x1.shape[-2], x2.shape[-2], x1.shape[-1]
    if y is None:
        y = np.empty((*batch, m, count), numpy_type(what.Y.element))
    y[...] = np.nan
    scalars = what.epilogue.epilogue_type(2, 0 if z is None else 3)
    own = [math.prod(varying(batch, *strides)) for strides in _batches(x1, x2)]
    size = DistanceSize(
        m, count, k, math.prod(batch), own_x1=own[0], own_x2=own[1], own_points=own[2]
    )
    nbytes = plan.workspace_bytes(size, 1)
    workspace = np.full(nbytes + 512, 255, np.uint8)
    start = -workspace.ctypes.data % 256
    problem = DistanceProblem(
        m=m,
        n=count,
        k=k,
        batch=batch,
        x1=strided(x1),
        x2=strided(x2),
        z=None if z is None else strided(z),
        y=strided(y),
        values=tuple(Value(float(item)) for item in values),
        vectors=(),
        diagonal=diagonal,
        scalars=scalars.scalars,
        threads=1,
        workspace=workspace.ctypes.data + start,
    )
    emulator.run(plan.launches(problem))
    assert (workspace[:start] == 255).all()
    assert (workspace[start + nbytes :] == 255).all()
    expected = what.reference(
        wide(x1), wide(x2), None if z is None else wide(z), scalars, values, diagonal=diagonal
    )
    return wide(y), expected, what


def check(folder: Path, x1: Any, x2: Any, element: DataType = float32, **options: Any) -> Any:
    """Errors stay below 1e-6 of the largest norm squared; of 16-bit results, below what they are
    rounded by as well. (alpha is 2.)"""
    found = run(folder, x1, x2, element, **options)
    if found is None:
        return None
    y, expected, what = found
    largest = max(float((wide(item) ** 2).sum(-1).max(initial=0)) for item in (x1, x2))
    unit = {float16: 2.0**-11, bfloat16: 2.0**-8}.get(what.Y.element, 2.0**-24)
    bound = 2e-6 * max(largest, 1.0) + 2 * unit * np.abs(expected)
    assert (np.abs(y - expected) <= bound).all(), np.abs(y - expected).max()
    return y


@pytest.mark.parametrize("layout", ["rows", "columns", "apart"])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(128, 64, 64), (130, 200, 37), (300, 129, 70), (1, 1, 1), (5, 260, 100)]
)
def test_squares(folder: Path, m: int, n: int, k: int, layout: str) -> None:
    random = np.random.default_rng(1)
    x1, x2 = (points(random, (count, k), float32, layout) for count in (m, n))
    x1[: min(m, n)] = x2[: min(m, n)]
    check(folder, x1, x2)


@pytest.mark.parametrize("n", [128, 192])
def test_wide_tiles(folder: Path, n: int) -> None:
    random = np.random.default_rng(2)
    x1, x2 = (points(random, (count, 100), float32) for count in (200, 250))
    check(folder, x1, x2, n=n, stages=4)
    check(folder, x1, x1, n=n, stages=4, symmetric=True)


@pytest.mark.parametrize("element", [float16, bfloat16])
def test_16_bits(folder: Path, element: DataType) -> None:
    random = np.random.default_rng(3)
    for m, n, k, layout in ((130, 300, 72, "rows"), (70, 65, 130, "columns"), (5, 3, 9, "apart")):
        x1, x2 = (points(random, (count, k), element, layout) for count in (m, n))
        check(folder, x1, x2, element)
        check(folder, x1, x2, element, output=float32, n=256, stages=2)


def test_batches_share_points(folder: Path) -> None:
    random = np.random.default_rng(4)
    x1 = points(random, (2, 3, 40, 20), float32, offset=3)
    x2 = points(random, (1, 3, 70, 20), float32, offset=3)
    check(folder, x1, np.broadcast_to(x2, (2, 3, 70, 20)))
    check(folder, np.broadcast_to(x2, (2, 3, 70, 20)), x1)
    check(folder, x1[:, :1] + np.zeros((2, 3, 1, 1), np.float32), x1, kernel=Linear())
    one = np.broadcast_to(x2[:, :1], (2, 3, 70, 20))
    check(folder, one, np.broadcast_to(x1[:1, :1], (2, 3, 40, 20)))
    check(folder, one, one, symmetric=True)
    check(folder, one, x1, kernel=Linear())
    check(folder, x1, one, kernel=Linear())


def test_far_from_zero(folder: Path) -> None:
    """Errors are those of points around zero."""
    random = np.random.default_rng(5)
    x1, x2 = (points(random, (count, 50), float32, offset=1000) for count in (140, 70))
    found = run(folder, x1, x2)
    if found is not None:
        y, expected, _ = found
        assert np.abs(y - expected).max() <= 2e-6 * expected.max()


def test_scales_of_points(folder: Path) -> None:
    """Each point has a scale of its own, and zeros have none."""
    random = np.random.default_rng(6)
    x1, x2 = (points(random, (count, 40), float32) for count in (60, 66))
    x1 *= np.float32(10.0) ** random.integers(-12, 12, (60, 1))
    x2[::7] = 0
    found = run(folder, x1, x2, kernel=Linear())
    if found is not None:
        y, expected, _ = found
        sizes = np.linalg.norm(wide(x1), axis=1)[:, None] * np.linalg.norm(wide(x2), axis=1)
        assert (np.abs(y - expected) <= 2e-6 * sizes).all()


@pytest.mark.parametrize("count", [1, 100, 129, 300])
def test_half_of_the_pairs(folder: Path, count: int) -> None:
    random = np.random.default_rng(7)
    x = points(random, (2, count, 33), float32)
    y = check(folder, x, x, symmetric=True)
    if y is not None:
        assert (y == y.swapaxes(-1, -2)).all()
        assert (np.diagonal(y, axis1=-2, axis2=-1) == 0).all()


def test_a_point_and_itself(folder: Path) -> None:
    random = np.random.default_rng(8)
    x = points(random, (140, 33), float32, offset=5)
    y = check(folder, x, x)
    if y is not None:
        assert (np.diagonal(y) == 0).all()


@pytest.mark.parametrize("symmetric", [False, True])
def test_sources_and_strides_of_results(folder: Path, symmetric: bool) -> None:
    random = np.random.default_rng(9)
    x1 = points(random, (150, 33), float32)
    x2 = x1 if symmetric else points(random, (90, 33), float32)
    shape = (150, x2.shape[0])
    options: dict[str, Any] = {"symmetric": symmetric, "regularization": 0.5, "diagonal": -3}
    for y in (
        np.empty(shape, np.float32),
        np.empty(shape[::-1], np.float32).T,
        np.empty((150, 2 * shape[1] + 1), np.float32)[:, 1::2],
        np.empty((150, shape[1] + 1), np.float32)[:, 1:],
    ):
        check(folder, x1, x2, y=y, values=(0.5,), **options)
        z = random.standard_normal(shape[::-1]).astype(np.float32).T
        check(folder, x1, x2, y=y, values=(0.5,), z=z, **options)


def test_kernels(folder: Path) -> None:
    random = np.random.default_rng(10)
    x1, x2 = (points(random, (count, 30), float32) for count in (70, 50))
    check(folder, x1, x2, kernel=Cosine())
    sized = [np.ldexp(x, (np.arange(len(x)) * 40 % 240 - 120)[:, None]) for x in (x1, x2)]
    sized[0][7] = sized[1][9] = 0
    found = run(folder, *sized, kernel=Cosine())
    if found is not None:  # Lengths whose squares leave the range of float32.
        y, expected, _ = found
        assert np.abs(y - expected).max() <= 4e-6
    check(folder, x1, x2, kernel=Gaussian(3.0), values=(3.0,))
    check(folder, x1, x2, kernel=Gaussian(3.0) + Linear(), values=(3.0,))
    check(folder, x1 / 8, x2 / 8, kernel=Polynomial(2, 1.0), values=(1.0,))


def test_no_features(folder: Path) -> None:
    x1, x2 = (np.empty((count, 0), np.float32) for count in (70, 50))
    check(folder, x1, x2)


def test_what_is_no_number(folder: Path) -> None:
    """NaN spreads to the pairs of its point, and no further."""
    random = np.random.default_rng(11)
    x1, x2 = (points(random, (count, 40), float32) for count in (140, 70))
    x1[3, 5] = x2[0, 7] = x2[69, 39] = np.nan
    found = run(folder, x1, x2)
    if found is not None:
        y, expected, _ = found
        np.testing.assert_array_equal(np.isnan(y), np.isnan(expected))


def test_what_it_does_not_serve() -> None:
    def reason(
        kernel: Kernel, element: DataType = float32, arch: str = "sm_90a", **more: Any
    ) -> str:
        target = Target.parse(arch)
        what = describe(kernel, element, **more)
        return next(group_choice.pipelines(what, target)).status(target).reason

    assert "float64" in reason(_SQUARES, float64)
    assert "sm_80" in reason(_SQUARES, arch="sm_80")
    assert "norms" in reason(_SQUARES, expanded=False)
    assert "One" in reason(PowerNorm(1.0) + _SQUARES)
    assert "products" in reason(PowerNorm(1.0))
    assert not reason(Linear(), expanded=False)


def test_choice() -> None:
    """Products where they are allowed and there are many features; differences otherwise."""

    def best(kernel: Kernel, *size: int, **options: Any) -> str:
        target, what = Target.parse("sm_90a"), describe(kernel, float32, **options)
        plan = MATRIX.emitter(target).plan(what, target, DistanceSize(*size))
        return plan.steps[-1].design.__class__.__name__

    assert best(_SQUARES, 30000, 30000, 1024) == "DistanceGroup"
    assert best(_SQUARES, 30000, 30000, 1024, symmetric=True) == "DistanceGroup"
    assert best(_SQUARES, 30000, 30000, 1024, expanded=False) == "DistanceTile"
    assert best(_SQUARES, 40, 40, 8) == "DistanceTile"
    assert best(Linear(), 2000, 2000, 512, expanded=False) == "DistanceGroup"
