"""Kronecker-sparse products by torch's own operations, with derivatives: dense ones, or products of
its sparse matrices.

torch has no gradient for the entries of a sparse matrix that stays sparse, so the product is an
operator: linear in the operand and in the weights. The gradient of weights is a batch of small
matrix products.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from kronop.families.ksparse.description import inputs_of, outputs_of
from kronop.families.ksparse.shape_arguments import with_features
from kronop.families.ksparse.torch.computing import as_matrix, result_element, turned
from kronop.torch import transforms
from kronop.torch.declaration import Autocast, Gradients, Named, Operator
from kronop.torch.registration import register
from kronop.torch.scaling import scaled

# Triton's kernels for torch's block-sparse matrices take blocks of powers of two from this size on.
_LEAST_POWER = 16


def sparse_product(x: Tensor, weight: Tensor, batch_last: bool, blocks: bool) -> Tensor:
    """x K', or K x with `batch_last`, for an x of any number of dimensions. K is a block-sparse
    matrix with `blocks`, else a CSR matrix."""
    if transforms.are_needed():  # torch's sparse matrices don't support torch.func.
        return einsum_product(x, weight, batch_last)
    shape = with_features(x.shape, outputs_of(weight.shape), batch_last)
    return _product(as_matrix(x, batch_last), weight, batch_last, blocks).reshape(shape)


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
    count = functools.partial(torch.arange, dtype=torch.int32, device=weight.device)
    places = count(a).view(a, 1, 1, 1) * (c * d) + count(d).view(1, 1, d, 1) + count(c) * d
    starts = count(rows + 1) * c
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
        a, b, c, d = given.weight.shape
        at, form = (0, "ikln,ijln->ijkl") if given.batch_last else (1, "nikl,nijl->ijkl")
        operands = given.x.unflatten(at, (a, c, d)), grad.unflatten(at, (a, b, d))
        found["weight"] = torch.einsum(form, *operands)
    return found


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


def bmm_product(x: Tensor, weight: Tensor, batch_last: bool) -> Tensor:
    """x K', or K x with `batch_last`, by a batch of a d matrix products, with the permutations
    before and after it; for an x of any number of dimensions."""
    a, b, c, d = weight.shape
    shape = with_features(x.shape, outputs_of(weight.shape), batch_last)
    matrices = weight.permute(0, 3, 1, 2).reshape(a * d, b, c)
    flat = as_matrix(x, batch_last)
    if batch_last:
        operand = flat.view(a, c, d, -1).transpose(1, 2).reshape(a * d, c, -1)
        result = torch.bmm(matrices, operand).view(a, d, b, -1).transpose(1, 2)
    else:
        operand = flat.view(-1, a, c, d).permute(1, 3, 0, 2).reshape(a * d, -1, c)
        result = torch.bmm(operand, matrices.transpose(1, 2)).view(a, d, -1, b).permute(2, 0, 3, 1)
    return result.reshape(shape)


def biased(result: Tensor, bias: Tensor | None, batch_last: bool) -> Tensor:
    """The result with the bias (features,) or None added, in the result's type."""
    if bias is None:
        return result
    if batch_last:
        bias = bias.view(-1, *[1] * (result.dim() - 1))
    return result + bias.to(result.dtype)  # Under autocast, result and bias differ in type.


def decomposed(given: Named) -> Tensor:
    """kronop::ksmm, from the same arguments."""
    element = result_element(given.x, given.z)
    x, z, name = given.x.to(element), given.z, given.activation
    for weight in given.weights:
        x = bmm_product(x, weight.to(element), given.batch_last)
    x = scaled(x, given.alpha)
    x = x if z is None or not given.beta else x + scaled(z, given.beta)
    x = biased(x, given.bias, given.batch_last)
    x = x if name is None else getattr(torch.nn.functional, name)(x)
    return x.contiguous()
