"""The operators as torch.func (grad, jvp, jacrev, vmap of grad, ...) and forward-mode derivatives
(torch.autograd.forward_ad) take them.

NOTE: torch 2.13 refuses gradients that are registered through torch.library inside torch.func's
transforms, and has no forward-mode derivatives for such operators: where gradients are recorded it
raises, elsewhere it drops tangents. It takes autograd functions, whose tensors are not in lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import forward_ad

from kronop.torch import formulas


def are_needed() -> bool:
    """Whether what is here is to be called now, not torch.library's operators."""
    return torch._C._are_functorch_transforms_active() or are_tangents_possible()


def are_tangents_possible() -> bool:
    """Whether tensors may have tangents: in torch.autograd.forward_ad.dual_level, torch.func.jvp,
    and what is made of it."""
    return bool(forward_ad._current_level >= 0)


def kron(x: Any, factors: Sequence[Any], z: Any, alpha: Any, beta: Any, left: bool) -> Any:
    """kronop::kron."""
    return apply(_Kron, alpha, beta, left, z, x, *factors)


def kron_backward(
    grad: Any, x: Any, factors: Sequence[Any], alpha: Any, left: bool, needs: Sequence[bool]
) -> list[Any]:
    """kronop::kron_backward."""
    return list(apply(_KronBackward, alpha, left, Whole(tuple(needs)), grad, x, *factors))


def apply(function: Any, *arguments: Any) -> Any:
    """What an autograd function gives; between two graphs where torch.compile, which in 2.13 hands
    such functions a context too many, is tracing."""
    call = function.apply
    if torch.compiler.is_compiling():
        call = torch.compiler.disable(call)
    return call(*arguments)


@dataclass(frozen=True, slots=True)
class Whole:
    """A sequence as one argument: torch.func takes tuples and lists apart, and finds then more
    arguments than tangents."""

    values: tuple[Any, ...]


class _Kron(torch.autograd.Function):  # type: ignore[misc]  # torch is Any to mypy.
    generate_vmap_rule = True

    @staticmethod
    def forward(alpha: Any, beta: Any, left: bool, z: Any, x: Any, *factors: Any) -> Any:
        return torch.ops.kronop.kron.default(x, list(factors), z, alpha, beta, left)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.alpha, ctx.beta, ctx.left, z, *operands = inputs
        ctx.z_shape = None if z is None else z.shape
        ctx.shape = output.shape
        keep(ctx, operands)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        *_, needs_z, needs_x = ctx.needs_input_grad[:5]
        needs_factors = ctx.needs_input_grad[5:]
        found = formulas.of_product(ctx, kron_backward, grad, needs_x, needs_factors, needs_z)
        of_x, of_factors, of_z, *_ = found
        return None, None, None, of_z, of_x, *of_factors

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        return formulas.tangent_of_product(ctx, kron, *tangents[3:])


class _KronBackward(torch.autograd.Function):  # type: ignore[misc]  # torch is Any to mypy.
    generate_vmap_rule = True

    @staticmethod
    def forward(alpha: Any, left: bool, needs: Whole, grad: Any, x: Any, *factors: Any) -> Any:
        backward = torch.ops.kronop.kron_backward.default
        return tuple(backward(grad, x, list(factors), alpha, left, list(needs.values)))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.alpha, ctx.left, needs, *operands = inputs
        ctx.needs = needs.values
        keep(ctx, operands)

    @staticmethod
    def backward(ctx: Any, *directions: Any) -> Any:
        *_, needs_grad, needs_x = ctx.needs_input_grad[:5]
        needs_factors = ctx.needs_input_grad[5:]
        found = formulas.of_gradients(
            ctx, kron, kron_backward, directions, needs_grad, needs_x, needs_factors
        )
        of_grad, of_x, of_factors, *_ = found
        return None, None, None, of_grad, of_x, *of_factors

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        return tuple(formulas.tangents_of_gradients(ctx, kron_backward, *tangents[3:]))


def keep(ctx: Any, tensors: Sequence[Any]) -> None:
    """For both kinds of derivatives; what has none is None there, not a tensor of zeros."""
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors)
    ctx.save_for_forward(*tensors)
