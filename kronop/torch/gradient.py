"""The gradients of a Kronecker product, computed: plain tensors in, plain tensors out.

Tensors like x are seen as (*lead, outer, digits, inner): `outer` is M and `inner` is 1 for gemkm,
the other way round for gekmm. Where no factor has a batch, leading dimensions belong to `outer`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from kronop.functional import gekmm, gemkm
from kronop.gradients import weight_gradient
from kronop.torch.grouping import Group, groups, permutes

# Rows are taken in parts of so many bytes: what a core's cache holds, and on a GPU what memory has.
_PART_BYTES = {"cpu": 2**23, "cuda": 2**30}


def gradients(
    grad: Any, x: Any, factors: Sequence[Any], alpha: Any, left: bool, needs: Sequence[bool]
) -> list[Any]:
    """Gradients of sum(grad * alpha * product) for x (needs[0]) and the factors (needs[1:]).

    Args:
        grad: of the product's full shape.
        x: (..., M, K), or (..., K, M) where `left`.
        factors: as given to the product.
        alpha: a number.
        left: whether the product is gekmm.
        needs: which gradients are asked for.

    Returns:
        Those asked for, in order, contiguous, each of the shape and type of what it belongs to.
    """
    tensors = [x, *factors]
    if not grad.numel() or not x.numel():
        found = {index: item.new_zeros(item.shape) for index, item in enumerate(tensors)}
    elif not any(needs[1:]):
        turned = [factor.mT for factor in factors]
        if left:
            found = {0: gekmm(turned, grad, alpha=alpha)}
        else:
            found = {0: gemkm(grad, turned, alpha=alpha)}
    else:
        found = _chain(grad, x, factors, alpha, left, needs)
    return [_like(found[at], item) for at, item in enumerate(tensors) if needs[at]]


def leading(*tensors: Any) -> Any:
    """What the dimensions before the last two broadcast to."""
    shapes = [shape for item in tensors if (shape := item.shape[:-2])]
    return torch.broadcast_shapes(*shapes) if shapes else ()


def _on_gpu(item: Any) -> bool:
    """Whether kernels of kronop's own sum up; on CPUs torch's matrix products do."""
    return bool(item.is_cuda)


def _like(gradient: Any, item: Any) -> Any:
    """Summed over what was broadcast, in the shape and type of what it belongs to."""
    if gradient.numel() == item.numel():
        gradient = gradient.reshape(item.shape)
        if gradient.dtype == item.dtype and gradient.is_contiguous():
            return gradient
    return gradient.sum_to_size(item.shape).to(item.dtype).contiguous()


def _chain(
    grad: Any, x: Any, factors: Sequence[Any], alpha: Any, left: bool, needs: Sequence[bool]
) -> dict[int, Any]:
    """Every gradient by its index in `needs`, from products at both ends: see `grouping`."""
    matrices = [factor.mT if left else factor for factor in factors]
    shared = all(math.prod(matrix.shape[:-2]) == 1 for matrix in matrices)
    if shared:
        matrices = [matrix.reshape(matrix.shape[-2:]) for matrix in matrices]
    shapes = tuple((int(item.shape[-2]), int(item.shape[-1])) for item in matrices)
    inner = int(x.shape[-1]) if left else 1
    parts = groups(shapes, tuple(needs[1:]), needs[0], inner, x.element_size(), _on_gpu(x))
    a = _canonical(x.expand(*grad.shape[:-2], -1, -1) if shared else x, left, shared)
    b = _canonical(grad, left, shared)
    of_x = b.new_empty(*b.shape[:-2], a.shape[-2], inner) if needs[0] else None
    chain = _Chain(matrices, parts, alpha)
    step = _rows_at_once(a, b)
    for start in range(0, b.shape[-3], step):
        rows = slice(start, start + step)
        chain.add(*(None if item is None else item[..., rows, :, :] for item in (a, b, of_x)))
    found = {}
    for group, merged in zip(parts, chain.sums, strict=True):
        own = matrices[group.start : group.stop]
        if group.wanted:
            for at, item in enumerate(_split(_summed(merged, own), own), group.start + 1):
                found[at] = item.mT if left else item
    if of_x is not None:
        found[0] = of_x.reshape(*grad.shape[:-2], *x.shape[-2:])
    return found


def _canonical(item: Any, left: bool, shared: bool) -> Any:
    item = item.contiguous()
    if shared:
        return item.reshape(-1, *item.shape[-2:]) if left else item.reshape(-1, item.shape[-1], 1)
    return item.unsqueeze(-3 if left else -1)


def _rows_at_once(a: Any, b: Any) -> int:
    row: int = max(a[..., :1, :, :].numel(), b[..., :1, :, :].numel()) * b.element_size()
    return max(1, _PART_BYTES[b.device.type] // row)


class _Buffers:
    """Memory for what is between two products, taken again by later ones: fresh pages cost more
    than the products."""

    def __init__(self) -> None:
        self._free: list[Any] = []
        self._lent: dict[int, Any] = {}

    def take(self, shape: Sequence[int], like: Any) -> Any:
        size = math.prod(shape)
        fitting = [at for at, item in enumerate(self._free) if item.numel() >= size]
        memory = self._free.pop(fitting[0]) if fitting else like.new_empty(size)
        self._lent[memory.data_ptr()] = memory
        return memory[:size].view(shape)

    def give(self, item: Any) -> None:
        """Takes a tensor back; others than those that were taken here are left alone."""
        memory = self._lent.pop(item.data_ptr(), None)
        if memory is not None:
            self._free.append(memory)


class _Chain:
    """The groups' products from both ends, for some rows at a time.

    Attributes:
        sums: alpha dG of every group, over the rows that were added.
    """

    def __init__(self, matrices: Sequence[Any], parts: Sequence[Group], alpha: Any) -> None:
        self.sums: list[Any] = [None] * len(parts)
        self._parts = parts
        self._own = [matrices[group.start : group.stop] for group in parts]
        self._last = max(group.stop for group in parts if group.wanted)
        self._first = min(group.start for group in parts if group.wanted)
        self._alpha = alpha
        self._buffers = _Buffers()

    def add(self, a: Any, b: Any, of_x: Any) -> None:
        """Adds rows: `a` of x, `b` of the gradient; `of_x` is written where it is not None."""
        seen = []
        for group, own in zip(self._parts, self._own, strict=True):
            seen.append(a)
            if group.stop < self._last:
                a = self._apply(a, own, group, 1.0, None)
        for at in reversed(range(len(self._parts))):
            group = self._parts[at]
            if group.wanted:
                self.sums[at] = _contract(seen[at], b, group, self._alpha, self.sums[at])
            if group.stop <= self._last:
                self._buffers.give(seen[at])
            if of_x is not None or group.start > self._first:
                turned = [item.mT for item in self._own[at]]
                is_end = not group.start
                alpha, out = (self._alpha, of_x) if is_end else (1.0, None)
                after = self._apply(b, turned, group, alpha, out)
                self._buffers.give(b)
                b = after
        self._buffers.give(b)

    def _apply(self, item: Any, matrices: Sequence[Any], group: Group, alpha: Any, out: Any) -> Any:
        """The group's digits contracted with matrices (..., P, Q), scaled."""
        *lead, outer, digits, inner = item.shape
        before, behind = group.before, group.behind * inner
        columns = math.prod(matrix.shape[-1] for matrix in matrices)
        if any(matrix.dim() > 2 for matrix in matrices):
            lead = torch.broadcast_shapes(lead, *(matrix.shape[:-2] for matrix in matrices))
        if out is None:
            shape = (*lead, outer, before * columns * group.behind, inner)
            out = self._buffers.take(shape, item)
        rows = digits * inner // (before * behind)
        if behind == 1:
            gemkm(
                item.reshape(*item.shape[:-3], outer * before, rows),
                matrices,
                alpha=alpha,
                out=out.view(*lead, outer * before, columns),
            )
        else:
            gekmm(
                [_over_rows(matrix.mT) for matrix in matrices],
                item.reshape(*item.shape[:-3], outer * before, rows, behind),
                alpha=alpha,
                out=out.view(*lead, outer * before, columns, behind),
            )
        return out


