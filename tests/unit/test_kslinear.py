"""kronop.torch.nn.KSLinear on the CPU: every algorithm gives what the formed matrix gives."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn.utils import parametrize, prune  # noqa: E402

import kronop  # noqa: E402
import kronop.torch  # noqa: E402
from kronop.torch.nn import KSLinear, choice  # noqa: E402
from kronop.torch.nn.algorithms import ALGORITHMS, dense_factor  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Sparse (CSR|BSR):UserWarning")

_NAMES = [*ALGORITHMS, "auto"]
_CHAINS = {
    "one": [(2, 3, 4, 3)],
    "as in a ViT": [(2, 6, 24, 1), (1, 24, 6, 2)],
    "odd": [(3, 5, 2, 1), (1, 4, 5, 3), (1, 1, 12, 1)],
    "powers of two": [(2, 16, 32, 1)],
}
_SMALL = [(2, 4, 8, 1), (1, 8, 4, 2)]


@pytest.fixture(autouse=True)
def _forgotten_graphs() -> None:
    """torch compiles one function for few kinds of layers only, and refuses the next."""
    torch._dynamo.reset()


def _operand(layer: Any, lead: tuple[int, ...], dtype: Any = torch.float64) -> Any:
    generator = torch.Generator().manual_seed(len(lead) + layer.in_features)
    shape = (layer.in_features, *lead) if layer.bs_last else (*lead, layer.in_features)
    return torch.randn(shape, dtype=torch.float64, generator=generator).to(dtype).requires_grad_()


def _exact(layer: Any, x: Any) -> Any:
    matrix = layer.get_dense_product()
    if layer.bs_last:
        flat = matrix @ x.reshape(len(x), -1) + layer.bias[:, None]
        return flat.reshape(layer.out_features, *x.shape[1:])
    return x @ matrix.T + layer.bias


def test_the_dense_product_is_the_factors_by_their_formula() -> None:
    for pattern in ((2, 3, 4, 3), (1, 2, 1, 5), (3, 1, 2, 1)):
        a, b, c, d = pattern
        weight = torch.randn(pattern)
        exact = torch.zeros(a * b * d, a * c * d)
        for i, j, k, l in torch.cartesian_prod(*(torch.arange(size) for size in pattern)).tolist():
            exact[i * b * d + j * d + l, i * c * d + k * d + l] = weight[i, j, k, l]
        assert torch.equal(dense_factor(weight), exact)
    layer = KSLinear(_SMALL)
    right, left = (dense_factor(item) for item in layer.weights)
    torch.testing.assert_close(layer.get_dense_product(), left @ right)
    assert layer.get_dense_product().shape == (layer.out_features, layer.in_features)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("chain", _CHAINS.values(), ids=_CHAINS.keys())
def test_every_algorithm_gives_the_product_and_its_gradients(chain: Any, last: bool) -> None:
    torch.manual_seed(1)
    layer = KSLinear(chain, dtype=torch.float64, bs_last=last)
    x = _operand(layer, (2, 3))
    leaves = [x, *layer.parameters()]
    exact = _exact(layer, x)
    ones = torch.linspace(-1, 2, exact.numel(), dtype=torch.float64).reshape(exact.shape)
    right = torch.autograd.grad(exact, leaves, ones)
    for name in _NAMES:
        layer.algo = name
        y = layer(x)
        torch.testing.assert_close(y, exact)
        for item, other in zip(torch.autograd.grad(y, leaves, ones), right, strict=True):
            torch.testing.assert_close(item, other)


@pytest.mark.parametrize("last", [False, True])
def test_every_algorithm_in_other_types(last: bool) -> None:
    torch.manual_seed(2)
    layer = KSLinear(_SMALL, dtype=torch.float64, bs_last=last)
    x = _operand(layer, (7,))
    exact = _exact(layer, x).detach()
    right = torch.autograd.grad(_exact(layer, x).sum(), x)[0]
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        narrow = copy.deepcopy(layer).to(dtype)
        for name in _NAMES:
            narrow.algo = name
            operand = x.detach().to(dtype).requires_grad_()
            y = narrow(operand)
            y.sum().backward()
            assert y.dtype is operand.grad.dtype is narrow.weights[0].dtype is dtype
            # x, two factors, the bias and all results are rounded.
            unit = 4 * torch.finfo(dtype).eps
            assert float((y.detach().double() - exact).norm() / exact.norm()) < unit, name
            assert float((operand.grad.double() - right).norm() / right.norm()) < unit, name


def test_second_derivatives_of_torchs_sparse_matrices() -> None:
    torch.manual_seed(3)
    for name in ("sparse", "bsr"):
        layer = KSLinear([(2, 2, 4, 1)], dtype=torch.float64, algo=name, bias=False)

        def call(x: Any, weight: Any, layer: Any = layer) -> Any:
            return torch.func.functional_call(layer, {"weights.0": weight}, (x,))

        operands = (_operand(layer, (2,)), layer.weights[0].detach().clone().requires_grad_())
        assert torch.autograd.gradcheck(call, operands)
        assert torch.autograd.gradgradcheck(call, operands)


@pytest.mark.parametrize("name", _NAMES)
def test_saved_copied_moved_and_switched(name: str) -> None:
    torch.manual_seed(4)
    layer = KSLinear(_SMALL, algo=name)
    x = _operand(layer, (3,), torch.float32)
    y = layer(x)
    assert list(layer.state_dict()) == ["bias", "weights.0", "weights.1"]
    other = KSLinear(_SMALL, algo="kernel")
    other.load_state_dict(layer.state_dict())
    torch.testing.assert_close(other(x), y)
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    for again in (
        torch.load(file, weights_only=False),
        pickle.loads(pickle.dumps(layer)),
        copy.deepcopy(layer),
    ):
        assert again.algo == name
        assert torch.equal(again(x), y)
    meta = KSLinear(_SMALL, algo=name, device="meta")
    assert meta(x.to("meta")).shape == y.shape
    there = meta.to_empty(device="cpu")
    there.load_state_dict(layer.state_dict())
    assert torch.equal(there(x), y)
    assert f"algo={name!r}" in repr(layer)
    assert "bs_last=True" in repr(KSLinear(_SMALL, bs_last=True))


def test_layers_that_earlier_versions_pickled_are_read() -> None:
    layer = KSLinear(_SMALL)
    y = layer(x := _operand(layer, (3,), torch.float32))
    del layer._names
    assert torch.equal(pickle.loads(pickle.dumps(layer))(x), y)


@pytest.mark.parametrize("name", _NAMES)
def test_autocast_takes_and_gives_what_linear_does(name: str) -> None:
    torch.manual_seed(5)
    layer = KSLinear(_SMALL, algo=name)
    x = _operand(layer, (3,), torch.float32)
    exact = _exact(layer, x).detach()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
        assert y.dtype is layer(x.bfloat16()).dtype is torch.bfloat16
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")(x)
        assert compiled.dtype is torch.bfloat16
    unit = 4 * torch.finfo(torch.bfloat16).eps
    assert float((y.detach() - exact).norm() / exact.norm()) < unit
    assert float((compiled.detach() - exact).norm() / exact.norm()) < unit
    y.sum().backward()
    assert layer.weights[0].grad.dtype is layer.bias.grad.dtype is torch.float32


@pytest.mark.parametrize("name", _NAMES)
def test_compiled_exported_and_in_transforms(name: str) -> None:
    torch.manual_seed(6)
    layer = KSLinear(_SMALL, algo=name)
    x = _operand(layer, (5,), torch.float32)
    y = layer(x)
    leaves = [x, *layer.parameters()]
    right = torch.autograd.grad(y.sin().sum(), leaves, retain_graph=True)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    ours = torch.autograd.grad(compiled(x).sin().sum(), leaves)
    for item, other in zip(ours, right, strict=True):
        torch.testing.assert_close(item, other)
    rows = {0: torch.export.Dim("rows")}
    exported = torch.export.export(layer, (x.detach(),), dynamic_shapes=(rows,)).module()
    torch.testing.assert_close(exported(torch.cat([x, x])), torch.cat([y, y]))
    parameters = dict(layer.named_parameters())

    def loss(parameters: Any, row: Any) -> Any:
        return torch.func.functional_call(layer, parameters, (row,)).sin().sum()

    each = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x.detach())
    for at, key in enumerate(parameters):
        torch.testing.assert_close(each[key].sum(0), right[1 + at], msg=key)


def test_compiled_by_the_default_backend() -> None:
    layer = torch.nn.Sequential(KSLinear(_SMALL), torch.nn.GELU(), KSLinear(_SMALL))
    x = _operand(layer[0], (5,), torch.float32)
    y = torch.compile(layer, fullgraph=True)(x)
    torch.testing.assert_close(y, layer(x))


def test_an_exported_chain_is_one_call() -> None:
    layer = KSLinear(_SMALL)
    graph = torch.export.export(layer, (_operand(layer, (5,), torch.float32).detach(),)).graph
    assert sum("kronop" in str(node.target) for node in graph.nodes) == 1


@pytest.mark.parametrize("last", [False, True])
def test_odd_batches(last: bool) -> None:
    for name in _NAMES:
        layer = KSLinear(_SMALL, algo=name, bs_last=last)
        for lead in ((), (0,), (1,), (2, 3)):
            x = _operand(layer, lead, torch.float32)
            y = layer(x)
            torch.testing.assert_close(y, _exact(layer, x))
            y.sum().backward()
            assert x.grad.shape == x.shape


def test_steps_of_training_fit_the_layer() -> None:
    torch.manual_seed(7)
    x = torch.randn(64, 16)
    target = KSLinear(_SMALL)(x).detach()
    model = KSLinear(_SMALL)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = (model(x) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.2 * losses[0]


def test_parameters_begin_in_their_bounds_and_given_weights_are_copied() -> None:
    torch.manual_seed(8)
    layer = KSLinear([(4, 32, 25, 1), (1, 64, 16, 8)])
    root = 3**0.25  # Of the two factors, each has its share of the missing variance.
    bounds = (0.2 * root, 0.25 * root, 0.1)
    for weight, bound in zip((*layer.weights, layer.bias), bounds, strict=True):
        assert 0.9 * bound < float(weight.detach().abs().max()) <= bound
        assert abs(float(weight.detach().mean())) < 0.2 * bound
    given = [torch.ones(item.shape, dtype=torch.float64) for item in layer.weights]
    other = KSLinear(layer.patterns, weights=given, bias=False)
    assert other.bias is None
    assert other.weights[0].dtype is torch.float64
    given[0].zero_()
    assert torch.equal(other.weights[0], torch.ones_like(other.weights[0]))
    assert KSLinear(layer.patterns, given, dtype=torch.float16).weights[0].dtype is torch.float16
    assert len(list(KSLinear(layer.patterns, bias=False).parameters())) == 2


def test_auto_takes_the_kernel_where_there_is_much_to_save_and_moves_with_the_layer(
    monkeypatch,
) -> None:
    device = torch.device("cpu")
    assert choice.choose([(64, 16, 16, 1)], torch.float32, device, False) == "kernel"
    assert choice.choose([(1, 1024, 1024, 1)] * 2, torch.float32, device, False) == "dense"
    monkeypatch.setitem(choice._RATES["cpu"], "bfloat16", (1.0, 1000.0))
    choice._choose.cache_clear()
    layer = KSLinear([(16, 16, 16, 1)], algo="auto")
    assert layer._runs() == "kernel"
    assert layer.to(torch.bfloat16)._runs() == "dense"
    assert layer.algo == "auto"
    choice._choose.cache_clear()


# (a, b, c, d), type, batch last, and which one was faster on an H200: by 1.5 times at least.
_MEASURED = [
    ((64, 384, 384, 1), "float32", True, "kernel"),
    ((4, 768, 768, 1), "float32", True, "kernel"),
    ((1, 48, 192, 128), "float16", True, "kernel"),
    ((128, 64, 64, 1), "float16", False, "kernel"),
    ((1, 1024, 1024, 16), "float16", True, "kernel"),
    ((128, 192, 48, 1), "bfloat16", False, "kernel"),
    ((4, 96, 96, 1), "float16", False, "dense"),
    ((2, 64, 64, 1), "float16", True, "dense"),
    ((1, 48, 48, 8), "bfloat16", False, "dense"),
    ((1, 192, 48, 3), "float16", False, "dense"),
    ((1, 192, 48, 1), "bfloat16", True, "dense"),
]


@pytest.mark.parametrize(("pattern", "name", "batch_last", "faster"), _MEASURED)
def test_auto_takes_what_was_faster_on_a_gpu(
    pattern: Any, name: str, batch_last: bool, faster: str, monkeypatch
) -> None:
    monkeypatch.setattr(choice, "target_of_device", lambda device: "sm_90a")
    choice._choose.cache_clear()
    device = torch.device("cuda")
    try:
        assert choice.choose([pattern], getattr(torch, name), device, batch_last) == faster
    finally:
        choice._choose.cache_clear()


_REFUSED = [
    (lambda: KSLinear([]), kronop.ElementTypeError, "at least one"),
    (lambda: KSLinear((2, 3, 4, 1)), kronop.ArgumentError, "also where one is given"),
    (lambda: KSLinear([(2, 3, 4)]), kronop.ArgumentError, "4 positive"),
    (lambda: KSLinear([(2, 3, 0, 1)]), kronop.ArgumentError, "4 positive"),
    (lambda: KSLinear([(2, 3, 4.0, 1)]), kronop.ArgumentError, "4 positive"),
    (lambda: KSLinear([(2, 3, 4, 1), (1, 2, 5, 1)]), kronop.ArgumentError, "a c d = 6"),
    (lambda: KSLinear(_SMALL, algo="cuda"), kronop.ArgumentError, "kernel, bmm"),
    (lambda: KSLinear(_SMALL, algo=["bmm"]), kronop.ArgumentError, "kernel, bmm"),
    (lambda: KSLinear(_SMALL, dtype=torch.int8), kronop.ElementTypeError, "float64"),
    (lambda: KSLinear(_SMALL, bias=torch.ones(8)), kronop.ElementTypeError, "True or False"),
    (lambda: KSLinear(_SMALL, bs_last="no"), kronop.ElementTypeError, "True or False"),
    (lambda: KSLinear(_SMALL, [torch.ones(2, 4, 8, 1)]), kronop.ArgumentError, "their order"),
    (lambda: KSLinear(_SMALL, "ones"), kronop.ElementTypeError, "list of torch tensors"),
    (lambda: KSLinear(_SMALL, [[1.0], [2.0]]), kronop.ElementTypeError, r"weights\[0\].*got list"),
    (lambda: KSLinear(_SMALL)(torch.ones(3, 15)), kronop.ArgumentError, "16"),
    (lambda: KSLinear(_SMALL, algo="bmm")(torch.ones(3, 15)), kronop.ArgumentError, "16"),
    (
        lambda: KSLinear.from_linear(torch.nn.Linear(15, 8), _SMALL),
        kronop.ArgumentError,
        "from 15 features to 8, those of linear, got one from 16",
    ),
    *(
        (lambda algo=algo, x=x: KSLinear(_SMALL, algo=algo)(x), kronop.ElementTypeError, word)
        for algo in ("kernel", "bmm", "einsum", "dense", "sparse", "bsr")
        for x, word in (
            (np.ones((3, 16)), "x: .*torch tensor, got ndarray"),
            (
                torch.ones(3, 16).double(),
                r"element type of x: .*float32|float64 of X and (torch\.)?float32",
            ),
        )
    ),
]


class _Odd(torch.nn.Module):
    """A module whose weight and bias are these."""

    def __init__(self, weight: Any, bias: Any = None) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias


_NO_LINEAR = [
    (None, "got NoneType"),
    (torch.nn.ReLU(), "got ReLU"),
    (torch.nn.Conv2d(16, 8, 1), r"got Conv2d with a weight of shape \(8, 16, 1, 1\)"),
    (torch.nn.LazyLinear(8), "got LazyLinear"),
    (_Odd(np.ones((16, 16))), "got _Odd with a weight of ndarray"),
    (_Odd(torch.ones(16, 16, dtype=torch.int8)), "element type of linear.weight"),
]


@pytest.mark.parametrize(("linear", "word"), _NO_LINEAR)
def test_only_a_linear_layer_is_approximated(linear: Any, word: str) -> None:
    with pytest.raises(kronop.ElementTypeError, match=word):
        KSLinear.from_linear(linear, _SMALL)


@pytest.mark.parametrize(
    ("linear", "word"),
    [
        (_Odd(torch.ones(16, 16), torch.ones(7)), r"linear.bias: .*\(16,\), got \(7,\)"),
        (_Odd(torch.ones(16, 16), [0.0] * 16), "linear.bias: .*got list"),
        (_Odd(torch.full((16, 16), torch.nan)), "linear.weight: expected finite"),
        (torch.nn.Linear(16, 16, device="meta"), "on the meta device"),
    ],
)
def test_a_linear_layer_is_whole(linear: Any, word: str) -> None:
    with pytest.raises(kronop.ArgumentError, match=word):
        KSLinear.from_linear(linear, _SMALL)


def test_patterns_may_be_of_numpys_integers() -> None:
    layer = KSLinear([tuple(np.array(pattern)) for pattern in _SMALL])
    assert layer.patterns == tuple(_SMALL)
    assert all(type(size) is int for pattern in layer.patterns for size in pattern)


def test_autocast_takes_other_types_whatever_the_algorithm() -> None:
    x = torch.ones(3, 16, dtype=torch.bfloat16)
    for algo in ("kernel", "bmm", "einsum", "dense", "sparse", "bsr"):
        with torch.autocast("cpu"):
            assert KSLinear(_SMALL, algo=algo)(x).dtype == torch.bfloat16


@pytest.mark.parametrize("case", range(len(_REFUSED)))
def test_what_does_not_fit_is_refused(case: int) -> None:
    call, error, word = _REFUSED[case]
    with pytest.raises(error, match=word):
        call()


def _prune(weights: Any) -> None:
    prune.custom_from_mask(weights, "0", torch.arange(32).reshape(2, 4, 4, 1) % 3 > 0)


def _prune_for_good(weights: Any) -> None:
    _prune(weights)
    prune.remove(weights, "0")


def _normalise(weights: Any) -> None:
    torch.nn.utils.spectral_norm(weights, "1")


def _register_again(weights: Any) -> None:
    parametrize.register_parametrization(weights, "0", torch.nn.Tanh())
    parametrize.remove_parametrizations(weights, "0")


@pytest.mark.parametrize("change", [_prune, _prune_for_good, _normalise, _register_again])
def test_weights_that_others_replaced_keep_their_places(change: Any) -> None:
    torch.manual_seed(3)
    layer = KSLinear([(2, 4, 4, 1)] * 2, bias=False, dtype=torch.float64).eval()
    change(layer.weights)
    got = layer(torch.eye(8, dtype=torch.float64))
    assert torch.allclose(got, layer.get_dense_product().T, rtol=1e-12, atol=1e-12)
