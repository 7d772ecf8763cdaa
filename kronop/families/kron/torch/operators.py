"""The operators kronop::kron and kronop::kron_backward, and their derivatives.

The derivatives of both consist of calls of the two operators, so there are gradients of any order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from kronop.families.kron.api import gekmm, gemkm, known_call
from kronop.families.kron.description import Side
from kronop.families.kron.shape_arguments import result_shape
from kronop.families.kron.torch import batching, decomposed
from kronop.families.kron.torch.gradient import gradients, repeated
from kronop.families.kron.torch.sums import leading
from kronop.torch.checks import check_kind, common_shape
from kronop.torch.declaration import Autocast, Direct, Gradients, Named, Operator, Prepared
from kronop.torch.registration import register


def _compute(
    x: Tensor, factors: Sequence[Tensor], z: Tensor | None, alpha: float, beta: float, left: bool
) -> Tensor:
    # The result is row-major even if Z isn't, because the fake implementation promises that to
    # torch.compile.
    out = None if z is None else _empty(x, factors, z, left)
    scalars: dict[str, Any] = {"alpha": alpha, "beta": beta, "z": z, "out": out}
    return gekmm(factors, x, **scalars) if left else gemkm(x, factors, **scalars)


def _result_shape(
    x: Tensor, factors: Sequence[Tensor], z: Tensor | None, left: bool
) -> tuple[int, ...]:
    shapes = [tuple(item.shape) for item in factors]
    side = Side.Left if left else Side.Right
    *lead, rows, columns = result_shape(tuple(x.shape), shapes, side, common_shape)
    if z is not None:
        lead = [*common_shape([("X and factors", tuple(lead)), ("Z", tuple(z.shape[:-2]))])]
    return (*lead, rows, columns)


def _fake(
    x: Tensor, factors: Sequence[Tensor], z: Tensor | None, alpha: float, beta: float, left: bool
) -> Tensor:
    for index, item in enumerate(factors):
        check_kind(f"factors[{index}]", item, x.dtype, "x and all factors have one type")
    found = _empty(x, factors, z, left)
    if z is not None:
        check_kind("z", z, found.dtype, "z is of the result's type")
    return found


def _empty(x: Tensor, factors: Sequence[Tensor], z: Tensor | None, left: bool) -> Tensor:
    """A row-major tensor of the result's shape and type."""
    element = torch.int32 if x.dtype is torch.int8 else x.dtype
    return x.new_empty(_result_shape(x, factors, z, left), dtype=element)


def _fake_backward(
    grad: Tensor,
    x: Tensor,
    factors: Sequence[Tensor],
    alpha: float,
    left: bool,
    needs: Sequence[bool],
) -> list[Tensor]:
    tensors = zip((x, *factors), needs, strict=True)
    return [item.new_empty(item.shape) for item, need in tensors if need]


def _gradients(
    given: Named, needs: Named, grad: Tensor, backward: Callable[..., list[Tensor]] | None = None
) -> Gradients:
    """The gradients of kronop::kron, computed by kronop::kron_backward, or by `backward` if
    given."""
    wanted = [needs.x, *needs.factors]
    found = {"z": grad * given.beta} if needs.z else {}
    if any(wanted):
        x, factors = given.x, given.factors
        # Z may have more batch dimensions than x and the factors: sum over them.
        grad = grad.sum_to_size(*leading(x, *factors), *grad.shape[-2:])
        every = (backward or kron_backward)(grad, x, factors, given.alpha, given.left, wanted)
        found["x"], *found["factors"] = _scatter(every, wanted)
    return found


def _gradients_of_gradients(
    given: Named, needs: Named, cotangents: Sequence[Tensor | None]
) -> Gradients:
    """The gradients of kronop::kron_backward.

    With u the cotangents, sum_i <u_i, dF_i> + <u_x, dx> = <grad, D>, where D is the derivative of
    the product in the direction u: the sum of the products with one operand replaced by its u.
    """
    operands, scalars = [given.x, *given.factors], (given.alpha, given.left)
    of_grad = None
    found: list[Tensor | None] = [None] * len(operands)
    for at, direction in enumerate(_scatter(cotangents, given.needs)):
        if direction is None:
            continue
        x, *factors = _replaced(operands, at, direction)
        if needs.grad:
            beta = 0 if of_grad is None else 1
            of_grad = kron(x, factors, of_grad, given.alpha, beta, given.left)
        wanted = [needs.x, *needs.factors]
        wanted[at] = False  # This term does not contain the operand that u replaces.
        if any(wanted):
            terms = kron_backward(given.grad, x, factors, *scalars, wanted)
            pairs = zip(found, _scatter(terms, wanted), strict=True)
            found = [_sum(first, second) for first, second in pairs]
    return {"grad": of_grad, "x": found[0], "factors": found[1:]}


