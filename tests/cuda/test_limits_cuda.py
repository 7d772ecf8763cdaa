"""Kernels and activations at the ends of floating point, on a GPU."""

from __future__ import annotations

from typing import Any

import pytest

import kronop
from kronop import kernels

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.cuda

_DECAYING = (
    kernels.Gaussian(3.0)
    + kernels.Laplace(9.0)
    + kernels.Matern(1.5, 3.0)
    + kernels.Matern(2.5, 3.0)
    + kernels.RationalQuadratic(1.5, 3.0)
)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("columns", [1, 16])
def test_far_points(columns: int, kind: Any) -> None:
    torch.manual_seed(0)
    x, y, v = (torch.randn(*shape, dtype=kind) for shape in ((300, 20), (200, 20), (200, columns)))
    x[3, 0], x[7, 2], x[9, 1] = 1e25, torch.inf, torch.nan
    y[5, 0], y[6, 0] = -1e25, -torch.inf
    found = kronop.kernel_matrix(x.cuda(), y.cuda(), _DECAYING).cpu()
    expected = kronop.kernel_matrix(x, y, _DECAYING)
    torch.testing.assert_close(found, expected, equal_nan=True)
    assert found.isnan().any(1).nonzero().tolist() == [[9]]
    product = kronop.kernel_matmul(x.cuda(), y.cuda(), v.cuda(), _DECAYING).cpu()
    torch.testing.assert_close(product, expected @ v, equal_nan=True, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("scale", [1e-30, 1e-23, 1e30])
def test_scales(scale: float) -> None:
    torch.manual_seed(1)
    x, y = (torch.randn(count, 20, device="cuda") for count in (300, 200))
    for kernel, scaled in (
        (kernels.Gaussian(3.0), kernels.Gaussian(3.0 * scale)),
        (kernels.Matern(2.5, 3.0), kernels.Matern(2.5, 3.0 * scale)),
        (kernels.RationalQuadratic(1.5, 3.0), kernels.RationalQuadratic(1.5, 3.0 * scale)),
    ):
        found = kronop.kernel_matrix(x * scale, y * scale, scaled)
        torch.testing.assert_close(found, kronop.kernel_matrix(x, y, kernel), rtol=1e-5, atol=1e-5)
        of_ones = kronop.kernel_matmul(x * scale, y * scale, torch.ones_like(y[:, :1]), scaled)
        torch.testing.assert_close(of_ones[:, 0], found.sum(1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("m", "n", "k"), [(5, 7, 9), (300, 200, 40), (1000, 700, 128)])
def test_lengths_of_all_sizes(m: int, n: int, k: int, kind: Any) -> None:
    """Squares of float32 and bfloat16 may be too large, or vanish."""
    torch.manual_seed(2)
    most = {torch.float16: 8}.get(kind, 100)
    exact, given = [], []
    for count in (m, n):
        points = (torch.randint(-16, 17, (count, k)) / 8).double()
        points[count // 2] = 0
        exact.append(torch.nn.functional.normalize(points, dim=1))
        powers = torch.arange(count) * 40 % (2 * most) - most
        given.append((points * 2.0 ** powers[:, None]).to(kind).cuda())
    expected = exact[0] @ exact[1].T
    unit = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}.get(kind, 4e-6)
    found = kronop.kernel_matrix(*given, kernels.Cosine()).double().cpu()
    assert (found - expected).abs().max() <= unit
    product = kronop.kernel_matmul(*given, torch.ones_like(given[1][:, :1]), kernels.Cosine())
    assert (product[:, 0].double().cpu() - expected.sum(1)).abs().max() <= unit * n


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["gelu", "silu", "hardswish", "relu", "sigmoid"])
def test_activations(name: str, kind: Any) -> None:
    """At minus and plus infinity, NaN, and far below 0."""
    bias = torch.tensor([-torch.inf, torch.inf, torch.nan, -1e4] * 16, device="cuda").to(kind)
    a, b = (torch.randn(*shape, device="cuda").to(kind) for shape in ((128, 32), (32, 64)))
    most = 1 if name == "sigmoid" else torch.inf
    expected = torch.tensor([0, most, torch.nan, 0] * 16, device="cuda").to(kind).expand(128, -1)
    found = kronop.gemm.matmul(a, b, bias=bias, activation=name)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    weight = torch.randn(2, 32, 16, 1, device="cuda").to(kind)
    found = kronop.ksmm(a, weight, bias=bias, activation=name)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


def test_the_power_1_of_infinite_differences() -> None:
    a = torch.ones(3, 5, device="cuda")
    b, d = torch.zeros(4, 3, device="cuda"), torch.ones(4, 5, device="cuda")
    d[1, 2], b[2, 1] = torch.inf, torch.inf
    found = kronop.cdist_grad(a, b, None, d, torch.tensor(1.0, device="cuda"))
    torch.testing.assert_close(found, kronop.cdist_grad(a, b, None, d, 1.0))
