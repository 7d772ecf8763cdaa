"""Products of kernel matrices for GPUs, run on the CPU from the same headers, against NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kronop.args.staging import Placement
from kronop.args.view import CPU
from kronop.descriptions.datatype import DataType, float32, float64
from kronop.families.distance.api import product_arguments
from kronop.families.distance.cuda import product_choice
from kronop.families.distance.declaration import PRODUCT
from kronop.families.distance.kernels import (
    Cosine,
    Gaussian,
    Kernel,
    Laplace,
    Linear,
    Matern,
    PowerNorm,
    RationalQuadratic,
)
from kronop.target import Target
from tests import distance_kinds, support
from tests.emulation.emulator import Emulator

_TARGET = Target.parse("sm_90a")
_ALIGNED = 256
_SPREAD = np.array([[4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])


class _Guarded(Placement):
    """Has bytes before and behind the workspace that nothing may write."""

    def workspace(self, nbytes: int) -> int:
        self._memory = np.full(nbytes + 2 * _ALIGNED, 255, np.uint8)
        self._start, self._nbytes = -self._memory.ctypes.data % _ALIGNED, nbytes
        return int(self._memory.ctypes.data) + self._start

    def check(self) -> None:
        assert (self._memory[: self._start] == 255).all()
        assert (self._memory[self._start + self._nbytes :] == 255).all()


def run(
    folder: Path,
    kernel: Kernel,
    shape: tuple[int, int, int, int],
    element: DataType = float32,
    *,
    batch: tuple[int, ...] = (),
    regularization: Any = None,
    seed: int = 0,
    scale: float = 1.0,
    turned: bool = False,
    of_x1: tuple[int, ...] | None = None,
    of_x2: tuple[int, ...] = (),
    with_nan: bool = False,
    sized: bool = False,
) -> None:
    """Compares a product of (M, N, K, C); `turned` results lie along their columns.

    Args:
        sized: points are of all sizes that float32 has, and some are 0.
        of_x1, of_x2: leading dimensions of the points; those of X1 are the batch if they are None.
    """
    m, n, k, c = shape
    random = np.random.default_rng(seed)
    of_x1 = batch if of_x1 is None else of_x1
    x1 = scale * support.random_array(random, (*of_x1, m, k), element)
    x2 = scale * support.random_array(random, (*of_x2, n, k), element)
    if with_nan:
        x1[..., 1, k // 2] = np.nan
    if sized:
        x1, x2 = (np.ldexp(x, (np.arange(len(x)) * 40 % 240 - 120)[:, None]) for x in (x1, x2))
        x1[7] = x2[9] = 0
    v = support.random_array(random, (*batch, n, c), element)
    y = support.poison((*batch, c, m) if turned else (*batch, m, c), element)
    y = y.swapaxes(-2, -1) if turned else y
    bound = kernel.bound(len(batch), regularization)
    arguments = product_arguments(x1, x2, v, bound, y)
    what, size = arguments.operation.description, arguments.size
    plan = PRODUCT.emitter(_TARGET).plan(what, _TARGET, size.bucket())
    emulator = Emulator(plan, folder)
    if emulator.gathered:
        return
    placement = _Guarded(CPU)
    emulator.run(arguments.launches(plan, placement))
    placement.check()
    wide = [np.asarray(item, np.float64) for item in (x1, x2, v)]
    expected = bound.form.evaluate(*wide[:2], bound.values, bound.vectors) @ wide[2]
    undefined = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(y), undefined)
    y, expected = y[~undefined], expected[~undefined]
    error = np.linalg.norm(y - expected) / max(np.linalg.norm(expected), 1e-30)
    assert error < (1e-13 if element is float64 else 1e-5), error


@pytest.mark.parametrize("columns", [1, 3, 16])
def test_gaussian(folder: Path, columns: int) -> None:
    run(folder, Gaussian(2.0), (150, 700, 3, columns))


@pytest.mark.parametrize("shape", [(150, 300, 3, 1), (530, 140, 40, 10), (70, 200, 17, 3)])
def test_products_of_points(
    folder: Path, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, int, int]
) -> None:
    monkeypatch.setattr(product_choice, "_FEWEST_POINTS", 1)
    run(folder, Gaussian(6.0), shape, batch=(2,), with_nan=True)
    run(folder, Gaussian(0.05), shape, scale=0.1, seed=1)


@pytest.mark.parametrize(
    ("of_x1", "of_x2"),
    [((), ()), ((2, 1), ()), ((), (3,)), ((2, 1), (1, 3)), ((1, 1), (2, 3)), ((2, 3), (1, 1))],
)
def test_problems_share_points(
    folder: Path, monkeypatch: pytest.MonkeyPatch, of_x1: tuple[int, ...], of_x2: tuple[int, ...]
) -> None:
    """What is packed is packed once for the problems that share it."""
    shape, shared = (150, 300, 3, 1), {"of_x1": of_x1, "of_x2": of_x2}
    run(folder, Gaussian(_SPREAD), shape, batch=(2, 3), **shared)
    monkeypatch.setattr(product_choice, "_FEWEST_POINTS", 1)
    run(folder, Gaussian(_SPREAD), shape, batch=(2, 3), **shared)


def test_bandwidths_per_feature_of_a_batch(folder: Path) -> None:
    widths = np.linspace(1, 2, 18).reshape(3, 6)
    run(folder, Gaussian(widths), (30, 50, 6, 2), batch=(3,), of_x1=())


@pytest.mark.parametrize(
    "kernel",
    [
        PowerNorm(1.3) + PowerNorm(3.0) + PowerNorm(4.0),
        PowerNorm(0.5) + PowerNorm(1.5) + PowerNorm(2.5),
        PowerNorm(0.0) + PowerNorm(float("inf")) + 2.0 * Laplace(3.0),
        Matern(1.5, 2.0) + Cosine() * Linear(),
        RationalQuadratic(0.7, 2.0) * Gaussian(np.linspace(1, 2, 6)),
    ],
    ids=["powers", "halves", "extremes", "products", "vectors"],
)
def test_kernels(folder: Path, kernel: Kernel) -> None:
    run(folder, kernel, (30, 50, 6, 2))


@pytest.mark.spread(kinds=distance_kinds.KINDS * 2, element=[float32, float64])
def test_nan_comes_through_every_term(folder: Path, kinds: Any, element: DataType) -> None:
    for kind in kinds:
        run(folder, distance_kinds.OneOf(kinds, kind), (30, 50, 6, 2), element, with_nan=True)


@pytest.mark.parametrize("element", [float32, float64])
def test_relative_powers(folder: Path, element: DataType) -> None:
    for features in (16, 40):  # One slab and several; three tiles of columns.
        kernel = PowerNorm(60.0) + PowerNorm(17.0)
        run(folder, kernel, (30, 150, features, 2), element)


def test_lengths_of_all_sizes(folder: Path) -> None:
    """Their squares may leave the range of float32."""
    run(folder, Cosine(), (30, 150, 19, 2), sized=True)


@pytest.mark.parametrize("turned", [False, True])
def test_double(folder: Path, turned: bool) -> None:
    shape = (70, 100, 5, 5)
    run(folder, Gaussian(2.0), shape, float64, batch=(2,), regularization=0.5, turned=turned)


@pytest.mark.parametrize("shape", [(3, 0, 2, 1), (3, 4, 0, 1)])
def test_nothing(folder: Path, shape: tuple[int, int, int, int]) -> None:
    run(folder, Gaussian(2.0), shape)
