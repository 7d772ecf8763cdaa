"""One-line calls that are repeated: the same results and refusals as when every one is checked."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kronop
from kronop import knobs
from kronop.core import addressed, prepared, winners
from kronop.core.native.calls import NativeCall
from tests import support
from tests.test_properties import _kron_problems, _ksparse_problems

_FLOAT, _ERROR = np.float32, kronop.ArgumentError


class _Counter:
    """How many calls were repeated, and how many of those went the long way after all."""

    def __init__(self) -> None:
        self.repeated = self.declined = 0


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Counter]:
    prepared.forget()
    counter, run, native = _Counter(), prepared.Call.run, NativeCall.run

    def counting(self: Any, *arguments: Any) -> Any:
        result = run(self, *arguments)
        counter.repeated += result is not None
        counter.declined += result is None
        return result

    def counting_native(self: Any, *arguments: Any) -> Any:
        result = native(self, *arguments)
        counter.repeated += result is not None
        return result

    monkeypatch.setattr(prepared.Call, "run", counting)
    monkeypatch.setattr(NativeCall, "run", counting_native)
    yield counter
    prepared.forget()


def _random(*shape: int, dtype: Any = _FLOAT) -> Any:
    return (np.random.default_rng().standard_normal(shape) * 4).astype(dtype)


def _long_way(call: Callable[[], Any]) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepared, "repeat", lambda *arguments, **more: (None, None))
        return call()


def _warm(call: Callable[[], Any]) -> Any:
    """The result of a call that has been learned."""
    for _ in range(3):
        result = call()
    return result


def _check(counter: _Counter, call: Callable[[], Any], repeats: bool = True) -> None:
    expected = np.array(np.asarray(_long_way(call)))
    before = counter.repeated
    for _ in range(5):
        np.testing.assert_array_equal(np.asarray(call()), expected)
    assert counter.repeated == before + (3 if repeats else 0)


@pytest.fixture(params=["numpy", "torch"])
def convert(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    if request.param == "numpy":
        return lambda array: array
    torch = pytest.importorskip("torch")
    return lambda array: torch.from_numpy(array)


def test_products_of_every_form(counter: _Counter, convert: Any) -> None:
    x, factors = convert(_random(3, 5, 12)), [convert(_random(2, 3)), convert(_random(6, 4))]
    z, bias = convert(_random(3, 5, 12)), convert(_random(8))
    weights = [convert(_random(2, 3, 3, 2)), convert(_random(1, 4, 6, 2))]
    _check(counter, lambda: kronop.gemkm(x, factors))
    _check(counter, lambda: kronop.gemkm(x, tuple(factors), alpha=-2))
    _check(counter, lambda: kronop.gemkm(x, factors, beta=0.5, z=z))
    _check(counter, lambda: kronop.gemkm(x, factors, beta=0, z=z))
    _check(counter, lambda: kronop.gemkm(x[0, 0], factors))
    _check(counter, lambda: kronop.gekmm(factors, convert(_random(12, 4))[:, :1] * 0 + 1))
    _check(counter, lambda: kronop.ksmm(x, weights[0]))
    _check(counter, lambda: kronop.ksmm(x, weights))
    _check(counter, lambda: kronop.ksmm(x, weights, bias=bias, activation="gelu", alpha=0.5))
    _check(counter, lambda: kronop.ksmm(x[0].T, weights, batch_last=True))


def test_results_go_where_they_are_asked_to_go(counter: _Counter, convert: Any) -> None:
    x, factors = convert(_random(5, 6)), [convert(_random(2, 3)), convert(_random(3, 4))]
    weights = [convert(_random(1, 4, 6, 1)), convert(_random(1, 12, 4, 1))]
    out = convert(_random(5, 12))
    for product in (
        lambda **options: kronop.gemkm(x, factors, **options),
        lambda **options: kronop.ksmm(x, weights, **options),
    ):
        expected = np.asarray(product())
        for call in range(5):
            out[:] = np.nan
            assert product(out=out) is out
            np.testing.assert_array_equal(np.asarray(out), expected, err_msg=str(call))
        for _ in range(5):
            out[:] = 1
            assert product(beta=2.0, z=out, out=out) is out
            np.testing.assert_allclose(np.asarray(out), expected + 2, rtol=1e-5, atol=1e-5)
    assert counter.repeated == 12
    assert counter.declined == 0


_SIZES = [(3, 5, 4), (1, 2, 7), (6, 6, 6)]


def _group(convert: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """As, Bs and Cs of products of several sizes."""
    return (
        [convert(_random(m, k)) for m, _, k in _SIZES],
        [convert(_random(k, n)) for _, n, k in _SIZES],
        [convert(_random(m, n)) for m, n, _ in _SIZES],
    )


@pytest.mark.parametrize("count", [1, 3])
def test_groups_of_products(counter: _Counter, convert: Any, count: int) -> None:
    """With new tensors in every call, results that are given or not, or sources themselves."""
    grouped = kronop.gemm.grouped_matmul
    for call in range(6):
        a, b, c = (items[:count] for items in _group(convert))
        outs = [item + np.nan for item in c]
        products = [np.asarray(x) @ np.asarray(y) for x, y in zip(a, b, strict=True)]
        sums = [x + 2 * np.asarray(z) for x, z in zip(products, c, strict=True)]
        new = grouped(a, b)
        assert grouped(iter(a), tuple(b), outs=outs)[-1] is outs[-1]
        added = grouped(a, b, c, beta=2.0)
        assert grouped(a, b, c, beta=2.0, outs=c)[-1] is c[-1]
        assert counter.repeated == 4 * max(0, call - 1)
        for found, wanted in ((new, products), (outs, products), (added, sums), (c, sums)):
            assert type(found) is list
            for one, other in zip(found, wanted, strict=True):
                np.testing.assert_allclose(np.asarray(one), other, rtol=1e-4, atol=1e-4)
    assert not counter.declined


def test_groups_that_meet_are_refused_after_others(counter: _Counter, convert: Any) -> None:
    grouped = kronop.gemm.grouped_matmul
    a, b, c = _group(convert)
    outs = [item + 0 for item in c]
    _warm(lambda: grouped(a, b, outs=outs))
    _warm(lambda: grouped(a, b, c, beta=1.0, outs=outs))
    square = convert(_random(6, 6))
    _same_refusal(lambda: grouped([*a[:2], square], b, outs=[*outs[:2], square]), _ERROR, "overlap")
    memory = convert(_random(17))
    pair = [memory[:15].reshape(3, 5), memory[13:15].reshape(1, 2)]
    _same_refusal(lambda: grouped(a, b, outs=[*pair, outs[2]]), _ERROR, "D.0. and D.1.")
    sources = [c[0], pair[1], c[2]]
    _same_refusal(
        lambda: grouped(a, b, sources, beta=1.0, outs=[pair[0], *outs[1:]]), _ERROR, "D.0. and C"
    )
    apart = [memory[:15].reshape(3, 5), memory[15:].reshape(1, 2), outs[2]]
    grouped(a, b, outs=apart)
    np.testing.assert_allclose(np.asarray(apart[1]), np.asarray(a[1]) @ np.asarray(b[1]), rtol=1e-4)


def test_new_results_are_new(counter: _Counter, convert: Any) -> None:
    x, factors = convert(_random(5, 4)), [convert(_random(2, 2))] * 2
    results = [kronop.gemkm(x, factors) for _ in range(6)]
    assert counter.repeated == 4
    assert len({np.asarray(item).ctypes.data for item in results}) == 6
    kept = np.asarray(results[3]).copy()
    x[:] = 0
    np.testing.assert_array_equal(np.asarray(kronop.gemkm(x, factors)), 0)
    np.testing.assert_array_equal(np.asarray(results[3]), kept)


def test_tensors_may_change_places_and_meet(counter: _Counter, convert: Any) -> None:
    square = convert(_random(4, 4))
    same = [square[:2, :2]] * 2
    _check(counter, lambda: kronop.gemkm(square, same))
    for _ in range(4):  # With the signature of the calls above, but distinct tensors.
        x = convert(_random(4, 4))
        factors = [convert(_random(4, 4))[:2, :2] for _ in range(2)]
        actual = kronop.gemkm(x, factors)
        expected = _long_way(lambda x=x, factors=factors: kronop.gemkm(x, factors))
        np.testing.assert_array_equal(np.asarray(actual), np.asarray(expected))
    assert counter.repeated == 7


def test_scalars_that_change(counter: _Counter) -> None:
    x, factors = _random(5, 4), [_random(2, 2)] * 2
    z = _random(5, 4)
    first = _warm(lambda: kronop.gemkm(x, factors))
    for alpha in (-1, 0.5, 1e30):
        _check(counter, lambda alpha=alpha: kronop.gemkm(x, factors, alpha=alpha))
    for alpha in (0, 0.0, -0.0, np.float64(3)):
        _check(counter, lambda alpha=alpha: kronop.gemkm(x, factors, alpha=alpha), repeats=False)
    _check(counter, lambda: kronop.gemkm(x, factors, beta=-0.0, z=z), repeats=False)
    np.testing.assert_array_equal(_warm(lambda: kronop.gemkm(x, factors, alpha=2)), 2 * first)
    for wrong, kind in (
        (True, kronop.ElementTypeError),
        (np.nan, kronop.ArgumentError),
        (10**40, kronop.ArgumentError),
        (np.ones(2), kronop.ElementTypeError),
        ("1", kronop.ElementTypeError),
    ):
        for _ in range(3):
            with pytest.raises(kind):
                kronop.gemkm(x, factors, alpha=wrong)


def test_layouts_types_and_alignments_that_change(counter: _Counter, convert: Any) -> None:
    x, factors = _random(5, 8), [_random(2, 2)] * 3
    memory = np.zeros(48, _FLOAT)
    _warm(lambda: kronop.gemkm(convert(x), [convert(item) for item in factors]))
    wide = _random(10, 16)
    shifted = memory[1:41].reshape(5, 8)
    shifted[...] = x
    for other in (wide[::2, ::2], np.asfortranarray(x), shifted, x[:4], x[None]):
        _check(
            counter,
            lambda other=other: kronop.gemkm(convert(other), [convert(item) for item in factors]),
        )
    for dtype in (np.float64, np.float16, np.int32, np.int64, np.int8):
        operands = [convert((item * 4).astype(dtype)) for item in (x, *factors)]
        _check(counter, lambda operands=operands: kronop.gemkm(operands[0], operands[1:]))
    _check(counter, lambda: kronop.gemkm(x[::-1, ::-1], factors))
    _check(counter, lambda: kronop.gemkm(x.astype(">f4"), factors), repeats=False)
    _check(counter, lambda: kronop.gemkm(x[:0], factors), repeats=False)


def test_copies_are_made_in_every_call(counter: _Counter) -> None:
    weights, x = _random(1, 4, 4, 1), _random(6, 6, 4)[::2, ::3]
    _check(counter, lambda: kronop.ksmm(x, weights), repeats=False)
    assert counter.declined == 0


@pytest.mark.parametrize(
    ("module", "bound"), [(prepared, "_MOST_TENSORS"), (addressed, "_MOST_LAUNCHES")]
)
def test_enormous_calls_go_the_long_way(
    counter: _Counter, monkeypatch: pytest.MonkeyPatch, module: ModuleType, bound: str
) -> None:
    monkeypatch.setattr(module, bound, 0)
    _check(counter, lambda: kronop.gemkm(_random(1, 4) * 0, [np.eye(2, dtype=_FLOAT)] * 2), False)


def _same_refusal(call: Callable[[], Any], kind: type[Exception], match: str) -> None:
    with pytest.raises(kind, match=match) as expected:
        _long_way(call)
    for _ in range(4):
        with pytest.raises(kind) as found:
            call()
        assert str(found.value) == str(expected.value)


def test_refusals_after_calls_that_went_well(counter: _Counter) -> None:
    x, factors, out = _random(4, 4), [_random(2, 2)] * 2, _random(4, 4)
    _warm(lambda: kronop.gemkm(x, factors))
    _warm(lambda: kronop.gemkm(x, factors, out=out))
    _warm(lambda: kronop.gemkm(x, factors, beta=1.0, z=out.copy(), out=out))
    buffer = _random(8, 4)
    before = buffer.copy()
    refuse = _same_refusal
    refuse(lambda: kronop.gemkm(buffer[:4], factors, out=buffer[2:6]), kronop.ArgumentError, "over")
    refuse(lambda: kronop.gemkm(out, factors, out=out), kronop.ArgumentError, "overlap")
    refuse(
        lambda: kronop.gemkm(x, factors, beta=1.0, z=buffer[:4], out=buffer[1:5]),
        kronop.ArgumentError,
        "Y and Z",
    )
    refuse(
        lambda: kronop.gemkm(x, [buffer[:2, :2], factors[0]], out=buffer[1:5]),
        kronop.ArgumentError,
        "Y and factors",
    )
    np.testing.assert_array_equal(buffer, before)
    frozen = out.copy()
    frozen.flags.writeable = False
    refuse(lambda: kronop.gemkm(x, factors, out=frozen), kronop.ArgumentError, "writable")
    refuse(lambda: kronop.gemkm(x, factors, beta=1.0), kronop.ArgumentError, "Z")
    refuse(lambda: kronop.gemkm(x, factors[:1]), kronop.ArgumentError, "X")
    refuse(lambda: kronop.gemkm(x, factors[0]), kronop.ElementTypeError, "list")
    refuse(lambda: kronop.gemkm(x, [*factors, None]), kronop.ElementTypeError, "None")
    weights = _random(1, 4, 4, 1)
    _warm(lambda: kronop.ksmm(x, weights, batch_last=True))
    for wrong in (1, np.True_, None):
        refuse(
            lambda wrong=wrong: kronop.ksmm(x, weights, batch_last=wrong),
            kronop.KronopError,
            "batch_last",
        )
    refuse(lambda: kronop.ksmm(x, weights, activation=["gelu"]), kronop.ArgumentError, "gelu")
    chain = [weights, weights]
    _warm(lambda: kronop.ksmm(x, chain, out=out))
    refuse(lambda: kronop.ksmm(out, chain, out=out), kronop.ArgumentError, "Y and X")


def test_memory_that_only_interleaves_is_let_through(counter: _Counter) -> None:
    buffer, factors = _random(4, 8), [_random(2, 2)] * 2
    apart = _random(4, 8)
    _warm(lambda: kronop.gemkm(buffer[:, ::2], factors, out=apart[:, 1::2]))
    expected = kronop.gemkm(buffer[:, ::2].copy(), factors)
    for _ in range(3):
        kronop.gemkm(buffer[:, ::2], factors, out=buffer[:, 1::2])
        np.testing.assert_allclose(buffer[:, 1::2], expected, rtol=1e-6)
    assert counter.declined == 3


def test_gradients_are_refused_after_calls_without(counter: _Counter) -> None:
    torch = pytest.importorskip("torch")
    x, factors = torch.randn(3, 4), [torch.randn(2, 2)] * 2
    _warm(lambda: kronop.gemkm(x, factors))
    parameter = torch.nn.Parameter(x.clone())
    _same_refusal(lambda: kronop.gemkm(parameter, factors), kronop.ArgumentError, "detach")
    with torch.no_grad():
        result = _warm(lambda: kronop.gemkm(parameter, factors))
    assert torch.equal(result, kronop.gemkm(x, factors))
    assert type(result) is torch.Tensor
    assert not result.requires_grad


def test_tensors_without_memory_are_refused_after_real_ones(counter: _Counter) -> None:
    torch = pytest.importorskip("torch")
    x, factors = torch.randn(3, 4), [torch.randn(2, 2)] * 2
    _warm(lambda: kronop.gemkm(x, factors))
    call = torch.vmap(lambda row: kronop.gemkm(row, factors))
    _same_refusal(lambda: call(x), kronop.ArgumentError, "X: expected plain strided memory")
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
        _same_refusal(lambda: kronop.gemkm(x, factors), kronop.ArgumentError, "Y: expected plain")
    assert kronop.gemkm(x, factors).shape == (3, 4)


def test_torch_storages_that_were_cut_are_refused_after_whole_ones(counter: _Counter) -> None:
    torch = pytest.importorskip("torch")
    out, factors = torch.zeros(4, 6), [torch.randn(2, 3), torch.randn(3, 2)]
    for cut in (0, 1):
        x = torch.randn(8, 6)
        parts = x[:4], x[4:]
        for part in parts:
            _warm(lambda part=part: kronop.gemkm(part, factors, out=out))
        operands = (x, factors[1])[cut]
        operands.untyped_storage().resize_(operands.nbytes // 2)
        before = counter.declined
        if not cut:
            kronop.gemkm(parts[0], factors, out=out)  # What it reads is still there.
        with pytest.raises(
            kronop.ArgumentError, match=rf"{('X', 'factors.1.')[cut]}: .* storage of"
        ):
            kronop.gemkm(parts[1], factors, out=out)
        assert counter.declined == before + 1


def test_operands_of_two_frameworks_are_repeated(counter: _Counter) -> None:
    torch = pytest.importorskip("torch")
    x, factors = _random(5, 6), [_random(2, 3), _random(3, 2)]
    _check(counter, lambda: kronop.gemkm(torch.from_numpy(x), factors))
    _check(counter, lambda: kronop.gemkm(x, [torch.from_numpy(item) for item in factors]))


def test_threads_of_torch_are_those_of_now(counter: _Counter) -> None:
    torch = pytest.importorskip("torch")
    x, factors = torch.randn(64, 512), [torch.randn(8, 8)] * 3
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 1):
            torch.set_num_threads(threads)
            result = _warm(lambda: kronop.gemkm(x, factors))
            assert torch.equal(result, _long_way(lambda: kronop.gemkm(x, factors)))
    finally:
        torch.set_num_threads(before)
    launches = [call.product.records[0].launch for call in prepared._calls.values() if call]
    used = {launch.parameters for launch in launches}
    assert len(used) == 2


def test_a_new_winner_runs(counter: _Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    x, factors = _random(16, 64), [_random(8, 8)] * 2
    expected = _warm(lambda: kronop.gemkm(x, factors))
    asked: list[Any] = []

    def recall(description: Any, emitter: Any, target: Any, *place: Any) -> Any:
        asked.append(place)
        return emitter.candidates(description, target, 2)[1]

    monkeypatch.setattr(winners, "recall", recall)
    monkeypatch.setattr(winners._process, "generation", winners.generation() + 1)
    np.testing.assert_allclose(kronop.gemkm(x, factors), expected, rtol=1e-4, atol=1e-4)
    assert len(asked) == 1
    before = counter.repeated
    np.testing.assert_allclose(
        _warm(lambda: kronop.gemkm(x, factors)), expected, rtol=1e-4, atol=1e-4
    )
    assert counter.repeated == before + 2
    second = [call.product.records[0] for call in prepared._calls.values() if call]
    assert len(second) == 2


def test_launches_are_printed_when_asked_for(
    counter: _Counter, capsys: pytest.CaptureFixture[str]
) -> None:
    x, factors = _random(5, 4), [_random(2, 2)] * 2
    call = lambda: kronop.gemkm(x, factors)  # noqa: E731
    _warm(call)
    with knobs.using(debug=1):
        _warm(call)
    assert capsys.readouterr().err.count("kronop: ran kron") == 3
    before = counter.repeated
    _warm(call)
    assert capsys.readouterr().err == ""
    assert counter.repeated == before + 3


def test_threads_do_not_share_launches(counter: _Counter) -> None:
    """More threads than cores, switched often, each with tensors of its own."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    wrong: list[Any] = []
    start = threading.Barrier(6)
    operands, results = [], []
    for _ in range(6):
        x, factors, weights = (
            _random(8, 64),
            [_random(8, 8), _random(8, 8)],
            [_random(1, 64, 64, 1)],
        )
        operands.append((x, factors, weights * 2))
        results.append(
            _long_way(lambda x=x, f=factors, w=weights * 2: (kronop.gemkm(x, f), kronop.ksmm(x, w)))
        )

    def work(seed: int) -> None:
        x, factors, weights = operands[seed]
        start.wait()
        for _ in range(200):
            found = kronop.gemkm(x, factors), kronop.ksmm(x, weights)
            if not all(map(np.array_equal, found, results[seed])):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong
    for call in prepared._calls.values():
        assert call is not None
        assert len(call.product.launch.__self__._ready) <= 6


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_repeats_calls_of_its_parent(counter: _Counter) -> None:
    x, factors = _random(64, 512), [_random(8, 8)] * 3
    expected = _warm(lambda: kronop.gemkm(x, factors))
    child = os.fork()
    if child == 0:
        before = counter.repeated
        right = np.array_equal(kronop.gemkm(x, factors), expected)
        os._exit(0 if right and counter.repeated == before + 1 else 1)
    assert os.waitpid(child, 0)[1] == 0


