"""The cases that the generator makes."""

from __future__ import annotations

import pytest

from tests import support
from tests.fuzz import plans
from tests.fuzz.case import FAMILIES, Call, Operand
from tests.fuzz.generate import Settings, make
from tests.fuzz.layouts import GUARD

_GPU = Settings(targets=("sm_90a",))
_HOST = Settings(targets=("x86-generic", "x86-avx2"))


def _operands(call: Call) -> list[Operand]:
    found = (call.x, call.g, call.z, call.bias, call.out, *call.parts)
    return [item for item in found if item is not None]


@pytest.mark.parametrize("settings", [_GPU, _HOST], ids=["gpu", "host"])
def test_names_decide_all_and_every_kind_of_case_comes(settings) -> None:
    cases = [make(f"3.0.{index}", settings) for index in range(400)]
    assert cases[:20] == [make(f"3.0.{index}", settings) for index in range(20)]
    assert {case.problem.family for case in cases} == set(FAMILIES)
    problems = [case.problem for case in cases]
    assert {item.element for item in problems} == {*support.ELEMENTS, *support.FLOAT8}
    assert {item.left for item in problems if item.of_kron} == {True, False}
    assert {item.batch_last for item in problems} == {True, False}
    calls = [call for case in cases for call in case.calls]
    ways = {"stream", "graph"} if settings.on_gpu else set()
    assert {call.how for call in calls} == {"line", "bound", "described", *ways}
    assert {call.framework for call in calls} == {"numpy", "torch"}
    strides = [stride for call in calls for stride in call.x.strides]
    assert min(strides) < 0
    assert 0 in strides
    rows = [plans.rows_of(case.problem, call) for case in cases for call in case.calls]
    assert min(rows) == 1
    assert max(rows) >= (90_000 if settings.on_gpu else 2_000)


@pytest.mark.parametrize("settings", [_GPU, _HOST], ids=["gpu", "host"])
def test_operands_lie_inside_of_guarded_memory(settings) -> None:
    for index in range(300):
        case = make(f"4.0.{index}", settings)
        for call in case.calls:
            for item in _operands(call):
                ends = [
                    (extent - 1) * stride
                    for extent, stride in zip(item.shape, item.strides, strict=True)
                ]
                low = item.offset + sum(min(0, end) for end in ends)
                high = item.offset + sum(max(0, end) for end in ends)
                assert GUARD <= low <= high < item.size - GUARD
            torch = call.framework == "torch"
            assert not torch or min([0, *(s for i in _operands(call) for s in i.strides)]) == 0
            assert call.beta != 0 or call.z is None
            assert call.out is None or 0 not in [
                stride
                for stride, extent in zip(call.out.strides, call.out.shape, strict=True)
                if extent > 1
            ]


def test_cases_that_share_kernels_have_few_problems() -> None:
    settings = Settings(targets=("x86-generic",), problems=5)
    cases = [make(f"3.0.{index}", settings) for index in range(40)]
    assert len({case.problem for case in cases}) == 5
    assert len({case.calls for case in cases}) == 40
