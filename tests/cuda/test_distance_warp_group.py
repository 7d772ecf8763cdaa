"""Squared distances from products of tensor cores, on a GPU, against float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import kronop
from kronop.families.distance import api
from kronop.families.distance.cuda.warp_group_design import DistanceWarpGroup

torch: Any = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
        reason="no GPU with products of warp groups",
    ),
]
_MODE = "use_mm_for_euclid_dist"
# More plans than there are for any operation.
_EVERY = 1000


def _points(*shape: int, element: Any = None, offset: float = 0.0, layout: str = "rows") -> Any:
    x = (torch.randn(*shape, device="cuda") + offset).to(element or torch.float32)
    if layout == "columns":
        return x.mT.contiguous().mT
    if layout == "apart":
        room = torch.empty(*shape[:-1], 2 * shape[-1] + 1, device="cuda", dtype=x.dtype)
        room[..., 1::2] = x
        return room[..., 1::2]
    return x


def _squares(x1: Any, x2: Any) -> Any:
    direct = "donot_use_mm_for_euclid_dist"
    return torch.cdist(x1.double(), x2.double(), compute_mode=direct).square()


def _results(x1: Any, x2: Any, out: Any = None) -> Iterator[Any]:
    """What each plan with products of warp groups gives, also where others are faster."""
    bound = kronop.kernels.PowerNorm(2.0, root=False).bound(api.batch_dims(x1, x2))
    shape = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    for place in range(_EVERY):
        y = x1.new_empty(*shape, x1.shape[-2], x2.shape[-2]) if out is None else out
        y.fill_(float("nan"))
        arguments = api.distance_arguments(x1, x2, bound, _MODE, y)
        plans = arguments.operation.candidates(_EVERY, arguments.size.bucket())
        plans = [
            plan
            for plan in plans
            if any(isinstance(step.design, DistanceWarpGroup) for step in plan.steps)
        ]
        if place == len(plans):
            assert plans
            return
        served = arguments.operation.serve(plans[place])
        arguments.run(served.kernels, None, served)
        yield y


def _check(x1: Any, x2: Any, offset: float = 0.0, out: Any = None) -> Any:
    """Errors stay below 1e-6 of the largest norm squared, of points less `offset`; of 16-bit
    results, below what they are rounded by as well."""
    expected = _squares(x1, x2)
    unit = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}.get(x1.dtype, 2.0**-24)
    largest = max(float((x.double() - offset).square().sum(-1).max()) for x in (x1, x2))
    for y in _results(x1, x2, out):
        error = (y.double() - expected).abs()
        bound = 1e-6 * max(largest, 1.0) + unit * expected
        assert (error <= bound).all(), float(error.max() / largest)
    return y


@pytest.mark.parametrize("layout", ["rows", "columns", "apart"])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(300, 500, 100), (1000, 777, 1024), (30, 31, 1), (129, 2000, 33)]
)
def test_squares(m: int, n: int, k: int, layout: str) -> None:
    x1, x2 = (_points(count, k, layout=layout) for count in (m, n))
    _check(x1, x2)
    x1[: min(m, n)] = x2[: min(m, n)] + 1e-3 * _points(min(m, n), k)
    _check(x1, x2)


@pytest.mark.parametrize("element", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("layout", ["rows", "columns", "apart"])
def test_16_bits(element: Any, layout: str) -> None:
    for m, n, k in ((300, 500, 100), (1000, 780, 1024), (129, 77, 9)):
        x1, x2 = (_points(count, k, element=element, layout=layout) for count in (m, n))
        _check(x1, x2)


def test_far_from_zero() -> None:
    x1, x2 = (_points(count, 256, offset=1000.0) for count in (400, 300))
    # The centre is the mean of some points: norms of what is left are about a quarter longer.
    _check(x1, x2, offset=1000.0)


def test_batches_and_results_anywhere() -> None:
    x1, x2 = _points(2, 3, 300, 70), _points(3, 200, 70)
    _check(x1, x2)
    _check(x2, x1)
    _check(x1, x2, out=torch.empty(2, 3, 200, 300, device="cuda").mT)
    _check(x1, x2, out=torch.empty(2, 3, 300, 401, device="cuda")[..., 1::2])
    _check(x1, x2, out=torch.empty(2, 3, 300, 201, device="cuda")[..., 1:])


@pytest.mark.parametrize("element", [torch.float32, torch.float16])
@pytest.mark.parametrize("count", [50, 129, 1000, 1001])
def test_half_of_the_pairs(count: int, element: Any) -> None:
    x = _points(2, count, 90, element=element)
    y = _check(x, x)
    assert (y == y.mT).all()
    assert (y.diagonal(dim1=-2, dim2=-1) == 0).all()


def test_many_tiles_of_a_block() -> None:
    """As many as make all barriers go round; several times, since races show at times only."""
    x1, x2 = _points(5000, 96), _points(7000, 96)
    _check(x1, x2)
    first = kronop.cdist(x1, x2, compute_mode=_MODE, skip_epilogue=True)
    for _ in range(20):
        again = kronop.cdist(x1, x2, compute_mode=_MODE, skip_epilogue=True)
        assert (again == first).all()
    _check(x1.half(), x2.half())
    _check(x1, x1)
