"""Matrix products as torch operators: gradients, transforms, tracing, autocast, against torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.descriptions.activation import ACTIVATION_NAMES

torch: Any = pytest.importorskip("torch")

import kronop.torch  # noqa: E402
from kronop.torch.activations import RULES  # noqa: E402


def drawn(*shapes: Sequence[int], dtype: Any = None, grad: bool = True) -> list[Any]:
    torch.manual_seed(0)
    kind = torch.float64 if dtype is None else dtype
    return [torch.randn(item, dtype=kind, requires_grad=grad) for item in shapes]


def ours(a: Any, b: Any, c: Any = None, bias: Any = None, activation: Any = None) -> Any:
    scalars = {"alpha": 0.7, "beta": None if c is None else 0.3}
    return kronop.torch.matmul(a, b, c, bias=bias, activation=activation, **scalars)


def theirs(a: Any, b: Any, c: Any = None, bias: Any = None, activation: Any = None) -> Any:
    found = 0.7 * (a @ b)
    found = found if c is None else found + 0.3 * c
    found = found if bias is None else found + bias
    return found if activation is None else RULES[activation].apply(found)


# Shapes of a, b and c; the bias has as many numbers as b has columns.
_BATCHES = [
    ((3, 4), (4, 2), (3, 2)),
    ((2, 3, 4), (4, 2), (2, 3, 2)),  # One tall product.
    ((2, 3, 4), (4, 2), (3, 1)),
    ((3, 4), (2, 4, 2), (2, 1, 2)),
    ((2, 1, 3, 4), (3, 4, 2), (2, 3, 3, 2)),
]


@pytest.mark.parametrize("shapes", _BATCHES)
@pytest.mark.parametrize("activation", [None, "gelu"])
def test_results_and_gradients_are_torchs(shapes: Any, activation: str | None) -> None:
    given = drawn(*shapes, (2,))
    for _ in range(4):  # The third call and the following ones are repeated by addresses.
        found, wanted = ours(*given, activation), theirs(*given, activation)
        torch.testing.assert_close(found, wanted)
        weights = torch.randn_like(found)
        pairs = zip(
            torch.autograd.grad((found * weights).sum(), given),
            torch.autograd.grad((wanted * weights).sum(), given),
            strict=True,
        )
        for one, other in pairs:
            torch.testing.assert_close(one, other)
        with torch.no_grad():
            torch.testing.assert_close(ours(*given, activation), wanted)


@pytest.mark.parametrize("a", [(4,), (3, 4), (2, 3, 4)])
@pytest.mark.parametrize("b", [(4,), (4, 2), (2, 4, 2)])
def test_vectors_and_numbers_are_taken_as_by_torchs_matmul(a: Any, b: Any) -> None:
    given = drawn(a, b, ())
    found, wanted = (call(*given) for call in (ours, theirs))
    torch.testing.assert_close(found, wanted)
    pairs = [torch.autograd.grad(item.square().sum(), given) for item in (found, wanted)]
    for one, other in zip(*pairs, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
def test_every_activation_has_derivatives(activation: str) -> None:
    a, b, bias = drawn((3, 4), (4, 2), (2,))

    def call(*given: Any) -> Any:
        return ours(given[0], given[1], bias=given[2], activation=activation)

    given = (a, b, bias)
    assert torch.autograd.gradcheck(call, given)
    assert torch.autograd.gradcheck(call, given, check_forward_ad=True, check_backward_ad=False)
    assert torch.autograd.gradgradcheck(call, given)


@pytest.mark.parametrize("activation", ["gelu", "silu", "hardswish"])
@pytest.mark.parametrize("kind", [torch.float32, torch.float16])
def test_activations_fall_to_0(activation: str, kind: Any) -> None:
    """Also where sums are too small for their type; torch's own give NaN there."""
    a, b, bias = drawn((3, 4), (4, 2), (2,), dtype=kind)
    with torch.no_grad():
        bias[1] = -torch.inf if kind is torch.float32 else -65504
        b[:, 1], a[1] = -60000, a[1].abs() + 1
    for call in (kronop.torch.matmul, torch.compile(kronop.torch.matmul, backend="aot_eager")):
        found = call(a, b, bias=bias, activation=activation)
        grads = torch.autograd.grad(found.float().sum(), (a, b, bias))
        assert (found[1, 1], grads[2][1]) == (0, 0) or kind is torch.float16
        assert all(item.isfinite().all() for item in (found, *grads))


