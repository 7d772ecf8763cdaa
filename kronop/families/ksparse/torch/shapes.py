"""Shapes of Kronecker-sparse products and chains, their checks, and transposed weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kronop.errors import ArgumentError, ElementTypeError, converting, mismatch

Pattern = tuple[int, int, int, int]


def inputs_of(pattern: Sequence[int]) -> int:
    """Features of the operand: a c d."""
    a, _, c, d = pattern
    return a * c * d


def outputs_of(pattern: Sequence[int]) -> int:
    """Features of the result: a b d."""
    a, b, _, d = pattern
    return a * b * d


def turned(weight: torch.Tensor) -> torch.Tensor:
    """The weights (a, c, b, d) of the transposed factor, as a view."""
    return weight.transpose(1, 2)


def check_chain(patterns: Sequence[Sequence[int]], name: str) -> None:
    """Refuses a chain in which a factor takes another number of features than the one before gives.

    Args:
        patterns: (a, b, c, d) of each factor, the right-most first.
        name: the name of the factors in messages.
    """
    for index in range(1, len(patterns)):
        given, taken = outputs_of(patterns[index - 1]), inputs_of(patterns[index])
        if given != taken:
            raise ArgumentError(
                mismatch(
                    f"{name}[{index}]",
                    expected=f"a c d = {given}, the outputs a b d of {name}[{index - 1}]",
                    got=f"{taken} from {tuple(patterns[index])}",
                    hint="list the right-most factor, which is applied first, first",
                )
            )


def check_weights(weights: Sequence[torch.Tensor]) -> None:
    """Refuses weights that are not (a, b, c, d) tensors, or do not form a chain."""
    for index, weight in enumerate(weights):
        if weight.dim() != 4:
            raise ArgumentError(
                mismatch(
                    f"shape of weights[{index}]",
                    expected="(a, b, c, d)",
                    got=tuple(weight.shape),
                    hint="K is I_a x dense(b, c) x I_d in structure",
                )
            )
    check_chain([tuple(weight.shape) for weight in weights], "weights")


def check_types(x: torch.Tensor, weights: Sequence[torch.Tensor]) -> None:
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


def check_features(x: torch.Tensor, features: int, batch_last: bool) -> None:
    """Refuses an operand with another number of features than `features`."""
    if not x.dim() or x.shape[0 if batch_last else -1] != features:
        raise ArgumentError(
            mismatch(
                "shape of X",
                expected=f"({features}, ...)" if batch_last else f"(..., {features})",
                got=tuple(x.shape),
                hint="the batch is behind the features"
                if batch_last
                else "the features are the last dimension",
            )
        )


def result_shape(x: torch.Tensor, features: int, batch_last: bool) -> tuple[int, ...]:
    """Shape of the result, of `features` features, for the operand x."""
    return (features, *x.shape[1:]) if batch_last else (*x.shape[:-1], features)


def as_matrix(x: torch.Tensor, batch_last: bool) -> torch.Tensor:
    """(batch, features), or (features, batch); a vector is a batch of one."""
    if x.ndim == 1:
        return x.unsqueeze(1 if batch_last else 0)
    return x.flatten(1) if batch_last else x.flatten(0, -2)


def bias_gradient(
    grad: torch.Tensor, batch_last: bool, element: torch.dtype | None = None
) -> torch.Tensor:
    """The sum over the batch, of type `element` (None: that of the gradient)."""
    dimensions = tuple(range(1, grad.dim())) if batch_last else tuple(range(grad.dim() - 1))
    return grad.sum(dimensions, dtype=element) if dimensions else grad
