"""Convolutions as torch operators, and the layer: gradients, transforms, tracing, memory, against
torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kronop
from kronop.descriptions.activation import ACTIVATION_NAMES

torch: Any = pytest.importorskip("torch")

import kronop.torch  # noqa: E402
from kronop.torch.activations import RULES  # noqa: E402
from kronop.torch.nn import Conv2d  # noqa: E402

_LAST = torch.channels_last
_AROUND = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2), "groups": 2}
_SHAPES = ((2, 4, 5, 4), (4, 2, 3, 2), (4,))  # Of x, w and the bias, with these numbers.
_CALL = torch.ops.kronop.conv2d.default


def drawn(*shapes: Any, dtype: Any = None, grad: bool = True) -> list[Any]:
    torch.manual_seed(0)
    kind = torch.float64 if dtype is None else dtype
    items = [torch.randn(shape, dtype=kind) for shape in shapes]
    items = [item.to(memory_format=_LAST) if item.dim() == 4 else item for item in items]
    return [item.requires_grad_(grad) for item in items]


def theirs(x: Any, w: Any, bias: Any = None, activation: Any = None, **how: Any) -> Any:
    found = torch.nn.functional.conv2d(x, w, bias, **how)
    return found if activation is None else RULES[activation].apply(found)


def ours(x: Any, w: Any, bias: Any = None, activation: Any = None, **how: Any) -> Any:
    return kronop.torch.conv2d(x, w, bias, activation=activation, layout="NCHW", **how)


def is_last(item: Any) -> bool:
    return bool(item.is_contiguous(memory_format=_LAST))


@pytest.mark.filterwarnings("ignore:Using padding='same' with even")
@pytest.mark.parametrize(
    ("shapes", "how"),
    [
        (_SHAPES, _AROUND),
        (((1, 3, 6, 7), (5, 3, 2, 4), (5,)), {"padding": "same", "dilation": [1, 3]}),
        (((2, 4, 5, 5), (4, 1, 3, 3), (4,)), {"padding": 1, "groups": 4}),
        (((2, 1, 4, 4), (3, 1, 1, 1), (3,)), {"padding": "valid", "stride": 3}),
        (((0, 3, 4, 4), (2, 3, 3, 3), (2,)), {}),
    ],
)
@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
def test_results_and_gradients_are_torchs(shapes: Any, how: Any, activation: str | None) -> None:
    given = drawn(*shapes)
    for turn in range(4):  # The third call and the following ones are repeated by addresses.
        found = kronop.torch.conv2d(*given, activation=activation, **how)
        wanted = theirs(*given, activation, **how)
        torch.testing.assert_close(found, wanted)
        assert is_last(found) or not found.numel()
        weights = torch.randn_like(wanted)
        weights = weights.contiguous() if turn == 2 else weights  # In another layout too.
        pairs = [torch.autograd.grad(item, given, weights) for item in (found, wanted)]
        for one, other in zip(*pairs, strict=True):
            torch.testing.assert_close(one, other)
            assert one.dim() == 1 or is_last(one)
        with torch.no_grad():
            found = kronop.torch.conv2d(*given, activation=activation, **how)
        torch.testing.assert_close(found, wanted)


def test_derivatives_of_second_order() -> None:
    x, w, _ = given = drawn(*_SHAPES)

    def call(*given: Any) -> Any:
        return ours(*given, **_AROUND)

    assert torch.autograd.gradcheck(call, given, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(call, given, fast_mode=True, check_fwd_over_rev=True)
    # Gradients are convolutions too, with gradients in both operands.
    (grad,) = drawn(ours(x, w, **_AROUND).shape)
    how = ([2, 1], [1, 2], [1, 2], 2)
    for kind, operands, pixels in (("dgrad", (grad, w), [5, 4]), ("wgrad", (grad, x), [3, 2])):
        numbers = (None, kind, pixels, *how)
        assert torch.autograd.gradgradcheck(
            lambda a, b, numbers=numbers: _CALL(a, b, *numbers), operands, fast_mode=True
        )


@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
def test_every_activation_has_derivatives(activation: str) -> None:
    given = drawn((1, 2, 3, 3), (2, 2, 2, 2), (2,))

    def call(*given: Any) -> Any:
        return ours(*given, activation)

    assert torch.autograd.gradcheck(call, given, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(call, given)


def test_torch_finds_nothing_wrong_with_the_operators() -> None:
    x, w, bias = drawn(*_SHAPES)
    (grad,) = drawn(ours(x, w, **_AROUND).shape)
    how = ((2, 1), (1, 2), (1, 2), 2)
    check = torch.library.opcheck
    check(_CALL, (x, w, bias, "fprop", grad.shape[2:], *how))
    check(_CALL, (grad.detach().contiguous(), w.detach(), None, "dgrad", (5, 4), *how))
    check(_CALL, (grad.detach(), x.detach(), None, "wgrad", (3, 2), *how))
    activated = torch.ops.kronop.conv2d_activated.default
    check(activated, (x, w, bias, "fprop", grad.shape[2:], *how, "gelu"))


@pytest.mark.parametrize("activation", [None, "silu"])
def test_it_is_traced_without_a_break(activation: str | None) -> None:
    given = drawn(*_SHAPES)

    def loss(*given: Any) -> Any:
        return (kronop.torch.conv2d(*given, activation=activation, **_AROUND) ** 2).sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*given), loss(*given))
    found = torch.autograd.grad(compiled(*given), given)
    torch.testing.assert_close(found, torch.autograd.grad(loss(*given), given))
    with torch.no_grad():
        torch.testing.assert_close(compiled(*given), loss(*given))


@pytest.mark.parametrize("activation", [None, "gelu"])
@pytest.mark.parametrize("of", ["x", "w", "bias", "x w", "w bias", "x w bias"])
def test_maps(of: str, activation: str | None) -> None:
    names, mapped = ("x", "w", "bias"), of.split()
    given = [
        torch.stack([item, -item, item + 1], -1) if name in mapped else item
        for name, item in zip(names, drawn(*_SHAPES, grad=False), strict=True)
    ]
    dims = tuple(-1 if name in mapped else None for name in names)
    for own, exact in ((ours, theirs), (_gradient(ours), _gradient(theirs))):
        found, wanted = (
            torch.vmap(lambda *given, way=way: way(*given, activation, **_AROUND), dims)(*given)
            for way in (own, exact)
        )
        torch.testing.assert_close(found, wanted)


def _gradient(call: Callable[..., Any]) -> Callable[..., Any]:
    def taken(x: Any, w: Any, bias: Any, activation: Any, **how: Any) -> Any:
        return torch.func.grad(
            lambda *given: call(*given, activation, **how).square().sum(), argnums=(0, 1, 2)
        )(x, w, bias)

    return taken


def test_transforms_of_transforms() -> None:
    x, w, bias = drawn(*_SHAPES, grad=False)
    found, wanted = (
        torch.func.hessian(lambda w, way=way: way(x, w, bias, "tanh", **_AROUND).square().sum())(w)
        for way in (ours, theirs)
    )
    torch.testing.assert_close(found, wanted)


def test_results_have_the_same_bits_in_every_run() -> None:
    given = drawn((3, 8, 9, 9), (16, 8, 3, 3), (16,), dtype=torch.float32)

    def run() -> list[Any]:
        y = kronop.torch.conv2d(*given, padding=1)
        return [y, *torch.autograd.grad(y.square().sum(), given)]

    first = run()
    for _ in range(4):
        assert all(map(torch.equal, run(), first))


def test_integers_have_results_without_gradients() -> None:
    x, w = (torch.randint(-9, 9, shape, dtype=torch.int8) for shape in _SHAPES[:2])
    bias = torch.full((4,), 5, dtype=torch.int32)
    found = ours(x, w, bias, **_AROUND)
    assert found.dtype is torch.int32
    wanted = theirs(x.double(), w.double(), bias.double(), **_AROUND)
    assert torch.equal(found.double(), wanted)


def test_it_is_decomposed_into_torchs_operations() -> None:
    x, w, bias = drawn(*_SHAPES, grad=False)
    rules, how = kronop.torch.decompositions(), ([2, 1], [1, 2], [1, 2], 2)
    (grad,) = drawn(ours(x, w, **_AROUND).shape, grad=False)
    for numbers in (
        (x, w, bias, "fprop", grad.shape[2:], *how),
        (grad, w, None, "dgrad", (5, 4), *how),
        (grad, x, None, "wgrad", (3, 2), *how),
        # Filters with more zeros behind than above and left, as of padding "same".
        (x, w, bias, "fprop", (5, 4), [1, 1], [1, 0], [1, 1], 2),
        (x, w, None, "dgrad", (5, 4), [1, 1], [0, 0], [1, 1], 1),
    ):
        if numbers[3] == "dgrad" and numbers[-1] == 1:
            numbers = (drawn((2, 4, 5, 5), grad=False)[0], *numbers[1:])
        found = rules[_CALL](*numbers)
        torch.testing.assert_close(found, _CALL(*numbers))
        assert is_last(found)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    ("error", "message", "changes"),
    [
        (kronop.ArgumentError, "shape of x: expected", {"x": torch.ones(1, 1, 3, 5, 5)}),
        (kronop.ArgumentError, "shape of w: expected", {"w": torch.ones(2, 3, 2, 2, 2)}),
        (
            kronop.ArgumentError,
            "channels of x and w",
            {"w": torch.ones(2, 4, 2, 2).to(memory_format=_LAST)},
        ),
        (kronop.ArgumentError, "groups: expected a divisor", {"groups": 2}),
        (kronop.ArgumentError, "extent along W", {"padding": 0, "dilation": (1, 5)}),
        (kronop.ArgumentError, "shape of bias", {"bias": torch.ones(3)}),
        (kronop.ArgumentError, "memory of x: .*channels_last", {"x": torch.ones(1, 3, 5, 5)}),
        (kronop.ArgumentError, "stride: expected", {"stride": 0}),
        (kronop.ArgumentError, "padding: expected", {"padding": "full"}),
        (kronop.ArgumentError, "layout: expected", {"layout": "NCWH"}),
        (kronop.ArgumentError, "activation: expected", {"activation": "swish"}),
        (kronop.ElementTypeError, "element type of w", {"w": torch.ones(2, 3, 1, 1).double()}),
        (kronop.ElementTypeError, "element type of bias", {"bias": torch.ones(2).double()}),
    ],
)
def test_refusals(error: Any, message: str, changes: dict[str, Any], device: str) -> None:
    """Also of tensors without values, or else a traced program fails far from what was wrong."""
    x = torch.ones(1, 3, 5, 5).to(memory_format=_LAST)
    w = torch.ones(2, 3, 2, 2).to(memory_format=_LAST)
    given = {"x": x, "w": w, **changes}
    tensors = {name: given[name].to(device) for name in ("x", "w", "bias") if name in given}
    with pytest.raises(error, match=message):
        kronop.torch.conv2d(**(given | tensors))


_LAYERS: list[dict[str, Any]] = [
    {"padding": 1},
    {"padding": "same", "padding_mode": "circular", "bias": False},
    {"stride": 2, "padding": 1, "padding_mode": "reflect", "groups": 2},
]


@pytest.mark.filterwarnings("ignore:Using padding='same' with even")
@pytest.mark.parametrize("how", _LAYERS)
def test_a_layer_is_torchs(how: dict[str, Any]) -> None:
    made = []
    for kind in (Conv2d, torch.nn.Conv2d):
        torch.manual_seed(0)
        made.append(kind(4, 6, (3, 2), dtype=torch.float64, **how))
    own, exact = made
    assert repr(own) == repr(exact)
    for shape in ((2, 4, 6, 5), (4, 6, 5)):
        (x,) = drawn(shape)
        torch.testing.assert_close(own(x), exact(x))
    with torch.no_grad():
        for item in exact.parameters():
            item.add_(1)
    own.load_state_dict(exact.state_dict())
    (x,) = drawn((2, 4, 6, 5))
    results = [layer(x.contiguous()) for layer in made]
    torch.testing.assert_close(*results)
    for result in results:
        result.square().sum().backward()
    pairs = zip(own.parameters(), exact.parameters(), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one.grad, other.grad)
    assert is_last(own.weight)
    assert is_last(own.weight.grad)


def test_a_model_is_trained_traced_exported_and_recorded() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        Conv2d(3, 8, 3, padding=1, activation="relu"),
        Conv2d(8, 4, 3, stride=2, bias=False),
        torch.nn.Hardtanh(inplace=True),  # It writes into the result of the layer.
    )
    assert repr(model[0]).endswith("activation=relu)")
    x = torch.randn(2, 3, 8, 8)
    assert kronop.warmup(model, x) >= 0
    for _ in range(4):
        model(x).square().sum().backward()
    traced = torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")
    exported = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("n")},))
    alone = exported.run_decompositions(kronop.torch.decompositions())
    assert not [node for node in alone.graph.nodes if "kronop" in str(node.target)]
    ways = (traced, exported.module(), alone.module(), torch.fx.symbolic_trace(model))
    for count in (2, 5):
        x = torch.randn(count, 3, 8, 8)
        y = torch.relu(theirs(x, model[0].weight, model[0].bias, padding=1))
        wanted = theirs(y, model[1].weight, stride=2).clamp(-1, 1)
        for way in (model, *ways):
            torch.testing.assert_close(way(x), wanted, rtol=1e-4, atol=1e-5)
    larger = torch.randn(3, 3, 11, 9)
    torch.testing.assert_close(traced(larger), model(larger))