def _over_rows(matrix: Any) -> Any:
    """A batch of matrices, with the dimension of rows that it is the same for."""
    return matrix.unsqueeze(-3) if matrix.dim() > 2 else matrix


def _contract(a: Any, b: Any, group: Group, alpha: Any, sums: Any) -> Any:
    """alpha dG (*lead, P, Q), the gradient of the merged factor, in the type that sums are taken
    in; added to `sums` where that is not None."""
    *lead, outer, _, inner = b.shape
    size, count, behind = math.prod(lead), outer * group.before, group.behind * inner
    shape = (*lead, group.rows, group.columns)
    kind = torch.float32 if b.element_size() == 2 else b.dtype
    a = a.expand(*lead, *a.shape[-3:])
    if not _on_gpu(b):  # Few CPUs multiply 16-bit matrices fast.
        a = a.to(kind).reshape(size, count, group.rows, behind)
        b = b.to(kind).reshape(size, count, group.columns, behind)
        found = _by_matmul(a, b, permutes(group, inner)).view(shape).mul_(alpha)
        return found if sums is None else sums.add_(found)
    beta = 0 if sums is None else 1
    sums = b.new_empty(shape, dtype=kind) if sums is None else sums
    front = (size,) if lead else ()
    out = sums.view(*front, group.rows, group.columns)
    a = a.reshape(*front, -1, group.rows * behind)
    b = b.reshape(*front, -1, group.columns * behind)
    pattern = (1, group.columns, group.rows, behind)
    weight_gradient(a, b, pattern, tied=True, alpha=alpha, beta=beta, z=out, out=out)
    return sums


