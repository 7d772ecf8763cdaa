"""One-line calls that are repeated on a GPU: streams, scratch memory, graphs, threads."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

import kronop
from kronop.args.memory import get_allocated_size
from kronop.core import prepared

pytestmark = pytest.mark.cuda


@pytest.fixture
def torch() -> Any:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA")
    prepared.forget()
    yield torch
    prepared.forget()


def _product(x: Any, factors: Any) -> Any:
    """One digit after the other, the last first, in float64."""
    lead, x = x.shape[:-1], x.double()
    for factor in reversed(factors):
        x = (x.reshape(*lead, -1, factor.shape[0]) @ factor.double()).mT.reshape(*lead, -1)
    return x


def _close(actual: Any, expected: Any) -> bool:
    scale = float(expected.abs().max())
    return float((actual.double() - expected).abs().max()) <= 1e-5 * scale


_SHAPES = {"one pass": [(8, 8)] * 4, "passes": [(16, 16)] * 4, "large": [(128, 128)] * 2}


def _operands(torch: Any, shapes: Any, rows: int = 5) -> Any:
    columns = 1
    for size, _ in shapes:
        columns *= size
    x = torch.randn(rows, columns, device="cuda")
    return x, [torch.randn(*shape, device="cuda") / shape[0] ** 0.5 for shape in shapes]


@pytest.mark.parametrize("shapes", _SHAPES.values(), ids=_SHAPES.keys())
def test_repeated_products_and_their_scratch_memory(torch: Any, shapes: Any) -> None:
    before = get_allocated_size()
    for call in range(6):
        x, factors = _operands(torch, shapes)
        expected = _product(x, factors)
        z = torch.randn_like(x)
        out = torch.full_like(x, torch.nan)
        assert _close(kronop.gemkm(x, factors), expected), call
        assert kronop.gemkm(x, factors, out=out) is out
        assert _close(out, expected), call
        assert _close(kronop.gemkm(x, factors, beta=0.5, z=z), expected + 0.5 * z.double()), call
        assert kronop.gemkm(x, factors, beta=0.5, z=z, out=z) is z
    assert sum(call is not None for call in prepared._calls.values()) == 4
    gc.collect()
    assert get_allocated_size() == before


def test_the_current_stream_is_used_in_every_call(torch: Any) -> None:
    x, factors = _operands(torch, [(16, 16)] * 4)
    expected = _product(x, factors)
    for _ in range(3):
        kronop.gemkm(x, factors)
    slow = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(slow):
        torch.cuda._sleep(200_000_000)
        result = kronop.gemkm(x, factors)
        assert not slow.query()
    slow.synchronize()
    assert _close(result, expected)


@pytest.mark.parametrize("shapes", _SHAPES.values(), ids=_SHAPES.keys())
def test_a_graph_captures_a_repeated_call(torch: Any, shapes: Any) -> None:
    x, factors = _operands(torch, shapes)
    for _ in range(3):
        kronop.gemkm(x, factors)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = kronop.gemkm(x, factors)
    for _ in range(2):
        x.normal_()
        graph.replay()
        torch.cuda.synchronize()
        assert _close(result, _product(x, factors))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_groups(torch: Any, dtype: str) -> None:
    """Of more products than one launch holds, with new tensors in every call."""
    sizes = [(8 * (1 + at % 7), 8 * (1 + at % 5), 8 * (1 + at % 11)) for at in range(60)]

    def drawn(*shape: int) -> Any:
        return torch.randint(-3, 4, shape, device="cuda").to(getattr(torch, dtype))

    kept = []
    for call in range(5):
        a, b = [drawn(m, k) for m, _, k in sizes], [drawn(k, n) for _, n, k in sizes]
        c = [drawn(m, n) for m, n, _ in sizes]
        kept.append((a, b))  # So that later calls have other addresses.
        found = kronop.gemm.grouped_matmul(a, b, c, beta=2.0)
        for x, y, z, d in zip(a, b, c, found, strict=True):
            assert torch.equal(d.double(), x.double() @ y.double() + 2 * z.double()), call
        order = torch.randperm(60).tolist()[: 60 - call]  # Another group of the same products.
        found = kronop.gemm.grouped_matmul(*([items[at] for at in order] for items in (a, b)))
        for at, d in zip(order, found, strict=True):
            assert torch.equal(d.double(), a[at].double() @ b[at].double()), call
    assert [call is not None for call in prepared._calls.values()] == [True]


def test_chains_and_refusals(torch: Any) -> None:
    x = torch.randn(7, 12, device="cuda")
    weights = [torch.randn(2, 3, 3, 2, device="cuda"), torch.randn(1, 4, 6, 2, device="cuda")]
    results = [kronop.ksmm(x, weights) for _ in range(5)]
    for result in results[1:]:
        assert torch.equal(result, results[0])
    out = torch.empty_like(results[0])
    for _ in range(4):
        assert torch.equal(kronop.ksmm(x, weights, out=out), results[0])
    factors = [torch.randn(2, 2, device="cuda")] * 2
    buffer = torch.randn(8, 4, device="cuda")
    for _ in range(3):
        kronop.gemkm(buffer[:4], factors, out=buffer[4:])
    with pytest.raises(kronop.ArgumentError, match="overlap"):
        kronop.gemkm(buffer[:4], factors, out=buffer[2:6])
    with pytest.raises(kronop.ArgumentError, match="detach"):
        kronop.gemkm(buffer[:4].requires_grad_(), factors, out=buffer[4:])


def test_threads_on_their_own_streams(torch: Any) -> None:
    operands = [_operands(torch, [(16, 16)] * 4) for _ in range(4)]
    expected = [_product(*item) for item in operands]
    torch.cuda.synchronize()
    wrong: list[int] = []

    def work(at: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            results = [kronop.gemkm(*operands[at]) for _ in range(50)]
            torch.cuda.current_stream().synchronize()
        wrong.extend(at for item in results if not _close(item, expected[at]))

    threads = [threading.Thread(target=work, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_cupy_arrays(torch: Any) -> None:
    cupy = pytest.importorskip("cupy")
    x = cupy.random.standard_normal((5, 16)).astype("float32")
    factors = [cupy.random.standard_normal((2, 2)).astype("float32") for _ in range(4)]
    results = [kronop.gemkm(x, factors) for _ in range(5)]
    for result in results[1:]:
        assert isinstance(result, cupy.ndarray)
        assert bool((result == results[0]).all())
    assert [call is not None for call in prepared._calls.values()] == [True]
