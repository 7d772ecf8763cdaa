"""torch.vmap of Kronecker-sparse products.

If weights are mapped, n factors (a, b, c, d) become one factor (n a, b, c, d) on n times the
features. Otherwise the mapped dimension joins the batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kronop.torch.declaration import Named


def ksmm(size: int, given: Named, dims: Named) -> tuple[Tensor, int]:
    """The rule of kronop::ksmm: any tensor may be mapped."""
    product = torch.ops.kronop.ksmm.default
    batch_last, bias, z = given.batch_last, given.bias, given.z
    scalars = (given.alpha, given.beta, batch_last, given.activation)
    of_bias = None if bias is None else dims.bias
    # If only x and z are mapped, the mapped dimension joins the batch.
    if all(dim is None for dim in (*dims.weights, of_bias)):
        at = 1 if batch_last else 0
        x = _mapped(given.x, dims.x, size).movedim(0, at)
        z = None if z is None else _mapped(z, dims.z, size).movedim(0, at)
        return product(x, given.weights, bias, z, *scalars), at
    x = _features(_mapped(given.x, dims.x, size), batch_last)
    z = None if z is None else _features(_mapped(z, dims.z, size), batch_last)
    weights = [
        _mapped(item, dim, size).flatten(0, 1)
        for item, dim in zip(given.weights, dims.weights, strict=True)
    ]
    bias = None if bias is None else _mapped(bias, of_bias, size).flatten(0, 1)
    result = product(x, weights, bias, z, *scalars)
    if batch_last:
        return result.unflatten(0, (size, -1)), 0
    return result.unflatten(-1, (size, -1)), result.dim() - 1


def ksmm_gradient(size: int, given: Named, dims: Named) -> tuple[Tensor, int]:
    """The rule of kronop::ksmm_gradient: there is a gradient for every index of the mapped
    dimension."""
    x, grad = (
        _features(_mapped(item, dim, size), given.batch_last)
        for item, dim in ((given.x, dims.x), (given.grad, dims.grad))
    )
    a, *others = given.pattern
    gradient = torch.ops.kronop.ksmm_gradient.default
    result = gradient(x, grad, [size * a, *others], given.alpha, given.batch_last)
    return result.unflatten(0, (size, a)), 0


def _mapped(item: Tensor, dim: int | None, size: int) -> Tensor:
    """`item` with the mapped dimension first; expanded to `size` if it is not mapped."""
    return item.expand(size, *item.shape) if dim is None else item.movedim(dim, 0)


def _features(item: Tensor, batch_last: bool) -> Tensor:
    """`item` with its first dimension merged into the features, as their slowest digit."""
    return item.flatten(0, 1) if batch_last else item.movedim(0, -2).flatten(-2)
