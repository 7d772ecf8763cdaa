"""Visitor trees as a torch operator: values, gradients, types, refusals."""

from __future__ import annotations

from typing import Any

import pytest

import kronop
from kronop.descriptions.expression import OPERATIONS, apply, variable
from kronop.descriptions.graph import Graph
from kronop.descriptions.tree_text import from_text
from kronop.descriptions.visitor import ACCUMULATOR, Result, VisitorTree

torch: Any = pytest.importorskip("torch")

import kronop.torch  # noqa: E402
from kronop.families.gemm.torch import visited_operator  # noqa: E402
from kronop.families.gemm.torch.tree_rules import RULES  # noqa: E402
from tests.unit.visited_cases import (  # noqa: E402
    TREES,
    K,
    M,
    N,
    called,
    drawn,
    expected,
    five,
    matmul_visited,
    operands,
    tree_of,
)

_BATCHES = [
    ((M, K), (K, N), ()),
    ((2, M, K), (K, N), (2,)),
    ((M, K), (2, K, N), ()),
    ((2, 1, M, K), (3, K, N), (3,)),
]


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize(("a_shape", "b_shape", "lead"), _BATCHES)
def test_results_are_numpys(name: str, a_shape: Any, b_shape: Any, lead: Any) -> None:
    tree = TREES[name]
    a, b = drawn(a_shape, b_shape, grad=False)
    given = operands(tree, lead, grad=False)
    found, _ = called(tree, given)
    wanted = expected(tree, a, b, given)
    results = found(a, b, *(given[item.name] for item in tree.tensors))
    assert len(results) == len(tree.results)
    for one, other in zip(results, wanted, strict=True):
        assert one.is_contiguous()
        torch.testing.assert_close(one, other)
    columns = [item.mT.contiguous().mT for item in (a, b)]  # Any strides.
    torch.testing.assert_close(found(*columns, *(given[it.name] for it in tree.tensors)), results)
    rule = kronop.torch.decompositions()[torch.ops.kronop.matmul_visited.default]
    scalars = [given[name] for name in tree.scalars] or None
    alone = rule(a, b, [given[item.name] for item in tree.tensors], scalars, tree.text)
    torch.testing.assert_close(tuple(alone), results)


@pytest.mark.parametrize("name", TREES)
def test_gradients_have_gradients_in_both_modes(name: str) -> None:
    tree = TREES[name]
    call, tensors = called(tree, operands(tree))
    given = (*drawn((2, M, K), (K, N)), *tensors)
    assert torch.autograd.gradcheck(call, given, check_forward_ad=True, fast_mode=True)
    assert torch.autograd.gradgradcheck(call, given, check_fwd_over_rev=True, fast_mode=True)


@pytest.mark.parametrize("lead", [(), (2,), (2, 1)])
def test_gradients_of_batches_and_of_what_broadcasts(lead: tuple[int, ...]) -> None:
    a, b = drawn((2, M, K), (2, K, N))
    given = operands(five)
    given["c"] = torch.randn(M, 1, dtype=torch.float64, requires_grad=True)
    given["bias"] = torch.randn(*lead[:1], N, dtype=torch.float64, requires_grad=True)
    given["scale"] = torch.randn(1, dtype=torch.float64, requires_grad=True)
    call, tensors = called(five, given)
    assert torch.autograd.gradcheck(call, (a, b, *tensors), fast_mode=True)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_has_derivatives(operation: str) -> None:
    """Those of torch's own function of the same values, as NumPy's are."""
    rule = RULES[operation]
    least = 0.3 if operation in ("times_log", "sqrt", "inverse_root", "power") else -2.0
    operands = [
        torch.linspace(least, 2, 12, dtype=torch.float64, requires_grad=True),
        torch.linspace(1.5, -1.7, 12, dtype=torch.float64, requires_grad=True),
    ][: len(rule.slopes)]
    operands = operands[::-1] if operation == "times_log" else operands
    value = rule.apply(*operands)
    numpys = OPERATIONS[operation][0](*(item.detach().numpy() for item in operands))
    torch.testing.assert_close(value.detach(), torch.as_tensor(numpys))
    grad = torch.linspace(1, 3, 12, dtype=torch.float64)
    wanted = torch.autograd.grad((value * grad).sum(), operands, allow_unused=True)
    every = dict(zip("yab", (value, *operands), strict=False))
    for slope, other in zip(rule.slopes, wanted, strict=True):
        assert (slope is None) == (other is None)
        if slope is not None:
            reads, function = slope
            found = function(grad, *(every.get(name) if name in reads else None for name in "yab"))
            torch.testing.assert_close(found, other)