@pytest.mark.parametrize("shapes", _BATCHES)
def test_batches_have_derivatives_of_second_order(shapes: Any) -> None:
    given = drawn(*shapes, (2,))
    assert torch.autograd.gradcheck(ours, given, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(ours, given, check_fwd_over_rev=True)


def test_any_layout_is_multiplied() -> None:
    a, b, c = drawn((4, 3), (2, 4), (2, 3), grad=False)
    given = [item.mT.requires_grad_() for item in (a, b, c)]
    found = ours(*given)
    assert found.is_contiguous()
    torch.testing.assert_close(found, theirs(*given))
    grads = torch.autograd.grad(found.sum(), given)  # A sum's gradient has strides of 0.
    wanted = torch.autograd.grad(theirs(*given).sum(), given)
    torch.testing.assert_close(grads, wanted)


def test_torch_finds_nothing_wrong_with_the_operators() -> None:
    a, b, c, bias = drawn((2, 3, 4), (4, 2), (3, 2), (2,))
    product, activated = torch.ops.kronop.matmul.default, torch.ops.kronop.matmul_activated.default
    torch.library.opcheck(product, (a, b, c, bias, 0.7, 0.3))
    torch.library.opcheck(product, (a.detach().mT, a.detach(), None, None, 1, 0))
    torch.library.opcheck(activated, (a, b, c, bias, 0.7, 0.3, "gelu"))
    torch.library.opcheck(activated, (a, b, None, None, 1, 0, "relu"))


@pytest.mark.parametrize("activation", [None, "relu", "silu"])
def test_it_is_traced_without_a_break(activation: str | None) -> None:
    given = drawn((5, 3, 4), (4, 2), (5, 3, 2), (2,))

    def loss(*given: Any) -> Any:
        return (ours(*given, activation) ** 2).sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*given), loss(*given))
    found = torch.autograd.grad(compiled(*given), given)
    torch.testing.assert_close(found, torch.autograd.grad(loss(*given), given))
    with torch.no_grad():
        torch.testing.assert_close(compiled(*given), loss(*given))


@pytest.mark.parametrize("activation", [None, "gelu"])
@pytest.mark.parametrize("of", ["a", "b", "c", "bias", "a b", "c bias", "a b c bias"])
def test_maps_are_batches(of: str, activation: str | None) -> None:
    names = ("a", "b", "c", "bias")
    every = drawn((2, 3, 4), (4, 2), (3, 2), (2,), grad=False)
    mapped = of.split()
    given = [
        torch.stack([item, -item, item + 1], -1) if name in mapped else item
        for name, item in zip(names, every, strict=True)
    ]
    dims = tuple(-1 if name in mapped else None for name in names)
    for own, exact in ((ours, theirs), (_gradient(ours), _gradient(theirs))):
        found = torch.vmap(lambda *given, way=own: way(*given, activation), in_dims=dims)(*given)
        wanted = torch.vmap(lambda *given, way=exact: way(*given, activation), in_dims=dims)(*given)
        torch.testing.assert_close(found, wanted)


def _gradient(call: Any) -> Any:
    def taken(a: Any, b: Any, c: Any, bias: Any, activation: Any) -> Any:
        return torch.func.grad(
            lambda *given: call(*given, activation).square().sum(), argnums=(0, 1, 2, 3)
        )(a, b, c, bias)

    return taken


