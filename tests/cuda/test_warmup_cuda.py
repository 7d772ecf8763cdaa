"""warmup and autocast of torch modules on a GPU."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import kronop.torch  # noqa: E402
from kronop import compiler  # noqa: E402
from kronop.compiler import build  # noqa: E402
from kronop.torch.nn import KSLinear  # noqa: E402

pytestmark = pytest.mark.cuda


def test_after_a_warmup_a_training_step_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler.forget()
    model = torch.nn.Sequential(KSLinear([(2, 24, 48, 1), (1, 64, 48, 1)]), torch.nn.Dropout())
    model = model.cuda().half()
    factors = torch.nn.ParameterList(torch.randn(8, 8, device="cuda") for _ in range(2))
    x = torch.randn(256, 96, device="cuda", dtype=torch.float16)

    def loss() -> Any:
        return kronop.torch.gemkm(model(x).float(), factors).square().mean()

    random = torch.cuda.get_rng_state()
    assert kronop.warmup(loss) >= 0
    assert torch.equal(torch.cuda.get_rng_state(), random)
    assert all(item.grad is None for item in [*model.parameters(), *factors])
    asked: list[int] = []
    deliver = build._deliver_all
    monkeypatch.setattr(
        build, "_deliver_all", lambda jobs: asked.append(len(jobs)) or deliver(jobs)
    )
    for _ in range(4):
        loss().backward()
    assert not any(asked)
    assert all(torch.isfinite(item.grad).all() for item in [*model.parameters(), *factors])


def test_autocast_on_a_gpu() -> None:
    factors = [torch.randn(8, 8, device="cuda", requires_grad=True) for _ in range(3)]
    x = torch.randn(64, 512, device="cuda", requires_grad=True)
    for _ in range(4):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            result = kronop.torch.gemkm(x, factors)
            assert result.dtype is (x @ x.T).dtype is torch.bfloat16
            assert kronop.torch.cdist(x.half(), x.half()).dtype is torch.float32
        found = torch.autograd.grad(result.float().square().sum(), [x, *factors])
        assert {item.dtype for item in found} == {torch.float32}
        dense = torch.kron(torch.kron(*factors[:2]), factors[2])
        right = torch.autograd.grad((x @ dense).square().sum(), [x, *factors])
        for first, second in zip(found, right, strict=True):
            # Operands, gradients and what is between two factors are rounded to 8 bits.
            limit = 16 * 2**-8 * float(second.abs().max())
            torch.testing.assert_close(first, second, rtol=0, atol=limit)
