"""8-bit floats of torch on a GPU: every layout, every result, every value."""

from __future__ import annotations

from typing import Any

import pytest

import kronop
from kronop.machine import Feature
from kronop.target import Target
from tests import support

pytestmark = pytest.mark.cuda

_PATTERNS = {
    "d1": (6, 64, 64, 1),
    "d2": (1, 96, 48, 2),
    "d3": (1, 64, 80, 3),
    "d4": (2, 48, 192, 4),
    "d12": (1, 48, 64, 12),
    "d64": (1, 32, 48, 64),
    "odd": (3, 33, 41, 5),
    "tiny": (2, 2, 2, 2),
}
_ELEMENTS = pytest.mark.parametrize("element", support.FLOAT8, ids=lambda item: item.name)


@pytest.fixture
def torch() -> Any:
    torch = pytest.importorskip("torch")
    if not (torch.cuda.is_available() and Target.parse("cuda").has(Feature.float8)):
        pytest.skip("no GPU that converts 8-bit floats")
    return torch


@pytest.mark.parametrize("batch_last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("pattern", _PATTERNS.values(), ids=_PATTERNS)
@_ELEMENTS
def test_products(torch: Any, element: Any, pattern: Any, batch_last: bool) -> None:
    a, _, c, d = pattern
    kind = getattr(torch, element.name)
    weights = torch.randn(pattern, device="cuda").to(kind)
    for rows in (1, 128, 1001):
        x = torch.randn(rows, a * c * d, device="cuda").to(kind)
        expected = torch.einsum(
            "nikl,ijkl->nijl", x.double().view(rows, a, c, d), weights.double()
        ).reshape(rows, -1)
        given = x.T.contiguous() if batch_last else x
        for output, unit in ((None, 2.0**-8), (torch.float16, 2.0**-11), (torch.float32, 2.0**-18)):
            out = None
            if output is not None:
                out = torch.full_like(expected, torch.nan, dtype=output)
                out = out.T.contiguous() if batch_last else out
            y = kronop.ksmm(given, weights, batch_last=batch_last, out=out)
            assert y.dtype == (output or torch.bfloat16)
            error = ((y.T if batch_last else y).double() - expected).abs().max()
            assert float(error) <= unit * float(expected.abs().max())


@_ELEMENTS
def test_every_value_on_either_kind_of_cores(torch: Any, element: Any) -> None:
    kind = getattr(torch, element.name)
    every = torch.arange(256, dtype=torch.uint8, device="cuda").view(kind)[:, None]
    for size in (1, 32):
        # A diagonal matrix would multiply NaN by 0: each row has its value in one column alone.
        one = torch.zeros(1, size, size, 1, device="cuda")
        one[0, :, 0, 0] = 1
        x = torch.zeros(256, size, device="cuda").to(kind)
        x.view(torch.uint8)[:, :1] = every.view(torch.uint8)
        y = kronop.ksmm(x, one.to(kind), out=torch.empty(256, size, device="cuda"))
        torch.testing.assert_close(
            y, every.float().expand(-1, size), rtol=0, atol=0, equal_nan=True
        )


def test_a_call_in_a_graph(torch: Any) -> None:
    x = torch.randn(64, 384, device="cuda").to(torch.float8_e4m3fn)
    weights = torch.randn(6, 64, 64, 1, device="cuda").to(torch.float8_e4m3fn)
    bias = torch.randn(384, device="cuda", dtype=torch.bfloat16)
    out = torch.empty(64, 384, device="cuda", dtype=torch.bfloat16)
    for _ in range(3):
        expected = kronop.ksmm(x, weights, bias=bias, activation="gelu", alpha=0.125)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kronop.ksmm(x, weights, bias=bias, activation="gelu", alpha=0.125, out=out)
    out.fill_(torch.nan)
    graph.replay()
    torch.testing.assert_close(out, expected, rtol=0, atol=0)
