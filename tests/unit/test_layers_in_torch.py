"""kronop's layers where torch's own code takes a torch.nn.Linear: in its modules, tracers,
exporters, optimizers and wrappers for several processes."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import kronop.torch  # noqa: E402
from kronop.torch.nn import KroneckerLinear, KSLinear, replace_linears  # noqa: E402
from kronop.torch.nn.algorithms import ALGORITHMS  # noqa: E402

_CHAIN = [(2, 4, 8, 1), (1, 8, 4, 2)]  # 16 -> 16
_LAYERS = {
    "KSLinear": lambda: KSLinear(_CHAIN),
    "KroneckerLinear": lambda: KroneckerLinear([(4, 2), (3, 8)]),
}
_each_layer = pytest.mark.parametrize("make", _LAYERS.values(), ids=_LAYERS.keys())


def _rows(count: int = 5, features: int = 16) -> Any:
    return torch.randn(count, features, generator=torch.Generator().manual_seed(count))


@_each_layer
def test_the_weight_is_that_of_a_linear_layer(make: Any) -> None:
    torch.manual_seed(0)
    layer, x = make().double(), _rows().double()
    assert layer.weight.shape == (layer.out_features, layer.in_features)
    y = torch.nn.functional.linear(x, layer.weight, layer.bias)
    torch.testing.assert_close(layer(x), y)
    leaves = [*layer.parameters()]
    ours = torch.autograd.grad(layer(x).sin().sum(), leaves)
    torch.testing.assert_close(ours, torch.autograd.grad(y.sin().sum(), leaves))
    with pytest.raises(KeyError, match="weight"):
        layer.weight = torch.nn.Parameter(torch.ones(2, 2))


@_each_layer
@pytest.mark.parametrize("has_bias", [True, False])
def test_autocast_gives_its_type_with_and_without_a_bias(make: Any, has_bias: bool) -> None:
    layer = make()
    if not has_bias:
        layer.bias = None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(_rows())
    assert y.dtype is torch.bfloat16
    exact = torch.nn.functional.linear(_rows(), layer.weight, layer.bias)
    error = float(((y - exact).norm() / exact.norm()).detach())
    assert error < 4 * torch.finfo(torch.bfloat16).eps


def test_a_weight_of_one_factor_is_no_parameter() -> None:
    layer = KroneckerLinear([(4, 3)])
    before = layer.factors[0].detach().clone()
    with torch.no_grad():
        layer.weight.zero_()
    assert torch.equal(layer.factors[0], before)
    layer.weight.sum().backward()
    assert torch.equal(layer.factors[0].grad, torch.ones(4, 3))


def _encoder() -> tuple[Any, Any]:
    torch.manual_seed(1)
    encoder = torch.nn.TransformerEncoderLayer(16, 2, 16, dropout=0.0, batch_first=True)
    report = replace_linears(encoder, lambda name, linear: _CHAIN)
    assert [layer.name for layer in report.layers] == ["self_attn.out_proj", "linear1", "linear2"]
    return encoder, torch.randn(3, 7, 16)


def test_a_transformer_layer_trains_and_takes_its_fast_way_in_eval(monkeypatch: Any) -> None:
    encoder, x = _encoder()
    trained = encoder(x)
    trained.sum().backward()
    assert all(parameter.grad is not None for parameter in encoder.parameters())
    seen = []
    fast = torch._transformer_encoder_layer_fwd

    def watched(*arguments: Any) -> Any:
        seen.append(len(arguments))
        return fast(*arguments)

    monkeypatch.setattr(torch, "_transformer_encoder_layer_fwd", watched)
    with torch.no_grad():
        torch.testing.assert_close(encoder.eval()(x), trained, rtol=1e-4, atol=1e-5)
    assert seen


@pytest.mark.filterwarnings("ignore:Sparse (CSR|BSR):UserWarning")
@pytest.mark.parametrize("algo", [*ALGORITHMS, "auto"])
def test_fx_records_the_product_as_one_call(algo: str) -> None:
    layer = KSLinear(_CHAIN, algo=algo)
    name = "ksmm" if layer._runs() == "kernel" else "multiply"
    model = torch.nn.Sequential(layer, torch.nn.ReLU())
    traced, x = torch.fx.symbolic_trace(model), _rows()
    torch.testing.assert_close(traced(x), model(x))
    calls = [node for node in traced.graph.nodes if node.op == "call_function"]
    assert [node.target.__name__ for node in calls] == [name]
    torch.testing.assert_close(torch.fx.symbolic_trace(traced)(x), model(x))


def test_fx_records_kronecker_products() -> None:
    class Both(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = KroneckerLinear([(4, 2), (3, 8)])

        def forward(self, x: Any, z: Any) -> Any:
            return kronop.torch.gekmm([*self.layer.factors], x, beta=2.0, z=z) + self.layer(x.mT).mT

    model, x = Both(), _rows(16, 12)
    traced, z = torch.fx.symbolic_trace(model), _rows(12, 12)
    torch.testing.assert_close(traced(x, z), model(x, z))
    assert {"gekmm", "gemkm"} <= {
        getattr(node.target, "__name__", "") for node in traced.graph.nodes
    }


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@_each_layer
def test_a_jit_trace_checks_itself_and_is_saved(make: Any) -> None:
    layer, x = make(), _rows()
    traced = torch.jit.trace(layer, x)
    file = io.BytesIO()
    torch.jit.save(traced, file)
    file.seek(0)
    for again in (traced, torch.jit.load(file)):
        torch.testing.assert_close(again(_rows(9)), layer(_rows(9)))
    traced(x).sum().backward()
    ours = [parameter.grad.clone() for parameter in traced.parameters()]
    layer.zero_grad()
    layer(x).sum().backward()
    torch.testing.assert_close(ours, [parameter.grad for parameter in layer.parameters()])


def _exported() -> Any:
    """A model with every product and option that has a decomposition, and its inputs."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = KSLinear(_CHAIN), KroneckerLinear([(4, 2), (3, 8)])

        def forward(self, x: Any, z: Any) -> Any:
            y = self.second(self.first(x) * 0.5 + x)
            scaled = {"alpha": 0.5, "beta": 2.0}
            y = kronop.torch.gekmm([*self.second.factors], x.t(), z=y.t(), **scaled).t()
            others = {"bias": self.first.bias, "activation": "gelu", "batch_last": True}
            weights = [*self.first.weights]
            return y, kronop.torch.ksmm(x.t(), weights, z=z.t(), **scaled, **others)

    torch.manual_seed(2)
    return Model().eval(), (_rows(), _rows(5).flip(0))


