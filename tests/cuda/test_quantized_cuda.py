"""Quantized Kronecker products on a GPU: exact integers to the bit, others within a quantum."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.families.quantized.api import quantized_arguments
from kronop.families.quantized.description import EPILOGUE, Y
from tests import support

torch: Any = pytest.importorskip("torch")

import kronop.torch  # noqa: E402
from kronop.bench.quantized import rounded_by_torch  # noqa: E402

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]
_HALVES = [torch.bfloat16, torch.float16]


def whole(*shape: int, kind: Any, density: float = 1.0) -> Any:
    """-1, 0 and 1, few of them not 0 where sums have many terms."""
    values = torch.randint(-1, 2, shape, device="cuda")
    return (values * (torch.rand(shape, device="cuda") < density)).to(kind)


def drawn(factors: Any, rows: int, kind: Any) -> tuple[Any, list[Any]]:
    """Operands whose products, and what is between factors, are whole and at most 128 in general;
    larger ones are rounded to the same, as they are to be rounded."""
    columns = math.prod(p for p, _ in factors)
    density = min(1.0, 8 / columns**0.5)
    return whole(rows, columns, kind=kind, density=density), [
        whole(*item, kind=kind, density=min(1.0, 4 / item[0] ** 0.5)) for item in factors
    ]


def check(x: Any, factors: list[Any], bits: int, clip: float = 1.0) -> tuple[Any, Any]:
    """Results, which are right to the bit, where sums are so small that they are exact."""
    q, scales = kronop.quantized_gemkm(x, factors, bits=bits, clip=clip)
    what = quantized_arguments(x, factors, bits).operation.description
    wide = [item.double().cpu().numpy() for item in factors]
    product = what.product.reference(x.double().cpu().numpy(), wide)
    assert np.abs(product).max(initial=0) <= 256, "draw smaller operands"
    wanted_q, wanted_scales = what.quantized(product, clip)
    assert np.array_equal(scales.cpu().numpy(), wanted_scales)
    assert np.array_equal(q.view(torch.int8).cpu().numpy(), wanted_q)
    return q, scales


def entries(x: Any, factors: list[Any], bits: int) -> str:
    return repr(quantized_arguments(x, factors, bits).operation)


@pytest.mark.parametrize("kind", _HALVES)
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(
    "factors",
    [
        [(64, 64), (64, 64)],
        [(64, 64), (128, 128)],
        [(128, 128), (112, 112)],
        [(128, 128), (192, 192)],
        [(8, 8)] * 4,
    ],
)
def test_one_kernel(factors: Any, bits: int, kind: Any) -> None:
    """Many rows, so that a block takes several after each other, and their copies overlap."""
    torch.manual_seed(0)
    x, matrices = drawn(factors, 1201, kind)
    x[7] = 0
    if support.cuda_target() == "sm_90a" and (kind, len(factors)) != (torch.float16, 4):
        assert "quantized_pair" in entries(x, matrices, bits)
    wanted = check(x, matrices, bits)
    for _ in range(3):  # From the third call on it is repeated.
        found = kronop.quantized_gemkm(x, matrices, bits=bits)
        assert all(map(torch.equal, found, wanted))
    check(x[:50], matrices, bits, clip=0.75)


def test_batches_broadcast() -> None:
    torch.manual_seed(2)
    x, (a, b) = drawn([(16, 24), (8, 10)], 5 * 40, torch.float16)
    many = torch.stack([a, -a, a.roll(1)])
    check(x.view(5, 1, 40, 128), [many, b], 4)
    check(x.view(5, 40, 128).transpose(0, 1), [a, b], 8)
    assert kronop.quantized_gemkm(x[:0], [a, b], bits=4)[0].shape == (0, 120)


@pytest.mark.parametrize("kind", _HALVES)
@pytest.mark.parametrize("factors", [[(64, 64), (64, 64)], [(60, 33), (7, 26)], [(2000, 64)]])
def test_random_values_are_within_a_quantum(factors: Any, kind: Any) -> None:
    torch.manual_seed(3)
    x = torch.randn(300, math.prod(p for p, _ in factors), device="cuda").to(kind)
    matrices = [torch.randn(*item, device="cuda").to(kind) for item in factors]
    q, scales = kronop.quantized_gemkm(x, matrices, bits=8)
    product, sizes = (
        kronop.gemkm(change(x.double()), [change(item.double()) for item in matrices])
        for change in (lambda item: item, torch.abs)
    )
    unit = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}[kind]
    terms = x.shape[1] * 2.0**-24  # Of float32 sums.
    bound = 0.5 * scales.double() * (1 + 2.0**-20) + ((1 + len(factors)) * unit + terms) * sizes
    assert ((q.double() * scales.double() - product).abs() <= bound).all()


def test_rows_that_are_not_finite_and_rows_of_zeros() -> None:
    for factors in ([(64, 64), (64, 64)], [(512, 64)]):
        x, matrices = drawn(factors, 40, torch.bfloat16)
        x[3, 5], x[4, 0], x[5] = float("inf"), float("nan"), 0
        q, scales = kronop.quantized_gemkm(x, matrices, bits=4)
        assert scales[3:5].isnan().all()
        assert scales[5] == 1
        assert not q[3:6].any()
        assert scales.isfinite().sum() == 38
        finite = [at for at in range(40) if at not in (3, 4)]
        check(x[finite], matrices, 4)


def test_it_is_what_torch_writes_in_eager_mode() -> None:
    """Of products that are equal, since they are exact, all scales and integers are.

    NOTE: on a GPU torch multiplies by the reciprocal of a Python number instead of dividing by it,
    so that its scales may be a last place off: the divisor is a tensor here.
    """
    torch.manual_seed(4)
    for kind in _HALVES:
        x, matrices = drawn([(64, 64), (64, 64)], 500, kind)
        for bits in (4, 8):
            found = kronop.torch.quantized_gemkm(x, matrices, bits=bits)
            product = kronop.gemkm(x, matrices)
            top = torch.tensor(2.0 ** (bits - 1) - 1, device="cuda")
            scales = product.abs().amax(-1, keepdim=True).float() / top
            wanted = rounded_by_torch(product, scales, bits)
            for item, want in zip(found, wanted, strict=True):
                assert torch.equal(item, want)


def test_it_is_captured_in_a_graph() -> None:
    x, matrices = drawn([(64, 64), (64, 64)], 100, torch.float16)
    out = tuple(torch.empty_like(item) for item in kronop.quantized_gemkm(x, matrices, bits=4))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            kronop.quantized_gemkm(x, matrices, bits=4, out=out)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kronop.quantized_gemkm(x, matrices, bits=4, out=out)
    x.neg_()
    graph.replay()
    for item, want in zip(out, kronop.quantized_gemkm(x, matrices, bits=4), strict=True):
        assert torch.equal(item, want)


def test_host_arrays_come_back_to_the_host() -> None:
    tensor = kronop.TensorDescription(kronop.float16)
    operation = kronop.QuantizedKronOperation(
        support.cuda_target(), None, tensor, tensor, Y, EPILOGUE, [(8, 8), (8, 8)], bits=4
    )
    x, matrices = drawn([(8, 8), (8, 8)], 9, torch.float16)
    on_host = [item.cpu().numpy() for item in (x, *matrices)]
    arguments = kronop.QuantizedKronArguments(
        operation=operation, X=on_host[0], factors=on_host[1:]
    )
    operation.run(arguments)
    arguments.sync()
    q, scales = kronop.quantized_gemkm(x, matrices, bits=4)
    assert np.array_equal(arguments.Y, q.view(torch.int8).cpu().numpy())
    assert np.array_equal(arguments.scales, scales.cpu().numpy())
