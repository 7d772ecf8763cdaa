"""The derivatives of Kronecker-sparse products and of their weights' gradients.

With K the factor of weights w, g the gradient of alpha x K' + beta z + bias,

    of x: alpha g K          of w: alpha sum over the batch of g x, entry by entry
    of z: beta g             of bias: sum over the batch of g

K is the transposed factor of K': the product with weights (a, c, b, d). `ctx` holds what an
operator kept; the operators are passed in, because those that torch.func transforms are others
than those of torch.library.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kronop.torch.ksparse_shapes import turned


def of_product(
    ctx: Any,
    ksmm: Any,
    ksmm_gradient: Any,
    grad: Any,
    needs_x: bool,
    needs_weights: Sequence[bool],
    needs_bias: bool,
    needs_z: bool,
) -> tuple[Any, list[Any], Any, Any]:
    """The gradients for x, the weights, bias and z of kronop::ksmm, given that of its result.

    What is between factors is computed again, from x.
    """
    x, *weights = ctx.saved_tensors
    if grad is None:
        return None, [None] * len(weights), None, None
    last, grad = ctx.batch_last, settled(grad)
    of_bias = bias_gradient(grad, last) if needs_bias else None
    of_z = grad * ctx.beta if needs_z else None
    found: list[Any] = [None] * len(weights)
    if not any(needs_weights):
        around = [turned(weight) for weight in reversed(weights)]
        of_x = ksmm(grad, around, None, None, ctx.alpha, 0, last, None) if needs_x else None
        return of_x, found, of_bias, of_z
    operands = [x]
    for at in range(max(at for at, need in enumerate(needs_weights) if need)):
        operands.append(ksmm(operands[at], [weights[at]], None, None, 1, 0, last, None))
    first = -1 if needs_x else list(needs_weights).index(True)
    alpha = ctx.alpha  # Of the first step back; the gradient has it from there on.
    for at in reversed(range(len(weights))):
        weight = weights[at]
        if needs_weights[at]:
            found[at] = ksmm_gradient(operands[at], grad, list(weight.shape), alpha, last)
        if at > first:
            grad, alpha = ksmm(grad, [turned(weight)], None, None, alpha, 0, last, None), 1
    return grad if needs_x else None, found, of_bias, of_z


def settled(grad: Any) -> Any:
    """In memory of its own where many elements share one, as the gradient of a sum: a kernel for
    that alone would be compiled."""
    return grad.contiguous() if 0 in grad.stride() else grad


def bias_gradient(grad: Any, batch_last: bool, element: Any = None) -> Any:
    """The sum over the batch, of type `element` (None: that of the gradient)."""
    dimensions = tuple(range(1, grad.dim())) if batch_last else tuple(range(grad.dim() - 1))
    return grad.sum(dimensions, dtype=element) if dimensions else grad


def of_gradient(
    ctx: Any, ksmm: Any, direction: Any, needs_x: bool, needs_grad: bool
) -> tuple[Any, Any]:
    """The gradients for x and grad of kronop::ksmm_gradient, given that of its result: products
    with the direction as weights."""
    x, grad = ctx.saved_tensors
    of_x = of_grad = None
    if direction is None:
        return None, None
    if needs_x:
        of_x = ksmm(grad, [turned(direction)], None, None, ctx.alpha, 0, ctx.batch_last, None)
    if needs_grad:
        of_grad = ksmm(x, [direction], None, None, ctx.alpha, 0, ctx.batch_last, None)
    return of_x, of_grad


def tangent_of_product(
    ctx: Any, ksmm: Any, of_bias: Any, of_z: Any, of_x: Any, *of_weights: Any
) -> Any:
    """The tangent of the result of kronop::ksmm, given those of its arguments (None where one has
    none). A factor makes u K' + x dK' of the tangent u of its operand x, where dK has the tangent
    of the weights for weights."""
    x, *weights = ctx.saved_tensors
    last, found = ctx.batch_last, of_x
    z, beta = (None, 0) if of_z is None or not ctx.beta else (of_z, ctx.beta)
    if all(item is None for item in (of_x, *of_weights)):
        return _tangent_of_summands(ctx, x, of_bias, z)
    for at, (weight, of_weight) in enumerate(zip(weights[:-1], of_weights, strict=False)):
        found = _sum_of_products(ksmm, found, weight, x, of_weight, (None, None, 1, 0), last)
        if any(item is not None for item in of_weights[at + 1 :]):
            x = ksmm(x, [weight], None, None, 1, 0, last, None)
    others = (of_bias, z, ctx.alpha, beta)
    return _sum_of_products(ksmm, found, weights[-1], x, of_weights[-1], others, last)


def _sum_of_products(
    ksmm: Any,
    tangent: Any,
    weight: Any,
    x: Any,
    of_weight: Any,
    others: tuple[Any, Any, Any, Any],
    last: bool,
) -> Any:
    """alpha (u K' + x dK') + beta z + bias, without what there is no tangent of.

    Args:
        others: bias, z, alpha and beta.
    """
    bias, z, alpha, beta = others
    found = None
    if tangent is not None:
        found = ksmm(tangent, [weight], bias, z, alpha, beta, last, None)
        bias, z, beta = None, found, 1
    if of_weight is not None:
        found = ksmm(x, [of_weight], bias, z, alpha, beta, last, None)
    return found


def _tangent_of_summands(ctx: Any, x: Any, of_bias: Any, of_z: Any) -> Any:
    found = x.new_zeros(ctx.shape)
    if of_z is not None:
        found = found + ctx.beta * of_z
    if of_bias is not None:
        behind = len(ctx.shape) - 1 if ctx.batch_last else 0
        found = found + of_bias.reshape(-1, *[1] * behind)
    return found


def tangent_of_gradient(ctx: Any, ksmm_gradient: Any, of_x: Any, of_grad: Any) -> Any:
    """The tangent of the result of kronop::ksmm_gradient, given those of x and grad."""
    x, grad = ctx.saved_tensors
    pattern, alpha, last = list(ctx.pattern), ctx.alpha, ctx.batch_last
    found = None if of_x is None else ksmm_gradient(of_x, grad, pattern, alpha, last)
    if of_grad is None:
        return found
    other = ksmm_gradient(x, of_grad, pattern, alpha, last)
    return other if found is None else found + other
