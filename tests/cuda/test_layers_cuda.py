"""kronop's layers on a GPU: Kronecker products, torch's modules, replaced layers, exports."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.cuda

_CHAIN = [(2, 4, 8, 1), (1, 8, 4, 2)]  # 16 -> 16


@pytest.fixture(scope="module")
def torch() -> Any:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA")
    import kronop.torch  # noqa: F401

    return torch


def _near(torch: Any, found: Any, exact: Any) -> None:
    """Sums of at most 256 products, in float32 or TF32."""
    assert float((found.double() - exact).norm() / exact.norm()) < 2e-3
    assert found.is_cuda


def test_kronecker_layers_and_their_gradients(torch: Any) -> None:
    from kronop.torch.nn import KroneckerEmbedding, KroneckerLinear

    torch.manual_seed(0)
    table = KroneckerEmbedding([(20, 16), (30, 16)], device="cuda")
    layer = KroneckerLinear([(16, 16), (8, 16)], device="cuda")
    indices = torch.randint(600, (7, 5), device="cuda")
    leaves = [*table.parameters(), *layer.parameters()]
    y = layer(table(indices))
    exact = table.weight.double()[indices] @ layer.weight.double().T + layer.bias
    _near(torch, y, exact)
    ours = torch.autograd.grad(y.sin().sum(), leaves)
    for item, right in zip(ours, torch.autograd.grad(exact.sin().sum(), leaves), strict=True):
        _near(torch, item, right.double())


def test_a_transformer_layer_keeps_its_results_when_its_layers_are_read(torch: Any) -> None:
    from kronop.torch.nn import KSLinear, replace_linears

    torch.manual_seed(1)
    encoder = torch.nn.TransformerEncoderLayer(16, 2, 16, dropout=0.0, batch_first=True).cuda()
    replace_linears(encoder, lambda name, linear: _CHAIN)
    assert isinstance(encoder.linear1, KSLinear)
    assert encoder.linear1.weight.is_cuda
    x = torch.randn(3, 7, 16, device="cuda")
    trained = encoder(x)
    with torch.no_grad():
        _near(torch, encoder.eval()(x), trained.double())


def test_what_is_decomposed_computes_the_same(torch: Any) -> None:
    import kronop.torch
    from kronop.torch.nn import KSLinear

    layer, x = KSLinear(_CHAIN, device="cuda"), torch.randn(5, 16, device="cuda")
    plain = torch.export.export(layer, (x,)).run_decompositions(kronop.torch.decompositions())
    assert not any("kronop" in str(node.target) for node in plain.graph.nodes)
    _near(torch, plain.module()(x), layer(x).double())
