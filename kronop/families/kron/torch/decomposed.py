"""Kronecker products by torch's own matrix products, with derivatives."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kronop.torch.scaling import scaled


def kron(
    x: Tensor, factors: Sequence[Tensor], z: Tensor | None, alpha: float, beta: float, left: bool
) -> Tensor:
    """kronop::kron, from the same arguments."""
    if x.dtype is torch.int8:
        x, factors = x.int(), [factor.int() for factor in factors]
    if left:
        y = _turned(_product(_turned(x), [_turned(factor) for factor in factors]))
    else:
        y = _product(x, factors)
    y = scaled(y, alpha)
    y = y if z is None or not beta else y + scaled(z, beta)
    return y.contiguous()


def _product(x: Tensor, factors: Sequence[Tensor]) -> Tensor:
    """x (F1 x ... x FN), one factor after the other, from the last: each multiplies the last digit
    of x's columns and moves it to the front, so that the digits are in order after all."""
    for factor in reversed(factors):
        digits = x.unflatten(-1, (-1, factor.shape[-2])) @ factor.unsqueeze(-3)
        x = _turned(digits).flatten(-2)
    return x


def _turned(item: Tensor) -> Tensor:
    return item.transpose(-1, -2)  # The older one of torch's exporters to ONNX knows no `mT`.
