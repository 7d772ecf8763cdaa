"""The operators kronop::ksmm and kronop::ksmm_gradient of torch.library, and their derivatives.

Both are linear in each of their two kinds of operands, and the derivatives of each are made of the
two: gradients have gradients, to any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kronop.descriptions.datatype import TENSOR_TYPES, result_type
from kronop.errors import ArgumentError, mismatch
from kronop.families.ksparse import api as functional_ksparse
from kronop.families.ksparse.gradient_api import weight_gradient
from kronop.torch import ksparse_batching, ksparse_formulas, ksparse_transforms, transforms
from kronop.torch.autocasting import cast, register, without_autocast
from kronop.torch.ksparse_shapes import (
    as_matrix,
    check_features,
    check_types,
    check_weights,
    inputs_of,
    outputs_of,
    result_shape,
)
from kronop.torch.sums import kind_of, on_gpu

_LIBRARY = torch.library.Library("kronop", "FRAGMENT")
_LIBRARY.define(
    "ksmm(Tensor x, Tensor[] weights, Tensor? bias, Tensor? z, Scalar alpha, Scalar beta,"
    " bool batch_last, str? activation) -> Tensor"
)
_LIBRARY.define(
    "ksmm_gradient(Tensor x, Tensor grad, int[] pattern, Scalar alpha, bool batch_last) -> Tensor"
)
ksmm = torch.ops.kronop.ksmm.default
ksmm_gradient = torch.ops.kronop.ksmm_gradient.default


def forms() -> tuple[Any, Any]:
    """(kronop::ksmm, kronop::ksmm_gradient) as they have to be called now."""
    if transforms.are_needed():
        return ksparse_transforms.ksmm, ksparse_transforms.ksmm_gradient
    return ksmm, ksmm_gradient


def _compute(
    x: Any,
    weights: Sequence[Any],
    bias: Any,
    z: Any,
    alpha: Any,
    beta: Any,
    batch_last: bool,
    activation: str | None,
) -> Any:
    # Row-major whatever Z is, as torch.compile was told.
    out = None if z is None else _fake(x, weights, bias, z, alpha, beta, batch_last, activation)
    with torch.no_grad():
        return functional_ksparse.ksmm(
            x,
            weights,
            batch_last=batch_last,
            bias=bias,
            activation=activation,
            alpha=alpha,
            beta=beta,
            z=z,
            out=out,
        )


def _fake(
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
    if z is not None:
        return x.new_empty(shape, dtype=z.dtype)
    element = result_type(TENSOR_TYPES[str(x.dtype).removeprefix("torch.")])
    return x.new_empty(shape, dtype=getattr(torch, element.name))


def compute_gradient(
    x: Any, grad: Any, pattern: Sequence[int], alpha: Any, batch_last: bool, element: Any = None
) -> Any:
    """The gradient (a, b, c, d) of weights, from plain tensors.

    Sums over the batch are taken in float32 for 16-bit types, and rounded once.

    Args:
        element: type of the result, x's or float32; x's where None.
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


def _compute_gradient(
    x: Any, grad: Any, pattern: Sequence[int], alpha: Any, batch_last: bool
) -> Any:
    with torch.no_grad():
        return compute_gradient(x, grad, pattern, alpha, batch_last)


def _fake_gradient(x: Any, grad: Any, pattern: Sequence[int], alpha: Any, batch_last: bool) -> Any:
    check_features(x, inputs_of(pattern), batch_last)
    check_features(grad, outputs_of(pattern), batch_last)
    return x.new_empty(tuple(pattern))


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    x, weights, _, _, ctx.alpha, ctx.beta, ctx.batch_last, activation = inputs
    if activation is not None:
        raise ArgumentError(
            mismatch(
                "activation of kronop::ksmm",
                expected="None where a gradient is needed",
                got=activation,
                hint="apply it to the result, as kronop.torch.ksmm does",
            )
        )
    ctx.save_for_backward(x, *weights)


def _differentiate(ctx: Any, grad: Any) -> Any:
    found = ksparse_formulas.of_product(ctx, *forms(), grad, *ctx.needs_input_grad[:4])
    return *found, None, None, None, None


def _keep_gradient(ctx: Any, inputs: Any, output: Any) -> None:
    x, grad, _, ctx.alpha, ctx.batch_last = inputs
    ctx.save_for_backward(x, grad)


def _differentiate_gradient(ctx: Any, direction: Any) -> Any:
    found = ksparse_formulas.of_gradient(ctx, forms()[0], direction, *ctx.needs_input_grad[:2])
    return *found, None, None, None


def _cast(device: str, x: Any, weights: Any, bias: Any, z: Any, *others: Any) -> Any:
    x, bias, z, *weights = cast(device, x, bias, z, *weights)
    return x, weights, bias, z, *others


for _device in ("CPU", "CUDA"):
    _LIBRARY.impl("ksmm", _compute, _device)
    _LIBRARY.impl("ksmm_gradient", _compute_gradient, _device)
register(_LIBRARY, "ksmm", _cast)
torch.library.register_fake("kronop::ksmm", _fake, lib=_LIBRARY)
torch.library.register_fake("kronop::ksmm_gradient", _fake_gradient, lib=_LIBRARY)
torch.library.register_autograd("kronop::ksmm", _differentiate, setup_context=_keep, lib=_LIBRARY)
torch.library.register_autograd(
    "kronop::ksmm_gradient", _differentiate_gradient, setup_context=_keep_gradient, lib=_LIBRARY
)
torch.library.register_vmap("kronop::ksmm", ksparse_batching.ksmm, lib=_LIBRARY)
torch.library.register_vmap("kronop::ksmm_gradient", ksparse_batching.ksmm_gradient, lib=_LIBRARY)
