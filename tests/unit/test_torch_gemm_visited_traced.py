"""Visitor trees as a torch operator: tracing, exports, transforms, autocast."""

from __future__ import annotations

import io
from typing import Any

import pytest

import kronop
from kronop.descriptions.visitor import VisitorTree

torch: Any = pytest.importorskip("torch")

import kronop.torch  # noqa: E402
from tests.unit.visited_cases import (  # noqa: E402
    TREES,
    K,
    M,
    N,
    called,
    drawn,
    five,
    loss_of,
    matmul_visited,
    operands,
    tree_of,
)


def test_torch_finds_nothing_wrong_with_the_operator() -> None:
    operator = torch.ops.kronop.matmul_visited.default
    a, b = drawn((2, M, K), (K, N))
    given = operands(five)
    tensors = [given[item.name] for item in five.tensors]
    torch.library.opcheck(operator, (a, b, tensors, [0.7, 0.3], five.text))
    torch.library.opcheck(operator, (a.detach().mT, a, [], None, TREES["sums"].text))


@pytest.mark.parametrize("name", ["five", "sums", "repeated"])
def test_it_is_traced_without_a_break(name: str) -> None:
    tree = TREES[name]
    call, tensors = called(tree, operands(tree))
    given = (*drawn((2, M, K), (K, N)), *tensors)
    loss = loss_of(call)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*given), loss(*given))
    found = torch.autograd.grad(compiled(*given), given, allow_unused=True)
    wanted = torch.autograd.grad(loss(*given), given, allow_unused=True)
    torch.testing.assert_close(found, wanted)
    with torch.no_grad():
        torch.testing.assert_close(compiled(*given), loss(*given))


def test_a_graph_is_of_its_tree_and_takes_other_numbers() -> None:
    a, b = drawn((M, K), (K, N), grad=False)

    def times(n: float) -> VisitorTree:
        return tree_of(lambda accum, x: accum * n + x, x="scalar")

    def call(tree: VisitorTree, x: float) -> Any:
        return matmul_visited(tree, a, b, x=x)

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    for n in (2.0, 3.0):
        tree = times(n)
        for x in (0.5, 0.25):
            torch.testing.assert_close(compiled(tree, x), n * (a @ b) + x)


class _Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = (torch.nn.Parameter(item) for item in drawn((N, K), (N,)))
        self.tree = kronop.epilogue_visitor(
            lambda accum, alpha, bias: (
                kronop.silu(alpha * accum + bias),
                kronop.maximum(accum, axis="row"),
            ),
            kinds={"alpha": "scalar", "bias": "row"},
        )

    def forward(self, x: Any) -> Any:
        found = matmul_visited(self.tree, x, self.weight.mT, alpha=0.5, bias=self.bias)
        return found[0] + found[1].unsqueeze(-1)


def test_a_layer_of_any_number_of_rows_is_traced_and_exported() -> None:
    layer, (x,) = _Layer(), drawn((3, 5, K))
    assert kronop.warmup(layer, x) >= 0
    traced = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    exported = torch.export.export(layer, (x,), dynamic_shapes=({1: torch.export.Dim("rows")},))
    kept = io.BytesIO()
    torch.export.save(exported, kept)
    kept.seek(0)
    loaded = torch.export.load(kept)  # Where the function is not.
    alone = exported.run_decompositions(kronop.torch.decompositions())
    assert not [node for node in alone.graph.nodes if "kronop" in str(node.target)]
    symbols = torch.fx.symbolic_trace(layer)
    for rows in (5, 6, 9):
        (x,) = drawn((3, rows, K))
        sums = x @ layer.weight.mT
        wanted = torch.nn.functional.silu(0.5 * sums + layer.bias) + sums.amax(-1, keepdim=True)
        for way in (layer, traced, exported.module(), loaded.module(), alone.module(), symbols):
            torch.testing.assert_close(way(x), wanted)


@pytest.mark.parametrize("of", ["a", "b", "c", "bias scale", "a b c bias scale"])
def test_maps_are_batches(of: str) -> None:
    given = operands(five, grad=False)
    call, tensors = called(five, given)
    names = ("a", "b", *(item.name for item in five.tensors))
    mapped = of.split()
    every = [
        torch.stack([item, -item, item + 1], -1) if name in mapped else item
        for name, item in zip(names, (*drawn((2, M, K), (K, N), grad=False), *tensors), strict=True)
    ]
    dims = tuple(-1 if name in mapped else None for name in names)

    def gradients(*given: Any) -> Any:
        return torch.func.grad(loss_of(call), argnums=tuple(range(5)))(*given)

    for way in (call, gradients):
        found = torch.vmap(way, in_dims=dims)(*every)
        for place in range(3):
            one = way(
                *(it if d is None else it[..., place] for it, d in zip(every, dims, strict=True))
            )
            torch.testing.assert_close(tuple(item[place] for item in found), tuple(one))


def test_transforms_of_transforms() -> None:
    call, tensors = called(five, operands(five, grad=False))
    a, b = drawn((M, K), (K, N), grad=False)

    def exact(a: Any) -> Any:
        c, bias, scale = tensors
        t = 0.7 * (a @ b) + 0.3 * c + bias
        d = torch.nn.functional.gelu(t) * scale[:, None]
        return (d**2).sum() + (t**2).sum() + (d.amax(1) ** 2).sum() + (t.sum(0) ** 2).sum()

    found = torch.func.hessian(lambda a: loss_of(call)(a, b, *tensors))(a)
    torch.testing.assert_close(found, torch.func.hessian(exact)(a))


def test_autocast_casts_operands_too() -> None:
    """As it casts the bias of torch's linear; gradients have the types of what they belong to."""
    call, tensors = called(five, operands(five, kind=torch.float32))
    given = (*drawn((M, K), (K, N), kind=torch.float32), *tensors)
    wanted = call(*given)
    expected = torch.autograd.grad(loss_of(call)(*given), given)
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    for way in (call, call, compiled):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = way(*given)
        assert [item.dtype for item in found] == [torch.bfloat16] * 2 + [torch.float32] * 2
        grads = torch.autograd.grad(loss_of(lambda *x, f=found: [i.float() for i in f])(), given)
        assert {item.dtype for item in grads} == {torch.float32}
        for one, other in zip((*found, *grads), (*wanted, *expected), strict=True):
            atol = 0.05 * float(other.detach().abs().max())
            torch.testing.assert_close(one.float(), other, rtol=0, atol=atol)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        double = matmul_visited(TREES["sums"], *drawn((M, K), (K, N)))
        assert double.dtype is torch.float64
