"""Repeated calls that native code runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.core import prepared
from kronop.core.native import library
from kronop.core.native.calls import NativeCall

torch = pytest.importorskip("torch")
pytest.importorskip("tvm_ffi")
_RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def ran(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Whether native code took each call that it was asked for."""
    assert library.wait("x86") is not None
    prepared.forget()
    taken, run = [], NativeCall.run

    def noting(self: Any, *arguments: Any) -> Any:
        result = run(self, *arguments)
        taken.append(result is not None)
        return result

    monkeypatch.setattr(NativeCall, "run", noting)
    yield taken
    prepared.forget()


def _array(*shape: int) -> Any:
    return _RNG.standard_normal(shape, np.float32)


def _own(kind: str) -> Callable[[Any], Any]:
    if kind == "numpy":
        return lambda array: array
    return torch.from_numpy


def _warm(call: Callable[[], Any]) -> None:
    for _ in range(3):
        call()


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_calls_are_taken(kind: str, ran: list[bool]) -> None:
    own = _own(kind)
    x, factors, weights = (
        own(_array(4, 64)),
        [own(_array(8, 8)) for _ in range(2)],
        _array(2, 5, 5, 1),
    )
    a, points = own(_array(7, 9)), own(_array(6, 3))
    calls: list[Callable[[], Any]] = [
        lambda: kronop.gemkm(x, factors),
        lambda: kronop.gemkm(x, factors, alpha=0.5, beta=2.0, z=x),
        lambda: kronop.ksmm(own(_array(3, 10)), [own(weights)]),
        lambda: kronop.gemm.matmul(a, a.T),
        lambda: kronop.cdist(points, points),
    ]
    for call in calls:
        _warm(call)
        before = ran.count(True)
        call()
        assert ran.count(True) == before + 1
    out = own(np.empty((4, 64), np.float32))
    _warm(lambda: kronop.gemkm(x, factors, out=out))
    assert kronop.gemkm(x, factors, out=out) is out
    assert ran[-1]


def test_what_native_code_does_not_take(ran: list[bool]) -> None:
    """Results are those of calls that are checked, whatever changes after a call was learned."""
    x, f = torch.randn(4, 64), [torch.randn(8, 8) for _ in range(2)]
    _warm(lambda: kronop.gemkm(x, f))

    def product(x: Any, f: Any) -> Any:
        return x.double() @ torch.kron(*(it.double().contiguous() for it in f))

    spread = torch.randn(4, 128)[:, ::2]
    late = torch.randn(4 * 64 + 1)[1:].view(4, 64)
    for given, factors in (
        (spread, f),
        (late, f),
        (x.double(), [it.double() for it in f]),
        (x[:3], f),
        (x, [f[0], f[0]]),
        (x, [f[0].T, f[1]]),
        (torch.nn.Parameter(x, requires_grad=False), f),
    ):
        for _ in range(4):
            assert torch.allclose(
                kronop.gemkm(given, factors).double(), product(given, factors), atol=1e-4
            )
    for scalar in (True, 2, -0.0):
        kronop.gemkm(x, f, alpha=1.0, beta=float(scalar), z=x)
    with pytest.raises(kronop.ArgumentError, match="negated"):
        kronop.gemkm(torch._neg_view(x), f)
    with pytest.raises(kronop.ArgumentError):
        kronop.gemkm(x, f, out=x)
    held = torch.empty(4, 64)
    _warm(lambda: kronop.gemkm(x, f, out=held))
    with pytest.raises(kronop.ArgumentError, match="overlap"):
        kronop.gemkm(held, f, out=held)
    x.untyped_storage().resize_(8)
    with pytest.raises(kronop.KronopError):
        kronop.gemkm(x, f)


def test_changes_are_counted(ran: list[bool]) -> None:
    x, f, out = torch.randn(4, 64), [torch.randn(8, 8)] * 2, torch.empty(4, 64)
    _warm(lambda: kronop.gemkm(x, f, out=out))
    before = out._version
    kronop.gemkm(x, f, out=out)
    assert ran[-1]
    assert out._version == before + 1


def test_arrays_that_are_read_only(ran: list[bool]) -> None:
    x, f = _array(4, 64), [_array(8, 8)] * 2
    out = np.empty((4, 64), np.float32)
    _warm(lambda: kronop.gemkm(x, f, out=out))
    x.flags.writeable = False
    assert np.allclose(kronop.gemkm(x, f), x @ np.kron(*f), atol=1e-4)
    out.flags.writeable = False
    with pytest.raises(kronop.ArgumentError):
        kronop.gemkm(x, f, out=out)