def test_what_is_decomposed_runs_without_kronop() -> None:
    model, inputs = _exported()
    rows = torch.export.Dim("rows")
    exported = torch.export.export(model, inputs, dynamic_shapes=({0: rows}, {0: rows}))
    plain = exported.run_decompositions(kronop.torch.decompositions())
    assert sum("kronop" in str(node.target) for node in exported.graph.nodes) == 4
    assert not any("kronop" in str(node.target) for node in plain.graph.nodes)
    more = tuple(torch.cat([item, item]) for item in inputs)
    torch.testing.assert_close(plain.module()(*more), model(*more))


@pytest.mark.parametrize("left", [False, True])
def test_decompositions_are_the_operators(left: bool) -> None:
    kron = torch.ops.kronop.kron.default
    ours = kronop.torch.decompositions()[kron]
    draw = torch.Generator().manual_seed(3)

    def ints(*shape: int) -> Any:
        return torch.randint(-3, 4, shape, generator=draw)

    factors = [ints(2, 1, 3, 2), ints(4, 2, 3)]
    x = ints(4, 6, 5) if left else ints(4, 5, 6)
    z = ints(2, 4, 6, 5) if left else ints(2, 4, 5, 6)
    for kind in (torch.float64, torch.int8):
        operands = (x.to(kind), [factor.to(kind) for factor in factors])
        of_z = z.to(torch.int32 if kind is torch.int8 else kind)
        for scalars in ((2, 3), (2.0, 3.0)):
            arguments = (*operands, of_z, *scalars, left)
            found, right = ours(*arguments), kron(*arguments)
            assert found.dtype is right.dtype
            assert torch.equal(found, right)  # Of small integers, so that nothing is rounded.
            assert found.stride() == right.stride()
    ksmm = torch.ops.kronop.ksmm.default
    weights = [ints(*pattern).to(torch.bfloat16) for pattern in _CHAIN]
    x = ints(16, 3) if left else ints(3, 16)
    types = {torch.bfloat16: torch.bfloat16, torch.float8_e4m3fn: torch.bfloat16}
    for kind, result in (types | {torch.int8: torch.int32}).items():
        chain = [item.to(kind) for item in weights[:1]]
        name = "relu" if result.is_floating_point else None
        arguments = (x.to(kind), chain, None, None, 2.0, 0, left, name)
        found, right = kronop.torch.decompositions()[ksmm](*arguments), ksmm(*arguments)
        assert found.dtype is right.dtype is result
        assert torch.equal(found, right)
        assert found.stride() == right.stride()


