"""Calls of kronop.torch that were made before: launched at once, and told apart from others."""

from __future__ import annotations

import collections
import contextlib
import copy
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.autograd import forward_ad  # noqa: E402

import kronop  # noqa: E402
import kronop.torch  # noqa: E402
from kronop.core import prepared, program  # noqa: E402
from kronop.families.kron.torch import gradient, sums  # noqa: E402
from kronop.families.ksparse.torch import computing, steps  # noqa: E402
from kronop.torch.declaration import Prepared  # noqa: E402
from kronop.torch.nn import KSLinear  # noqa: E402
from kronop.torch.repeated import Repeat, Repeats  # noqa: E402
from tests.unit import test_program, test_torch_steps  # noqa: E402

_close = torch.testing.assert_close


class _Counter:
    repeated = 0


@pytest.fixture(autouse=True)
def counter(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Counter]:
    """How many calls were repeated."""
    counter, launch = _Counter(), Repeat.launch

    def counting(self: Any, tensors: Any) -> Any:
        result = launch(self, tensors)
        counter.repeated += result is not None
        return result

    monkeypatch.setattr(Repeat, "launch", counting)
    prepared.forget()
    program.forget()
    yield counter
    prepared.forget()
    program.forget()


def _kron(*factors: Any) -> Any:
    return torch.kron(*(item.contiguous() for item in factors))


def _dense(weight: Any) -> Any:
    a, b, c, d = weight.shape
    blocks = torch.einsum(
        "ijkl,im,ln->ijlmkn", weight, torch.eye(a).to(weight), torch.eye(d).to(weight)
    )
    return blocks.reshape(a * b * d, a * c * d)


def _gemkm(x: Any, v: Any, w: Any) -> Any:
    return kronop.torch.gemkm(x, [v, w], alpha=0.5)


def _gekmm(x: Any, v: Any, w: Any) -> Any:
    return kronop.torch.gekmm([v, w], x)


def _ksmm(x: Any, v: Any, w: Any) -> Any:
    return kronop.torch.ksmm(x, [v, w])


_CALLS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Any]] = {
    "gemkm": (_gemkm, lambda x, v, w: 0.5 * x @ _kron(v, w), ((5, 6), (2, 3), (3, 4))),
    "gekmm": (_gekmm, lambda x, v, w: _kron(v, w) @ x, ((6, 5), (3, 2), (4, 3))),
    "ksmm": (
        _ksmm,
        lambda x, v, w: x @ (_dense(w) @ _dense(v)).mT,
        ((5, 4), (2, 3, 2, 1), (1, 2, 3, 2)),
    ),
}


@pytest.fixture(params=_CALLS.values(), ids=_CALLS.keys())
def case(request: pytest.FixtureRequest) -> Any:
    return request.param


def _operands(shapes: Any, seed: int, kind: Any = torch.float64) -> list[Any]:
    generator = torch.Generator().manual_seed(seed)
    made = [torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes]
    return [item.to(kind) for item in made]


def _derived(call: Any, operands: Any, asked: Any) -> list[Any]:
    for at, item in enumerate(operands):
        item.requires_grad_(at in asked)
    result = call(*operands)
    chosen = [operands[at] for at in asked]
    weights = torch.arange(result.numel(), dtype=result.dtype).reshape(result.shape) + 1
    return [result, *torch.autograd.grad(result, chosen, weights)] if asked else [result]


