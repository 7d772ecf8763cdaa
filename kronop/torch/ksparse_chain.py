"""A chain of Kronecker-sparse factors as one autograd function on plain tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kronop.families.ksparse import api as functional_ksparse
from kronop.torch import ksparse_formulas, ksparse_operators, ksparse_steps, transforms
from kronop.torch.autocasting import cast_together
from kronop.torch.ksparse_shapes import turned
from kronop.torch.ksparse_steps import check_differentiable

_GIVEN = 7  # Arguments of the function in front of the weights.


class Chain(torch.autograd.Function):  # type: ignore[misc]  # torch is Any to mypy.
    """alpha x K' + beta z + bias, whose backward is kernels launched one after the other.

    Autocast's type (None without it) is for the weights and the bias; x and z have it already. Cast
    here, they cost no node of autograd, and their gradients are rounded once, to their own type.
    """

    @staticmethod
    def forward(
        ctx: Any,
        kind: Any,
        last: bool,
        alpha: Any,
        beta: Any,
        bias: Any,
        z: Any,
        x: Any,
        *weights: Any,
    ) -> Any:
        ctx.alpha, ctx.beta, ctx.batch_last = alpha, beta, last
        ctx.bias_kind = None if bias is None else bias.dtype
        ctx.set_materialize_grads(False)
        ctx.is_cast, narrow = kind is not None, []
        if ctx.is_cast:
            bias, *narrow = cast_together(kind, (bias, *weights))
        chain = narrow or weights
        needed = ctx.needs_input_grad[_GIVEN:]
        if not any(needed):
            check_differentiable(x, chain)
            ctx.save_for_backward(x, *weights, *narrow)
            return _product(x, chain, last, alpha, bias, beta, z)
        if z is None and not beta:
            *between, result = ksparse_steps.products(x, chain, bias, alpha, last)
        else:
            check_differentiable(x, chain)
            functional_ksparse.chain_patterns(chain)
            between = ksparse_steps.products(x, chain[:-1], None, 1.0, last) if chain[1:] else []
            result = _product((x, *between)[-1], chain[-1:], last, alpha, bias, beta, z)
        kept = zip(between, needed[1:], strict=True)
        ctx.save_for_backward(
            x, *weights, *narrow, *(item if need else None for item, need in kept)
        )
        return result

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        *_, needs_bias, needs_z, needs_x = ctx.needs_input_grad[:_GIVEN]
        needed = ctx.needs_input_grad[_GIVEN:]
        if grad is None:
            return (None,) * (_GIVEN + len(needed))
        if torch.is_grad_enabled() or transforms.are_needed():
            of_x, found, of_bias, of_z = ksparse_formulas.of_product(
                _Kept(ctx), *ksparse_operators.forms(), grad, needs_x, needed, needs_bias, needs_z
            )
        else:
            grad, last = ksparse_formulas.settled(grad), ctx.batch_last
            of_bias = (
                ksparse_formulas.bias_gradient(grad, last, ctx.bias_kind) if needs_bias else None
            )
            of_z = grad * ctx.beta if needs_z else None
            of_x, found = _gradients(ctx, grad, needs_x, needed)
        return None, None, None, None, of_bias, of_z, of_x, *found


class _Kept:
    """What the formulas take from a chain's context: x and the weights, without what was computed
    from them, which autograd knows nothing of."""

    def __init__(self, ctx: Any) -> None:
        self.alpha, self.beta, self.batch_last = ctx.alpha, ctx.beta, ctx.batch_last
        x, *others = ctx.saved_tensors
        weights = others[: len(ctx.needs_input_grad) - _GIVEN]
        # Under autocast weights were cast to the type of x, and only then may they differ.
        self.saved_tensors = (x, *(item.to(x.dtype) for item in weights))


def _product(
    x: Any, chain: Sequence[Any], last: bool, alpha: Any, bias: Any, beta: Any, z: Any
) -> Any:
    return functional_ksparse.ksmm(
        x, chain, batch_last=last, bias=bias, alpha=alpha, beta=beta, z=z
    )


def _gradients(ctx: Any, grad: Any, needs_x: bool, needed: Sequence[bool]) -> tuple[Any, list[Any]]:
    """The gradients of x and of the weights, from what was kept."""
    x, *others = ctx.saved_tensors
    count, last = len(needed), ctx.batch_last
    weights, others = others[:count], others[count:]
    chain, between = (others[:count], others[count:]) if ctx.is_cast else (weights, others)
    if any(needed):
        kinds = [
            _gradient_kind(weight, x) if need else None
            for weight, need in zip(weights, needed, strict=True)
        ]
        operands = [x if needed[0] else None, *between]
        return ksparse_steps.gradients(grad, chain, operands, kinds, ctx.alpha, last, needs_x)
    of_x = None
    if needs_x:
        around = [turned(weight) for weight in reversed(chain)]
        of_x = functional_ksparse.ksmm(grad, around, batch_last=last, alpha=ctx.alpha)
    return of_x, [None] * count


def _gradient_kind(weight: Any, x: Any) -> Any:
    """The weight's own type where kernels give it; autograd casts others."""
    return weight.dtype if weight.dtype is torch.float32 else x.dtype
