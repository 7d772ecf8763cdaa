"""The implementations of kronop::ksmm and kronop::ksmm_gradient on plain tensors, and the shapes of
their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kronop.descriptions.datatype import TENSOR_TYPES, result_type
from kronop.families.ksparse import api as functional_ksparse
from kronop.families.ksparse.gradient_api import weight_gradient
from kronop.families.ksparse.torch.shapes import (
    as_matrix,
    check_features,
    check_types,
    check_weights,
    inputs_of,
    outputs_of,
    result_shape,
)
from kronop.torch.autocasting import without_autocast
from kronop.torch.memory import kind_of, on_gpu


def compute(
    x: Any,
    weights: Sequence[Any],
    bias: Any,
    z: Any,
    alpha: Any,
    beta: Any,
    batch_last: bool,
    activation: str | None,
) -> Any:
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
    x: Any,
    weights: Sequence[Any],
    bias: Any,
    z: Any,
    alpha: Any,
    beta: Any,
    batch_last: bool,
    activation: str | None,
) -> Any:
    check_weights(weights)
    check_types(x, weights)
    check_features(x, inputs_of(weights[0].shape), batch_last)
    shape = result_shape(x, outputs_of(weights[-1].shape), batch_last)
    return x.new_empty(shape, dtype=result_element(x, z))


def result_element(x: Any, z: Any) -> Any:
    """The torch type of the product's elements."""
    if z is not None:
        return z.dtype
    return getattr(torch, result_type(TENSOR_TYPES[str(x.dtype).removeprefix("torch.")]).name)


def compute_gradient(
    x: Any, grad: Any, pattern: Sequence[int], alpha: Any, batch_last: bool, element: Any = None
) -> Any:
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
    kind, at = kind_of(x), 0 if batch_last else 1
    with without_autocast():
        x = x.to(kind).unflatten(at, (a, c, d))
        grad = grad.to(kind).unflatten(at, (a, b, d))
        sums = torch.einsum("ikln,ijln->ijkl" if batch_last else "nikl,nijl->ijkl", x, grad)
    return (sums * alpha).to(element).contiguous()


def fake_gradient(x: Any, grad: Any, pattern: Sequence[int], alpha: Any, batch_last: bool) -> Any:
    check_features(x, inputs_of(pattern), batch_last)
    check_features(grad, outputs_of(pattern), batch_last)
    return x.new_empty(tuple(pattern))
