"""torch.vmap of Kronecker-sparse products: mapped weights are more of `a`, the rest is batch.

n factors (a, b, c, d) side by side are one factor (n a, b, c, d) on n times the features.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def ksmm(
    info: Any,
    in_dims: Any,
    x: Any,
    weights: Sequence[Any],
    bias: Any,
    z: Any,
    alpha: Any,
    beta: Any,
    batch_last: bool,
    activation: str | None,
) -> tuple[Any, int]:
    """The rule of kronop::ksmm: any tensor may be mapped."""
    size = info.batch_size
    product = torch.ops.kronop.ksmm.default
    of_weights = [None] * len(weights) if in_dims[1] is None else list(in_dims[1])
    if bias is not None:
        of_weights.append(in_dims[2])
    scalars = (alpha, beta, batch_last, activation)
    if all(dim is None for dim in of_weights):  # The map is one more dimension of the batch.
        at = 1 if batch_last else 0
        x = _mapped(x, in_dims[0], size).movedim(0, at)
        z = None if z is None else _mapped(z, in_dims[3], size).movedim(0, at)
        return product(x, weights, bias, z, *scalars), at
    x = _features(_mapped(x, in_dims[0], size), batch_last)
    z = None if z is None else _features(_mapped(z, in_dims[3], size), batch_last)
    folded = [
        _mapped(item, dim, size).flatten(0, 1)
        for item, dim in zip([*weights, *([] if bias is None else [bias])], of_weights, strict=True)
    ]
    if bias is not None:
        *folded, bias = folded
    result = product(x, folded, bias, z, *scalars)
    if batch_last:
        return result.unflatten(0, (size, -1)), 0
    return result.unflatten(-1, (size, -1)), result.dim() - 1


def ksmm_gradient(
    info: Any,
    in_dims: Any,
    x: Any,
    grad: Any,
    pattern: Sequence[int],
    alpha: Any,
    batch_last: bool,
) -> tuple[Any, int]:
    """The rule of kronop::ksmm_gradient: a gradient for every index."""
    size = info.batch_size
    x, grad = (
        _features(_mapped(item, dim, size), batch_last)
        for item, dim in zip((x, grad), in_dims, strict=False)
    )
    a, *others = pattern
    gradient = torch.ops.kronop.ksmm_gradient.default
    return gradient(x, grad, [size * a, *others], alpha, batch_last).unflatten(0, (size, a)), 0


def _mapped(item: Any, dim: int | None, size: int) -> Any:
    """The mapped dimension first."""
    return item.expand(size, *item.shape) if dim is None else item.movedim(dim, 0)


def _features(item: Any, batch_last: bool) -> Any:
    """The first dimension as a part of the features."""
    return item.flatten(0, 1) if batch_last else item.movedim(0, -2).flatten(-2)
