"""warmup, and training steps that compile their kernels together."""

from __future__ import annotations

import functools
import signal
from typing import Any

import numpy as np
import pytest

import kronop
from kronop import compiler
from kronop.compiler import build
from kronop.core import calls, gathering, prepared, program

_MATRIX = kronop.TensorDescription(kronop.float32)
_EPILOGUE = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
_PATTERNS = [(1, 3, 5, 1), (3, 2, 1, 1)]  # 5 -> 3 -> 6


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many kernels were asked for together, each time that there were any that this process
    did not have yet."""
    found: list[int] = []
    deliver = build._deliver_all

    def counted(jobs: Any) -> Any:
        found.extend([len(jobs)] if jobs else [])
        return deliver(jobs)

    monkeypatch.setattr(build, "_deliver_all", counted)
    compiler.forget()
    for forget in (prepared.forget, program.forget):
        forget()
    calls.operation_of.cache_clear()  # They hold loaded kernels.
    return found


def test_operations_are_compiled_together(batches: list[int]) -> None:
    shapes = [(2, 3), (3, 7)], [(3, 2), (7, 3)]
    every = [
        kronop.KronMatmulOperation("x86", None, _MATRIX, _MATRIX, _MATRIX, _EPILOGUE, factors)
        for factors in shapes
    ]
    assert kronop.warmup(every) >= 2
    (count,) = batches
    assert count == sum(len(operation.sources) for operation in every)
    assert kronop.warmup(every[0]) == 0
    assert [binary.entry for binary in every[1].binaries] == [
        source.entry for source in every[1].sources
    ]
    assert all(id(operation.plan) in operation._served for operation in every)  # Loaded.


def test_a_function_is_called_and_nothing_of_it_is_run(batches: list[int]) -> None:
    x, factors = np.ones((3, 6), np.float32), [np.ones((2, 3), np.float32)] * 1
    factors.append(np.ones((3, 2), np.float32))
    out = np.full((3, 6), 7, np.float32)
    for _ in range(3):  # Calls that were left out are not taken for calls to repeat.
        kronop.warmup(kronop.gemkm, x, factors, out=out)
        assert (out == 7).all()
    assert len(batches) == 1
    kronop.gemkm(x, factors, out=out)
    assert (out == 6).all()
    assert len(batches) == 1


def test_descriptors_are_compiled_for_calls_of_many_points(
    batches: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    kind = kronop.kernel_descriptor_p_norm
    kronop.pre_compile_descriptors("cpu", [kind], try_to_align=True, debug=True)
    assert len(batches) == 1
    assert "distance_f32_general" in capsys.readouterr().out
    x, y = np.empty((8192, 6), np.float32), np.empty((20000, 6), np.float32)
    for other in (x, y):
        assert kronop.warmup(kronop.run_kernel, kind, x, other, p=np.array([1.3, 2.6])) == 0


def test_what_is_no_descriptor_or_device_is_refused() -> None:
    with pytest.raises(kronop.ElementTypeError, match=r"a kronop\.KernelDescriptor, got 'l1'"):
        kronop.pre_compile_descriptors("cpu", ["l1"])
    with pytest.raises(kronop.ArgumentError, match=r"device: expected cpu, cuda, .* got 'gpu'"):
        kronop.pre_compile_descriptors("gpu", kronop.kernel_descriptor_mma)


class _Handler:
    """A signal handler that multiplies."""

    def __init__(self) -> None:
        self.found: list[Any] = []

    def __call__(self, *_: object) -> None:
        self.found.append(kronop.gemkm(np.ones((2, 6)), [2 * np.eye(2), np.eye(3)]))

    def method(self, *_: object) -> None:
        self()


def test_signal_handlers_get_values_during_a_warm_up(batches: list[int]) -> None:
    handler, gathered = _Handler(), []

    def work() -> None:
        signal.raise_signal(signal.SIGUSR1)
        gathered.append(gathering.is_gathering())

    before = signal.getsignal(signal.SIGUSR1)
    called = (handler, handler.method, functools.partial(handler.method), lambda *_: handler())
    try:
        for each in called:
            signal.signal(signal.SIGUSR1, each)
            kronop.warmup(work)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert gathered == [True] * len(called)
    assert len(handler.found) == len(called)
    assert all((item == 2).all() for item in handler.found)


def test_what_is_no_work_is_refused() -> None:
    with pytest.raises(kronop.ElementTypeError, match="an operation, a list of operations"):
        kronop.warmup([1, 2])
    operation = kronop.KronMatmulOperation(
        "x86", None, _MATRIX, _MATRIX, _MATRIX, _EPILOGUE, [(2, 2)]
    )
    with pytest.raises(kronop.ElementTypeError, match="none beside operations"):
        kronop.warmup(operation, 1)


def test_errors_say_that_values_are_meaningless() -> None:
    def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        kronop.warmup(work)
    assert "their results are meaningless" in caught.value.__notes__[0]
    assert not gathering.is_gathering()


def _layer(torch: Any) -> Any:
    torch.manual_seed(3)
    return kronop.torch.nn.KSLinear(_PATTERNS)


def test_a_module_is_warmed_up_with_its_backward_and_left_as_it_was(batches: list[int]) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(_layer(torch), torch.nn.BatchNorm1d(6), torch.nn.Dropout())
    x = torch.randn(4, 5, requires_grad=True)
    state, random = {**model.state_dict()}, torch.get_rng_state()
    before = {name: item.clone() for name, item in state.items()}
    kronop.warmup(model, x)
    (count,) = batches
    assert count == 4  # Two factors, forward and backward; gradients of weights are torch's.
    assert x.grad is None
    assert all(item.grad is None for item in model.parameters())
    assert all(torch.equal(before[name], item) for name, item in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    for _ in range(3):
        model(x).square().sum().backward()
    assert len(batches) == 1
    dense = torch.nn.functional.linear(x, model[0].get_dense_product(), model[0].bias)
    torch.testing.assert_close(model[0](x), dense, rtol=1e-5, atol=1e-5)


def test_without_gradients_the_backward_is_left_out(batches: list[int]) -> None:
    torch = pytest.importorskip("torch")
    layer, x = _layer(torch), torch.randn(4, 5)
    with torch.no_grad():
        kronop.warmup(layer, x)
        (count,) = batches
        layer(x)
    assert count <= 2  # One or two for both factors, and none of a backward.
    assert len(batches) == 1


def test_a_first_forward_compiles_what_its_backward_needs(batches: list[int]) -> None:
    torch = pytest.importorskip("torch")
    layer = kronop.torch.nn.KSLinear([(1, 4, 3, 1), (2, 3, 2, 1)])
    x = torch.randn(4, 3, requires_grad=True)
    layer(x).square().sum().backward()
    assert batches == [4]
    dense = torch.nn.functional.linear(x, layer.get_dense_product(), layer.bias)
    (expected,) = torch.autograd.grad(dense.square().sum(), x)
    torch.testing.assert_close(x.grad, expected, rtol=1e-5, atol=1e-5)


def test_products_of_factors_too(batches: list[int]) -> None:
    torch = pytest.importorskip("torch")
    factors = [torch.randn(2, 3, requires_grad=True), torch.randn(3, 2, requires_grad=True)]
    x = torch.randn(4, 6, requires_grad=True)
    kronop.torch.gemkm(x, factors).sum().backward()
    assert len(batches) == 1
    torch.testing.assert_close(x.grad, torch.ones(4, 6) @ torch.kron(*factors).detach().T)


def test_what_can_not_be_foreseen_does_not_fail_the_forward() -> None:
    def fails() -> None:
        raise RuntimeError

    with gathering.foreseeing(fails):
        gathering.before_loading()
    assert not gathering.is_gathering()


def test_it_is_foreseen_once() -> None:
    calls: list[int] = []
    with gathering.foreseeing(lambda: calls.append(1)):
        gathering.before_loading()
        gathering.before_loading()
    assert calls == [1]


def _changing(torch: Any) -> Any:
    """A module with buffers of all kinds: changed, assigned anew, resized and read by another
    module's forward only."""

    class Changing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(6)
            self.inner = torch.nn.Module()
            self.inner.register_buffer("count", torch.tensor(2.0))
            self.register_buffer("last", torch.ones(6))
            self.register_buffer("sized", torch.ones(2))
            self.register_buffer("none", None)

        def forward(self, x: Any) -> Any:
            self.inner.count.add_(1)
            self.last = self.none = x.detach().mean(0)
            self.sized.resize_(5)
            return self.norm(x)

    return Changing()