def test_transforms_of_transforms() -> None:
    a, b, bias = drawn((3, 4), (4, 2), (2,), grad=False)

    def by(call: Any) -> Any:
        return lambda a: call(a, b, bias=bias, activation="tanh").square().sum()

    torch.testing.assert_close(torch.func.hessian(by(ours))(a), torch.func.hessian(by(theirs))(a))


def test_autocast_casts_as_for_torchs_products() -> None:
    """Also the source and the bias; gradients have the types of what they are gradients of."""
    given = drawn((3, 4), (4, 2), (3, 2), (2,), dtype=torch.float32)
    for _ in range(4):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = ours(*given, "gelu")
            with torch.no_grad():
                assert ours(*given, "gelu").dtype is torch.bfloat16
        assert found.dtype is torch.bfloat16
        grads = torch.autograd.grad(found.float().sum(), given)
        assert {item.dtype for item in grads} == {torch.float32}
        wanted = theirs(*given, "gelu")
        expected = torch.autograd.grad(wanted.sum(), given)
        for one, other in zip((found.float(), *grads), (wanted, *expected), strict=True):
            torch.testing.assert_close(
                one, other, rtol=0, atol=0.03 * float(other.detach().abs().max())
            )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ours(*drawn((3, 4), (4, 2))).dtype is torch.float64


def test_integers_have_products_without_gradients() -> None:
    a, b = torch.randint(-9, 9, (3, 4), dtype=torch.int8), torch.ones(4, 2, dtype=torch.int8)
    found = kronop.torch.matmul(a, b, torch.full((2,), 5, dtype=torch.int32), 2, 1)
    assert found.dtype is torch.int32
    assert torch.equal(found, 2 * (a.int() @ b.int()) + 5)
    assert not found.requires_grad


def test_eight_bit_floats_have_no_gradient() -> None:
    a = torch.ones(3, 3).to(torch.float8_e4m3fn)
    assert kronop.torch.matmul(a, a).dtype is torch.bfloat16
    with pytest.raises(kronop.ArgumentError, match="16 bits or more"):
        kronop.torch.matmul(a.requires_grad_(), a)


@pytest.mark.parametrize("activation", [None, "relu"])
def test_it_is_decomposed_into_torchs_operations(activation: str | None) -> None:
    a, b, c, bias = drawn((2, 3, 4), (4, 2), (3, 2), (2,), grad=False)
    rules = kronop.torch.decompositions()
    name = "matmul" if activation is None else "matmul_activated"
    more = () if activation is None else (activation,)
    found = rules[getattr(torch.ops.kronop, name).default](a, b, c, bias, 0.7, 0.3, *more)
    torch.testing.assert_close(found, theirs(a, b, c, bias, activation))


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    ("error", "message", "changes"),
    [
        (kronop.ArgumentError, "shape of B", {"b": torch.ones(5, 2)}),
        (kronop.ArgumentError, "shape of a: expected at least 1", {"a": torch.ones(())}),
        (kronop.ArgumentError, r"shape of A and B: .*\(\(5,\), \(4, 2\)\)", {"a": torch.ones(5)}),
        (kronop.ArgumentError, "leading dimensions", {"b": torch.ones(4, 4, 2)}),
        (kronop.ArgumentError, "shape of C", {"c": torch.ones(3, 3), "beta": 1}),
        (kronop.ArgumentError, "shape of bias", {"bias": torch.ones(3)}),
        (kronop.ElementTypeError, "element type of b", {"b": torch.ones(4, 2).double()}),
        (kronop.ElementTypeError, "element type of bias", {"bias": torch.ones(2).double()}),
        (kronop.ElementTypeError, "element type of a", {"a": torch.ones(5, 3, 4).cfloat()}),
        (kronop.ArgumentError, "beta: expected a number", {"c": torch.ones(3, 2)}),
        (kronop.ArgumentError, "beta: expected 0", {"beta": 1}),
        (kronop.ArgumentError, "activation: expected", {"activation": "swish"}),
        (kronop.ElementTypeError, "alpha: expected", {"alpha": torch.ones(())}),
    ],
)
def test_refusals(error: Any, message: str, changes: dict[str, Any], device: str) -> None:
    """Also of tensors without values, or else a traced program fails far from what was wrong."""
    given = {"a": torch.ones(5, 3, 4), "b": torch.ones(4, 2), **changes}
    tensors = {name: given[name].to(device) for name in ("a", "b", "c", "bias") if name in given}
    with pytest.raises(error, match=message):
        kronop.torch.matmul(**(given | tensors))


