"""GPyTorch's models with kronop's Kronecker products: the kernels build them, and training is the
same."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

torch = pytest.importorskip("torch")
gpytorch = pytest.importorskip("gpytorch")

from linear_operator import operators  # noqa: E402

from kronop import linear_operator as ours  # noqa: E402

_POINTS = torch.linspace(0, 1, 6, dtype=torch.float64)
_GRID = [_POINTS, _POINTS]


def _kernels() -> dict[str, tuple[Any, Any]]:
    """Kernels that build Kronecker products, and points to build them for."""
    rbf, k = gpytorch.kernels.RBFKernel, gpytorch.kernels
    plane = gpytorch.utils.grid.create_data_from_grid(_GRID)
    return {
        "multitask": (k.MultitaskKernel(rbf(), num_tasks=2), _POINTS.unsqueeze(-1)),
        "lcm": (k.LCMKernel([rbf(), k.MaternKernel()], num_tasks=2), _POINTS.unsqueeze(-1)),
        "grid": (k.GridKernel(rbf(), grid=_GRID), plane),
        "interpolation": (
            k.GridInterpolationKernel(rbf(), 6, 2, grid_bounds=[(-0.5, 1.5)] * 2),
            plane,
        ),
    }


@pytest.mark.parametrize("name", ["multitask", "lcm", "grid", "interpolation"])
def test_kernels_build_kronops_products(name: str) -> None:
    kernel, points = _kernels()[name]
    kernel = kernel.double()
    plain = kernel(points).evaluate_kernel()
    with ours.accelerated():
        fast = kernel(points).evaluate_kernel()
    inner = {"lcm": "linear_ops", "interpolation": "base_linear_op"}.get(name)
    made = fast if inner is None else getattr(fast, inner)
    for item in made if isinstance(made, (list, tuple)) else [made]:
        assert type(item) is ours.KroneckerProductLinearOperator
    torch.testing.assert_close(fast.to_dense(), plain.to_dense(), rtol=1e-10, atol=1e-10)


class _Multitask(gpytorch.models.ExactGP):  # type: ignore[misc]
    def __init__(self, x: Any, y: Any, likelihood: Any) -> None:
        super().__init__(x, y, likelihood)
        mean = gpytorch.means.ConstantMean()
        self.mean_module = gpytorch.means.MultitaskMean(mean, num_tasks=2)
        kernel = gpytorch.kernels.RBFKernel()
        self.covar_module = gpytorch.kernels.MultitaskKernel(kernel, num_tasks=2)

    def forward(self, x: Any) -> Any:
        mean, covariance = self.mean_module(x), self.covar_module(x)
        return gpytorch.distributions.MultitaskMultivariateNormal(mean, covariance)


def _trained(is_fast: bool, max_cholesky_size: int) -> list[float]:
    """The losses of a few steps, and then what the model predicts at one point."""
    torch.manual_seed(0)
    y = torch.stack([_POINTS.sin(), _POINTS.cos()], -1) + 0.1 * torch.randn(6, 2)
    likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(num_tasks=2)
    model = _Multitask(_POINTS, y, likelihood).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    loss_of = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    found = []
    with (
        ours.accelerated() if is_fast else contextlib.nullcontext(),
        gpytorch.settings.max_cholesky_size(max_cholesky_size),
    ):
        for _ in range(3):
            optimizer.zero_grad()
            loss = -loss_of(model(_POINTS), y)
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        model.eval()
        with torch.no_grad():
            found += model(_POINTS[2:3] + 0.1).mean.flatten().tolist()
    return found


@pytest.mark.parametrize("max_cholesky_size", [1, 800])
def test_training_and_prediction_are_the_same(max_cholesky_size: int) -> None:
    plain, fast = (_trained(is_fast, max_cholesky_size) for is_fast in (False, True))
    torch.testing.assert_close(fast, plain, rtol=1e-6, atol=1e-6)


def test_classes_are_restored_after_training() -> None:
    _trained(True, 1)
    made = operators.KroneckerProductLinearOperator(torch.eye(2), torch.eye(2))
    assert type(made) is operators.KroneckerProductLinearOperator
