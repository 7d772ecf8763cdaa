"""The Kronecker-sparse operators as torch.func takes them: see `transforms`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kronop.torch import ksparse_formulas, ksparse_operators


def ksmm(
    x: Any,
    weights: Sequence[Any],
    bias: Any,
    z: Any,
    alpha: Any,
    beta: Any,
    batch_last: bool,
    activation: str | None,
) -> Any:
    """kronop::ksmm."""
    return _Product.apply(alpha, beta, batch_last, activation, bias, z, x, *weights)


def ksmm_gradient(x: Any, grad: Any, pattern: Sequence[int], alpha: Any, batch_last: bool) -> Any:
    """kronop::ksmm_gradient."""
    return _Gradient.apply(pattern, alpha, batch_last, x, grad)


class _Product(torch.autograd.Function):  # type: ignore[misc]  # torch is Any to mypy.
    generate_vmap_rule = True

    @staticmethod
    def forward(
        alpha: Any,
        beta: Any,
        batch_last: bool,
        activation: Any,
        bias: Any,
        z: Any,
        x: Any,
        *weights: Any,
    ) -> Any:
        scalars = (alpha, beta, batch_last, activation)
        return ksparse_operators.ksmm(x, list(weights), bias, z, *scalars)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.alpha, ctx.beta, ctx.batch_last, _, _, _, *operands = inputs
        ctx.save_for_backward(*operands)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        needs_bias, needs_z, needs_x, *needed = ctx.needs_input_grad[4:]
        of_x, found, of_bias, of_z = ksparse_formulas.of_product(
            ctx, ksmm, ksmm_gradient, grad, needs_x, needed, needs_bias, needs_z
        )
        return None, None, None, None, of_bias, of_z, of_x, *found


class _Gradient(torch.autograd.Function):  # type: ignore[misc]  # torch is Any to mypy.
    generate_vmap_rule = True

    @staticmethod
    def forward(pattern: Any, alpha: Any, batch_last: bool, x: Any, grad: Any) -> Any:
        return ksparse_operators.ksmm_gradient(x, grad, list(pattern), alpha, batch_last)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, ctx.alpha, ctx.batch_last, x, grad = inputs
        ctx.save_for_backward(x, grad)

    @staticmethod
    def backward(ctx: Any, direction: Any) -> Any:
        needs = ctx.needs_input_grad[3:]
        return None, None, None, *ksparse_formulas.of_gradient(ctx, ksmm, direction, *needs)
