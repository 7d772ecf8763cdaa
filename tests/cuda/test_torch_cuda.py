"""kronop.torch on a GPU: gradients, other streams, CUDA graphs through torch.compile's kernels."""

from __future__ import annotations

from typing import Any

import pytest

import kronop
from kronop.core import program

pytestmark = pytest.mark.cuda


@pytest.fixture(scope="module")
def torch() -> Any:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA")
    import kronop.torch  # noqa: F401

    return torch


def _operands(torch: Any, lead: tuple[int, ...], shapes: Any, dtype: Any, left: bool) -> list[Any]:
    columns = 1
    for rows, _ in shapes:
        columns *= rows
    x_shape = (*lead[:-1], columns, lead[-1]) if left else (*lead, columns)
    tensors = [x_shape, *(shape[::-1] if left else shape for shape in shapes)]
    return [
        torch.randn(*shape, device="cuda", dtype=dtype, requires_grad=True) for shape in tensors
    ]


def _shuffle(x: Any, factors: Any, left: bool) -> Any:
    """One digit after the other, the last first."""
    if left:
        return _shuffle(x.mT, [item.mT for item in factors], False).mT
    lead = x.shape[:-1]
    for factor in reversed(factors):
        x = (x.reshape(*lead, -1, factor.shape[0]) @ factor).mT.reshape(*lead, -1)
    return x


_CASES = {
    "8^5": ((64,), [(8, 8)] * 5),
    "64^3": ((4,), [(64, 64)] * 3),
    "16^3 batched": ((2, 3, 7), [(16, 16)] * 3),
    "ragged": ((37,), [(3, 5), (20, 1), (7, 40), (1, 3)]),
    "twos": ((33,), [(2, 2)] * 11),
    "one": ((65,), [(48, 20)]),
}


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("case", _CASES.values(), ids=_CASES.keys())
def test_gradients_are_those_of_the_shuffle_algorithm(
    torch: Any, case: Any, dtype: str, left: bool
) -> None:
    torch.manual_seed(len(case[1]))
    kind = getattr(torch, dtype)
    x, *factors = operands = _operands(torch, *case, kind, left)
    with torch.no_grad():
        for factor in factors:
            factor /= factor.shape[0] ** 0.5
    y = kronop.torch.gekmm(factors, x) if left else kronop.torch.gemkm(x, factors)
    exactly = [item.detach().double().requires_grad_() for item in operands]
    exact = _shuffle(exactly[0], exactly[1:], left)
    weights = torch.randn_like(y)
    ours = torch.autograd.grad(y, operands, weights)
    right = torch.autograd.grad(exact, exactly, weights.double())
    # Roundings of every factor's products and between runs of factors; sums are random walks.
    unit = 4 * (len(factors) + 1) * max(torch.finfo(kind).eps, 2.0**-40)
    for found, expected in zip(ours, right, strict=True):
        assert found.dtype == kind
        scale = expected.norm().clamp_min(weights.double().norm() * 1e-3)
        assert float((found.double() - expected).norm() / scale) < unit


@pytest.mark.parametrize("digit", [2, 4, 8, 16])
@pytest.mark.parametrize("kind", ["float32", "float64", "float16"])
def test_a_digit_alone_from_the_left(torch: Any, digit: int, kind: str) -> None:
    """Pieces of neighbouring columns fill the rows of a tile, where there are no batches."""
    dtype = getattr(torch, kind)
    factor = torch.randint(-3, 4, (digit, digit), device="cuda").to(dtype)
    for lead, columns in (((), 4096), ((), 4100), ((), 1001), ((), 72), ((3,), 640), ((70,), 33)):
        x = torch.randint(-3, 4, (*lead, digit, columns), device="cuda").to(dtype)
        out = torch.full_like(x, float("nan"))
        kronop.gekmm([factor], x, beta=2.0, z=x, out=out)
        assert torch.equal(out.double(), factor.double() @ x.double() + 2 * x.double())


