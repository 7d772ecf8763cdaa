"""The implementations of kronop::ksmm and kronop::ksmm_gradient on plain tensors, and the shapes,
types and views that they share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kronop.descriptions.datatype import TENSOR_TYPES, result_type
from kronop.errors import ArgumentError, ElementTypeError, converting
from kronop.families.ksparse import api as functional_ksparse
from kronop.families.ksparse.api import weight_gradient
from kronop.families.ksparse.shape_arguments import chain_patterns, check_features, result_shape
from kronop.torch import checks
from kronop.torch.autocasting import without_autocast
from kronop.torch.declaration import Named
from kronop.torch.memory import kind_of, on_gpu


def turned(weight: Tensor) -> Tensor:
    """The weights (a, c, b, d) of the transposed factor, as a view."""
    return weight.transpose(1, 2)


def check_types(x: Tensor, weights: Sequence[Tensor]) -> None:
    """Refuses weights of another element type, or on another device, than the operand."""
    for index, weight in enumerate(weights):
        if weight.device != x.device:
            raise ArgumentError(
                f"devices of X and weights[{index}]",
                expected="one device for X and all weights",
                got=f"{x.device} of X and {weight.device} of weights[{index}]",
                hint="move X, or the layer, with .to()",
            )
        if weight.dtype != x.dtype:
            raise ElementTypeError(
                f"element types of X and weights[{index}]",
                expected="one type for X and all weights",
                got=f"{x.dtype} of X and {weight.dtype} of weights[{index}]",
                hint=converting(
                    (x.dtype, weight.dtype),
                    "convert X to the type of the weights, or the weights to that of X",
                ),
            )


def as_matrix(x: Tensor, batch_last: bool) -> Tensor:
    """(batch, features), or (features, batch); a vector is a batch of one."""
    if x.ndim == 1:
        return x.unsqueeze(1 if batch_last else 0)
    return x.flatten(1) if batch_last else x.flatten(0, -2)


def bias_gradient(grad: Tensor, batch_last: bool, element: torch.dtype | None = None) -> Tensor:
    """The sum over the batch, of type `element` (None: that of the gradient)."""
    dimensions = tuple(range(1, grad.dim())) if batch_last else tuple(range(grad.dim() - 1))
    return grad.sum(dimensions, dtype=element) if dimensions else grad


# Bytes of an operand's part, on a CPU: what is copied stays in its caches, and parts are few, since
# threads wait for each other in each.
_PART_BYTES = 1 << 23


def compute(given: Named) -> Tensor:
    # The result is row-major even if Z isn't, because the fake implementation promises that to
    # torch.compile.
    return multiply(given, out=None if given.z is None else fake(given))


def multiply(given: Named, **others: Any) -> Tensor:
    """`kronop.ksmm` of the operator's arguments, or of others in their place."""
    return functional_ksparse.ksmm(**vars(given) | others)


def fake(given: Named) -> Tensor:
    x = given.x
    patterns = chain_patterns([tuple(weight.shape) for weight in given.weights])
    check_types(x, given.weights)
    shape = result_shape(tuple(x.shape), patterns, given.batch_last)
    return x.new_empty(shape, dtype=result_element(x, given.z))


def result_element(x: Tensor, z: Tensor | None) -> torch.dtype:
    """The torch type of the product's elements."""
    if z is not None:
        return z.dtype
    return checks.torch_type(result_type(TENSOR_TYPES[str(x.dtype).removeprefix("torch.")]))


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


def fake_gradient(given: Named) -> Tensor:
    a, b, c, d = given.pattern
    check_features(tuple(given.x.shape), (a, b, c, d), given.batch_last)
    check_features(tuple(given.grad.shape), (a, c, b, d), given.batch_last, "G")
    return given.x.new_empty((a, b, c, d))