_SETTINGS = settings(
    deadline=None,
    max_examples=25,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)


@_SETTINGS
@given(_kron_problems("x86"), st.sampled_from([0, 3]), st.booleans())
def test_kron_again(counter: _Counter, problem: Any, beta: int, given_out: bool) -> None:
    operation, x, factors, z, y = problem
    left = operation.description.side is kronop.Side.Left
    options = {"alpha": 2, "beta": beta, "z": z, "out": y if given_out else None}
    for _ in range(4):
        y[...] = support.poison(y.shape, operation.description.Y.element)
        result = (
            kronop.gekmm(factors, x, **options) if left else kronop.gemkm(x, factors, **options)
        )
        expected = support.expected_kron(operation, x, factors, z, operation.epilogue_type(2, beta))
        expected.check(result)


@_SETTINGS
@given(_ksparse_problems("x86"), st.sampled_from([0, 3]), st.booleans())
def test_ksparse_again(counter: _Counter, problem: Any, beta: int, given_out: bool) -> None:
    operation, x, weights, bias, z, y = problem
    last = operation.description.batch_last
    output_op = operation.epilogue_type(2, beta)
    for _ in range(4):
        y[...] = support.poison(y.shape, operation.description.Y.element)
        result = kronop.ksmm(
            x,
            weights,
            batch_last=last,
            bias=bias,
            alpha=2,
            beta=beta,
            z=z,
            out=y if given_out else None,
        )
        support.expected_ksparse(operation, x, weights, z, bias, output_op).check(result)
