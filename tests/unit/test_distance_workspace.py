"""Scratch memory of distances and products on GPUs: none for what problems of a batch share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kronop.families.distance.api import MODES, distance_arguments, product_arguments
from kronop.families.distance.arguments import DistanceArguments
from kronop.families.distance.cuda import group_choice
from kronop.families.distance.declaration import PRODUCT
from kronop.families.distance.kernels import Gaussian
from kronop.families.distance.product_size import KernelMatmulSize
from kronop.families.distance.size import DistanceSize
from kronop.target import Target

_TARGET = Target.parse("sm_90a")
_BANDWIDTHS = np.geomspace(0.1, 10, 100)


def _of_product(m: int, k: int, lead: tuple[int, ...], bandwidths: Any = _BANDWIDTHS) -> int:
    """Bytes for M points of K features against as many, with one column."""
    x, v = np.empty((*lead, m, k), np.float32), np.empty((m, 1), np.float32)
    arguments = product_arguments(x, x, v, Gaussian(bandwidths).bound(1))
    what, size = arguments.operation.description, arguments.size
    return PRODUCT.emitter(_TARGET).plan(what, _TARGET, size.bucket()).workspace_bytes(size, 1)


def _of_distances(x1: Any, x2: Any, bandwidths: Any = _BANDWIDTHS) -> int:
    """Bytes where squared distances come from products of points."""
    arguments = distance_arguments(x1, x2, Gaussian(bandwidths).bound(1), MODES[1])
    pipeline = next(group_choice.pipelines(arguments.operation.description, _TARGET))
    return pipeline.workspace(arguments.size, _TARGET, 1)


def test_bandwidths_share_the_points_of_a_product() -> None:
    m, k = 100_000, 64
    # Points of both sides, as float32 numbers and as halves; sums of all columns for each problem.
    points, sums = 2 * 2 * 4 * m * k, 4 * m * len(_BANDWIDTHS)
    assert points + sums <= _of_product(m, k, (1,)) < 1.2 * (points + sums)


@pytest.mark.parametrize("m", [1000, 5000])
def test_points_of_their_own_take_room(m: int) -> None:
    """Below and above the number of points from which tensor cores multiply them."""
    one, four = _of_product(m, 16, (1,), 2.0), _of_product(m, 16, (4,), 2.0)
    assert 2 * one < four


def test_bandwidths_share_the_images_of_points() -> None:
    x1, x2 = np.empty((1, 40, 200), np.float32), np.empty((30, 200), np.float32)
    one = _of_distances(x1, x2, 2.0)
    assert _of_distances(x1, x2) == one
    assert _of_distances(np.broadcast_to(x1, (100, 40, 200)), x2) == one
    # Points of X1 are packed away from the centre of X2: both differ if one does.
    assert _of_distances(x1, np.empty((100, 30, 200), np.float32)) == 100 * one
    both = _of_distances(np.empty((100, 40, 200), np.float32), x2)
    assert one < both < 100 * one


def test_problems_that_share_points_are_planned_like_others() -> None:
    shared = KernelMatmulSize(100, 100, 8, 4, own_x1=1, own_x2=2, own_points=2, own_v=1)
    assert shared.bucket() == KernelMatmulSize(100, 100, 8, 4).bucket()
    assert DistanceSize(9, 9, 5, 4, own_x1=1).bucket() == DistanceSize(9, 9, 5, 4).bucket()


def test_sizes_of_arguments() -> None:
    x1, x2 = np.zeros((2, 1, 4, 5)), np.zeros((3, 6, 5))
    arguments: DistanceArguments = distance_arguments(x1, x2, Gaussian(1.0).bound(2))
    assert arguments.size == DistanceSize(4, 6, 5, 6, own_x1=2, own_x2=3, own_points=6)
