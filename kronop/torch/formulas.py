"""The derivatives of the operators, made of the operators, so that they have derivatives too.

`ctx` holds what an operator kept; the operators are passed in, because those that torch.func
transforms are others than those of torch.library.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kronop.torch.gradient import leading


def of_product(
    ctx: Any,
    kron_backward: Any,
    grad: Any,
    needs_x: bool,
    needs_factors: Sequence[bool],
    needs_z: bool,
) -> Any:
    """The gradients for the arguments of kronop::kron, given that of its result."""
    x, *factors = ctx.saved_tensors
    needs = [needs_x, *needs_factors]
    of_z = None
    found: list[Any] = [None] * len(needs)
    if grad is not None and needs_z:
        of_z = grad.sum_to_size(ctx.z_shape) * ctx.beta
    if grad is not None and any(needs):
        grad = grad.sum_to_size(*leading(x, *factors), *grad.shape[-2:])  # Z may have had more.
        found = _scatter(kron_backward(grad, x, factors, ctx.alpha, ctx.left, needs), needs)
    return found[0], found[1:], of_z, None, None, None


def of_gradients(
    ctx: Any,
    kron: Any,
    kron_backward: Any,
    cotangents: Sequence[Any],
    needs_grad: bool,
    needs_x: bool,
    needs_factors: Sequence[bool],
) -> Any:
    """The gradients for the arguments of kronop::kron_backward, given those of its results.

    With u the cotangents, sum_i <u_i, dF_i> + <u_x, dx> = <grad, D>, where D is the derivative of
    the product in the direction u: the sum of the products with one operand replaced by its u.
    """
    grad, x, *factors = ctx.saved_tensors
    operands = [x, *factors]
    of_grad = None
    found: list[Any] = [None] * len(operands)
    for at, direction in enumerate(_scatter(cotangents, ctx.needs)):
        if direction is None:
            continue
        x, *factors = _replaced(operands, at, direction)
        if needs_grad:
            beta = 0 if of_grad is None else 1
            of_grad = kron(x, factors, of_grad, ctx.alpha, beta, ctx.left)
        needs = [needs_x, *needs_factors]
        needs[at] = False  # This term is without the operand that u replaces.
        if any(needs):
            terms = kron_backward(grad, x, factors, ctx.alpha, ctx.left, needs)
            pairs = zip(found, _scatter(terms, needs), strict=True)
            found = [_sum(first, second) for first, second in pairs]
    return of_grad, found[0], found[1:], None, None, None


def tangent_of_product(ctx: Any, kron: Any, of_z: Any, *of_operands: Any) -> Any:
    """The tangent of the result of kronop::kron, given those of z, x and the factors (None where
    one has none): the sum of the products with one operand replaced by its tangent, and beta times
    that of z."""
    found, beta = (of_z, ctx.beta) if ctx.beta else (None, 0)
    scale = beta
    for at, direction in enumerate(of_operands):
        if direction is not None:
            x, *factors = _replaced(ctx.saved_tensors, at, direction)
            found = kron(x, factors, found, ctx.alpha, 0 if found is None else scale, ctx.left)
            scale = 1
    if found is None:  # torch takes no None for what has no tangent.
        return ctx.saved_tensors[0].new_zeros(ctx.shape)
    if found is of_z:
        found = found * beta
    return found.expand(ctx.shape)  # Z may have fewer dimensions.


def tangents_of_gradients(ctx: Any, kron_backward: Any, *given: Any) -> list[Any]:
    """The tangents of the results of kronop::kron_backward, given those of grad, x and the factors
    (None where one has none): it is linear in each, and the gradient of an operand does not depend
    on that operand."""
    tensors, found = ctx.saved_tensors, [None] * len(ctx.needs)
    for at, direction in enumerate(given):
        needs = [need and index + 1 != at for index, need in enumerate(ctx.needs)]
        if direction is not None and any(needs):
            grad, x, *factors = _replaced(tensors, at, direction)
            terms = kron_backward(grad, x, factors, ctx.alpha, ctx.left, needs)
            pairs = zip(found, _scatter(terms, needs), strict=True)
            found = [_sum(first, second) for first, second in pairs]
    return [
        item.new_zeros(item.shape) if tangent is None else tangent
        for tangent, item, need in zip(found, tensors[1:], ctx.needs, strict=True)
        if need
    ]


def _replaced(operands: Sequence[Any], at: int, direction: Any) -> list[Any]:
    return [*operands[:at], direction, *operands[at + 1 :]]


def _scatter(found: Sequence[Any], needs: Sequence[bool]) -> list[Any]:
    """What was asked for, with None for what was not."""
    remaining = iter(found)
    return [next(remaining) if need else None for need in needs]


def _sum(first: Any, second: Any) -> Any:
    if first is None or second is None:
        return second if first is None else first
    return first + second
