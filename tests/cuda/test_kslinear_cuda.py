"""KSLinear on a GPU: every algorithm, gradients, autocast, torch.compile, graphs and streams."""

from __future__ import annotations

import copy
from typing import Any

import pytest

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.filterwarnings("ignore:Sparse (CSR|BSR):UserWarning"),
]

_NAMES = ["kernel", "bmm", "bsr", "einsum", "dense", "sparse", "auto"]
# Those of the layers of a ViT-S/16, and what no tile divides.
_CHAINS = {
    "qkv": [(2, 48, 192, 1), (1, 192, 48, 2)],
    "up": [(6, 64, 64, 1), (1, 768, 192, 2)],
    "down": [(6, 64, 256, 1), (1, 128, 128, 3)],
    "odd": [(3, 5, 7, 1), (1, 11, 5, 3)],
    "tiny": [(2, 2, 2, 2)],
    "one": [(2, 48, 192, 4)],
}


@pytest.fixture(scope="module")
def torch() -> Any:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA")
    import kronop.torch  # noqa: F401

    return torch


def _layer(torch: Any, chain: Any, **options: Any) -> Any:
    torch.manual_seed(len(chain))
    return torch_nn().KSLinear(_CHAINS[chain], device="cuda", **options)


def torch_nn() -> Any:
    import kronop.torch

    return kronop.torch.nn


def _operand(torch: Any, layer: Any, rows: int, dtype: Any) -> Any:
    shape = (layer.in_features, rows) if layer.bs_last else (rows, layer.in_features)
    return torch.randn(shape, device="cuda", dtype=dtype, requires_grad=True)


def _exact(layer: Any, x: Any) -> tuple[list[Any], Any]:
    """Leaves in float64, and the result by einsum."""
    exactly = copy.deepcopy(layer).double()
    exactly.algo = "einsum"
    x = x.detach().double().requires_grad_()
    return [x, *exactly.parameters()], exactly(x)


def _close(ours: Any, right: Any, unit: float, word: str = "") -> None:
    error = float((ours.detach().double() - right.detach()).norm() / right.detach().norm())
    assert error < unit, f"{word} {error}"


def _unit(torch: Any, dtype: Any, factors: int) -> float:
    """Every factor rounds what it gives, forwards and backwards; float32 sums are long."""
    return 3 * (factors + 1) * max(float(torch.finfo(dtype).eps), 2.0**-44)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("chain", _CHAINS)
def test_the_kernel_and_its_gradients(torch: Any, chain: str, dtype: str, last: bool) -> None:
    kind = getattr(torch, dtype)
    layer = _layer(torch, chain, dtype=kind, bs_last=last)
    for rows in (300, 1):
        x = _operand(torch, layer, rows, kind)
        leaves, exact = _exact(layer, x)
        y = layer(x)
        ones = torch.randn_like(y)
        ours = torch.autograd.grad(y, [x, *layer.parameters()], ones)
        right = torch.autograd.grad(exact, leaves, ones.double())
        unit = _unit(torch, kind, len(layer.patterns))
        _close(y, exact, unit, "y")
        for at, (item, other) in enumerate(zip(ours, right, strict=True)):
            assert item.dtype is kind
            _close(item, other, unit, f"gradient {at}")
        with torch.no_grad():
            _close(layer(x), exact, unit, "without gradients")


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", _NAMES[1:])
def test_every_algorithm_gives_the_same(torch: Any, name: str, dtype: str, last: bool) -> None:
    kind = getattr(torch, dtype)
    for chain in ("qkv", "down", "odd", "tiny"):
        layer = _layer(torch, chain, dtype=kind, bs_last=last, algo=name)
        x = _operand(torch, layer, 48, kind)
        leaves, exact = _exact(layer, x)
        y = layer(x)
        ones = torch.randn_like(y)
        ours = torch.autograd.grad(y, [x, *layer.parameters()], ones)
        right = torch.autograd.grad(exact, leaves, ones.double())
        # Other libraries' sums may be of another type than float32's.
        unit = 4 * _unit(torch, kind, len(layer.patterns))
        _close(y, exact, unit, f"{chain} y")
        for at, (item, other) in enumerate(zip(ours, right, strict=True)):
            _close(item, other, unit, f"{chain} gradient {at}")