@pytest.mark.parametrize("asked", [(), (0,), (1, 2), (0, 1, 2)])
def test_repeated_calls_are_those_of_other_tensors(
    counter: _Counter, case: Any, asked: Any
) -> None:
    call, exact, shapes = case
    every = []
    for seed in range(8):
        operands = _operands(shapes, seed)
        every.append(operands)  # So that no tensor is where an earlier one was.
        _close(_derived(call, operands, asked), _derived(exact, operands, asked))
    assert counter.repeated >= 3


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients by doubles of their kernels, launched from addresses as these are."""
    for module in (steps, computing, gradient, sums):
        monkeypatch.setattr(module, "on_gpu", lambda item: True)
    monkeypatch.setattr(computing, "weight_gradient", test_torch_steps._weight_gradient)
    monkeypatch.setattr(steps, "gradient_arguments", test_torch_steps._arguments)
    monkeypatch.setattr(sums, "weight_gradient", test_program._weight_gradient)
    monkeypatch.setattr(sums, "gradient_arguments", test_program._arguments)


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("asked", [(1,), (1, 2), (0, 2), (0, 1, 2)])
def test_repeated_backwards_are_those_of_other_tensors(
    counter: _Counter, case: Any, asked: Any
) -> None:
    call, exact, shapes = case
    every = []
    for seed in range(10):
        operands, before = _operands(shapes, seed), counter.repeated
        every.append(operands)
        found = _derived(call, operands, asked)
        repeated = counter.repeated - before
        _close(found, _derived(exact, operands, asked))
        if len(asked) > 1:
            assert len({item.untyped_storage().data_ptr() for item in found}) == len(found)
    assert repeated == 2


@pytest.mark.usefixtures("as_on_a_gpu")
def test_a_layers_repeated_backward_has_all_gradients(counter: _Counter) -> None:
    layer = KSLinear([(2, 3, 2, 1), (1, 2, 3, 2)], dtype=torch.float64)
    for seed in range(10):
        (x,), before = _operands(((5, 4),), seed), counter.repeated
        leaves = [x.requires_grad_(), *layer.parameters()]
        ones = torch.ones(5, 4, dtype=torch.float64)
        for grad in (ones, ones[:1].expand(5, 4)):
            found = torch.autograd.grad(layer(x), leaves, grad)
            repeated = counter.repeated - before
            exact = torch.nn.functional.linear(x, layer.get_dense_product(), layer.bias)
            _close(found, torch.autograd.grad(exact, leaves, grad))
    assert repeated == 4


@pytest.mark.usefixtures("as_on_a_gpu")
def test_what_a_backward_is_asked_for_is_told_apart(counter: _Counter, case: Any) -> None:
    call, exact, shapes = case
    operands = [item.requires_grad_() for item in _operands(shapes, 0)]
    for _ in range(8):
        for chosen in (operands, operands[1:], operands[:1], operands[1:2]):
            ours, right = (
                torch.autograd.grad(product(*operands).sin().sum(), chosen)
                for product in (call, exact)
            )
            _close(ours, right)
    assert counter.repeated


def test_what_decides_a_call_is_told_apart(counter: _Counter, case: Any) -> None:
    call, exact, shapes = case
    changes: list[Callable[[list[Any]], list[Any]]] = [
        lambda items: items,
        lambda items: [item.float() for item in items],
        lambda items: [items[0].repeat_interleave(2, 0)[::2], *items[1:]],
        lambda items: [items[0].mT.contiguous().mT, *items[1:]],
        lambda items: [items[0], items[1].mT.contiguous().mT, items[2]],
        lambda items: [torch._neg_view(items[0]), *items[1:]],
    ]
    for _ in range(5):
        for at, change in enumerate(changes):
            for asked in ((), (1,), (0, 2)):
                operands = [item.detach() for item in change(_operands(shapes, at))]
                expected = _derived(exact, operands, asked)
                _close(_derived(call, operands, asked), expected, rtol=1e-5, atol=1e-5)
    assert counter.repeated


def test_more_rows_are_another_call(counter: _Counter) -> None:
    call, exact, _ = _CALLS["gemkm"]
    for _ in range(5):
        for rows in (1, 2, 5, 0):
            operands = _operands(((rows, 6), (2, 3), (3, 4)), rows)
            _close(call(*operands), exact(*operands))
    assert counter.repeated >= 3


def test_one_tensor_twice_is_not_two(counter: _Counter) -> None:
    for _ in range(4):
        x, v, w = _operands(((5, 4), (2, 2), (2, 2)), 0)
        for pair in ((v, v), (v, w), (w, w)):
            _close(_gemkm(x, *pair), 0.5 * x @ _kron(*pair))
        leaf = v.requires_grad_()
        ours, exact = (
            torch.autograd.grad(y.sin().sum(), leaf)
            for y in (_gemkm(x, leaf, leaf), 0.5 * x @ _kron(leaf, leaf))
        )
        _close(ours, exact)


def test_where_others_look_on_nothing_is_repeated(counter: _Counter, case: Any) -> None:
    call, exact, shapes = case
    x, v, w = operands = _operands(shapes, 0)
    for _ in range(6):
        call(*operands)
    before = counter.repeated
    assert before
    right = exact(*operands)
    _close(torch.vmap(call, (None, None, 0))(x, v, torch.stack([w, 2 * w]))[1], 2 * right)
    _close(torch.func.jvp(call, (x, v, w), (x, v, w))[1], 3 * right)
    with forward_ad.dual_level():
        _close(forward_ad.unpack_dual(call(forward_ad.make_dual(x, x), v, w)).tangent, right)
    _close(torch.compile(call, backend="aot_eager", fullgraph=True)(*operands), right)
    traced = torch.jit.trace(call, (x, v, w), check_trace=False)
    _close(traced(2 * x, v, w), 2 * right)
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
        assert type(call(*operands)) is not torch.Tensor
    graph = torch.fx.experimental.proxy_tensor.make_fx(call)(x, v, w)
    _close(graph(2 * x, v, w), 2 * right)
    assert counter.repeated == before
    call(*operands)
    assert counter.repeated == before + 1


def test_modes_of_functions_see_operators_and_a_default_device_is_none(
    counter: _Counter, case: Any
) -> None:
    call, exact, shapes = case
    seen = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    operands = _operands(shapes, 0)
    for _ in range(6):
        call(*operands)
    before = counter.repeated
    with torch.device("cpu"):
        call(*operands)
    assert counter.repeated == before + 1
    with Mode():
        result = call(*operands)
    assert any(name.startswith("kronop.") for name in seen)
    _close(result, exact(*operands))
    assert counter.repeated == before + 1


@pytest.mark.parametrize("calls", [0, 6])
def test_profiles_and_nodes_name_the_operator(case: Any, calls: int) -> None:
    call, _, shapes = case
    for asked in ((), (0, 1, 2)):
        for _ in range(calls):
            _derived(call, _operands(shapes, 0), asked)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            result, *_ = _derived(call, _operands(shapes, 0), asked)
        counts = {item.key: item.count for item in profile.key_averages()}
        name = "ksmm" if call is _ksmm else "kron"
        assert counts[f"kronop::{name}"] == 1
        if asked:
            assert result.grad_fn.name() == f"{name}Backward"
            assert f"{name}Backward" in counts


def test_tensors_with_classes_of_their_own_go_through_torch(counter: _Counter, case: Any) -> None:
    call, exact, shapes = case

    class Own(torch.Tensor):
        pass

    operands = _operands(shapes, 0)
    for _ in range(5):
        call(*operands)
    before = counter.repeated
    own = operands[0].as_subclass(Own)
    _close(call(own, *operands[1:]).as_subclass(torch.Tensor), exact(*operands))
    assert counter.repeated == before


_REFUSED: dict[str, Callable[..., Any]] = {
    "stacked factors": lambda x, v, w: kronop.torch.gemkm(x, torch.stack([v, w])),
    "a dictionary": lambda x, v, w: kronop.torch.gemkm(x, {v: 1, w: 2}),
    "a deque": lambda x, v, w: kronop.torch.gekmm(collections.deque([v, w]), x.mT),
    "a bool that scales": lambda x, v, w: kronop.torch.gemkm(x, [v, w], alpha=True),
    "a complex number": lambda x, v, w: kronop.torch.gemkm(x, [v, w], alpha=1 + 0j),
    "text": lambda x, v, w: kronop.torch.gemkm(x, [v, w], alpha="one"),
    "a bool beside z": lambda x, v, w: kronop.torch.gemkm(x, [v, w], beta=False),
    "a bool that scales, sparse": lambda x, v, w: kronop.torch.ksmm(x, _sparse(v), alpha=True),
    "a complex number, sparse": lambda x, v, w: kronop.torch.ksmm(x, _sparse(v), alpha=1 + 0j),
    "a number for a flag": lambda x, v, w: kronop.torch.ksmm(x, _sparse(v), batch_last=0),
}


def _sparse(matrix: Any) -> Any:
    return matrix[None, :, :, None].expand(2, 2, 2, 1)


@pytest.mark.parametrize("wrong", _REFUSED.values(), ids=_REFUSED.keys())
@pytest.mark.parametrize("asked", [(), (0,)])
@pytest.mark.parametrize("calls", [0, 6])
def test_what_is_refused_is_refused_after_others(
    counter: _Counter, wrong: Callable[..., Any], asked: tuple[int, ...], calls: int
) -> None:
    x, v, w = _operands(((5, 4), (2, 2), (2, 2)), 0)
    for at, item in enumerate((x, v, w)):
        item.requires_grad_(at in asked)
    for _ in range(calls):
        kronop.torch.gemkm(x, [v, w])
        kronop.torch.gekmm([v, w], x.mT)
        kronop.torch.ksmm(x, _sparse(v))
    assert bool(counter.repeated) is bool(calls)
    with pytest.raises(kronop.ElementTypeError):
        wrong(x, v, w)


def test_gradients_of_gradients_after_repeated_calls(case: Any) -> None:
    call, exact, shapes = case
    for seed in range(6):
        operands = [item.requires_grad_() for item in _operands(shapes, seed)]
        found = []
        for product in (call, exact):
            y = product(*operands)
            first = torch.autograd.grad(y.sin().sum(), operands, create_graph=True)
            found.append(torch.autograd.grad(sum(item.cos().sum() for item in first), operands))
        _close(*found)


def test_saved_tensors_that_changed_are_an_error_each_time(case: Any) -> None:
    call, _, shapes = case
    for seed in range(6):
        operands = _operands(shapes, seed)
        operands[0].requires_grad_()
        result = call(*operands)
        operands[1].mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()


def test_hooks_may_give_other_tensors_back(case: Any) -> None:
    call, exact, shapes = case
    hooks: Callable[[], Any] = lambda: torch.autograd.graph.saved_tensors_hooks(  # noqa: E731
        lambda item: item.float(), lambda item: item.double().clone()
    )
    for seed in range(6):
        for context in (contextlib.nullcontext, hooks):
            operands = [item.float().double() for item in _operands(shapes, seed)]
            with context():
                found = _derived(call, operands, (0, 1, 2))
            right = _derived(exact, operands, (0, 1, 2))
            _close(found, right, rtol=1e-5, atol=1e-5)


def test_what_a_users_hook_raises_is_the_users(case: Any) -> None:
    call, _, shapes = case
    operands = [item.requires_grad_() for item in _operands(shapes, 0)]
    for _ in range(6):
        call(*operands)
    packed = []

    def pack(item: Any) -> Any:
        packed.append(item)
        raise TypeError("a hook's own")

    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda item: item),
        pytest.raises(TypeError, match="a hook's own"),
    ):
        call(*operands)
    assert len(packed) == 1


def test_memory_that_was_freed_is_an_error(case: Any) -> None:
    call, _, shapes = case
    operands = _operands(shapes, 0)
    for _ in range(5):
        call(*operands)
    operands[1].untyped_storage().resize_(0)
    with pytest.raises(kronop.ArgumentError):
        call(*operands)


@pytest.mark.parametrize("asked", [(), (0, 1, 2)])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_memory_that_shrank_is_an_error(case: Any, place: int, asked: tuple[int, ...]) -> None:
    call, _, shapes = case
    for seed in range(6):
        _derived(call, _operands(shapes, seed), asked)
    operands = _operands(shapes, 6)
    storage = operands[place].untyped_storage()
    storage.resize_(storage.nbytes() // 2)
    with pytest.raises(kronop.ArgumentError):
        _derived(call, operands, asked)


def test_nothing_that_was_given_is_kept(case: Any) -> None:
    call, _, shapes = case
    for asked in ((), (0, 1, 2)):
        operands = _operands(shapes, 0)
        for _ in range(6):
            _derived(call, operands, asked)
        kept = [weakref.ref(item) for item in operands]
        del operands
        gc.collect()
        assert not any(item() is not None for item in kept)


def test_what_was_learned_is_forgotten_with_the_rest(counter: _Counter) -> None:
    call, exact, shapes = _CALLS["gemkm"]
    operands = _operands(shapes, 0)
    for _ in range(6):
        call(*operands)
    before = counter.repeated
    prepared.forget()
    _close(call(*operands), exact(*operands))
    assert counter.repeated == before


@pytest.fixture
def threads() -> Iterator[Any]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def _prepared(x: Any, launched: str) -> Callable[[], Prepared]:
    return lambda: Prepared(
        tensors=[x], launch=lambda tensors, addresses: launched, finish=lambda made, tensors: made
    )


def test_what_was_learned_under_other_threads_stays(threads: Any) -> None:
    repeats, x = Repeats(), torch.ones(4)
    for count in (1, 2):
        threads(count)
        for _ in range(2):
            repeats.learn("form", [x], _prepared(x, f"{count} threads"))
    for count in (1, 2, 1):
        threads(count)
        found = repeats.find("form", [x])
        assert found is not None
        assert found.launch([x]) == f"{count} threads"
    program.forget()
    assert repeats.find("form", [x]) is None


def test_what_changes_while_a_call_is_prepared_or_found_is_seen(threads: Any) -> None:
    repeats, x = Repeats(), torch.ones(4)

    def prepare() -> Prepared:
        threads(2)
        return _prepared(x, "1 thread")()

    threads(1)
    for _ in range(2):
        threads(1)
        repeats.learn("form", [x], prepare)
    for count in (1, 2):
        threads(count)
        assert repeats.find("form", [x]) is None


def test_forgotten_calls_are_learned_anew(counter: _Counter, case: Any) -> None:
    call, exact, shapes = case
    operands = _operands(shapes, 0)
    for _ in range(3):
        for _ in range(20):
            call(*operands)
        before = counter.repeated
        program.forget()
        prepared.forget()
        for _ in range(5):
            _close(call(*operands), exact(*operands))
        assert counter.repeated > before


def test_autocast_and_inference_are_told_apart(counter: _Counter) -> None:
    layer = KSLinear([(2, 3, 2, 1), (1, 2, 3, 2)])
    x = torch.randn(5, 4)
    exact = torch.nn.functional.linear(x, layer.get_dense_product(), layer.bias)
    for _ in range(6):
        _close(layer(x), exact)
        with torch.no_grad():
            assert not layer(x).requires_grad
        with torch.inference_mode():
            assert layer(x).is_inference()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            narrow = layer(x)
        assert narrow.dtype is torch.bfloat16
        assert narrow.requires_grad
        _close(narrow.float(), exact, rtol=0.1, atol=0.1)
    assert counter.repeated


@pytest.mark.parametrize("asked", [(), (0,), (1, 2), (0, 1, 2)])
def test_calls_under_autocast_are_repeated(counter: _Counter, asked: Any) -> None:
    call, exact, shapes = _CALLS["ksmm"]
    kinds = (torch.bfloat16, torch.float16)
    for seed in range(16):
        kind = kinds[seed % 3 == 2]
        operands = _operands(shapes, seed, torch.float32)
        before = counter.repeated
        with torch.autocast("cpu", dtype=kind):
            result, *found = _derived(call, operands, asked)
        assert counter.repeated == before or seed > 2
        assert result.dtype is kind
        assert all(item.dtype is torch.float32 for item in found)
        rounded = [item.detach().to(kind).double() for item in operands]
        right = _derived(exact, rounded, asked)
        _close([item.double() for item in (result, *found)], right, rtol=0.1, atol=1.0)
    assert counter.repeated > before


def test_layers_that_were_copied_pruned_or_frozen(counter: _Counter) -> None:
    layer, x = KSLinear([(2, 3, 2, 1), (1, 2, 3, 2)]), torch.randn(5, 4)

    def check(layer: Any) -> None:
        for _ in range(5):
            exact = torch.nn.functional.linear(x, layer.get_dense_product(), layer.bias)
            _close(layer(x), exact)

    check(layer)
    other = copy.deepcopy(layer)
    with torch.no_grad():
        other.bias.mul_(3)
    check(other)
    torch.nn.utils.parametrize.register_parametrization(other, "bias", torch.nn.Tanh())
    check(other)
    torch.nn.utils.parametrize.register_parametrization(other.weights, "0", torch.nn.Tanh())
    check(other)
    check(layer.requires_grad_(False))
    layer.bias = None
    check(layer)
    found = torch.func.functional_call(layer, {"weights.0": layer.weights[0] * 2}, (x,))
    _close(found, 2 * layer(x))
    assert counter.repeated
