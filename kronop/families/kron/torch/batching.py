"""torch.vmap: the mapped dimension becomes the first of the leading dimensions that broadcast."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kronop.torch.declaration import Named


def kron(size: int, given: Named, dims: Named) -> tuple[Tensor, int]:
    """The rule of kronop::kron: any of x, the factors and z may be mapped."""
    own = [] if given.z is None else [given.z]
    tensors = [given.x, *given.factors, *own]
    x, *rest = _aligned(tensors, [dims.x, *dims.factors, *([dims.z] if own else [])])
    count = len(given.factors)
    factors, z = rest[:count], (rest[count] if own else None)
    product = torch.ops.kronop.kron.default
    return product(x, factors, z, given.alpha, given.beta, given.left), 0


def kron_backward(size: int, given: Named, dims: Named) -> tuple[list[Tensor], list[int]]:
    """The rule of kronop::kron_backward: every gradient gets the mapped dimension."""
    tensors = [given.grad, given.x, *given.factors]
    every = [dims.grad, dims.x, *dims.factors]
    for at, wanted in enumerate((True, *given.needs)):
        if wanted and every[at] is None:
            tensors[at], every[at] = tensors[at].expand(size, *tensors[at].shape), 0
    of = zip(tensors[1:], every[1:], given.needs, strict=True)
    shapes = [_without(item, dim) for item, dim, need in of if need]
    grad, x, *factors = _aligned(tensors, every)
    backward = torch.ops.kronop.kron_backward.default
    found = backward(grad, x, factors, given.alpha, given.left, given.needs)
    results = [item.reshape(size, *shape) for item, shape in zip(found, shapes, strict=True)]
    return results, [0] * len(results)


def _without(item: Tensor, dim: int) -> tuple[int, ...]:
    return (*item.shape[:dim], *item.shape[dim + 1 :])


def _aligned(tensors: Sequence[Tensor], dims: Sequence[int | None]) -> list[Tensor]:
    """The tensors with their mapped dimension first, followed by as many dimensions of 1 as align
    it with that of the tensor with most dimensions."""
    most = max(item.dim() - (dim is not None) for item, dim in zip(tensors, dims, strict=True))
    aligned = []
    for item, dim in zip(tensors, dims, strict=True):
        if dim is not None:
            item = item.movedim(dim, 0)
            ones = [1] * (most - item.dim() + 1)
            item = item.reshape(item.shape[0], *ones, *item.shape[1:])
        aligned.append(item)
    return aligned
