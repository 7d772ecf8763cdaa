"""The gradients of a Kronecker product, computed: plain tensors in, plain tensors out.

Tensors like x are seen as (*lead, outer, digits, inner): `outer` is M and `inner` is 1 for gemkm,
the other way round for gekmm. Where no factor has a batch, leading dimensions belong to `outer`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from kronop import functional
from kronop.torch.grouping import Group, groups, permutes

# Many small products are summed in parts of so many bytes, which a cache holds.
_PART_BYTES = 2**21


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
            found = {0: functional.gekmm(turned, grad, alpha=alpha)}
        else:
            found = {0: functional.gemkm(grad, turned, alpha=alpha)}
    else:
        found = _chain(grad, x, factors, alpha, left, needs)
    return [_like(found[at], item) for at, item in enumerate(tensors) if needs[at]]


def _like(gradient: Any, item: Any) -> Any:
    """Summed over what was broadcast, in the shape and type of what it belongs to."""
    if gradient.numel() == item.numel():
        gradient = gradient.reshape(item.shape)
    return gradient.sum_to_size(item.shape).to(item.dtype).contiguous()


def _chain(
    grad: Any, x: Any, factors: Sequence[Any], alpha: Any, left: bool, needs: Sequence[bool]
) -> dict[int, Any]:
    """Every gradient by its index in `needs`: x from the left, grad from the right, see `grouping`."""
    matrices = [factor.mT if left else factor for factor in factors]
    shared = all(math.prod(matrix.shape[:-2]) == 1 for matrix in matrices)
    if shared:
        matrices = [matrix.reshape(matrix.shape[-2:]) for matrix in matrices]
    shapes = tuple((int(item.shape[-2]), int(item.shape[-1])) for item in matrices)
    inner = int(x.shape[-1]) if left else 1
    parts = groups(shapes, tuple(needs[1:]), needs[0], inner, x.element_size())
    a = _canonical(x.expand(*grad.shape[:-2], -1, -1) if shared else x, left, shared)
    b = _canonical(grad, left, shared)
    last = max(group.stop for group in parts if group.wanted)
    seen = []
    for group in parts:
        seen.append(a if group.wanted else None)
        if group.stop < last:
            a = _apply(a, matrices[group.start : group.stop], group.before, group.behind, 1.0)
    del a
    found = {}
    for group in reversed(parts):
        own = matrices[group.start : group.stop]
        before = seen.pop()
        if before is not None:
            merged = _contract(before, b, group)
            for at, item in enumerate(_split(_summed(merged, own), own), group.start + 1):
                found[at] = (item.mT if left else item) * alpha
        if needs[0] or any(needs[1 : group.start + 1]):
            scale = 1.0 if group.start else alpha
            b = _apply(b, [item.mT for item in own], group.before, group.behind, scale)
    if needs[0]:
        found[0] = b.reshape(*grad.shape[:-2], *x.shape[-2:])
    return found


def _canonical(item: Any, left: bool, shared: bool) -> Any:
    item = item.contiguous()
    if shared:
        return item.reshape(-1, *item.shape[-2:]) if left else item.reshape(-1, item.shape[-1], 1)
    return item.unsqueeze(-3 if left else -1)


def _apply(item: Any, matrices: Sequence[Any], before: int, behind: int, alpha: Any) -> Any:
    """The digits between `before` and `behind` contracted with matrices (..., P, Q), scaled."""
    *lead, outer, digits, inner = item.shape
    rows, flat = digits // (before * behind), behind * inner
    if flat == 1:
        item = item.reshape(*lead, outer * before, rows)
        result = functional.gemkm(item, matrices, alpha=alpha)
        lead = result.shape[:-2]
    else:
        item = item.reshape(*lead, outer * before, rows, flat)
        turned = [_over_rows(matrix.mT) for matrix in matrices]
        result = functional.gekmm(turned, item, alpha=alpha)
        lead = result.shape[:-3]
    return result.reshape(*lead, outer, -1, inner)


def _over_rows(matrix: Any) -> Any:
    """A batch of matrices, with the dimension of rows that it is the same for."""
    return matrix.unsqueeze(-3) if matrix.dim() > 2 else matrix


def _contract(a: Any, b: Any, group: Group) -> Any:
    """dG (*lead, P, Q), the gradient of the merged factor, in the type that sums are taken in."""
    *lead, outer, _, inner = b.shape
    lead_size, count, behind = math.prod(lead), outer * group.before, group.behind * inner
    a = a.expand(*lead, *a.shape[-3:]).reshape(lead_size, count, group.rows, behind)
    b = b.reshape(lead_size, count, group.columns, behind)
    if behind > 1 and not permutes(group, inner):
        merged = _sum_of_products(a, b)
    else:
        a = a.mT.reshape(lead_size, count * behind, group.rows)
        b = b.mT.reshape(lead_size, count * behind, group.columns)
        merged = (a.mT @ b).to(_sum_type(a))
    return merged.reshape(*lead, group.rows, group.columns)


def _sum_of_products(a: Any, b: Any) -> Any:
    """The sum over the second dimension of a (.., P, R) times b (.., Q, R) transposed."""
    size, count = a.shape[:2]
    step = count
    if size == 1 and not a.is_cuda:
        step = max(1, _PART_BYTES // (a.shape[2] * b.shape[2] * a.element_size()))
    total = a.new_zeros(size, a.shape[2], b.shape[2], dtype=_sum_type(a))
    for start in range(0, count, step):
        product = a[:, start : start + step] @ b[:, start : start + step].mT
        total += product.sum(1, dtype=total.dtype)
    return total


def _sum_type(item: Any) -> Any:
    return torch.float32 if item.element_size() == 2 else item.dtype


def _summed(merged: Any, matrices: Sequence[Any]) -> Any:
    """Summed over the leading dimensions that no factor of the group has."""
    lead = torch.broadcast_shapes(*(matrix.shape[:-2] for matrix in matrices))
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
    return [
        *_split(torch.einsum("...abcd,...bd->...ac", digits, right), first),
        *_split(torch.einsum("...abcd,...ac->...bd", digits, left), second),
    ]


def _kron(matrices: Sequence[Any]) -> Any:
    """The Kronecker product of batches of matrices, formed."""
    result = matrices[0]
    for item in matrices[1:]:
        rows, columns = result.shape[-2] * item.shape[-2], result.shape[-1] * item.shape[-1]
        result = result[..., :, None, :, None] * item[..., None, :, None, :]
        result = result.reshape(*result.shape[:-4], rows, columns)
    return result
