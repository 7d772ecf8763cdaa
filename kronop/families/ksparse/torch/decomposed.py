"""Kronecker-sparse products by torch's own dense operations, with derivatives."""

from __future__ import annotations

import torch
from torch import Tensor

from kronop.families.ksparse.description import outputs_of
from kronop.families.ksparse.shape_arguments import with_features
from kronop.families.ksparse.torch.computing import as_matrix, result_element
from kronop.torch.declaration import Named
from kronop.torch.scaling import scaled


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


def ksmm(given: Named) -> Tensor:
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
