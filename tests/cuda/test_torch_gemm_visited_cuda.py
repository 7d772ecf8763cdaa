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
    ties = [0.0] * len(results)
    ties += _ties(a.double(), b.double(), digits) if name == "repeated" else [0.0] * len(wanted)
    for one, other, tied in zip((*found, *grads), (*results, *wanted), ties, strict=False):
        allowed = 8 * digits * float(other.detach().abs().max()) + tied
        wrong = (one.detach().cpu().double() - other).abs() > allowed
        assert not wrong.any(), f"{int(wrong.sum())} of {wrong.numel()}"


def _ties(a: Any, b: Any, digits: float) -> list[Any]:
    """What derivatives of the tree "repeated" may be off by, since rounding decides which of two
    numbers is larger: that of its maximum of x / y and a sum jumps by twice the maximum."""
    other, sums = _SCALARS["x"] / _SCALARS["y"], a @ b
    jump = 2 * abs(other) * ((sums - other).abs() <= digits * abs(other)).double()
    of_a, of_b = jump @ b.abs().T, a.abs().mT @ jump
    return [of_a, of_b.sum(tuple(range(of_b.ndim - 2))), 0.0]
