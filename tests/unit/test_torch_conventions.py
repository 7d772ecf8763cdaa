"""What all functions of kronop.torch have in common: lists of tensors, autocast, z beside beta."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import kronop.torch  # noqa: E402
from kronop import kernels  # noqa: E402
from kronop.torch.nn import KSLinear  # noqa: E402

_KERNEL = kernels.Gaussian(1.5)


def _drawn(*shapes: tuple[int, ...], seed: int = 0) -> list[Any]:
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=random, requires_grad=True) for shape in shapes]


def _dense(factors: Any) -> Any:
    return torch.kron(*factors)


# (kronop's function, torch's, shapes) of products, which autocast narrows as torch's matmul, ...
_PRODUCTS: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[tuple[int, ...]]]] = {
    "gemkm": (
        lambda x, *factors: kronop.torch.gemkm(x, factors),
        lambda x, *factors: x @ _dense(factors),
        [(5, 6), (2, 3), (3, 2)],
    ),
    "gekmm": (
        lambda x, *factors: kronop.torch.gekmm(factors, x),
        lambda x, *factors: _dense(factors) @ x,
        [(6, 5), (2, 3), (3, 2)],
    ),
    "ksmm": (
        lambda x, w: kronop.torch.ksmm(x, w),
        lambda x, w: x @ w[0, :, :, 0].mT,
        [(5, 6), (1, 4, 6, 1)],
    ),
    "matmul": (kronop.torch.matmul, torch.matmul, [(5, 6), (6, 4)]),
    "conv2d": (
        lambda x, w: kronop.torch.conv2d(x, w, layout="NCHW"),
        torch.nn.functional.conv2d,
        [(2, 3, 4, 5), (4, 3, 2, 3)],
    ),
}
# ... and of distances, which it widens as torch.cdist.
_DISTANCES: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[tuple[int, ...]]]] = {
    "cdist": (kronop.torch.cdist, torch.cdist, [(5, 3), (4, 3)]),
    "kernel_matrix": (
        lambda x, y: kronop.torch.kernel_matrix(x, y, _KERNEL),
        lambda x, y: torch.exp(-torch.cdist(x, y).square() / (2 * 1.5**2)),
        [(5, 3), (4, 3)],
    ),
    "kernel_matmul": (
        lambda x, y, v: kronop.torch.kernel_matmul(x, y, v, _KERNEL),
        lambda x, y, v: torch.exp(-torch.cdist(x, y).square() / (2 * 1.5**2)) @ v,
        [(5, 3), (4, 3), (4, 2)],
    ),
}


@pytest.mark.parametrize("name", _PRODUCTS)
def test_autocast_narrows_products_as_torch_does(name: str) -> None:
    ours, exact, shapes = _PRODUCTS[name]
    for seed in range(4):  # The third call and the following ones are repeated by addresses.
        given = _drawn(*shapes, seed=seed)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            result, theirs = ours(*given), exact(*given)
            with torch.no_grad():
                assert ours(*given).dtype is torch.bfloat16
        assert result.dtype is theirs.dtype is torch.bfloat16
        found = torch.autograd.grad(result.float().square().sum(), given)
        assert {item.dtype for item in found} == {torch.float32}
        # Operands, gradients and what is between two factors are rounded to 8 bits.
        right = exact(*given)
        expected = torch.autograd.grad(right.square().sum(), given)
        for first, second in zip((result.float(), *found), (right, *expected), strict=True):
            torch.testing.assert_close(
                first, second, rtol=0, atol=8 * 2**-8 * float(second.detach().abs().max())
            )


@pytest.mark.parametrize("name", _PRODUCTS)
def test_autocast_leaves_float64_alone(name: str) -> None:
    ours, _, shapes = _PRODUCTS[name]
    given = [item.double() for item in _drawn(*shapes)]
    with torch.autocast("cpu"):
        assert ours(*given).dtype is torch.float64


@pytest.mark.parametrize("name", _DISTANCES)
def test_autocast_widens_distances_as_torch_does(name: str) -> None:
    ours, exact, shapes = _DISTANCES[name]
    for seed in range(4):
        given = [item.detach().bfloat16().requires_grad_() for item in _drawn(*shapes, seed=seed)]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            result, theirs = ours(*given), torch.cdist(*given[:2])
        assert result.dtype is theirs.dtype is torch.float32
        wide = [item.detach().float().requires_grad_() for item in given]
        torch.testing.assert_close(result, exact(*wide), rtol=1e-5, atol=1e-5)
        found = torch.autograd.grad(result.square().sum(), given)
        expected = torch.autograd.grad(exact(*wide).square().sum(), wide)
        for first, second in zip(found, expected, strict=True):
            assert first.dtype is torch.bfloat16  # Rounded once, from float32.
            torch.testing.assert_close(first.float(), second, rtol=2**-8, atol=1e-5)


@pytest.mark.parametrize("name", ["gemkm", "cdist"])
def test_autocast_in_compiled_graphs_and_transforms(name: str) -> None:
    ours, exact, shapes = (_PRODUCTS | _DISTANCES)[name]
    given = [item.detach() for item in _drawn(*shapes)]

    def loss(*given: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return ours(*given).float().square().sum()

    right = exact(*given).square().sum()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*given), right, rtol=0.05, atol=0)
    for found, item in zip(torch.func.grad(loss, (0, 1))(*given), given, strict=False):
        assert found.dtype is item.dtype


def test_second_derivatives_of_factors_under_autocast() -> None:
    given = _drawn((5, 6), (2, 3), (3, 2))

    def second(call: Callable[..., Any]) -> Any:
        (first,) = torch.autograd.grad(call(*given).float().sum(), given[1], create_graph=True)
        return torch.autograd.grad(first.sum(), given[2])[0]

    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = _PRODUCTS["gemkm"][0](*given)
    (first,) = torch.autograd.grad(result.float().sum(), given[1], create_graph=True)
    (found,) = torch.autograd.grad(first.sum(), given[2])
    expected = second(_PRODUCTS["gemkm"][1])
    torch.testing.assert_close(
        found, expected, rtol=0, atol=8 * 2**-8 * float(expected.abs().max())
    )


@pytest.mark.parametrize("kind", [list, tuple, torch.nn.ParameterList])
def test_factors_and_weights_come_in_any_list(kind: Any) -> None:
    x, *factors = (item.detach() for item in _drawn((5, 6), (2, 3), (3, 2)))
    weights = [item.detach() for item in _drawn((1, 4, 6, 1), (2, 3, 2, 1))]
    wanted = x @ _dense(factors)
    calls: dict[str, tuple[Callable[..., Any], Any]] = {
        "gemkm": (lambda item: kronop.torch.gemkm(x, item), factors),
        "gekmm": (lambda item: kronop.torch.gekmm(item, x.T).T, [f.T for f in factors]),
        "kronop.gemkm": (lambda item: kronop.gemkm(x, item), factors),
        "kronop.gekmm": (lambda item: kronop.gekmm(item, x.T).T, [f.T for f in factors]),
        "compiled": (
            lambda item: torch.compile(
                lambda x: kronop.torch.gemkm(x, item), fullgraph=True, backend="eager"
            )(x),
            factors,
        ),
    }
    with torch.no_grad():
        for name, (call, items) in calls.items():
            torch.testing.assert_close(call(kind(items)), wanted, msg=lambda m, n=name: f"{n}: {m}")
        for ksmm in (kronop.torch.ksmm, kronop.ksmm):
            torch.testing.assert_close(ksmm(x, kind(weights)), ksmm(x, weights), rtol=0, atol=0)
        layer = KSLinear([(1, 4, 6, 1), (2, 3, 2, 1)], weights=kind(weights), bias=False)
        torch.testing.assert_close(layer(x), kronop.ksmm(x, weights))


def test_parameters_in_a_list_get_gradients_and_are_refused_where_there_are_none() -> None:
    x, *factors = _drawn((5, 6), (2, 3), (3, 2))
    held = torch.nn.ParameterList(factors)
    kronop.torch.gemkm(x, held).sum().backward()
    expected = torch.autograd.grad((x @ _dense(factors)).sum(), factors)
    for item, right in zip(held, expected, strict=True):
        torch.testing.assert_close(item.grad, right)
    with pytest.raises(kronop.ArgumentError, match=r"kronop\.torch\.gemkm"):
        kronop.gemkm(x, held)


def test_arguments_take_any_list_too() -> None:
    x, *factors = (item.detach() for item in _drawn((5, 6), (2, 3), (3, 2)))
    matrix = kronop.TensorDescription(kronop.float32)
    epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
    operation = kronop.KronMatmulOperation(
        "x86", None, matrix, matrix, matrix, epilogue, [(2, 3), (3, 2)]
    )
    with torch.no_grad():
        held = torch.nn.ParameterList(factors)
        arguments = kronop.KronMatmulArguments(operation=operation, X=x, factors=held)
        operation.run(arguments)
    torch.testing.assert_close(arguments.Y, x @ _dense(factors))


@pytest.mark.parametrize("name", ["gemkm", "gekmm", "ksmm"])
def test_z_is_never_ignored(name: str) -> None:
    x, *factors = (item.detach() for item in _drawn((6, 6), (2, 3), (3, 2)))
    (weight,) = (item.detach() for item in _drawn((1, 6, 6, 1)))
    first = {
        "gemkm": (x, factors),
        "gekmm": (factors, x),
        "ksmm": (x, weight),
    }[name]
    call = getattr(kronop.torch, name)
    with pytest.raises(kronop.ArgumentError, match="pass beta=1 to add Z"):
        call(*first, z=x)
    with pytest.raises(kronop.ArgumentError, match="beta"):
        call(*first, beta=1)
    torch.testing.assert_close(call(*first, z=x, beta=1), call(*first) + x)


def test_scalars_and_z_may_be_given_in_order_as_to_fastkron() -> None:
    x, first, second, z = _drawn((5, 6), (2, 3), (3, 2), (5, 6))
    expected = 3 * x @ _dense([first, second]) - 0.5 * z
    actual = kronop.torch.gemkm(x, [first, second], 3.0, -0.5, z)
    torch.testing.assert_close(actual, expected)
    turned = kronop.torch.gekmm([first.mT, second.mT], x.mT, 3.0, -0.5, z.mT)
    torch.testing.assert_close(turned, expected.mT)