def test_gradcheck_and_second_derivatives(torch: Any) -> None:
    import kronop.torch

    shapes = ((3, 6), (2, 2, 3, 1), (1, 3, 2, 2), (6,))
    tensors = [
        torch.randn(shape, device="cuda", dtype=torch.float64, requires_grad=True)
        for shape in shapes
    ]

    def call(x: Any, first: Any, second: Any, bias: Any) -> Any:
        return kronop.torch.ksmm(x, [first, second], bias=bias, alpha=0.7)

    assert torch.autograd.gradcheck(call, tensors)
    assert torch.autograd.gradgradcheck(call, tensors)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", _NAMES)
def test_autocast(torch: Any, name: str, dtype: str) -> None:
    kind = getattr(torch, dtype)
    layer = _layer(torch, "qkv", algo=name)
    x = _operand(torch, layer, 64, torch.float32)
    leaves, exact = _exact(layer, x)
    with torch.autocast("cuda", dtype=kind):
        y = layer(x)
        assert y.dtype is layer(x.to(kind)).dtype is kind
    unit = 4 * _unit(torch, kind, 2)
    _close(y, exact, unit, "y")
    ones = torch.randn_like(y)
    ours = torch.autograd.grad(y, [x, *layer.parameters()], ones)
    for item, right in zip(ours, torch.autograd.grad(exact, leaves, ones.double()), strict=True):
        assert item.dtype is torch.float32
        _close(item, right, unit)


@pytest.mark.parametrize("name", _NAMES)
def test_a_captured_step_is_replayed(torch: Any, name: str) -> None:
    layer = _layer(torch, "qkv", algo=name)
    x = _operand(torch, layer, 64, torch.float32)
    ones = torch.randn_like(layer(x))
    leaves = [x, *layer.parameters()]

    def call() -> Any:
        y = layer(x)
        return y, *torch.autograd.grad(y, leaves, ones)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(4):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = call()
    with torch.no_grad():
        for item in (*leaves, ones):
            item.copy_(torch.randn_like(item))
        for item in captured:
            item.fill_(float("nan"))
    graph.replay()
    for found, expected in zip(captured, call(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5 * float(expected.std()))


def test_another_stream_sees_what_was_written_there(torch: Any) -> None:
    layer = _layer(torch, "up")
    stream = torch.cuda.Stream()
    source = _operand(torch, layer, 512, torch.float32)
    stream.wait_stream(torch.cuda.current_stream())
    for _ in range(4):  # The long way, and then from addresses.
        with torch.cuda.stream(stream):
            torch.cuda._sleep(10_000_000)
            x = (source * 2).detach().requires_grad_()
            y = layer(x)
            ones = torch.ones_like(y)
            ours = torch.autograd.grad(y, [x, *layer.parameters()], ones)
        torch.cuda.current_stream().wait_stream(stream)
        leaves, exact = _exact(layer, x)
        right = torch.autograd.grad(exact, leaves, ones.double())
        for item, other in zip((y, *ours), (exact, *right), strict=True):
            _close(item, other, 1e-5)


@pytest.mark.parametrize("name", _NAMES)
def test_compiled_whole(torch: Any, name: str) -> None:
    layer = _layer(torch, "qkv", algo=name)
    x = _operand(torch, layer, 64, torch.float32)
    leaves = [x, *layer.parameters()]
    right = torch.autograd.grad(layer(x).sin().sum(), leaves)
    torch._dynamo.reset()  # One function is compiled for few kinds of layers only.
    try:
        y = torch.compile(layer, fullgraph=True)(x)
    except torch._inductor.exc.InductorError as error:  # No Triton, or none that works here.
        pytest.skip(str(error).splitlines()[0])
    for item, other in zip(torch.autograd.grad(y.sin().sum(), leaves), right, strict=True):
        _close(item, other.double(), 1e-4)


def test_moved_to_the_gpu_and_back(torch: Any) -> None:
    torch.manual_seed(0)
    layer = torch_nn().KSLinear(_CHAINS["qkv"], algo="auto")
    x = torch.randn(8, layer.in_features)
    y = layer(x)
    there = layer.cuda()(x.cuda())
    _close(there.cpu(), y.double(), 1e-5)
    torch.testing.assert_close(layer.cpu()(x), y)


def test_a_dense_layer_on_the_gpu_is_projected(torch: Any) -> None:
    exact = _layer(torch, "down")
    linear = torch.nn.Linear(exact.in_features, exact.out_features, device="cuda")
    with torch.no_grad():
        linear.weight.copy_(exact.get_dense_product())
    layer = torch_nn().KSLinear.from_linear(linear, _CHAINS["down"])
    assert layer.projection_error < 1e-6
    x = _operand(torch, layer, 64, torch.float32)
    _close(layer(x), linear(x).double(), 1e-4)
