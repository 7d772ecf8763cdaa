"""Kernels of pairs of points on GPUs, run on the CPU from the same headers, against NumPy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.descriptions.datatype import DataType, bfloat16, float16, float32, float64
from kronop.families.distance import MATRIX
from kronop.families.distance.description import DistanceDescription, DistanceProblem
from kronop.families.distance.kernels import PowerNorm
from kronop.families.distance.size import DistanceSize
from kronop.target import Target
from tests import distance_kinds, support
from tests.emulation.emulator import Emulator
from tests.x86 import test_distance as host

_TARGET = replace(Target.parse("sm_90a"), cores=3)
_EMITTER = MATRIX.emitter(_TARGET)
_TILES = ((128, 128, 16), (128, 64, 8), (64, 64, 32), (32, 32, 8))
_POWERS = PowerNorm(2.2, root=False).bound().form


class Kernel(host.Kernel):
    """A plan that runs emulated."""

    def __init__(
        self, what: DistanceDescription, folder: Path, tile: tuple[int, int, int] | None = None
    ) -> None:
        if tile:
            shape = kronop.TileDescription(list(tile), 2, [1, 1, 1], what.math)
            what = replace(what, tile=shape)
        self.what, self.random = what, np.random.default_rng(1)
        self.plan = next(
            plan
            for plan in _EMITTER.candidates(what, _TARGET, 99, DistanceSize(40, 40, 10))
            if getattr(plan.steps[0].design, "symmetric", False) == what.symmetric
        )
        self._emulator = Emulator(self.plan, folder)
        self.gathered = self._emulator.gathered

    def launch(self, problem: DistanceProblem) -> None:
        self._emulator.run(self.plan.launches(problem))


@pytest.mark.spread(form=[*host._FORMS] * 2, element=host._FLOATS)
def test_values(folder: Path, form: str, element: DataType) -> None:
    kernel = Kernel(host._description(host._FORMS[form], element), folder)
    if kernel.gathered:
        return
    layouts = host._LAYOUTS
    for at, sizes in enumerate(((13, 70, 9), (2, 5, 600), (9, 17, 1), (5, 2, 0))):
        kernel.check(sizes, layouts[at], layouts[at - 1], (2.0, -1.0) if at % 2 else (1.0, 0.0))
    kernel.check((6, 8, 5), "plain", "transposed", batch=((2, 1, 2), (1, 2, 2)), diagonal=-2)
    kernel.check((3, 41, 2), diagonal=38)
    for empty in ((0, 5, 2), (5, 0, 2)):
        kernel.check(empty)
    host._check_special(kernel)
    if form == "cosine":
        host.check_lengths(kernel)


@pytest.mark.spread(kinds=distance_kinds.KINDS * 2, element=[float32, float64])
def test_nan_comes_through_every_term(folder: Path, kinds: Any, element: DataType) -> None:
    kernel = Kernel(host._description(distance_kinds.form_of(kinds), element), folder)
    if kernel.gathered:
        return
    x1, x2 = np.abs(kernel.array(7, 9)), np.abs(kernel.array(35, 9))
    x1[3, 2] = x2[20, 4] = np.nan
    for kind in kinds:
        values = [
            np.asarray(item, x1.dtype) for item in distance_kinds.OneOf(kinds, kind).bound().values
        ]
        kernel.run(x1, x2, y := support.poison((7, 35), element), values=values)
        expected = distance_kinds.nan_of(kind, (7, 35), 3, 20)
        np.testing.assert_array_equal(np.isnan(y), expected, kind.name)


@pytest.mark.spread(tile=_TILES, element=[float32, float64, float16], layout=host._LAYOUTS)
def test_whole_tiles(
    folder: Path, tile: tuple[int, int, int], element: DataType, layout: str
) -> None:
    """Tiles and slabs that are full, next to those that are not."""
    if tile[2] > 8 and element is float16:
        tile = (128, 128, 8)
    terms = host._kinds(host._K.One)
    kernel = Kernel(host._description(host._sum(*terms), element), folder, tile)
    if kernel.gathered:
        return
    m, n, k = tile
    for y_layout in ("plain", "apart"):
        kernel.check((m, n, 2 * k), layout, y_layout, (2.0, -1.0), batch=((), ()))
    kernel.check((m + 4, 2 * n - 4, k + 3), layout, batch=((), ()))


@pytest.mark.spread(element=[float32, float64, bfloat16], size=[(3, 70), (64, 96)])
def test_symmetric(folder: Path, element: DataType, size: tuple[int, int]) -> None:
    form = host._sum(*host._kinds(host._K.Two), values=1, regularized=True)
    what = host._description(form, element, symmetric=True)
    kernel = Kernel(what, folder, (32, 32, 8))
    if kernel.gathered:
        return
    for at, m in enumerate(size):
        y = kernel.check((m, m, 11), host._LAYOUTS[at], host._LAYOUTS[at + 1], batch=((2,), (2,)))
        np.testing.assert_array_equal(y, y.swapaxes(-1, -2))
    kernel.check((45, 45, 5), scalars=(0.5, 2.0), diagonal=7)
    kernel.check((45, 45, 30), diagonal=-7)


def test_long_sums_are_sums_of_chains(folder: Path) -> None:
    """What a chain of additions rounds away, the next one does not."""
    kernel = Kernel(host._description(host._sum(*host._kinds(host._K.One)), float32), folder)
    if kernel.gathered:
        return
    features, chain = 1100, 256
    x1 = np.zeros((3, features), np.float32)
    x1[:, 0] = 2.0**24  # To which adding 1 changes nothing.
    x2 = np.ones((2, features), np.float32)
    x2[:, 0] = 0
    y = support.poison((3, 2), float32)
    kernel.run(x1, x2, y)
    assert (y >= 2.0**24 + features - chain).all()
    assert (y <= 2.0**24 + features).all()


def _power(kernel: Kernel, d: Any, powers: Any) -> Any:
    y = support.poison((len(powers), 1, d.size), kernel.what.X1.element)
    zero = np.zeros((1, 1), d.dtype)
    kernel.run(zero, d[:, None], y, values=[powers])
    return y[:, 0]


def test_powers_of_all_sizes(folder: Path) -> None:
    """Slabs in which all numbers are plain, and others; both ways to compute exponentials."""
    kernel = Kernel(host._description(_POWERS, float32), folder, (128, 64, 8))
    if kernel.gathered:
        return
    powers = np.array([0.125, 0.9, 1.3, 2.7, 60.0], np.float32)
    sizes = [np.linspace(-120, 127, 200), np.linspace(-8, 3, 64)]
    for exponents in sizes:
        d = np.array([*2.0**exponents, 0], np.float32)
        found = _power(kernel, d, powers)
        with np.errstate(over="ignore", under="ignore"):
            expected = d.astype(np.longdouble) ** powers.astype(np.longdouble)[:, None]
        is_normal = (expected >= 2.0**-124) & (expected <= np.finfo(np.float32).max)
        # The logarithm is rounded, to 7 bits less where it is large.
        log = np.abs(np.log2(np.where(d > 0, d, 1))) + 1
        bound = (4 + powers[:, None] * log) * 2.0**-22
        assert (np.abs(found / np.where(expected > 0, expected, 1) - 1) <= bound)[is_normal].all()
        assert (found[expected < 2.0**-127] == 0).all()
        assert np.isinf(found[expected > 2.0**129]).all()
    d = np.array([np.inf, -np.inf, np.nan, 3.0], np.float32)
    found = _power(kernel, d, powers)
    assert np.isinf(found[:, :2]).all()
    assert np.isnan(found[:, 2]).all()
    assert np.isfinite(found[:, 3]).all()


@pytest.mark.parametrize("element", [float32, float64])
def test_norms_of_all_sizes(folder: Path, element: DataType) -> None:
    kernel = Kernel(host._description(host.NORM, element), folder)
    if not kernel.gathered:
        host.check_norms(kernel)


def test_choice() -> None:
    """Small problems get small tiles, and half the tiles cost less where there are many."""
    form = host._sum(*host._kinds(host._K.One))
    what = host._description(form, float32, symmetric=True)
    target = Target.parse("sm_90a")

    def best(*size: int) -> Any:
        plans = _EMITTER.candidates(what, target, 99, DistanceSize(*size))
        assert "us for" in plans[0].explain()
        return plans[0].steps[0].design

    large, small = best(30000, 30000, 1024), best(64, 64, 32)
    assert large.symmetric
    assert (large.tile_m, large.tile_k) == (128, 16)
    assert small.tile_m < 128
    shape = kronop.TileDescription([7, 7, 7], 2, [1, 1, 1], what.math)
    assert not _EMITTER.supports(replace(what, tile=shape), target)