def _by_matmul(a: Any, b: Any, permuted: bool) -> Any:
    """dG (size, P, Q) of (size, count, P or Q, behind)."""
    if b.shape[-1] == 1 or permuted:
        a, b = (item.mT.reshape(len(b), -1, item.shape[-2]) for item in (a, b))
        return a.mT @ b
    return (a @ b.mT).sum(1)


def _summed(merged: Any, matrices: Sequence[Any]) -> Any:
    """Summed over the leading dimensions that no factor of the group has."""
    lead = leading(*matrices)
    return merged.sum_to_size(*lead, *merged.shape[-2:])


def _split(merged: Any, matrices: Sequence[Any]) -> list[Any]:
    """The gradients of the factors, from that of their Kronecker product."""
    if len(matrices) == 1:
        return [merged]
    half = len(matrices) // 2
    first, second = matrices[:half], matrices[half:]
    left, right = _kron(first).to(merged.dtype), _kron(second).to(merged.dtype)
    digits = merged.reshape(
        *merged.shape[:-2], left.shape[-2], right.shape[-2], left.shape[-1], right.shape[-1]
    )
    # Sums of products, because torch.einsum takes twice the time to find out that it is one.
    return [
        *_split((digits * right[..., None, :, None, :]).sum((-3, -1)), first),
        *_split((digits * left[..., :, None, :, None]).sum((-4, -2)), second),
    ]


def _kron(matrices: Sequence[Any]) -> Any:
    """The Kronecker product of batches of matrices, formed."""
    result = matrices[0]
    for item in matrices[1:]:
        rows, columns = result.shape[-2] * item.shape[-2], result.shape[-1] * item.shape[-1]
        result = result[..., :, None, :, None] * item[..., None, :, None, :]
        result = result.reshape(*result.shape[:-4], rows, columns)
    return result
