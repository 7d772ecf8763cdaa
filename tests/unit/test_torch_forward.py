"""Forward-mode derivatives: torch.func.jvp, what is made of it, and torch.autograd.forward_ad."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import func  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402

import kronop  # noqa: E402
import kronop.torch  # noqa: E402
from kronop.torch.nn.algorithms import ALGORITHMS, dense_factor  # noqa: E402

_close = torch.testing.assert_close
_EVERY = (0, 1, 2, 3, 4)


def _random(*shape: int, kind: Any = torch.float64) -> Any:
    generator = torch.Generator().manual_seed(sum(shape) + 7 * len(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator).to(kind)


@dataclass(frozen=True)
class _Product:
    """A product, the same by torch, and five operands of both."""

    ours: Callable[..., Any]
    exact: Callable[..., Any]
    operands: tuple[Any, ...]

    @property
    def tangents(self) -> tuple[Any, ...]:
        return tuple(item.flip(0) + 0.5 for item in self.operands)

    def both(self, *chosen: int) -> tuple[Any, Any]:
        """Ours and the exact one, of some operands."""

        def of(call: Any) -> Any:
            def partial(*given: Any) -> Any:
                every = dict(enumerate(self.operands)) | dict(zip(chosen, given, strict=True))
                return call(*every.values())

            return partial

        return of(self.ours), of(self.exact)

    def some(self, *chosen: int) -> tuple[Any, Any]:
        """Some operands, and their tangents."""
        pick = [tuple(every[at] for at in chosen) for every in (self.operands, self.tangents)]
        return pick[0], pick[1]


def _kron(left: bool) -> _Product:
    def ours(x: Any, a: Any, b: Any, c: Any, z: Any) -> Any:
        if left:
            factors = [a.mT, b.mT, c.mT]
            return kronop.torch.gekmm(factors, x.mT, alpha=0.7, beta=0.3, z=z.mT).mT
        return kronop.torch.gemkm(x, [a, b, c], alpha=0.7, beta=0.3, z=z)

    def exact(x: Any, a: Any, b: Any, c: Any, z: Any) -> Any:
        return 0.7 * x @ torch.kron(a, torch.kron(b, c)) + 0.3 * z

    shapes = ((3, 12), (2, 3), (3, 1), (2, 2), (3, 6))
    return _Product(ours, exact, tuple(_random(*shape) for shape in shapes))


def _sparse(last: bool, activation: str | None) -> _Product:
    def ours(x: Any, v: Any, w: Any, bias: Any, z: Any) -> Any:
        options = {"alpha": 0.7, "beta": 0.3, "z": z, "bias": bias, "batch_last": last}
        return kronop.torch.ksmm(x, [v, w], activation=activation, **options)

    def exact(x: Any, v: Any, w: Any, bias: Any, z: Any) -> Any:
        x, z = (x.mT, z.mT) if last and x.dim() > 1 else (x, z)
        plain = 0.7 * x @ (dense_factor(w) @ dense_factor(v)).mT + 0.3 * z + bias
        result = plain if activation is None else getattr(torch.nn.functional, activation)(plain)
        return result.mT if last and x.dim() > 1 else result

    ends = ((8, 5), (4, 5)) if last else ((5, 8), (5, 4))
    shapes = (ends[0], (1, 3, 4, 2), (2, 2, 3, 1), (4,), ends[1])
    return _Product(ours, exact, tuple(_random(*shape) for shape in shapes))


_PRODUCTS = {
    "gemkm": _kron(False),
    "gekmm": _kron(True),
    "ksmm": _sparse(False, "gelu"),
    "ksmm, batch last": _sparse(True, None),
}


@pytest.fixture(params=_PRODUCTS.values(), ids=_PRODUCTS.keys())
def product(request: pytest.FixtureRequest) -> _Product:
    found: _Product = request.param
    return found


def test_tangents_of_each_operand_and_of_all(product: _Product) -> None:
    for chosen in (*((at,) for at in _EVERY), _EVERY):
        primals, tangents = product.some(*chosen)
        ours, exact = product.both(*chosen)
        _close(func.jvp(ours, primals, tangents), func.jvp(exact, primals, tangents))


def test_jacobians(product: _Product) -> None:
    for at in (1, 4):
        ours, exact = (func.jacfwd(call, at) for call in (product.ours, product.exact))
        _close(ours(*product.operands), exact(*product.operands))


@pytest.mark.parametrize("records", [False, True])
def test_dual_tensors_with_and_without_gradients(product: _Product, records: bool) -> None:
    _, expected = func.jvp(product.exact, product.operands, product.tangents)
    with forward_ad.dual_level():
        duals = [
            forward_ad.make_dual(item.clone().requires_grad_(records), tangent)
            for item, tangent in zip(product.operands, product.tangents, strict=True)
        ]
        found = forward_ad.unpack_dual(product.ours(*duals)).tangent
    _close(found.detach(), expected)
    assert found.requires_grad == records


@pytest.mark.parametrize("wave", [False, True], ids=["linear", "sine"])
def test_hessians(product: _Product, wave: bool) -> None:
    def loss(call: Any) -> Any:
        return lambda *given: (call(*given).sin() if wave else call(*given)).sum()

    primals, _ = product.some(0, 1, 4)
    ours, exact = (func.hessian(loss(call), (0, 1, 2)) for call in product.both(0, 1, 4))
    _close(ours(*primals), exact(*primals))


@pytest.mark.parametrize(
    "second",
    [
        lambda loss: func.jacfwd(func.jacfwd(loss, 1), 2),
        lambda loss: func.jacrev(func.jacfwd(loss, 1), 2),
        lambda loss: func.jacfwd(func.hessian(loss, 0), 1),
    ],
    ids=["jacfwd jacfwd", "jacrev jacfwd", "jacfwd hessian"],
)
def test_modes_in_any_order(product: _Product, second: Any) -> None:
    (x, v, w), _ = product.some(0, 1, 2)
    ours, exact = (
        second(lambda *given, call=call: call(*given).sin().sum()) for call in product.both(0, 1, 2)
    )
    _close(ours(x, v, w), exact(x, v, w))


def test_maps_inside_and_outside(product: _Product) -> None:
    xs, tangents = (torch.stack([item, item.cos(), -item], 1) for item, *_ in product.some(0))
    found = []
    for call in product.both(0):
        mapped = torch.vmap(call, 1, 1)
        inside = func.jvp(mapped, (xs,), (tangents,))
        single = lambda x, u, call=call: func.jvp(call, (x,), (u,))  # noqa: E731
        outside = torch.vmap(single, (1, 1), (1, 1))(xs, tangents)
        _close(inside, outside)
        found.append(inside)
    _close(*found)


def test_a_backward_of_what_was_computed_before(product: _Product) -> None:
    """The gradient has a tangent, and what the forward kept has none."""
    primals = [item.clone().requires_grad_() for item in product.operands]
    for create_graph in (False, True):
        found = []
        for call in (product.ours, product.exact):
            result = call(*primals)
            grad = _random(*result.shape)
            with forward_ad.dual_level():
                dual = forward_ad.make_dual(grad, grad.flip(0))
                gradients = torch.autograd.grad(result, primals, dual, create_graph=create_graph)
                found.append([forward_ad.unpack_dual(item).tangent for item in gradients])
        _close(*found)


def test_linearized(product: _Product) -> None:
    primals, tangents = product.some(0)
    ours, exact = product.both(0)
    result, linear = func.linearize(ours, *primals)
    _close((result, linear(*tangents)), func.jvp(exact, primals, tangents))


def test_a_source_that_broadcasts_or_is_not_read() -> None:
    product = _PRODUCTS["gemkm"]
    x, *factors, _ = product.operands
    for x_shape, z_shape in (((2, 3, 12), (3, 6)), ((3, 12), (2, 3, 6))):
        x, z = _random(*x_shape), _random(*z_shape)
        for at in (0, 1):
            primals, tangents = ((x, z)[at],), ((x, z)[at].sin(),)
            ours, exact = (
                func.jvp(
                    lambda given, call=call, at=at, x=x, z=z: call(
                        *((given, *factors, z) if at == 0 else (x, *factors, given))
                    ),
                    primals,
                    tangents,
                )
                for call in (product.ours, product.exact)
            )
            _close(ours, exact)
    unread = lambda z: kronop.torch.gemkm(x, factors, beta=0, z=z)  # noqa: E731
    assert not func.jvp(unread, (z,), (z,))[1].any()


@pytest.mark.parametrize("name", ["gemkm", "ksmm"])
@pytest.mark.filterwarnings("ignore")
def test_between_graphs_of_torch_compile(name: str) -> None:
    product = _PRODUCTS[name]
    (x,), (tangent,) = product.some(0)
    ours, exact = product.both(0)
    expected = func.jvp(exact, (x,), (tangent,))[1]
    compiled = torch.compile(ours, backend="eager")
    _close(compiled(x), exact(x))
    with forward_ad.dual_level():
        found = forward_ad.unpack_dual(compiled(forward_ad.make_dual(x, tangent))).tangent
    _close(found, expected)
    whole = torch.compile(lambda x, u: func.jvp(ours, (x,), (u,)), backend="eager")
    _close(whole(x, tangent)[1], expected)


def test_a_mapped_row_of_what_requires_a_gradient() -> None:
    """That it does is not to be seen on the row: an activation is not fused there."""
    product = _PRODUCTS["ksmm"]
    x, v, w, bias, z = product.operands

    def loss(call: Any) -> Any:
        return lambda x: torch.vmap(lambda row: call(row, v, w, bias, z[0]))(x).sum()

    expected = func.grad(loss(product.exact))(x)
    _close(func.grad(loss(product.ours))(x), expected)
    leaf = x.clone().requires_grad_()
    loss(product.ours)(leaf).backward()
    _close(leaf.grad, expected)


def test_under_autocast() -> None:
    x, weight = _random(5, 8, kind=torch.float32), _random(1, 3, 4, 2, kind=torch.float32)
    tangents = (x.sin(), weight.cos())

    def ours(x: Any, weight: Any) -> Any:
        with torch.autocast("cpu"):
            return kronop.torch.ksmm(x, weight)

    def exact(x: Any, weight: Any) -> Any:
        return x @ dense_factor(weight).mT

    result, tangent = func.jvp(ours, (x, weight), tangents)
    assert result.dtype == tangent.dtype == torch.bfloat16
    _close(tangent.float(), func.jvp(exact, (x, weight), tangents)[1], rtol=0.05, atol=0.05)
    found, expected = (
        func.grad(lambda *given, call=call: call(*given).float().square().sum(), (0, 1))(x, weight)
        for call in (ours, exact)
    )
    for first, second in zip(found, expected, strict=True):
        assert float((first - second).norm()) < 0.05 * float(second.norm())


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, "auto"])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_layers(algorithm: str) -> None:
    layer = kronop.torch.nn.KSLinear(
        [(1, 3, 4, 2), (2, 2, 3, 1)], algo=algorithm, dtype=torch.float64
    )
    x, tangent, matrix = _random(5, 8), _random(5, 8).sin(), layer.get_dense_product().detach()
    for frozen in (False, True):
        layer.requires_grad_(not frozen)
        with forward_ad.dual_level():
            result = layer(forward_ad.make_dual(x, tangent))
            found = forward_ad.unpack_dual(result).tangent
        _close(found.detach(), tangent @ matrix.mT)
        given = x.clone().requires_grad_()
        result = layer(given)
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(torch.ones_like(result), result.detach())
            (grad,) = torch.autograd.grad(result, given, dual)
            found = forward_ad.unpack_dual(grad).tangent
        _close(found, result.detach() @ matrix)
    parameters = {name: item.detach() for name, item in layer.named_parameters()}
    tangents = {name: item.sin() for name, item in parameters.items()}
    call = lambda given: func.functional_call(layer, given, (x,))  # noqa: E731
    _, found = func.jvp(call, (parameters,), (tangents,))
    near = {name: item + 1e-6 * tangents[name] for name, item in parameters.items()}
    _close(found, (call(near) - call(parameters)) / 1e-6, rtol=1e-4, atol=1e-4)


def test_functions_without_derivatives_refuse_tangents() -> None:
    """Also after calls that were learned, and behind the operators' own names."""
    x, factors, weight = _random(3, 12), [_random(3, 2), _random(4, 4)], _random(1, 3, 12, 1)
    operators = torch.ops.kronop
    calls = [
        lambda x: kronop.gemkm(x, factors),
        lambda x: kronop.gekmm([item.mT for item in factors], x.mT),
        lambda x: kronop.ksmm(x, weight),
        lambda x: kronop.gemkm(x.detach(), factors, out=x[:, :8]),
        lambda x: kronop.gemkm(x.detach(), factors, beta=1.0, z=x[:, :8]),
        lambda x: operators.kron(x, factors, None, 1, 0, False),
        lambda x: operators.ksmm(x, [weight], None, None, 1, 0, False, None),
    ]
    for call in calls:
        for _ in range(3):
            expected = None if call is calls[3] else call(x)
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, x)
            for _ in range(2):
                with pytest.raises(kronop.ArgumentError, match="without tangent, got a dual"):
                    call(dual)
            if expected is not None:  # Others are let through.
                _close(call(x), expected)
