"""The floors that plans of distances tell: their unit, what it does, and for how long."""

from __future__ import annotations

import pytest

import kronop
from kronop.core.calls import epilogue_of
from kronop.emit.plan_text import from_text, to_text
from kronop.families.distance.gradient_size import GradientSize
from kronop.families.distance.product_size import KernelMatmulSize
from kronop.families.distance.size import DistanceSize

_LARGE, _NARROW = DistanceSize(30000, 30000, 1024), DistanceSize(20000, 20000, 32)
_F32 = kronop.float32


def _operation(kind, operands: int, target: str, element=_F32, **given):
    points = kronop.TensorDescription(element)
    epilogue = epilogue_of(element, points, None)
    return kind(target, None, *(points for _ in range(operands + 1)), epilogue, **given)


def _matrix(p: float, target: str = "sm_90a", element=_F32, **given):
    kernel = kronop.kernels.PowerNorm(p)
    return _operation(kronop.DistanceOperation, 2, target, element, kernel=kernel, **given)


def _plan(operation, size):
    return operation._emitter.plan(operation.description, operation.target, size)


def _floors(operation, size):
    return [step.least.floor(operation.target, size) for step in _plan(operation, size).steps]


@pytest.mark.parametrize(
    ("p", "size", "given", "ms", "unit", "load"),
    [
        (1, _LARGE, {}, 55.1, "FP32 issue", "2 instructions a feature and pair"),
        (3, _LARGE, {}, 82.7, "FP32 issue", "3 instructions a feature and pair"),
        (1.3, _LARGE, {}, 255, "special function units", "1.16 operations a feature and pair"),
        (0.5, _LARGE, {}, 220.6, "special function units", "1 operation a feature and pair"),
        (1, _LARGE, {"symmetric": True}, 27.6, "FP32 issue", "2 instructions a feature and pair"),
        (2, _LARGE, {"expanded": True}, 7.7, "tensor cores", "3 products a feature and pair"),
        (2, _NARROW, {"expanded": True}, 0.375, "memory", "1.61 GB"),
        (1, _LARGE, {"target": "sm_80"}, 189, "FP32 issue", "2 instructions a feature and pair"),
        (1, _LARGE, {"element": kronop.float64}, 165, "FP64 issue", "3 instructions"),
        (
            *(2, _LARGE, {"element": kronop.float16, "expanded": True}),
            *(2.57, "tensor cores", "1 product a feature and pair"),
        ),
    ],
)
def test_floors_of_matrices(p, size, given, ms, unit, load) -> None:
    floor = _floors(_matrix(p, **given), size)[-1]
    assert floor.seconds == pytest.approx(ms / 1e3, rel=0.01)
    assert floor.unit == unit
    assert floor.load.startswith(load)


def test_what_packs_points_moves_them() -> None:
    operation = _matrix(2, element=kronop.float16, expanded=True)
    floor, _ = _floors(operation, _LARGE)
    assert [step.computes for step in _plan(operation, _LARGE).steps] == [False, True]
    assert floor.unit == "memory"
    assert floor.seconds == pytest.approx(2 * 30000 * 1024 * 4 / (0.87 * 4917e9))


@pytest.mark.parametrize(
    ("target", "lanes", "p", "operations"),
    [("x86-avx512", 16, 1, 3), ("x86-avx2", 8, 1, 3), ("x86-avx2", 8, 2, 2)],
)
def test_floors_of_a_core(target, lanes, p, operations) -> None:
    (floor,) = _floors(_matrix(p, target), DistanceSize(1000, 2000, 64))
    assert floor.seconds == pytest.approx(2e6 * 64 * operations / (2 * lanes * 3e9), rel=0.07)
    assert floor.unit == "vector arithmetic of a core"


def test_a_core_writes_results_of_few_features_no_faster_than_memory_takes_them() -> None:
    operation = _matrix(2, "x86-avx512", expanded=True)
    (floor,) = _floors(operation, DistanceSize(4000, 4000, 1))
    assert str(floor).startswith("memory: 64 MB, floor 3.05 ms for 4000 x 4000 points")


@pytest.mark.parametrize(
    ("columns", "ms", "unit"), [(1, 1.48, "FP32 issue"), (16, 1.59, "tensor cores")]
)
def test_floors_of_products(columns, ms, unit) -> None:
    kernel = kronop.kernels.Gaussian(1.0)
    operation = _operation(kronop.KernelMatmulOperation, 3, "sm_90a", kernel=kernel)
    size = KernelMatmulSize(100000, 100000, 3, c=columns)
    floors = dict(
        zip(
            ("pack", "measure", "halves", "mma", "tile", "sum"),
            _floors(operation, size),
            strict=True,
        )
    )
    assert floors["mma"].seconds == pytest.approx(ms / 1e3, rel=0.01)
    assert floors["mma"].unit == unit
    assert floors["tile"].unit == "FP32 issue"
    assert floors["tile"].seconds > floors["mma"].seconds
    assert {floors[name].unit for name in ("pack", "measure", "halves", "sum")} == {"memory"}
    assert floors["measure"].seconds == pytest.approx(4 * 3 * 200000 / (0.87 * 4917e9))


@pytest.mark.parametrize(
    ("p", "ms", "unit"),
    [(1, 0.367, "FP32 issue"), (2, 0.137, "tensor cores"), (1.3, 0.718, "FP32 issue")],
)
def test_floors_of_gradients(p, ms, unit) -> None:
    kind, given = kronop.DistanceGradientOperation, {"power": p, "expanded": p == 2}
    operation = _operation(kind, 4, "sm_90a", **given)
    (floor,) = _floors(operation, GradientSize(512, 2000, 2000, 4))
    assert floor.seconds == pytest.approx(ms / 1e3, rel=0.01)
    assert floor.unit == unit


def test_reports_tell_them() -> None:
    operation = _matrix(1)
    expected = "FP32 issue: 2 instructions a feature and pair, floor"
    assert f"{expected} 55.1 ms for 30000 x 30000 points of 1024 features" in (
        operation.plan.explain(_LARGE)
    )
    # Without a size, they are for the one that the plan was made for.
    for report in (operation.plan.explain(), str(operation.plan)):
        assert f"{expected} 4.11 ms for 16384 x 16384 points of 256 features" in report
    assert "floor 0 us" in operation.plan.explain(DistanceSize(0, 0, 0))


def test_remembered_plans_keep_them() -> None:
    for operation in (_matrix(1.3), _matrix(2, expanded=True)):
        plan, epilogue = operation.plan, operation.description.epilogue
        assert from_text(to_text(plan, epilogue), plan.target, epilogue) == plan
