"""The implementations of kronop::ksmm and kronop::ksmm_gradient on plain tensors, and the shapes of
their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kronop.descriptions.datatype import TENSOR_TYPES, result_type
from kronop.families.ksparse import api as functional_ksparse
from kronop.families.ksparse.gradient_api import weight_gradient
from kronop.families.ksparse.shape_arguments import chain_patterns, check_features, result_shape
from kronop.families.ksparse.torch.shapes import as_matrix, check_types
from kronop.torch.autocasting import without_autocast
from kronop.torch.memory import kind_of, on_gpu

# Bytes of an operand's part, on a CPU: what is copied stays in its caches, and parts are few, since
# threads wait for each other in each.
_PART_BYTES = 1 << 23


def compute(
    x: Tensor,
    weights: Sequence[Tensor],
    bias: Tensor | None,
    z: Tensor | None,
    alpha: float,
    beta: float,
    batch_last: bool,
    activation: str | None,
) -> Tensor:
    # The result is row-major even if Z isn't, because the fake implementation promises that to
    # torch.compile.
    out = None if z is None else fake(x, weights, bias, z, alpha, beta, batch_last, activation)
    return functional_ksparse.ksmm(
        x,
        weights,
        batch_last=batch_last,
        bias=bias,
        activation=activation,  # type: ignore[arg-type]  # Operators of torch take strings.
        alpha=alpha,
        beta=beta,
        z=z,
        out=out,
    )


def fake(
    x: Tensor,
    weights: Sequence[Tensor],
    bias: Tensor | None,
    z: Tensor | None,
    alpha: float,
    beta: float,
    batch_last: bool,
    activation: str | None,
) -> Tensor:
    patterns = chain_patterns([tuple(weight.shape) for weight in weights])
    check_types(x, weights)
    shape = result_shape(tuple(x.shape), patterns, batch_last)
    return x.new_empty(shape, dtype=result_element(x, z))


def result_element(x: Tensor, z: Tensor | None) -> torch.dtype:
    """The torch type of the product's elements."""
    if z is not None:
        return z.dtype
    return getattr(torch, result_type(TENSOR_TYPES[str(x.dtype).removeprefix("torch.")]).name)


def compute_gradient(
    x: Tensor,
    grad: Tensor,
    pattern: Sequence[int],
    alpha: float,
    batch_last: bool,
    element: torch.dtype | None = None,
) -> Tensor:
    """The gradient (a, b, c, d) of weights, from plain tensors.

    Sums over the batch are taken in float32 for 16-bit types, and rounded once.

    Args:
        element: type of the result: that of x, or float32; None means that of x.
    """
    (a, b, c, d), element = pattern, element or x.dtype
    x, grad = as_matrix(x, batch_last), as_matrix(grad, batch_last)
    if not x.numel():
        return x.new_zeros((a, b, c, d), dtype=element)
    if on_gpu(x):
        out = x.new_empty((a, b, c, d), dtype=element)
        return weight_gradient(x, grad, (a, b, c, d), batch_last=batch_last, alpha=alpha, out=out)
    kind, at = kind_of(x), 1 if batch_last else 0
    rows = max(1, _PART_BYTES // (a * max(b, c) * d * kind.itemsize))
    sums: Any = None
    with without_autocast():
        for some, of_result in zip(x.split(rows, at), grad.split(rows, at), strict=True):
            first = _apart(of_result.to(kind), a, b, d, batch_last)
            second = _apart(some.to(kind), a, c, d, batch_last).mT
            sums = torch.bmm(first, second) if sums is None else sums.baddbmm_(first, second)
        sums = sums.view(a, d, b, c).permute(0, 2, 3, 1)
        return (sums * alpha).to(element).contiguous()


def _apart(x: Tensor, a: int, c: int, d: int, batch_last: bool) -> Tensor:
    """The operands (a d, c, batch) of a batch of matrix products, each in strides that a library
    multiplies as they are.

    NOTE: torch's product of strided lanes copied each one by itself, through the whole tensor.
    """
    if batch_last:
        return x.unflatten(0, (a, c, d)).transpose(1, 2).reshape(a * d, c, -1)
    return x.unflatten(1, (a, c, d)).mT.contiguous().view(-1, a * d, c).permute(1, 2, 0)


def fake_gradient(
    x: Tensor, grad: Tensor, pattern: Sequence[int], alpha: float, batch_last: bool
) -> Tensor:
    a, b, c, d = pattern
    check_features(tuple(x.shape), (a, b, c, d), batch_last)
    check_features(tuple(grad.shape), (a, c, b, d), batch_last, "G")
    return x.new_empty((a, b, c, d))
