"""The size of fresh weights."""

from __future__ import annotations

from collections.abc import Sequence


def bounds(inputs: Sequence[int]) -> list[float]:
    """For each factor of a chain, the bound +-u of its uniform weights.

    A factor of which each result sums c products scales a variance by c u^2 / 3. torch.nn.Linear
    draws its weight from +-1/sqrt(in_features), so that it scales a variance by 1/3. The factors of
    a chain share this evenly, so that a chain of any length scales it by 1/3 as well.

    Args:
        inputs: c of each factor.
    """
    share = 3 ** (1 - 1 / len(inputs))
    return [(share / c) ** 0.5 for c in inputs]