def test_derivatives_are_finite_where_values_are_0() -> None:
    zero = torch.zeros(1, requires_grad=True)
    for operation in ("sqrt", "inverse", "inverse_root", "fade", "max"):
        operands = [zero] if len(RULES[operation].slopes) == 1 else [zero, zero]
        reads = [RULES[operation].apply(*operands), *operands, None][:3]
        _, slope = RULES[operation].slopes[0] or ("", None)
        assert slope is not None
        found = slope(torch.ones(1), *reads)
        assert found.item() == (0.5 if operation == "max" else 0)
        if found.requires_grad and operation != "sqrt":
            (second,) = torch.autograd.grad(found, zero)
            assert second.isfinite().all()


@pytest.mark.parametrize("name", ["gelu", "silu", "hardswish", "sigmoid"])
def test_activations_have_limits(name: str) -> None:
    """And derivatives, which are 0 or 1, both of what trees compute."""
    tree = tree_of(lambda accum: getattr(kronop, name)(accum))
    x = torch.tensor([[-torch.inf], [torch.inf], [-1e4], [1e4]], requires_grad=True)
    found = matmul_visited(tree, x, torch.ones(1, 1))
    (grad,) = torch.autograd.grad(found.sum(), x)
    rises = name != "sigmoid"
    assert found.flatten().tolist() == [0, torch.inf if rises else 1, 0, 1e4 if rises else 1]
    assert grad.flatten().tolist() == [0, rises, 0, rises]


@pytest.mark.parametrize("operation", ["max", "min", "power"])
def test_numbers_beside_values_have_none(operation: str) -> None:
    for swapped in (False, True):
        x, number = variable(ACCUMULATOR) * 0.01 + 1.0, 1.5
        value = apply(operation, number, x) if swapped else apply(operation, x, number)
        tree = VisitorTree(operands=(), graph=Graph.of(value), results=(Result("D"),))
        assert from_text(tree.text) == tree
        given = drawn((M, K), (K, N))
        assert torch.autograd.gradcheck(
            lambda a, b, t=tree: matmul_visited(t, a, b), given, fast_mode=True
        )


def test_equal_values_share_a_gradient() -> None:
    """As of torch.maximum and torch.amax."""
    tree = tree_of(
        lambda accum, c: (kronop.maximum(accum, c), kronop.maximum(accum, axis="row")), c="tensor"
    )
    a, b = torch.ones(2, 1, requires_grad=True), torch.ones(1, 4)
    c = torch.tensor([[0.0, 1.0, 2.0, 1.0]] * 2, requires_grad=True)
    largest, of_rows = matmul_visited(tree, a, b, c=c)
    found = torch.autograd.grad(largest.sum() + 3 * of_rows.sum(), (a, c))
    wanted = torch.autograd.grad(torch.maximum(a @ b, c).sum() + 3 * (a @ b).amax(-1).sum(), (a, c))
    torch.testing.assert_close(found, wanted)