def _tangent(given: Named, tangents: Named) -> Tensor | None:
    """The tangent of kronop::kron's result: the sum of the products in which one operand is
    replaced by its tangent, plus beta times the tangent of z."""
    operands = [given.x, *given.factors]
    found, beta = (tangents.z, given.beta) if given.beta else (None, 0)
    scale = beta
    for at, direction in enumerate((tangents.x, *tangents.factors)):
        if direction is not None:
            x, *factors = _replaced(operands, at, direction)
            found = kron(x, factors, found, given.alpha, 0 if found is None else scale, given.left)
            scale = 1
    return found * beta if found is not None and found is tangents.z else found


def _tangents_of_gradients(given: Named, tangents: Named) -> list[Tensor | None]:
    """The tangents of kronop::kron_backward's results: each is linear in the other operands, and
    does not depend on the operand that it is the gradient of."""
    tensors = [given.grad, given.x, *given.factors]
    found: list[Tensor | None] = [None] * len(given.needs)
    for at, direction in enumerate((tangents.grad, tangents.x, *tangents.factors)):
        needs = [need and index + 1 != at for index, need in enumerate(given.needs)]
        if direction is not None and any(needs):
            grad, x, *factors = _replaced(tensors, at, direction)
            terms = kron_backward(grad, x, factors, given.alpha, given.left, needs)
            pairs = zip(found, _scatter(terms, needs), strict=True)
            found = [_sum(first, second) for first, second in pairs]
    return [item for item, need in zip(found, given.needs, strict=True) if need]


def _replaced(operands: Sequence[Tensor], at: int, direction: Tensor) -> list[Tensor]:
    return [*operands[:at], direction, *operands[at + 1 :]]


def _scatter(found: Sequence[Tensor | None], needs: Sequence[bool]) -> list[Tensor | None]:
    """The gradients in `found`, with None where none was asked for."""
    remaining = iter(found)
    return [next(remaining) if need else None for need in needs]


def _sum(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    if first is None or second is None:
        return second if first is None else first
    return first + second


def _prepare(given: Named) -> Prepared | None:
    """The repeatable call of a product like an earlier one, if there was one; products with z have
    none."""
    if given.z is not None or given.beta:
        return None
    x, factors, side = given.x, given.factors, Side.Left if given.left else Side.Right
    call = known_call(x, factors, side, given.alpha)
    if call is None:
        return None
    run = call.run
    return Prepared(
        tensors=[x, *factors],
        launch=lambda tensors, addresses: run([*tensors, None, None], [*addresses, 0, 0]),
        finish=lambda made, tensors: made,
    )


def _prepare_forward(given: Named, needs: Named) -> Prepared | None:
    found = _prepare(given)
    if found is None:
        return None
    return dataclasses.replace(found, finish=lambda made, tensors: (made, ()))


def _forward(given: Named, needs: Named) -> tuple[Tensor, tuple[()]]:
    scalars = (given.alpha, given.beta, given.left)
    return _compute(given.x, given.factors, given.z, *scalars), ()


def _backward(
    given: Named, kinds: Named, extra: Sequence[Tensor | None], needs: Named, grad: Tensor
) -> Gradients:
    return _gradients(given, needs, grad, gradients)


def _prepare_backward(
    given: Named, kinds: Named, extra: Sequence[Tensor | None], needs: Named, grad: Tensor
) -> Prepared | None:
    if kinds.z is not None:
        return None
    wanted = [needs.x, *needs.factors]
    found = repeated(grad, given.x, given.factors, given.alpha, given.left, wanted)
    if found is None:
        return None

    own = found.finish
    return dataclasses.replace(
        found, finish=lambda made, tensors: _scatter(own(made, tensors), wanted)
    )


kron = register(
    Operator(
        schema="kron(Tensor x, Tensor[] factors, Tensor? z, Scalar alpha, Scalar beta, bool left)"
        " -> Tensor",
        compute=_compute,
        fake=_fake,
        saved=("x", "factors"),
        backward=_gradients,
        jvp=_tangent,
        vmap=batching.kron,
        decomposed=decomposed.kron,
        prepare=_prepare,
        autocast=Autocast.Narrow,
        direct=Direct(
            parameters=("factors",),
            forward=_forward,
            backward=_backward,
            prepare=_prepare_forward,
            prepare_backward=_prepare_backward,
        ),
    )
)
kron_backward = register(
    Operator(
        schema="kron_backward(Tensor grad, Tensor x, Tensor[] factors, Scalar alpha, bool left,"
        " bool[] needs) -> Tensor[]",
        compute=gradients,
        fake=_fake_backward,
        saved=("grad", "x", "factors"),
        backward=_gradients_of_gradients,
        jvp=_tangents_of_gradients,
        vmap=batching.kron_backward,
    )
)
