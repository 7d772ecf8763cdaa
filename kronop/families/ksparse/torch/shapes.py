"""Checks of types, and other views, of the operands of Kronecker-sparse products."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kronop.errors import ArgumentError, ElementTypeError, converting, mismatch


def turned(weight: Tensor) -> Tensor:
    """The weights (a, c, b, d) of the transposed factor, as a view."""
    return weight.transpose(1, 2)


def check_types(x: Tensor, weights: Sequence[Tensor]) -> None:
    """Refuses weights of another element type, or on another device, than the operand."""
    for index, weight in enumerate(weights):
        if weight.device != x.device:
            raise ArgumentError(
                mismatch(
                    f"devices of X and weights[{index}]",
                    expected="one device for X and all weights",
                    got=f"{x.device} of X and {weight.device} of weights[{index}]",
                    hint="move X, or the layer, with .to()",
                )
            )
        if weight.dtype != x.dtype:
            raise ElementTypeError(
                mismatch(
                    f"element types of X and weights[{index}]",
                    expected="one type for X and all weights",
                    got=f"{x.dtype} of X and {weight.dtype} of weights[{index}]",
                    hint=converting(
                        (x.dtype, weight.dtype),
                        "convert X to the type of the weights, or the weights to that of X",
                    ),
                )
            )


def as_matrix(x: Tensor, batch_last: bool) -> Tensor:
    """(batch, features), or (features, batch); a vector is a batch of one."""
    if x.ndim == 1:
        return x.unsqueeze(1 if batch_last else 0)
    return x.flatten(1) if batch_last else x.flatten(0, -2)


def bias_gradient(grad: Tensor, batch_last: bool, element: torch.dtype | None = None) -> Tensor:
    """The sum over the batch, of type `element` (None: that of the gradient)."""
    dimensions = tuple(range(1, grad.dim())) if batch_last else tuple(range(grad.dim() - 1))
    return grad.sum(dimensions, dtype=element) if dimensions else grad
