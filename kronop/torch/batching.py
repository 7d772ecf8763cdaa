"""torch.vmap: the mapped dimension becomes the first of the leading dimensions that broadcast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def kron(
    info: Any,
    in_dims: Any,
    x: Any,
    factors: Sequence[Any],
    z: Any,
    alpha: Any,
    beta: Any,
    left: bool,
) -> tuple[Any, int]:
    """The rule of kronop::kron: any of x, the factors and z may be mapped."""
    tensors = [x, *factors] + ([] if z is None else [z])
    dims = [in_dims[0], *_each(in_dims[1], factors)] + ([] if z is None else [in_dims[2]])
    x, *rest = _aligned(tensors, dims)
    factors, z = rest[: len(factors)], (None if z is None else rest[-1])
    return torch.ops.kronop.kron.default(x, factors, z, alpha, beta, left), 0


def kron_backward(
    info: Any,
    in_dims: Any,
    grad: Any,
    x: Any,
    factors: Sequence[Any],
    alpha: Any,
    left: bool,
    needs: Sequence[bool],
) -> tuple[list[Any], list[int]]:
    """The rule of kronop::kron_backward: what gets a gradient gets one for every map index."""
    size = info.batch_size
    dims = [in_dims[0], in_dims[1], *_each(in_dims[2], factors)]
    tensors = [grad, x, *factors]
    for at, wanted in enumerate((True, *needs)):
        if wanted and dims[at] is None:
            tensors[at], dims[at] = tensors[at].expand(size, *tensors[at].shape), 0
    of = zip(tensors[1:], dims[1:], needs, strict=True)
    shapes = [_without(item, dim) for item, dim, need in of if need]
    grad, x, *factors = _aligned(tensors, dims)
    found = torch.ops.kronop.kron_backward.default(grad, x, factors, alpha, left, needs)
    results = [item.reshape(size, *shape) for item, shape in zip(found, shapes, strict=True)]
    return results, [0] * len(results)


def _each(dims: Any, items: Sequence[Any]) -> list[Any]:
    return [None] * len(items) if dims is None else list(dims)


def _without(item: Any, dim: int) -> tuple[int, ...]:
    return (*item.shape[:dim], *item.shape[dim + 1 :])


def _aligned(tensors: Sequence[Any], dims: Sequence[int | None]) -> list[Any]:
    """The mapped dimension first, and ones behind it, where other tensors have more dimensions."""
    most = max(item.dim() - (dim is not None) for item, dim in zip(tensors, dims, strict=True))
    aligned = []
    for item, dim in zip(tensors, dims, strict=True):
        if dim is not None:
            item = item.movedim(dim, 0)
            ones = [1] * (most - item.dim() + 1)
            item = item.reshape(item.shape[0], *ones, *item.shape[1:])
        aligned.append(item)
    return aligned
