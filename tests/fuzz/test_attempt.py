"""`attempt`: the ways to call that need a GPU, with stand-ins on the CPU, and failing cases."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from typing import Any

import pytest

import kronop
from tests.fuzz import arrays, attempt, invoke
from tests.fuzz.case import Case
from tests.fuzz.generate import Settings, make


class _Graph:
    """A stand-in for a CUDA graph: repeats the last call, and writes into its first result."""

    def __init__(self, monkeypatch: Any) -> None:
        self._call, self._kept = None, []
        for name in ("line", "backward"):
            monkeypatch.setattr(invoke, name, self._noting(getattr(invoke, name)))

    def _noting(self, function: Any) -> Any:
        def call(operands: Any) -> Any:
            result = function(operands)
            self._call, self._kept = (function, operands), self._tensors(result)
            return result

        return call

    @staticmethod
    def _tensors(result: Any) -> list[Any]:
        return [result[0], *result[1]] if isinstance(result, tuple) else [result]

    def replay(self) -> None:
        function, operands = self._call
        for kept, new in zip(self._kept, self._tensors(function(operands)), strict=True):
            kept.data.copy_(new)


class _Stream:
    def wait_stream(self, other: Any) -> None:
        assert isinstance(other, _Stream)


@pytest.fixture
def as_on_a_gpu(monkeypatch) -> None:
    """Makes torch tensors on the host stand for tensors on a GPU."""
    torch = pytest.importorskip("torch")

    def memory(operand: Any, element: Any, framework: str, on_gpu: bool) -> Any:
        assert on_gpu
        assert framework == "torch"
        return arrays.DeviceMemory(operand, element, "cpu")

    graph = _Graph(monkeypatch)
    stand_ins = {
        "Stream": _Stream,
        "current_stream": _Stream,
        "stream": lambda stream: contextlib.nullcontext(),
        "synchronize": lambda: None,
        "CUDAGraph": lambda: graph,
        "graph": lambda graph: contextlib.nullcontext(),
        "_sleep": lambda cycles: None,
    }
    for name, value in stand_ins.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(arrays, "memory", memory)


def _case(family: str, **options: Any) -> Case:
    """A small case with one call, which has these attributes."""
    settings = Settings(targets=("sm_90a",), only=(family,))
    for index in range(5_000):
        case = make(f"8.0.{index}", settings)
        sizes = [math.prod(shape) for shape in case.problem.shapes]
        for call in case.calls:
            small = math.prod(call.x.shape) * sum(sizes) < 200_000
            backward = case.problem.backward or family != "gradient"
            known = all(getattr(call, name) == value for name, value in options.items())
            if small and backward and known and call.framework == "torch":
                return dataclasses.replace(case, calls=(call,))
    raise AssertionError(options)


@pytest.mark.parametrize("how", ["stream", "graph", "bound"])
@pytest.mark.parametrize("family", ["kron", "ksparse"])
def test_products_as_on_a_gpu(as_on_a_gpu, family, how) -> None:
    outcome = attempt.run(_case(family, how=how, out=None))
    assert outcome.troubles == []
    assert outcome.calls == (5 if how == "graph" else 4)


@pytest.mark.parametrize("how", ["stream", "graph"])
def test_gradients_as_on_a_gpu(as_on_a_gpu, how) -> None:
    outcome = attempt.run(_case("gradient", how=how))
    assert outcome.troubles == []
    assert outcome.calls == (6 if how == "graph" else 4)


def _host_case() -> Case:
    settings = Settings(targets=("x86-generic",), only=("ksparse",), has_torch=False)
    for index in range(1_000):
        case = make(f"7.0.{index}", settings)
        call, element = case.calls[0], case.problem.element
        if call.how == "line" and call.out is not None and element == kronop.float32:
            return case
    raise AssertionError


def test_what_is_not_written_and_what_raises_is_bad(monkeypatch) -> None:
    case = _host_case()
    monkeypatch.setattr(invoke, "line", lambda operands: operands["out"])
    assert "elements beyond the bound" in attempt.run(case).troubles[0]

    def fail(operands: Any) -> None:
        raise kronop.ArgumentError("refused")

    monkeypatch.setattr(invoke, "line", fail)
    assert "ArgumentError: refused" in attempt.run(case).troubles[0]