def test_buffers_of_modules_in_a_function_are_as_before() -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(_layer(torch), _changing(torch))
    x, target = torch.randn(4, 5), torch.randn(4, 6)
    objects = {**dict(model.named_buffers())}
    values = {name: item.clone() for name, item in objects.items()}
    kronop.warmup(lambda: (model(x) - target).square().mean())
    found = dict(model.named_buffers())
    assert all(found[name] is item for name, item in objects.items())
    assert found.keys() == objects.keys()
    assert all(torch.equal(values[name], item) for name, item in found.items())
    assert model[1].none is None
    compiled = torch.compile(model[1].norm, backend="eager", fullgraph=True)
    kronop.warmup(lambda: compiled(torch.randn(4, 6)).sum())
    assert torch.equal(model[1].norm.running_mean, values["1.norm.running_mean"])


def test_gradients_are_as_before_also_where_a_function_goes_backward() -> None:
    torch = pytest.importorskip("torch")
    layer, x = _layer(torch), torch.randn(4, 5, requires_grad=True)
    layer.bias.grad = bias_grad = torch.full((6,), 3.0)
    x.grad = x_grad = torch.full((4, 5), 2.0)
    kronop.warmup(lambda x: layer(x).sum().backward(), x)
    assert layer.bias.grad is bias_grad
    assert x.grad is x_grad
    assert (bias_grad == 3).all()
    assert (x_grad == 2).all()
    assert all(item.grad is None for item in layer.weights)


def test_graphs_made_before_can_be_gone_through_afterwards() -> None:
    torch = pytest.importorskip("torch")
    layer, norm = _layer(torch), torch.nn.BatchNorm1d(5).eval()
    hidden = norm(torch.randn(4, 5, requires_grad=True)).exp()
    kronop.warmup(lambda: layer(norm(hidden)))
    hidden.sum().backward()
    assert norm.weight.grad is not None
