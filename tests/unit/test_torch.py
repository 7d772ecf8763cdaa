"""kronop.torch as torch operators: opcheck, torch.compile, vmap, torch.func, errors, import."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.errors import installing
from tests import pages

_ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def torch() -> Any:
    torch = pytest.importorskip("torch")
    import kronop.torch  # noqa: F401

    return torch


@pytest.fixture
def operands(torch: Any) -> tuple[Any, ...]:
    """x (3, 12), three factors, z (3, 6), all of which require gradients."""
    torch.manual_seed(3)
    shapes = ((3, 12), (2, 3), (3, 1), (2, 2), (3, 6))
    x, *factors, z = (
        torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in shapes
    )
    return x, factors, z


def _loss(x: Any, factors: Any, z: Any) -> Any:
    y = kronop.torch.gemkm(x, factors, alpha=0.7, beta=0.3, z=z)
    return (y * y.sin()).sum()


def test_torch_finds_nothing_wrong_with_the_operators(torch: Any, operands: Any) -> None:
    x, factors, z = operands
    product, backward = torch.ops.kronop.kron.default, torch.ops.kronop.kron_backward.default
    torch.library.opcheck(product, (x, factors, z, 0.7, 0.3, False))
    torch.library.opcheck(product, (x.mT, [item.mT for item in factors], None, 1, 0, True))
    needs = [True, True, False, True]
    torch.library.opcheck(backward, (z, x, factors, 0.7, False, needs))
    turned = [item.mT for item in factors]
    torch.library.opcheck(backward, (z.mT, x.mT, turned, 0.7, True, needs))


def test_compiled_whole_it_gives_the_same(torch: Any, operands: Any) -> None:
    x, factors, z = operands
    compiled = torch.compile(_loss, fullgraph=True)
    tensors = (x, *factors, z)
    ours = torch.autograd.grad(compiled(x, factors, z), tensors)
    plain = torch.autograd.grad(_loss(x, factors, z), tensors)
    for first, second in zip(ours, plain, strict=True):
        torch.testing.assert_close(first, second)


def test_mapped_over_x_over_factors_and_over_both(torch: Any, operands: Any) -> None:
    x, factors = operands[0].detach(), [item.detach() for item in operands[1]]
    xs, many = torch.stack([x, 2 * x], 1), [torch.stack([item, -item], -1) for item in factors]
    product = kronop.torch.gemkm
    mapped = torch.vmap(product, in_dims=(1, None))(xs, factors)
    torch.testing.assert_close(mapped, torch.stack([product(x, factors), product(2 * x, factors)]))
    mapped = torch.vmap(product, in_dims=(None, -1))(x, many)
    single = product(x, factors)
    torch.testing.assert_close(mapped, torch.stack([single, -single]))
    mapped = torch.vmap(product, in_dims=(1, [-1, None, None]))(xs, [many[0], *factors[1:]])
    torch.testing.assert_close(mapped, torch.stack([single, -2 * single]))
    left = torch.vmap(lambda v: kronop.torch.gekmm([item.mT for item in factors], v))(x)
    torch.testing.assert_close(left, single)


def test_transforms_of_torch_func(torch: Any, operands: Any) -> None:
    x, factors = operands[0].detach(), [item.detach() for item in operands[1]]

    def loss(factors: Any, row: Any) -> Any:
        return kronop.torch.gemkm(row, factors).sin().sum()

    each = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(factors, x)
    for row in range(3):
        alone = torch.func.grad(loss)(factors, x[row])
        for first, second in zip(each, alone, strict=True):
            torch.testing.assert_close(first[row], second)
    summed = torch.func.grad(loss)(factors, x)
    torch.testing.assert_close(each[0].sum(0), summed[0])
    jacobian = torch.func.jacrev(lambda item: kronop.torch.gemkm(x, [item, *factors[1:]]))(
        factors[0]
    )
    torch.testing.assert_close(
        (jacobian * factors[0]).sum((-1, -2)), kronop.torch.gemkm(x, factors)
    )
    hessian = torch.func.jacrev(torch.func.jacrev(loss))(factors, x)[0][1]
    exact = torch.autograd.functional.hessian(
        lambda a, b: loss([a, b, factors[2]], x), (factors[0], factors[1])
    )
    torch.testing.assert_close(hessian, exact[0][1])


def test_in_the_middle_of_a_module_a_step_lowers_the_loss(torch: Any) -> None:
    torch.manual_seed(0)
    x, target = torch.randn(32, 16), torch.randn(32, 16)
    factors = [torch.nn.Parameter(torch.randn(4, 4) * 0.3) for _ in range(2)]
    optimizer = torch.optim.SGD(factors, lr=0.1)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = (kronop.torch.gemkm(x, factors) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]


def test_a_transposed_z_and_integers(torch: Any, operands: Any) -> None:
    x, factors, z = operands
    turned = z.detach().T.contiguous().T
    y = kronop.torch.gemkm(x, factors, beta=2.0, z=turned)
    assert y.is_contiguous()
    torch.testing.assert_close(y, kronop.torch.gemkm(x, factors) + 2 * z)
    whole = torch.arange(8).reshape(2, 4)
    pair = [torch.tensor([[1, 2], [3, 4]])] * 2
    assert torch.equal(kronop.torch.gemkm(whole, pair, alpha=3), 3 * whole @ torch.kron(*pair))
    few, small = whole.to(torch.int8), [item.to(torch.int8) for item in pair]
    z = torch.arange(8, dtype=torch.int32).reshape(2, 4)
    expected = (3 * whole @ torch.kron(*pair) + 2 * z).to(torch.int32)
    calls = (kronop.torch.gemkm, torch.compile(kronop.torch.gemkm, backend="aot_eager"))
    for call in calls:
        y = call(few, small, alpha=3, beta=2, z=z)
        assert y.dtype is torch.int32
        assert torch.equal(y, expected)


def test_what_does_not_fit_is_refused(torch: Any) -> None:
    x, factors = torch.ones(3, 6), [torch.ones(2, 2), torch.ones(3, 3)]
    gemkm, gekmm = kronop.torch.gemkm, kronop.torch.gekmm
    cases = [
        (lambda: gemkm(np.ones((3, 6)), factors), kronop.ElementTypeError, "kronop.gemkm"),
        (lambda: gekmm(x, factors), kronop.ElementTypeError, "gekmm.factors, x"),
        (lambda: gemkm(x, []), kronop.ElementTypeError, "empty"),
        (lambda: gemkm(x, [torch.ones(6)]), kronop.ArgumentError, "2 dimensions"),
        (lambda: gemkm(x[:, :5], factors), kronop.ArgumentError, "6"),
        (lambda: gemkm(x, factors, beta=1.0), kronop.ArgumentError, "z"),
        (lambda: gemkm(x, factors, z=x), kronop.ArgumentError, "beta: .* Z is given"),
        (lambda: gekmm(factors, x.T, z=x.T), kronop.ArgumentError, "beta: .* Z is given"),
        (lambda: gemkm(x, factors, beta=1.0, z=x[0]), kronop.ArgumentError, "z"),
        (lambda: gemkm(x, factors, beta=1.0, z=x[:2]), kronop.ArgumentError, "Z"),
        (lambda: gemkm(x, factors, alpha=torch.ones(())), kronop.ElementTypeError, "no gradient"),
        (lambda: gemkm(x.double(), factors), kronop.ElementTypeError, "float64"),
        (
            lambda: gemkm(x.expand(2, 3, 6), [item.expand(3, *item.shape) for item in factors]),
            kronop.ArgumentError,
            "broadcast",
        ),
    ]
    for call, error, word in cases:
        with pytest.raises(error, match=word):
            call()
    with pytest.raises(kronop.ArgumentError, match=r"kronop\.torch\.gemkm"):
        kronop.gemkm(x.requires_grad_(), factors)


def test_shapes_that_do_not_fit_are_refused_before_anything_runs(torch: Any) -> None:
    with pytest.raises(kronop.ArgumentError, match="shape of X"):
        kronop.torch.gemkm(torch.ones(3, 5, device="meta"), [torch.ones(2, 2, device="meta")])
    meta = torch.ones(2, 3, 4, device="meta")
    assert kronop.torch.gekmm([torch.ones(5, 3, device="meta")], meta).shape == (2, 5, 4)


def test_without_torch_the_error_says_what_to_install() -> None:
    code = "import sys; sys.modules['torch'] = None; import kronop, kronop.torch"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode
    assert result.stderr.splitlines()[-1].endswith(installing("torch"))


_WITH_TORCH = [page for page in pages.PAGES if "```py\n" in page.read_text()]


@pytest.mark.parametrize("page", _WITH_TORCH, ids=pages.name)
def test_blocks_that_need_torch_run(
    torch: Any, page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # Some write files.
    for package in re.findall(r"^import (gpytorch|linear_operator)\b", page.read_text(), re.M):
        pytest.importorskip(package)
    pages.run(page, "py|python")