def test_the_sums_are_not_computed_again_where_a_tree_is_linear(monkeypatch: Any) -> None:
    tree = tree_of(lambda accum, alpha, c: alpha * accum - c * 2, alpha="scalar", c="tensor")
    a, b, c = drawn((M, K), (K, N), (M, N))
    result = matmul_visited(tree, a, b, alpha=2, c=c)
    seen: list[Any] = []
    own = visited_operator.product
    monkeypatch.setattr(
        visited_operator, "product", lambda *given: (seen.append(given), own(*given))[1]
    )
    found = torch.autograd.grad(result.sum(), (a, b, c))
    assert len(seen) == 2  # The gradients of a and of b.
    torch.testing.assert_close(found[0], 2 * torch.ones_like(result) @ b.mT)
    torch.testing.assert_close(found[2], torch.full_like(c, -2))


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16])
def test_types_of_results(kind: Any) -> None:
    a, b = drawn((8, 16), (16, N), kind=kind)
    bias, scale = drawn((N,), (8,), kind=torch.float32)
    c = torch.ones(8, N, dtype=torch.int32)
    given = {"alpha": 0.5, "beta": 1.0, "c": c, "bias": bias, "scale": scale}
    found = matmul_visited(five, a, b, **given)
    assert [item.dtype for item in found] == [kind, kind, torch.float32, torch.float32]
    for one, other in zip(found, expected(five, a, b, given), strict=True):
        tolerance = 2.0**-8 if kind is torch.bfloat16 else 2.0**-11
        torch.testing.assert_close(one.double(), other, rtol=0, atol=64 * tolerance)
    grads = torch.autograd.grad(sum(item.float().sum() for item in found), (a, b, bias, scale))
    assert [item.dtype for item in grads] == [kind, kind, torch.float32, torch.float32]


def test_products_of_integers() -> None:
    a, b = (torch.randint(-9, 9, it, dtype=torch.int8) for it in ((M, K), (K, N)))
    sums = a.double() @ b.double()
    rounded, total = matmul_visited(
        tree_of(lambda accum, x: (accum * x, kronop.sum(accum, axis="row")), x="scalar"),
        *(a, b),
        x=0.25,
    )
    assert rounded.dtype is torch.int32
    torch.testing.assert_close(rounded, (sums / 4).round().int())
    torch.testing.assert_close(total, sums.sum(1).float())
    huge = matmul_visited(tree_of(lambda accum: accum * 1e30), a, b)
    assert set(huge.flatten().tolist()) <= {2**31 - 1, -(2**31), 0}
    dequantize = tree_of(lambda accum, s, zero: accum * s + zero, s="row", zero="column")
    s = torch.rand(N, requires_grad=True)
    found = matmul_visited(dequantize, a, b, s=s, zero=torch.ones(M, dtype=torch.int32))
    assert found.dtype is torch.float32  # That of the operands' floats.
    torch.testing.assert_close(found.double(), sums * s.double() + 1)
    (grad,) = torch.autograd.grad(found.sum(), s)
    torch.testing.assert_close(grad.double(), sums.sum(0))
    halves = [torch.ones(n, dtype=kind) for n, kind in ((N, torch.half), (M, torch.bfloat16))]
    assert matmul_visited(dequantize, a, b, s=halves[0], zero=halves[1]).dtype is torch.float32


def test_eight_bit_floats_have_no_gradient_but_their_operands_have() -> None:
    tree = TREES["bias"]
    a = torch.ones(16, 16).to(torch.float8_e4m3fn)
    bias = torch.ones(16, dtype=torch.bfloat16, requires_grad=True)
    found = matmul_visited(tree, a, a, bias=bias)
    assert found.dtype is torch.bfloat16
    (grad,) = torch.autograd.grad(found.sum(), bias)
    torch.testing.assert_close(grad, torch.full_like(grad, 16))
    with pytest.raises(kronop.ArgumentError, match="16 bits or more"):
        matmul_visited(tree, a.requires_grad_(), a.detach(), bias=bias)


