"""Operators as autograd functions, for torch.func (grad, jvp, jacrev, ...) and forward mode.

NOTE: torch 2.13 refuses gradients that are registered through torch.library inside the transforms
of torch.func, and has no forward-mode derivatives (torch.autograd.forward_ad) for such operators:
it raises if gradients are recorded, and silently drops tangents if not. It accepts autograd
functions, whose arguments must not have tensors in lists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from kronop.torch.arguments import Whole
from kronop.torch.derivatives import Derivatives


def are_needed() -> bool:
    """Whether operators must be called as autograd functions now, not through torch.library."""
    return torch._C._are_functorch_transforms_active() or are_tangents_possible()


def are_tangents_possible() -> bool:
    """Whether tensors may have tangents: inside torch.autograd.forward_ad.dual_level,
    torch.func.jvp, and transforms that are built on them."""
    return bool(forward_ad._current_level >= 0)


def in_front(item: Tensor, dim: int | None, rank: int) -> Tensor:
    """The tensor with its mapped dimension in front of `rank` others; as it is if not mapped."""
    if dim is None:
        return item
    moved = item.movedim(dim, 0)
    return moved.reshape(moved.shape[0], *[1] * (rank + 1 - moved.dim()), *moved.shape[1:])


def aligned(
    tensors: Sequence[Tensor], dims: Sequence[int | None], ranks: Sequence[int] | None = None
) -> list[Tensor]:
    """Tensors whose leading dimensions broadcast, with the mapped ones as the first of these.

    Args:
        dims: the mapped dimension of each, or None.
        ranks: the number of dimensions of each that are no leading ones; None if they are as many
            of all.
    """
    every = [*zip(tensors, dims, ranks or [0] * len(dims), strict=True)]
    lead = max(item.dim() - (dim is not None) - rank for item, dim, rank in every)
    return [in_front(item, dim, lead + rank) for item, dim, rank in every]


def function_of(operator: torch._ops.OpOverload, derivatives: Derivatives) -> Callable[..., Any]:
    """An operator of torch.library as an autograd function with the same arguments."""
    layout = derivatives.layout

    class Transformed(torch.autograd.Function):  # type: ignore[misc]  # torch is Any to mypy.
        generate_vmap_rule = True

        @staticmethod
        def forward(given: Whole, *tensors: Tensor) -> Any:
            frame, _ = given.values
            found = operator(*layout.join(frame, tensors))
            return tuple(found) if layout.is_list else found

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            given, *tensors = inputs
            frame, is_recording = given.values
            arguments = layout.join(frame, tensors)
            if is_recording and any(ctx.needs_input_grad):
                derivatives.record(arguments)
            ctx.save_for_forward(*derivatives.keep(ctx, arguments, output))

        @staticmethod
        def backward(ctx: Any, *grads: Tensor | None) -> Any:
            notes, grad = ctx.notes, list(grads) if layout.is_list else grads[0]
            needs = layout.join(notes.whole, ctx.needs_input_grad[1:])
            saved = derivatives.kept(ctx)
            return None, *layout.flat(notes.whole, derivatives.backward(notes, saved, needs, grad))

        @staticmethod
        def jvp(ctx: Any, _: object, *tangents: Tensor | None) -> Any:
            notes, saved = ctx.notes, derivatives.kept(ctx)
            found = derivatives.tangent(notes, saved, layout.join(notes.whole, tangents))
            return tuple(found) if layout.is_list else found[0]

    def call(*arguments: object) -> Any:
        frame, tensors = layout.split(arguments)
        # torch.func enables gradients before it asks which tensors need one.
        apply = Transformed.apply
        if torch.compiler.is_compiling():  # torch 2.13 would pass it a context too many.
            apply = torch.compiler.disable(apply)
        found = apply(Whole((frame, torch.is_grad_enabled())), *tensors)
        return list(found) if layout.is_list else found

    return call
