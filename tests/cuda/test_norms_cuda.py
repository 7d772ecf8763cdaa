"""Norms whose powers of differences leave the range of their type, on a GPU."""

from __future__ import annotations

from typing import Any

import pytest

import kronop
from kronop import kernels
from tests.x86 import test_distance as host

torch = pytest.importorskip("torch")

from tests.unit.test_distance_torch import _norm  # noqa: E402

pytestmark = pytest.mark.cuda


class _Kernel:
    """Distances by a GPU, in place of a plan that the host's tests compile."""

    def __init__(self, element: kronop.DataType) -> None:
        self.what = host._description(host.NORM, element)

    def run(self, x1: Any, x2: Any, y: Any, values: Any) -> None:
        on_gpu = [torch.from_numpy(item).cuda() for item in (x1[None], x2[None], values[0])]
        y[...] = kronop.cdist(*on_gpu).cpu().numpy()


@pytest.mark.parametrize("element", [kronop.float32, kronop.float64])
def test_norms_of_all_sizes(element: kronop.DataType) -> None:
    host.check_norms(_Kernel(element))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("p", "size"), [(120, 0.4), (60, 5), (20, 3e-3), (17, 1e30), (0.3, 1)])
def test_many_features_products_and_gradients(p: float, size: float, dtype: torch.dtype) -> None:
    random = torch.Generator().manual_seed(0)
    x, y = (size * torch.randn(1, n, 70, generator=random, dtype=dtype) for n in (33, 150))
    power, v = (
        torch.full((1,), p, dtype=dtype),
        torch.rand(1, 150, 3, generator=random, dtype=dtype),
    )
    wide = [item.double().requires_grad_() for item in (x, y, power)]
    expected = _norm(*wide)
    given = [item.cuda().requires_grad_() for item in (x, y, power)]
    unit = torch.finfo(dtype).eps
    product = kronop.torch.kernel_matmul(*given[:2], v.cuda(), kernels.PowerNorm(given[2]))
    for found, of in ((kronop.torch.cdist(*given), expected), (product, expected @ v.double())):
        torch.testing.assert_close(found.double().cpu(), of, rtol=256 * unit * (1 + 1 / p), atol=0)
        wanted = torch.autograd.grad(of.sum(), wide, retain_graph=True)
        grads = torch.autograd.grad(found.double().sum(), given)
        for one, other in zip(grads, wanted, strict=True):
            # See the host's test of gradients; sums are of up to 150 points.
            bound = (p + 1 / p) * other.abs().max() + of.sum().detach() / p**2
            assert (one.double().cpu() - other).abs().max() <= 256 * unit * bound
