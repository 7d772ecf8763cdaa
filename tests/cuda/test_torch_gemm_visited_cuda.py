"""Visitor trees as a torch operator on a GPU: results, gradients and compiled graphs."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.cuda

torch: Any = pytest.importorskip("torch")

from tests.unit.visited_cases import TREES, called, drawn, loss_of  # noqa: E402

_SCALARS = {"alpha": 0.7, "beta": 0.3, "x": 0.9, "y": -1.5, "tree": 2}


@pytest.fixture(autouse=True)
def gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA")
    torch._dynamo.reset()  # Each test compiles the same function.


def _given(name: str, m: int, n: int, kind: Any) -> dict[str, Any]:
    torch.manual_seed(1)
    shapes = {"tensor": (m, n), "row": (n,), "column": (m,)}
    found: dict[str, Any] = {}
    for item in TREES[name].operands:
        if item.kind == "scalar":
            found[item.name] = _SCALARS[item.name]
        else:
            found[item.name] = torch.randn(*shapes[item.kind], dtype=kind)
    return found


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize(
    ("lead", "m", "n", "k"), [((), 256, 128, 64), ((3,), 65, 37, 50), ((), 64, 96, 4096)]
)
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_results_and_gradients_are_those_of_float64(
    kind: str, lead: tuple[int, ...], m: int, n: int, k: int, name: str, compiled: bool
) -> None:
    own = getattr(torch, kind)
    a, b = drawn((*lead, m, k), (k, n), kind=own, grad=False)
    a, given = a / k**0.5, _given(name, m, n, own)
    call, tensors = called(TREES[name], given)
    exact = [item.double().requires_grad_() for item in (a, b, *tensors)]
    ours = [item.detach().to("cuda", own).requires_grad_() for item in exact]
    loss = loss_of(lambda *given: [item.double() for item in call(*given)])
    wanted, results = torch.autograd.grad(loss(*exact), exact), call(*exact)
    way = torch.compile(call, fullgraph=True, backend="aot_eager") if compiled else call
    for _ in range(1 if compiled else 3):
        found = way(*ours)
        grads = torch.autograd.grad(
            sum((item.double() ** 2).sum() for item in found), ours, retain_graph=True
        )
    digits = 2.0**-7 if kind == "bfloat16" else 2.0**-18
    for one, other in zip((*found, *grads), (*results, *wanted), strict=True):
        most = float(other.detach().abs().max())
        torch.testing.assert_close(one.cpu().double(), other, rtol=0, atol=8 * digits * most)