def test_gradcheck_and_second_derivatives(torch: Any) -> None:
    x, *factors = _operands(torch, (3,), [(2, 3), (3, 1), (2, 2)], torch.float64, False)

    def call(x: Any, *factors: Any) -> Any:
        return kronop.torch.gemkm(x, list(factors), alpha=0.7)

    assert torch.autograd.gradcheck(call, (x, *factors))
    assert torch.autograd.gradgradcheck(call, (x, *factors))


def test_batched_factors_are_summed_over_what_was_broadcast(torch: Any) -> None:
    x, *factors = _operands(torch, (5,), [(4, 3), (2, 6)], torch.float64, False)
    many = torch.randn(3, 4, 3, device="cuda", dtype=torch.float64, requires_grad=True)
    y = kronop.torch.gemkm(x, [many, factors[1]])
    ours = torch.autograd.grad(y.sin().sum(), (x, many, factors[1]))
    exact = torch.stack([_shuffle(x, [item, factors[1]], False) for item in many])
    right = torch.autograd.grad(exact.sin().sum(), (x, many, factors[1]))
    for found, expected in zip(ours, right, strict=True):
        torch.testing.assert_close(found, expected)


def test_a_backward_on_another_stream_sees_what_was_written_there(torch: Any) -> None:
    operands = _operands(torch, (256,), [(16, 16)] * 3, torch.float32, False)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(10_000_000)
        x = operands[0] * 2
        y = kronop.torch.gemkm(x, operands[1:])
        ours = torch.autograd.grad(y.square().sum(), operands)
    torch.cuda.current_stream().wait_stream(stream)
    exact = _shuffle(operands[0] * 2, operands[1:], False)
    right = torch.autograd.grad(exact.square().sum(), operands)
    for found, expected in zip(ours, right, strict=True):
        assert float((found - expected).norm() / expected.norm()) < 1e-5


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("case", ["8^5", "64^3", "ragged", "twos", "one"])
def test_a_repeated_backward_is_that_of_other_tensors(torch: Any, case: str, left: bool) -> None:
    program.forget()
    streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
    for step in range(6):
        torch.manual_seed(step)
        operands = _operands(torch, *_CASES[case], torch.float32, left)
        weights = None
        streams[step % 2].wait_stream(streams[1 - step % 2])
        with torch.cuda.stream(streams[step % 2]):
            x, *factors = [item * 2 for item in operands]
            y = kronop.torch.gekmm(factors, x) if left else kronop.torch.gemkm(x, factors)
            weights = torch.randn_like(y)
            ours = torch.autograd.grad(y, operands, weights)
        torch.cuda.synchronize()
        exactly = [item.detach().double().requires_grad_() for item in operands]
        x, *factors = [item * 2 for item in exactly]
        right = torch.autograd.grad(_shuffle(x, factors, left), exactly, weights.double())
        for found, expected in zip(ours, right, strict=True):
            assert float((found - expected).norm() / expected.norm()) < 1e-5
    (learned,) = program._programs.values()
    assert learned is not None


def test_a_captured_backward_is_replayed(torch: Any) -> None:
    x, *factors = _operands(torch, (64,), [(8, 8)] * 4, torch.float32, False)
    weights = torch.randn_like(x)

    def call() -> Any:
        return torch.autograd.grad(kronop.torch.gemkm(x, factors), (x, *factors), weights)

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
        for item in (x, *factors, weights):
            item.copy_(torch.randn_like(item))
    graph.replay()
    for found, expected in zip(captured, call(), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_compiled_whole(torch: Any) -> None:
    operands = _operands(torch, (64,), [(8, 8)] * 3, torch.float32, False)

    def loss(x: Any, *factors: Any) -> Any:
        return kronop.torch.gemkm(x, list(factors)).sin().sum()

    try:
        compiled = torch.compile(loss, fullgraph=True)(*operands)
    except torch._inductor.exc.InductorError as error:  # No Triton, or none that works here.
        pytest.skip(str(error).splitlines()[0])
    ours = torch.autograd.grad(compiled, operands)
    right = torch.autograd.grad(loss(*operands), operands)
    for found, expected in zip(ours, right, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