class _Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = (torch.nn.Parameter(item) for item in drawn((6, 4), (6,)))

    def forward(self, x: Any) -> Any:
        return kronop.torch.matmul(x, self.weight.mT, bias=self.bias, activation="gelu")


def test_a_layer_of_any_number_of_rows_is_warmed_up_traced_and_exported() -> None:
    layer, (x,) = _Layer(), drawn((3, 5, 4))
    assert kronop.warmup(layer, x) >= 0
    traced = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    exported = torch.export.export(layer, (x,), dynamic_shapes=({1: torch.export.Dim("rows")},))
    alone = exported.run_decompositions(kronop.torch.decompositions())
    assert not [node for node in alone.graph.nodes if "kronop" in str(node.target)]
    for rows in (5, 6, 9):
        (x,) = drawn((3, rows, 4))
        wanted = torch.nn.functional.gelu(x @ layer.weight.mT + layer.bias)
        for way in (layer, traced, exported.module(), alone.module()):
            torch.testing.assert_close(way(x), wanted)


def test_maps_over_a_bias_read_no_source_that_has_no_weight() -> None:
    a, b, biases = drawn((3, 4), (4, 2), (5, 2), grad=False)
    c = torch.full((3, 2), torch.nan, dtype=torch.float64)
    found = torch.vmap(lambda bias: kronop.torch.matmul(a, b, c, beta=0.0, bias=bias))(biases)
    torch.testing.assert_close(found, (a @ b) + biases[:, None, :])
    whole = [item.to(torch.int32) for item in (a * 4, b * 4, biases * 4)]
    source = torch.ones(3, 2, dtype=torch.int32)
    found = torch.vmap(
        lambda bias: kronop.torch.matmul(whole[0], whole[1], source, beta=2.0, bias=bias)
    )(whole[2])
    assert torch.equal(found, whole[0] @ whole[1] + 2 * source + whole[2][:, None, :])


def test_what_is_refused_is_refused_with_the_shapes_that_were_given() -> None:
    a, b = drawn((2, 3, 4), (5, 6), grad=False)
    with pytest.raises(kronop.ArgumentError, match=r"\(\.\.\., 4, N\).* got \(5, 6\)"):
        kronop.torch.matmul(a, b)
    b, c = drawn((4, 5), (6,), grad=False)
    with pytest.raises(kronop.ArgumentError, match=r"\(2, 3, 5\)"):
        kronop.torch.matmul(a, b, c, beta=1)


def test_groups_may_have_tensors_of_several_frameworks() -> None:
    a, b = drawn((3, 4), (4, 2), dtype=torch.float32, grad=False)
    out = torch.empty(3, 2)
    version = out._version
    results = [np.empty((3, 2), np.float32), out]
    for _ in range(2):
        kronop.gemm.grouped_matmul([a.numpy(), a], [b.numpy(), b], outs=results)
    assert out._version == version + 2
    for found in results:
        torch.testing.assert_close(torch.as_tensor(found), a @ b)


def test_groups_run_on_as_many_threads_as_their_scratch_memory_is_for() -> None:
    threads = torch.get_num_threads()
    small, (a, b) = np.ones((4, 5), np.float32), drawn((2000, 70), (70, 200), dtype=torch.float32)
    try:
        torch.set_num_threads(32)
        with torch.no_grad():
            _, found = kronop.gemm.grouped_matmul([small, a.detach()], [small.T.copy(), b.detach()])
    finally:
        torch.set_num_threads(threads)
    torch.testing.assert_close(found, (a @ b).detach())
