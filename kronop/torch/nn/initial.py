"""The size of fresh weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def draw(layer: torch.nn.Module, weights: Sequence[Tensor], inputs: Sequence[int]) -> None:
    """Draws new random values for the parameters of a linear layer: uniform ones for its weights,
    and for its bias, if it has one, from +-1/sqrt(in_features).

    A factor of which each result sums c products scales a variance by c u^2 / 3, if its weights are
    from +-u. torch.nn.Linear draws its weight from +-1/sqrt(in_features), so that it scales a
    variance by 1/3. The factors of a chain share this evenly, so that a chain of any length scales
    it by 1/3 as well, on average over drawings. A single drawing varies the more, the fewer weights
    there are.

    Args:
        inputs: c of each of the weights.
    """
    share = 3 ** (1 - 1 / len(inputs))
    for weight, c in zip(weights, inputs, strict=True):
        bound = (share / c) ** 0.5
        torch.nn.init.uniform_(weight, -bound, bound)
    if layer.bias is not None:
        torch.nn.init.uniform_(layer.bias, -(layer.in_features**-0.5), layer.in_features**-0.5)
