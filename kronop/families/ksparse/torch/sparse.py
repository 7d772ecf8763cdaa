"""Kronecker-sparse products by torch's own sparse matrices, with derivatives.

torch has no gradient for the entries of a sparse matrix that stays sparse, so the product is an
operator: linear in the operand and in the weights. The gradient of weights is a batch of small
matrix products.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from kronop.families.ksparse.description import inputs_of, outputs_of
from kronop.families.ksparse.shape_arguments import with_features
from kronop.families.ksparse.torch.computing import turned
from kronop.torch import transforms
from kronop.torch.declaration import Autocast, Gradients, Named, Operator
from kronop.torch.registration import register

# Triton's kernels for torch's block-sparse matrices take blocks of powers of two from this size on.
_LEAST_POWER = 16


def sparse_product(x: Tensor, weight: Tensor, batch_last: bool, blocks: bool) -> Tensor:
    """x K', or K x with `batch_last`, for a matrix x. K is a block-sparse matrix with `blocks`,
    else a CSR matrix."""
    if transforms.are_needed():  # torch's sparse matrices don't support torch.func.
        return einsum_product(x, weight, batch_last)
    return _product(x, weight, batch_last, blocks)


def einsum_product(x: Tensor, weight: Tensor, batch_last: bool) -> Tensor:
    """x K', or K x with `batch_last`, by torch.einsum, for an x of any number of dimensions."""
    a, _, c, d = weight.shape
    if batch_last:
        x = x.unflatten(0, (a, c, d))
        return torch.einsum("ikl...,ijkl->ijl...", x, weight).flatten(0, 2)
    x = x.unflatten(-1, (a, c, d))
    return torch.einsum("...ikl,ijkl->...ijl", x, weight).flatten(-3)


def by_rows(weight: Tensor) -> Tensor:
    """K (a b d, a c d) as a CSR matrix."""
    a, b, c, d = weight.shape
    rows, columns = outputs_of(weight.shape), inputs_of(weight.shape)
    group, lane = _digits(weight, a, d)
    entries = torch.arange(c, dtype=torch.int32, device=weight.device) * d
    places = group.view(a, 1, 1, 1) * (c * d) + lane.view(1, 1, d, 1) + entries
    starts = torch.arange(rows + 1, dtype=torch.int32, device=weight.device) * c
    return torch.sparse_csr_tensor(
        starts,
        _flat(places.expand(a, b, d, c)),
        _flat(weight.permute(0, 1, 3, 2)),
        size=(rows, columns),
        check_invariants=False,
    )


def by_blocks(weight: Tensor) -> Tensor:
    """K as a BSR matrix, with rows in the order (a, d, b) and columns in the order (a, d, c), which
    makes it block-diagonal.

    The blocks are square, because torch multiplies by no others.
    """
    a, b, c, d = weight.shape
    size = _block_size(b, c)
    high, wide, count = b // size, c // size, a * d
    every = torch.arange(count * wide, dtype=torch.int32, device=weight.device)
    places = _flat(every.view(count, 1, wide).expand(count, high, wide))
    starts = torch.arange(count * high + 1, dtype=torch.int32, device=weight.device) * wide
    blocks = weight.permute(0, 3, 1, 2).reshape(count, high, size, wide, size).transpose(2, 3)
    return torch.sparse_bsr_tensor(
        starts,
        places,
        blocks.reshape(-1, size, size).contiguous(),
        size=(count * b, count * c),
        check_invariants=False,
    )


def _flat(item: Tensor) -> Tensor:
    """A contiguous vector of the elements: torch's sparse products ignore strides without an
    error."""
    return item.reshape(-1).contiguous()


def _block_size(b: int, c: int) -> int:
    common = math.gcd(b, c)
    power = common & -common
    return power if power >= _LEAST_POWER else common


def _digits(weight: Tensor, *counts: int) -> list[Tensor]:
    return [torch.arange(count, dtype=torch.int32, device=weight.device) for count in counts]


def _compute(given: Named) -> Tensor:
    x, weight, batch_last = given.x, given.weight, given.batch_last
    a, b, c, d = weight.shape
    kind = x.dtype
    if not x.is_cuda and x.element_size() == 2:  # torch multiplies 16-bit types on GPUs only.
        x, weight = x.float(), weight.float()
    columns = x if batch_last else x.mT
    # cuSPARSE takes no blocks of one element: use a CSR matrix then, which is the same.
    if given.blocks and _block_size(b, c) > 1:
        columns = _swapped(columns, (a, c, d))
        result = _swapped(by_blocks(weight) @ columns, (a, d, b))
    else:
        result = by_rows(weight) @ columns
    return (result if batch_last else result.mT).to(kind).contiguous()


def _swapped(columns: Tensor, digits: Sequence[int]) -> Tensor:
    """`columns` with the last two of the three digits of its features exchanged."""
    if 1 in digits[1:]:
        return columns
    return columns.unflatten(0, tuple(digits)).transpose(1, 2).flatten(0, 2)


def _fake(given: Named) -> Tensor:
    outputs = outputs_of(given.weight.shape)
    return given.x.new_empty(with_features(given.x.shape, outputs, given.batch_last))


def _gradients(given: Named, needs: Named, grad: Tensor) -> Gradients:
    found = {}
    if needs.x:
        found["x"] = sparse_product(grad, turned(given.weight), given.batch_last, given.blocks)
    if needs.weight:
        pattern = given.weight.shape
        found["weight"] = _weight_gradient(given.x, grad, pattern, given.batch_last)
    return found


def _weight_gradient(x: Tensor, grad: Tensor, pattern: Sequence[int], batch_last: bool) -> Tensor:
    a, b, c, d = pattern
    at = 0 if batch_last else 1
    x, grad = x.unflatten(at, (a, c, d)), grad.unflatten(at, (a, b, d))
    return torch.einsum("ikln,ijln->ijkl" if batch_last else "nikl,nijl->ijkl", x, grad)


_product = register(
    Operator(
        schema="sparse_product(Tensor x, Tensor weight, bool batch_last, bool blocks) -> Tensor",
        compute=_compute,
        fake=_fake,
        saved=("x", "weight"),
        backward=_gradients,
        autocast=Autocast.Narrow,
    )
)
