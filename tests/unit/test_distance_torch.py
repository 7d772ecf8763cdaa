"""cdist and kernel_matrix as torch operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import kronop.torch  # noqa: E402
from kronop import kernels  # noqa: E402
from kronop.families.distance.torch import functional, products  # noqa: E402


def _points(count: int, seed: int = 0) -> Any:
    random = torch.Generator().manual_seed(seed)
    points = torch.randn(count, 3, dtype=torch.float64, generator=random)
    return points.requires_grad_()


def _number(value: float) -> Any:
    return torch.tensor(value, dtype=torch.float64, requires_grad=True)


_SMOOTH: dict[str, Callable[[Any], kernels.Kernel]] = {
    "gaussian": kernels.Gaussian,
    "matern": lambda b: kernels.Matern(2.5, b),
    "rational quadratic": lambda b: kernels.RationalQuadratic(b, b),
    "products": lambda b: b * kernels.Polynomial(3, b) + kernels.Cosine(),
    "composite": lambda b: kernels.Gaussian(b) * kernels.Linear() + kernels.Laplace(b, norm=2),
}


@pytest.mark.parametrize("name", _SMOOTH)
def test_derivatives_of_smooth_kernels(name: str) -> None:
    def matrix(x: Any, y: Any, b: Any) -> Any:
        return kronop.torch.kernel_matrix(x, y, _SMOOTH[name](b), regularization=b)

    given = (_points(3), _points(2, 1), _number(0.8))
    assert torch.autograd.gradcheck(matrix, given, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(matrix, given)


@pytest.mark.parametrize("p", [0.5, 1, 1.3, 2, 3, float("inf")])
@pytest.mark.parametrize("skip_epilogue", [False, True])
def test_gradients_of_all_norms(p: float, skip_epilogue: bool) -> None:
    def distances(x: Any, y: Any) -> Any:
        return kronop.torch.cdist(x, y, p, skip_epilogue=skip_epilogue)

    assert torch.autograd.gradcheck(distances, (_points(4), _points(3, 1)))


def test_gradients_of_kernels_of_other_norms() -> None:
    def matrix(x: Any, y: Any, b: Any) -> Any:
        p = b + 1  # The power of two terms, of which one is relative to the largest difference.
        kernel = kernels.Laplace(b) * kernels.PowerNorm(p) + kernels.PowerNorm(1.5)
        return kronop.torch.kernel_matrix(x, y, kernel + kernels.PowerNorm(p, root=False))

    given = (_points(3), _points(2, 1), _number(0.8))
    assert torch.autograd.gradcheck(matrix, given)
    with pytest.raises(kronop.ArgumentError, match="gradients of gradients"):
        torch.autograd.gradgradcheck(matrix, given)


def test_gradients_of_bandwidths_per_feature_and_of_a_batch() -> None:
    random = torch.Generator().manual_seed(3)
    widths = torch.rand(3, dtype=torch.float64, generator=random) + 0.5
    per_problem = torch.rand(2, dtype=torch.float64, generator=random) + 0.5
    x = torch.randn(2, 3, 3, dtype=torch.float64, generator=random)

    def of_features(x: Any, y: Any, b: Any) -> Any:
        return kronop.torch.kernel_matrix(x, y, kernels.Gaussian(b))

    assert torch.autograd.gradcheck(
        of_features, (_points(3), _points(2, 1), widths.requires_grad_())
    )
    assert torch.autograd.gradcheck(
        of_features, (x.requires_grad_(), _points(2, 1), per_problem.requires_grad_())
    )


def _widths(seed: int = 5) -> Any:
    random = torch.Generator().manual_seed(seed)
    return (torch.rand(3, dtype=torch.float64, generator=random) + 0.5).requires_grad_()


def _squares(x: Any, y: Any) -> Any:
    return (x[:, None] - y).square().sum(-1)


def _absolute(x: Any, y: Any) -> Any:
    return (x[:, None] - y).abs().sum(-1)


# Kernels with bandwidths w and u per feature in some of their terms; and their formulas in torch.
_MIXED: dict[str, tuple[Callable[..., kernels.Kernel], Callable[..., Any]]] = {
    "sum": (
        lambda w, u, b: kernels.Gaussian(w) + b * kernels.Linear(),
        lambda x, y, w, u, b: (-_squares(x / w, y / w) / 2).exp() + b * x @ y.T,
    ),
    "product": (
        lambda w, u, b: kernels.Gaussian(w) * kernels.Gaussian(b),
        lambda x, y, w, u, b: (-_squares(x / w, y / w) / 2 - _squares(x, y) / (2 * b * b)).exp(),
    ),
    "two": (
        lambda w, u, b: kernels.Gaussian(w) + kernels.RationalQuadratic(b, u),
        lambda x, y, w, u, b: (
            (-_squares(x / w, y / w) / 2).exp() + (1 + _squares(x / u, y / u) / (2 * b)) ** -b
        ),
    ),
}
_MIXED_OTHERS: dict[str, tuple[Callable[..., kernels.Kernel], Callable[..., Any]]] = {
    "other norms": (
        lambda w, u, b: kernels.Laplace(w) + kernels.Laplace(u) * kernels.PowerNorm(b + 1),
        lambda x, y, w, u, b: (
            (-_absolute(x / w, y / w)).exp()
            + (-_absolute(x / u, y / u)).exp()
            * (x[:, None] - y).abs().pow(b + 1).sum(-1).pow(1 / (b + 1))
        ),
    ),
}


def _mixed_arguments() -> tuple[Any, ...]:
    return _points(4), _points(3, 1), _widths(), _widths(6), _number(0.8)


@pytest.mark.parametrize("name", [*_MIXED, *_MIXED_OTHERS])
def test_bandwidths_per_feature_beside_other_terms(name: str) -> None:
    make, formula = (_MIXED | _MIXED_OTHERS)[name]
    x, y, *values = given = _mixed_arguments()
    v = torch.randn(3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    matrix = kronop.torch.kernel_matrix(x, y, make(*values))
    product = kronop.torch.kernel_matmul(x, y, v, make(*values))
    expected = formula(*given)
    # Sums of 3 terms, some functions of them, and sums of 3 products, in float64.
    torch.testing.assert_close(matrix, expected, rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(product, expected @ v, rtol=1e-13, atol=1e-14)
    weights = torch.randn(4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    wanted = torch.autograd.grad((expected @ v * weights).sum(), given, allow_unused=True)
    for result in (matrix @ v, product):
        found = torch.autograd.grad((result * weights).sum(), given, allow_unused=True)
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", [*_MIXED, *_MIXED_OTHERS])
def test_derivatives_beside_bandwidths_per_feature(name: str) -> None:
    make, _ = (_MIXED | _MIXED_OTHERS)[name]
    v = torch.randn(3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(4))

    def matrix(x: Any, y: Any, *values: Any) -> Any:
        return kronop.torch.kernel_matrix(x, y, make(*values))

    def product(x: Any, y: Any, v: Any, *values: Any) -> Any:
        return kronop.torch.kernel_matmul(x, y, v, make(*values))

    x, y, *values = given = _mixed_arguments()
    of_product = (x, y, v.requires_grad_(), *values)
    is_smooth = name in _MIXED
    assert torch.autograd.gradcheck(matrix, given, check_forward_ad=is_smooth)
    assert torch.autograd.gradcheck(product, of_product)
    if name == "sum":  # Of more terms are more kernels that are compiled.
        assert torch.autograd.gradgradcheck(matrix, given)
        assert torch.autograd.gradgradcheck(product, of_product)


def test_bandwidths_per_feature_beside_other_terms_of_a_batch() -> None:
    """Mapped, compiled, and with one bandwidth for all features."""
    x, y, _, _, b = _mixed_arguments()
    many = torch.rand(4, 3, dtype=torch.float64) + 0.5

    def matrix(w: Any) -> Any:
        return kronop.torch.kernel_matrix(x, y, kernels.Gaussian(w) + kernels.Polynomial(2, b))

    expected = torch.stack([matrix(one) for one in many])
    torch.testing.assert_close(torch.vmap(matrix)(many), expected)
    in_one = kernels.Gaussian(many) + kernels.Polynomial(2, b)
    torch.testing.assert_close(kronop.torch.kernel_matrix(x[None], y, in_one), expected)
    width = torch.full((1,), 0.7, dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(matrix(width).sum(), (width,))
    wide = width.detach().expand(3).clone().requires_grad_()
    (apart,) = torch.autograd.grad(matrix(wide).sum(), (wide,))
    torch.testing.assert_close(found, apart.sum(0, keepdim=True))
    compiled = torch.compile(matrix, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(many[0]), expected[0])

    def scaled(w: Any) -> Any:
        return kronop.torch.kernel_matrix(x, y, kernels.Scaled(w[0], kernels.Linear()))

    compiled = torch.compile(scaled, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(many[0]), many[0, 0] * x @ y.T)


def _norm(x: Any, y: Any, p: Any) -> Any:
    """The distance, with the largest difference factored out as a constant: it cancels."""
    d = (x[..., :, None, :] - y[..., None, :, :]).abs()
    largest = d.detach().amax(-1, keepdim=True)
    p = torch.as_tensor(p, dtype=torch.float64)[..., None, None]
    return largest[..., 0] * (d / largest).pow(p[..., None]).sum(-1).pow(1 / p)


@pytest.mark.parametrize(("p", "size"), [(120, 0.4), (60, 5), (20, 3e-3), (17, 1e30), (0.05, 1)])
def test_gradients_of_powers_that_leave_the_range(p: float, size: float) -> None:
    """In float32, to as many roundings as differences have, which powers multiply by p."""
    points = [(size * _points(count, count)).detach()[None].float() for count in (4, 3)]
    x, y = (item.requires_grad_() for item in points)
    power = torch.tensor([p], dtype=torch.float32, requires_grad=True)
    v = torch.rand(1, 3, 2, generator=torch.Generator().manual_seed(4))
    kernel = kernels.PowerNorm(power)
    wide = [item.detach().double().requires_grad_() for item in (x, y, power)]
    expected = _norm(*wide)
    # All positive: the derivatives by p, of one sign, do not cancel.
    weights = torch.rand(4, 3, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    for found, of, given in (
        (kronop.torch.cdist(x, y, power), expected, (x, y, power)),
        (kronop.torch.cdist(x, y, p), expected, (x, y)),
        (kronop.torch.kernel_matmul(x, y, v, kernel), expected @ v.double(), (x, y, power)),
    ):
        torch.testing.assert_close(found.double(), of, rtol=1e-5, atol=0)
        some = weights[:, : of.shape[-1]]
        wanted = torch.autograd.grad((of * some).sum(), wide[: len(given)], retain_graph=True)
        grads = torch.autograd.grad((found.double() * some).sum(), given)
        for one, other in zip(grads, wanted, strict=True):
            # The logarithm of a sum near 1 has the sum's error, which p divides twice.
            size = (p + 1 / p) * other.abs().max() + (of * some).abs().sum().detach() / p**2
            assert (one.double() - other).abs().max() <= 32 * 2.0**-24 * size


def test_powers_beyond_the_type() -> None:
    """They are as large, or small, as they are in float64."""
    x, y = torch.tensor([[0.4, 0.3]], requires_grad=True), torch.zeros(1, 2)
    for cdist in (kronop.torch.cdist, torch.compile(kronop.torch.cdist, backend="aot_eager")):
        distance = cdist(x, y, 1e39)
        assert distance.item() == x[0, 0].item()
        assert torch.autograd.grad(distance, x)[0].tolist() == [[1, 0]]
    assert kronop.torch.cdist(x, y, 1e-46).item() == float("inf")
    assert kronop.torch.cdist(x * torch.tensor([1, 0]), y, 1e-46).item() == x[0, 0].item()


@pytest.mark.parametrize("p", [0.5, 1.0, 1.3, 2.0, 3.0, float("inf")])
def test_distances_of_zero_have_no_gradient(p: float) -> None:
    x = torch.ones(3, 2, requires_grad=True)
    kronop.torch.cdist(x, x, p).sum().backward()
    assert (x.grad == 0).all()


@pytest.mark.parametrize("p", [1.0, 2.0, float("inf")])
def test_nan_comes_through_gradients(p: float) -> None:
    x, y = _points(4), _points(3, 1).detach()
    with torch.no_grad():
        x[2, 1] = torch.nan
    kronop.torch.cdist(x, y, p).sum().backward()
    assert x.grad[2, 1].isnan()
    assert x.grad[[0, 1, 3]].isfinite().all()


def test_no_points_give_no_gradient() -> None:
    x = _points(3)
    kronop.torch.cdist(x, x[:0]).sum().backward()
    assert (x.grad == 0).all()


def test_gradients_of_halves_are_summed_in_float32() -> None:
    points, width = torch.zeros(600, 4, dtype=torch.float16), torch.tensor(0.5)
    width.requires_grad_()
    kernel = width * kernels.Gaussian(1.0)
    kronop.torch.kernel_matrix(points, points, kernel).sum().backward()
    assert width.grad == 360000


def test_a_power_has_no_forward_derivative() -> None:
    x, p = _points(3).detach(), torch.tensor(1.7, dtype=torch.float64)
    with pytest.raises(kronop.ArgumentError, match="one of a power"):
        torch.func.jvp(lambda p: kronop.torch.cdist(x, x + 1, p), (p,), (torch.ones_like(p),))


def test_values_of_numpy_and_lists() -> None:
    x = torch.randn(2, 4, 3)
    found = kronop.torch.kernel_matrix(x, x, kernels.Gaussian([0.5, 2.0]))
    expected = [
        kronop.torch.kernel_matrix(x[i], x[i], kernels.Gaussian(b))
        for i, b in enumerate((0.5, 2.0))
    ]
    torch.testing.assert_close(found, torch.stack(expected))
    with pytest.raises(kronop.ArgumentError, match="bandwidths per feature: expected 3 or 1"):
        kronop.torch.kernel_matrix(x[0], x[0], kernels.Gaussian([1.0, 1.0]))


def test_the_same_points_twice() -> None:
    x, y = _points(5), _points(5)
    kronop.torch.cdist(x, x, 2.0).square().sum().backward()
    kronop.torch.cdist(y, y.clone(), 2.0).square().sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


def test_torch_sees_an_operator() -> None:
    x, y, b = _points(4), _points(3, 1), _number(0.8)
    text = kernels.Gaussian(b).bound().form.text()
    mode = functional.api.DIRECT
    arguments = (x, y, [b], "t", [], text, mode)
    torch.library.opcheck(torch.ops.kronop.kernel_matrix.default, arguments)


def test_it_is_compiled_whole() -> None:
    def loss(x: Any, y: Any, b: Any) -> Any:
        kernel = kernels.Gaussian(b) + 2 * kernels.Matern(1.5, 0.5)
        return (kronop.torch.kernel_matrix(x, y, kernel) * kronop.torch.cdist(x, y, 1.3)).sum()

    given = (_points(4), _points(3, 1), _number(0.8))
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    expected = torch.autograd.grad(loss(*given), given)
    for found, wanted in zip(torch.autograd.grad(compiled(*given), given), expected, strict=True):
        torch.testing.assert_close(found, wanted)


def test_vmap_maps_points_and_values() -> None:
    x = torch.randn(4, 5, 3, dtype=torch.float64)
    y, b = _points(2).detach(), torch.rand(4, dtype=torch.float64) + 0.5

    def matrix(x: Any, b: Any) -> Any:
        return kronop.torch.kernel_matrix(x, y, kernels.Gaussian(b))

    expected = torch.stack([matrix(*one) for one in zip(x, b, strict=True)])
    torch.testing.assert_close(torch.vmap(matrix)(x, b), expected)
    turned = torch.vmap(matrix, in_dims=(2, 0))(x.movedim(0, 2), b)
    torch.testing.assert_close(turned, expected)


@pytest.mark.parametrize("name", _SMOOTH)
def test_derivatives_of_products(name: str) -> None:
    def product(x: Any, y: Any, v: Any, b: Any) -> Any:
        return kronop.torch.kernel_matmul(x, y, v, _SMOOTH[name](b), regularization=b)

    v = torch.randn(3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    given = (_points(4), _points(3, 1), v.requires_grad_(), _number(0.8))
    assert torch.autograd.gradcheck(product, given)
    assert torch.autograd.gradgradcheck(product, given)


def test_derivatives_of_products_of_other_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_MOST_BYTES", 2 * 3 * 8)  # Two rows of weights at a time.

    def product(x: Any, y: Any, v: Any, b: Any) -> Any:
        kernel = kernels.Laplace(b) * kernels.PowerNorm(b + 1) + kernels.Gaussian(b)
        return kronop.torch.kernel_matmul(x, y, v, kernel)

    v = torch.randn(3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    given = (_points(5), _points(3, 1), v.requires_grad_(), _number(0.8))
    assert torch.autograd.gradcheck(product, given)


def test_products_are_an_operator() -> None:
    x, y, b = _points(4), _points(3, 1), _number(0.8)
    v = torch.ones(3, dtype=torch.float64, requires_grad=True)
    text = kernels.Gaussian(b).bound().form.text()
    arguments = (x, y, v[:, None], [b], "t", [], text)
    torch.library.opcheck(torch.ops.kronop.kernel_matmul.default, arguments)

    def product(x: Any, v: Any, b: Any) -> Any:
        return kronop.torch.kernel_matmul(x, y, v, kernels.Gaussian(b))

    compiled = torch.compile(product, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, v, b), product(x, v, b))
    many = torch.rand(4, dtype=torch.float64) + 0.5
    expected = torch.stack([product(x, v, one) for one in many])
    torch.testing.assert_close(torch.vmap(product, (None, None, 0))(x, v, many), expected)
    direction = torch.ones_like(v)
    _, found = torch.func.jvp(lambda v: product(x, v, b), (v,), (direction,))
    torch.testing.assert_close(found, product(x, direction, b))


@pytest.mark.parametrize("compiled", [False, True])
def test_no_value_is_promoted(compiled: bool) -> None:
    x, b = torch.ones(4, 3, dtype=torch.float64), torch.tensor(0.5)
    for name, kernel, noise in (
        ("bandwidth", kernels.Gaussian(torch.ones(3)), None),
        ("bandwidth", kernels.Gaussian(b), None),
        ("regularization", kernels.Linear(), b),
        ("scale", kernels.Scaled(b, kernels.Linear()), None),
    ):

        def matrix(x: Any, kernel: Any = kernel, noise: Any = noise) -> Any:
            return kronop.torch.kernel_matrix(x, x, kernel, noise)

        call = torch.compile(matrix, backend="eager") if compiled else matrix
        message = f"element type of {name}: expected float64, .* got float32"
        with pytest.raises(kronop.ElementTypeError, match=message):
            call(x)
    with pytest.raises(kronop.ElementTypeError, match="element type of bandwidth"):
        kronop.torch.kernel_matmul(x, x, x, kernels.Gaussian(b))


def test_autocast_converts_values() -> None:
    x, b = torch.rand(4, 3), torch.full((3,), 0.5, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        found = kronop.torch.kernel_matrix(x, x, kernels.Gaussian(b), b[0])
    torch.testing.assert_close(found, kronop.torch.kernel_matrix(x, x, kernels.Gaussian(0.5), 0.5))


def test_values_for_a_batch_beside_points_without_one_have_gradients() -> None:
    x, y, p = torch.rand(4, 3), torch.rand(5, 3), torch.tensor([1.3, 2.6])
    v = torch.rand(5, 2)
    operands = [item.double().requires_grad_() for item in (x, y, v, p)]
    kernel = kernels.PowerNorm
    for call in (
        lambda x, y, v, p: kronop.torch.cdist(x, y, p),
        lambda x, y, v, p: kronop.torch.kernel_matrix(x, y, kernels.Gaussian(p[:, None]), p),
        lambda x, y, v, p: kronop.torch.kernel_matmul(x, y, v, kernel(p), p),
    ):
        found, one = call(*operands), [call(*operands[:3], item) for item in operands[3][:, None]]
        torch.testing.assert_close(found, torch.cat(one), rtol=1e-12, atol=1e-12)
        assert torch.autograd.gradcheck(call, operands)


def test_values_of_another_batch_are_named() -> None:
    x = torch.ones(2, 4, 3)
    for call in (
        kronop.torch.kernel_matrix,
        lambda x, y, k: kronop.torch.kernel_matmul(x, y, x, k),
    ):
        with pytest.raises(kronop.ArgumentError, match=r"bandwidth: expected shape \(2,\)"):
            call(x, x, kernels.Gaussian(torch.ones(3)))
    with pytest.raises(kronop.ArgumentError, match="regularization: expected one number"):
        kronop.torch.kernel_matrix(x[0], x[0], kernels.Linear(), torch.ones(4))
    points = x.requires_grad_()
    for call in (
        lambda: kronop.cdist(points, x.detach()),
        lambda: kronop.cdist(x.detach(), x.detach(), torch.ones(2, requires_grad=True)),
    ):
        message = "kronop.torch.cdist, kernel_matrix and kernel_matmul for gradients"
        with pytest.raises(kronop.ArgumentError, match=message):
            call()
    with pytest.raises(kronop.ArgumentError, match=r"torch\.linalg\.solve and eigh for"):
        kronop.linalg.eigh(points[0, :3])
