"""The torch operator of quantized Kronecker products: shapes, tracing, maps, no gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kronop

torch: Any = pytest.importorskip("torch")

import kronop.torch  # noqa: E402


def operands(*batch: int) -> tuple[Any, list[Any]]:
    """Small integers, whose products are exact."""
    torch.manual_seed(0)

    def whole(*shape: int) -> Any:
        return torch.randint(-3, 4, shape).bfloat16()

    return whole(*batch, 5, 12), [whole(4, 2), whole(3, 5)]


def assert_same(found: Any, wanted: Any) -> None:
    for item, want in zip(found, wanted, strict=True):
        assert (item.dtype, item.shape) == (want.dtype, want.shape)
        assert torch.equal(item, want)


@pytest.mark.parametrize(("bits", "kind", "columns"), [(4, torch.uint8, 5), (8, torch.int8, 10)])
def test_it_is_what_torch_writes_in_eager_mode(bits: int, kind: Any, columns: int) -> None:
    from kronop.bench.quantized import quantized_by_torch

    x, factors = operands(2)
    q, scales = kronop.torch.quantized_gemkm(x, factors, bits=bits)
    assert (q.dtype, q.shape, scales.shape) == (kind, (2, 5, columns), (2, 5, 1))
    assert_same((q, scales), quantized_by_torch(kronop.gemkm(x, factors), bits))
    assert_same((q, scales), kronop.quantized_gemkm(x, factors, bits=bits))
    parameters = torch.nn.ParameterList([torch.nn.Parameter(item) for item in factors])
    with torch.no_grad():
        assert_same((q, scales), kronop.torch.quantized_gemkm(x, parameters, bits=bits))


def test_it_is_traced_without_a_break() -> None:
    x, factors = operands()

    def call(x: Any) -> Any:
        q, scales = kronop.torch.quantized_gemkm(x + 0, factors, bits=4, clip=0.5)
        return q, scales * 2

    q, scales = kronop.torch.quantized_gemkm(x, factors, bits=4, clip=0.5)
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    assert_same(compiled(x), (q, scales * 2))
    fake = torch.ops.kronop.quantized_kron(x.to("meta"), [f.to("meta") for f in factors], 8, 1.0)
    assert [(it.dtype, tuple(it.shape)) for it in fake] == [
        (torch.int8, (5, 10)),
        (torch.float32, (5, 1)),
    ]


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    ("error", "message", "changes"),
    [
        (kronop.ArgumentError, "shape of X", {"x": torch.ones(5, 11).bfloat16()}),
        (kronop.ElementTypeError, "element type of X", {"x": torch.ones(5, 12).double()}),
        (kronop.ElementTypeError, "element type of X", {"x": torch.ones(5, 12).cfloat()}),
        (kronop.ElementTypeError, r"element type of factors\[0\]", {"x": torch.ones(5, 12)}),
        (kronop.ArgumentError, r"factors\[0\]: expected", {"factors": [torch.ones(12).bfloat16()]}),
        (kronop.ArgumentError, "leading dimensions of fac", {"x": torch.ones(2, 5, 12).bfloat16()}),
        (kronop.ArgumentError, "at least one factor", {"factors": []}),
        (kronop.ArgumentError, "even number", {"bits": 4}),
        (kronop.ArgumentError, "bits: expected 4 or 8", {"bits": 5}),
        (kronop.ArgumentError, "clip: expected", {"clip": 5.0}),
    ],
)
def test_tensors_without_values_are_refused_alike(
    error: type[Exception], message: str, changes: dict[str, Any], device: str
) -> None:
    """Or else a traced program fails when it runs, far from what was wrong."""
    x, last = operands()[0], torch.ones(3, 3).bfloat16()
    first = torch.ones(3, 4, 1).bfloat16()
    given = {"x": x, "factors": [first, last], "bits": 8, "clip": 1.0, **changes}
    given["x"] = given["x"].to(device)
    given["factors"] = [item.to(device) for item in given["factors"]]
    with pytest.raises(error, match=message):
        torch.ops.kronop.quantized_kron(*given.values())


def test_devices_do_not_mix() -> None:
    x, factors = operands()
    with pytest.raises(kronop.ArgumentError, match=r"device of factors\[1\]"):
        torch.ops.kronop.quantized_kron(x.to("meta"), [factors[0].to("meta"), factors[1]], 8, 1.0)


def test_autocast_casts_as_for_products() -> None:
    """Also inside of a map and of a compiled function; the factors may be of another type."""
    x, factors = operands()
    wanted = kronop.torch.quantized_gemkm(x, factors, bits=8)
    # What is added is below half a unit of bfloat16, so casting takes it off again.
    x, factors = x.float() * (1 + 2.0**-10), [factors[0].half(), factors[1]]

    def call(x: Any) -> Any:
        return kronop.torch.quantized_gemkm(x, factors, bits=8)

    with torch.autocast("cpu", torch.bfloat16):
        for way in (
            call,
            torch.compile(call, fullgraph=True, backend="aot_eager"),
            torch.vmap(call),
        ):
            assert_same(way(x), wanted)
    with pytest.raises(kronop.ElementTypeError, match="element type of factors"):
        call(x)


def test_a_changing_clip_is_traced_once_more() -> None:
    """torch.compile makes a symbol of a number that is another one in the second call."""
    x, factors = operands()
    frames = 0

    def call(x: Any, clip: Any) -> Any:
        return kronop.torch.quantized_gemkm(x, factors, bits=8, clip=clip)

    def count(graph: Any, examples: Any) -> Any:
        nonlocal frames
        frames += 1
        return graph

    compiled = torch.compile(call, fullgraph=True, backend=count)
    for clip in (1.0, 0.5, 0.25, 0.125):
        assert_same(compiled(x, clip), call(x, clip))
    assert frames == 2
    for clip in (np.float32(0.5), np.float64(0.25), 1):
        assert_same(compiled(x, clip), call(x, clip))
    with pytest.raises(kronop.ArgumentError, match="clip: expected"):
        compiled(x, 5.0)
    with pytest.raises(kronop.ElementTypeError, match="clip: expected a number, got a tensor"):
        call(x, torch.tensor(0.5))
    torch._dynamo.reset()  # What was traced for NumPy's scalars would be taken.
    with pytest.raises(torch._dynamo.exc.Unsupported, match="ElementTypeError"):
        compiled(x, torch.tensor(0.5))


def test_maps_are_batches() -> None:
    x, factors = operands(3)
    first = torch.stack([factors[0], -factors[0], factors[0] + 1])
    for dims, given in ((0, x), (1, x.movedim(0, 1)), (None, x[0])):
        found = torch.vmap(
            lambda x, a: kronop.torch.quantized_gemkm(x, [a, factors[1]], bits=8),
            in_dims=(dims, 0),
        )(given, first)
        each = [given if dims is None else given.select(dims, at) for at in range(3)]
        parts = [
            kronop.quantized_gemkm(item, [a, factors[1]], bits=8)
            for item, a in zip(each, first, strict=True)
        ]
        assert_same(found, [torch.stack(item) for item in zip(*parts, strict=True)])
    rows = torch.vmap(lambda x: kronop.torch.quantized_gemkm(x, factors, bits=8))(x[0])
    assert_same(rows, kronop.quantized_gemkm(x[0], factors, bits=8))


def test_it_has_no_gradient() -> None:
    x, factors = operands()
    x.requires_grad_()
    with pytest.raises(kronop.ArgumentError, match="straight-through"):
        kronop.torch.quantized_gemkm(x, factors, bits=8)
    with torch.no_grad():
        kronop.torch.quantized_gemkm(x, factors, bits=8)


@pytest.mark.parametrize(
    "take",
    [
        lambda call, x: torch.func.jvp(call, (x,), (x,)),
        lambda call, x: torch.func.jacfwd(call)(x),
        lambda call, x: torch.func.jacrev(call)(x),
        lambda call, x: torch.func.grad(lambda x: call(x)[0].float().sum())(x),
        lambda call, x: torch.func.grad(lambda x: torch.vmap(call)(x)[1].sum())(x),
        lambda call, x: _with_tangent(call, x),
    ],
    ids=["jvp", "jacfwd", "jacrev", "grad of integers", "grad of vmap", "dual"],
)
def test_transforms_find_no_gradient(take: Any) -> None:
    """Zeros, which torch would give, are wrong: those who train by them would not notice."""
    x, factors = operands()
    with pytest.raises(kronop.ArgumentError, match="straight-through"):
        take(lambda x: kronop.torch.quantized_gemkm(x, factors, bits=8), x)


def _with_tangent(call: Any, x: Any) -> Any:
    with torch.no_grad(), torch.autograd.forward_ad.dual_level():
        return call(torch.autograd.forward_ad.make_dual(x, x))


def test_transforms_of_what_needs_no_gradient() -> None:
    x, factors = operands()

    def scaled(item: Any, by: Any) -> Any:
        return (kronop.torch.quantized_gemkm(item, factors, bits=8)[1] * by).sum()

    one, wanted = torch.tensor(1.0), scaled(x, 1.0)
    assert torch.func.grad(lambda by: scaled(x, by))(one) == wanted
    assert torch.func.grad(lambda item: scaled(item.detach(), item).sum())(x).isfinite().all()
    assert torch.func.jvp(lambda by: scaled(x, by), (one,), (one,))[1] == wanted
    with torch.no_grad():
        rows = torch.vmap(lambda row: scaled(row, 1.0))(x.clone().requires_grad_())
    torch.testing.assert_close(rows.sum(), wanted)


@pytest.mark.parametrize(
    ("error", "message", "changes"),
    [
        (kronop.ElementTypeError, "wrap a single factor", {"factors": torch.ones(12, 4)}),
        (kronop.ElementTypeError, "expected a torch tensor", {"x": [1.0] * 12}),
        (kronop.ArgumentError, "at least 2 dimensions", {"factors": [torch.ones(12)]}),
        (kronop.ArgumentError, "bits: expected 4 or 8", {"bits": 2}),
        (kronop.ArgumentError, "clip: expected", {"clip": 2}),
    ],
)
def test_refusals(error: type[Exception], message: str, changes: dict[str, Any]) -> None:
    x, factors = operands()
    given: dict[str, Any] = {"x": x, "factors": factors, "bits": 8, **changes}
    with pytest.raises(error, match=message):
        kronop.torch.quantized_gemkm(given.pop("x"), given.pop("factors"), **given)