@pytest.mark.parametrize("by_dynamo", [True, False])
@pytest.mark.filterwarnings("ignore")
def test_an_onnx_model_computes_the_same(by_dynamo: bool) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    reference = pytest.importorskip("onnx.reference")
    model, inputs = _exported()
    file = io.BytesIO()
    torch.onnx.export(model, inputs, file, dynamo=by_dynamo, verbose=False)
    evaluator = reference.ReferenceEvaluator(onnx.load_from_string(file.getvalue()))
    named = zip(evaluator.input_names, inputs, strict=True)
    found = evaluator.run(None, {name: item.numpy() for name, item in named})
    for item, right in zip(found, model(*inputs), strict=True):
        # Sums of at most 16 products in each of four factors, in another order.
        np.testing.assert_allclose(item, right.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_decomposed", [True, False])
def test_ahead_of_time_compiled(is_decomposed: bool, tmp_path: Any, request: Any) -> None:
    if not request.config.getoption("--full"):
        pytest.skip("torch's compiler takes most of a minute: --full runs it")
    layer, x = KSLinear(_CHAIN).eval(), _rows()
    with torch.no_grad():
        exported = torch.export.export(layer, (x,))
        if is_decomposed:
            exported = exported.run_decompositions(kronop.torch.decompositions())
        path = torch._inductor.aoti_compile_and_package(
            exported, package_path=str(tmp_path / "layer.pt2")
        )
        torch.testing.assert_close(torch._inductor.aoti_load_package(path)(x), layer(x))


_OPTIMIZERS = {
    "SGD": {"lr": 0.1, "momentum": 0.9},
    "AdamW": {"lr": 0.03},
    "Adagrad": {"lr": 0.1},
    "LBFGS": {"lr": 0.5, "max_iter": 4},
}


@_each_layer
@pytest.mark.parametrize("name", _OPTIMIZERS)
def test_optimizers_of_torch_fit_the_layers(name: str, make: Any) -> None:
    torch.manual_seed(4)
    x = _rows(64)
    target, layer = make()(x).detach(), make()
    optimizer = getattr(torch.optim, name)(layer.parameters(), **_OPTIMIZERS[name])

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (layer(x) - target).square().mean()
        loss.backward()
        return loss

    losses = [float(optimizer.step(closure).detach()) for _ in range(30)]
    assert losses[-1] < 0.7 * losses[0], losses


@pytest.fixture
def group(tmp_path: Any) -> Any:
    """A group of this process alone."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_gloo_available()):
        pytest.skip("this torch has no gloo")
    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield distributed
    distributed.destroy_process_group()


def _step(model: Any, x: Any) -> list[Any]:
    """The parameters after one step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(x).sin().sum().backward()
    optimizer.step()
    whole = (getattr(p, "full_tensor", lambda p=p: p)() for p in model.parameters())
    return [item.detach().clone() for item in whole]


@pytest.mark.parametrize("wrap", ["ddp", "fsdp"])
def test_wraps_for_several_processes_train_the_same(wrap: str, group: Any) -> None:
    def model() -> Any:
        torch.manual_seed(5)
        return torch.nn.Sequential(KSLinear(_CHAIN), torch.nn.Tanh(), _LAYERS["KroneckerLinear"]())

    x, given = _rows(), model()
    if wrap == "ddp":
        given = torch.nn.parallel.DistributedDataParallel(given)
    else:
        fsdp = pytest.importorskip("torch.distributed.fsdp")
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
        for layer in (given[0], given[2], given):
            fsdp.fully_shard(layer, mesh=mesh)
    torch.testing.assert_close(_step(given, x), _step(model(), x))
