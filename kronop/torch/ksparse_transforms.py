"""The Kronecker-sparse operators as torch.func takes them: see `transforms`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kronop.torch import ksparse_formulas
from kronop.torch.autocasting import cast, is_casting, without_autocast
from kronop.torch.transforms import Whole, apply, keep


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
    others = (alpha, beta, batch_last, activation)
    if not is_casting(x.device.type):
        return apply(_Product, *others, bias, z, x, *weights)
    # Here, where casts have derivatives.
    x, bias, z, *weights = cast(x.device.type, x, bias, z, *weights)
    with without_autocast():
        return apply(_Product, *others, bias, z, x, *weights)


def ksmm_gradient(x: Any, grad: Any, pattern: Sequence[int], alpha: Any, batch_last: bool) -> Any:
    """kronop::ksmm_gradient."""
    return apply(_Gradient, Whole(tuple(pattern)), alpha, batch_last, x, grad)


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
        return torch.ops.kronop.ksmm.default(x, list(weights), bias, z, *scalars)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.alpha, ctx.beta, ctx.batch_last, _, _, _, *operands = inputs
        ctx.shape = output.shape
        keep(ctx, operands)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        needs_bias, needs_z, needs_x, *needed = ctx.needs_input_grad[4:]
        of_x, found, of_bias, of_z = ksparse_formulas.of_product(
            ctx, ksmm, ksmm_gradient, grad, needs_x, needed, needs_bias, needs_z
        )
        return None, None, None, None, of_bias, of_z, of_x, *found

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        return ksparse_formulas.tangent_of_product(ctx, ksmm, *tangents[4:])


class _Gradient(torch.autograd.Function):  # type: ignore[misc]  # torch is Any to mypy.
    generate_vmap_rule = True

    @staticmethod
    def forward(pattern: Whole, alpha: Any, batch_last: bool, x: Any, grad: Any) -> Any:
        gradient = torch.ops.kronop.ksmm_gradient.default
        return gradient(x, grad, list(pattern.values), alpha, batch_last)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pattern, ctx.alpha, ctx.batch_last, *operands = inputs
        ctx.pattern = pattern.values
        keep(ctx, operands)

    @staticmethod
    def backward(ctx: Any, direction: Any) -> Any:
        needs = ctx.needs_input_grad[3:]
        return None, None, None, *ksparse_formulas.of_gradient(ctx, ksmm, direction, *needs)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        return ksparse_formulas.tangent_of_gradient(ctx, ksmm_gradient, *tangents[3:])