def _ones(*shape: int) -> Any:
    return torch.ones(shape)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    ("error", "message", "changes"),
    [
        (kronop.ArgumentError, "shape of B", {"b": _ones(5, 2)}),
        (kronop.ArgumentError, "shape of a", {"a": _ones(4)}),
        (kronop.ArgumentError, "leading dimensions", {"a": _ones(2, 3, 4), "b": _ones(3, 4, 5)}),
        (kronop.ElementTypeError, "element type of b", {"b": _ones(4, 5).double()}),
        (
            kronop.ElementTypeError,
            "element type of a",
            {"a": _ones(3, 4).cfloat(), "b": _ones(4, 5).cfloat()},
        ),
        (kronop.ArgumentError, r"shape of bias: expected \(5,\)", {"bias": _ones(3)}),
        (kronop.ArgumentError, "shape of bias", {"bias": _ones(2, 5)}),
        (kronop.ArgumentError, r"shape of scale: expected \(3,\)", {"scale": _ones(5)}),
        (kronop.ArgumentError, r"shape of c: expected \(3, 5\)", {"c": _ones(15)}),
        (kronop.ElementTypeError, "element type of an operand", {"c": _ones(3, 5).bool()}),
        (kronop.ArgumentError, "give c$", {"c": None}),
        (kronop.ArgumentError, "give no others", {"more": _ones(1)}),
        (kronop.ElementTypeError, "bias: expected a torch tensor, got the number", {"bias": 1.0}),
        (kronop.ElementTypeError, "bias: expected a torch tensor", {"bias": [1.0]}),
        (kronop.ArgumentError, "at least 1 dimensions", {"bias": _ones()}),
        (kronop.ElementTypeError, "alpha: expected a number", {"alpha": _ones()}),
        (kronop.ElementTypeError, "alpha: expected a real", {"alpha": "x"}),
        (
            kronop.ArgumentError,
            "extent that row_max",
            {"b": _ones(4, 0), "bias": _ones(1), "c": _ones(1)},
        ),
        (
            kronop.DescriptionError,
            "got int64",
            {"a": torch.ones(3, 4, dtype=torch.int64), "b": torch.ones(4, 5, dtype=torch.int64)},
        ),
    ],
)
def test_refusals(error: Any, message: str, changes: dict[str, Any], device: str) -> None:
    given = {"alpha": 1, "beta": 2, "c": _ones(3, 5), "bias": _ones(5), "scale": _ones(3)}
    every = {"a": _ones(3, 4), "b": _ones(4, 5), **given, **changes}
    every = {
        name: item.to(device) if torch.is_tensor(item) and item.dim() else item
        for name, item in every.items()
    }
    a, b = every.pop("a"), every.pop("b")
    with pytest.raises(error, match=message):
        matmul_visited(five, a, b, **every)


def test_only_a_tree_is_taken() -> None:
    a, b = drawn((M, K), (K, N), grad=False)
    with pytest.raises(kronop.ElementTypeError, match=r"decorate .* kronop\.epilogue_visitor"):
        matmul_visited(lambda accum: accum, a, b)
    typed = TREES["sums"](kronop.float64, 1, kronop.float64, kronop.float64)
    with pytest.raises(kronop.ElementTypeError, match=r"pass its \.tree"):
        matmul_visited(typed, a, b)
    given = operands(TREES["named"], grad=False) | {"tree": float("inf")}
    with pytest.raises(kronop.ArgumentError, match="expected a finite float64"):
        matmul_visited(TREES["named"], a, b, **given)


def test_tensors_lie_on_one_device() -> None:
    a, b = drawn((M, K), (K, N), grad=False)
    with pytest.raises(kronop.ArgumentError, match="device of bias"):
        matmul_visited(TREES["bias"], a, b, bias=torch.ones(N, device="meta"))


def test_graphs_that_give_too_few_operands_are_refused() -> None:
    a = torch.ones(2, 2)
    with pytest.raises(kronop.ArgumentError, match="expected 3 operands and 2 scalars"):
        torch.ops.kronop.matmul_visited(a, a, [], None, five.text)


def test_relu_has_the_derivative_of_torchs_at_0() -> None:
    tree = kronop.epilogue_visitor(lambda accum: kronop.relu(accum))
    a, b = torch.zeros(2, 3, requires_grad=True), torch.ones(3, 2)
    matmul_visited(tree, a, b).sum().backward()
    assert not a.grad.any()
