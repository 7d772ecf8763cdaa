"""The operators as torch.func (grad, jacrev, vmap of grad, ...) takes them.

NOTE: torch 2.13 refuses gradients that are registered through torch.library inside torch.func's
transforms; it takes autograd functions, whose tensors are not in lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kronop.torch import formulas, operators


def kron(x: Any, factors: Sequence[Any], z: Any, alpha: Any, beta: Any, left: bool) -> Any:
    """kronop::kron."""
    return _Kron.apply(alpha, beta, left, z, x, *factors)


def kron_backward(
    grad: Any, x: Any, factors: Sequence[Any], alpha: Any, left: bool, needs: Sequence[bool]
) -> list[Any]:
    """kronop::kron_backward."""
    return list(_KronBackward.apply(alpha, left, needs, grad, x, *factors))


class _Kron(torch.autograd.Function):  # type: ignore[misc]  # torch is Any to mypy.
    generate_vmap_rule = True

    @staticmethod
    def forward(alpha: Any, beta: Any, left: bool, z: Any, x: Any, *factors: Any) -> Any:
        return operators.kron(x, list(factors), z, alpha, beta, left)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.alpha, ctx.beta, ctx.left, z, *operands = inputs
        ctx.z_shape = None if z is None else z.shape
        ctx.save_for_backward(*operands)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        *_, needs_z, needs_x = ctx.needs_input_grad[:5]
        needs_factors = ctx.needs_input_grad[5:]
        found = formulas.of_product(ctx, kron_backward, grad, needs_x, needs_factors, needs_z)
        of_x, of_factors, of_z, *_ = found
        return None, None, None, of_z, of_x, *of_factors


class _KronBackward(torch.autograd.Function):  # type: ignore[misc]  # torch is Any to mypy.
    generate_vmap_rule = True

    @staticmethod
    def forward(alpha: Any, left: bool, needs: Any, grad: Any, x: Any, *factors: Any) -> Any:
        return tuple(operators.kron_backward(grad, x, list(factors), alpha, left, list(needs)))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.alpha, ctx.left, ctx.needs, *operands = inputs
        ctx.save_for_backward(*operands)

    @staticmethod
    def backward(ctx: Any, *directions: Any) -> Any:
        *_, needs_grad, needs_x = ctx.needs_input_grad[:5]
        needs_factors = ctx.needs_input_grad[5:]
        found = formulas.of_gradients(
            ctx, kron, kron_backward, directions, needs_grad, needs_x, needs_factors
        )
        of_grad, of_x, of_factors, *_ = found
        return None, None, None, of_grad, of_x, *of_factors
