"""The operators kronop::kron and kronop::kron_backward, and their derivatives.

The derivatives of both consist of calls of the two operators, so there are gradients of any order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from kronop.families.kron.api import gekmm, gemkm, known_call
from kronop.families.kron.description import Side
from kronop.families.kron.shape_arguments import result_shape
from kronop.families.kron.torch.gradient import gradients, repeated
from kronop.families.kron.torch.sums import leading
from kronop.torch.checks import check_kind, common_shape
from kronop.torch.declaration import Autocast, Direct, Gradients, Named, Operator, Prepared
from kronop.torch.registration import register
from kronop.torch.scaling import added, scaled
from kronop.torch.transforms import aligned


def _compute(given: Named) -> Tensor:
    x, factors, z = given.x, given.factors, given.z
    # The result is row-major even if Z isn't, because the fake implementation promises that to
    # torch.compile.
    out = None if z is None else _empty(given)
    scalars: dict[str, Any] = {"alpha": given.alpha, "beta": given.beta, "z": z, "out": out}
    return gekmm(factors, x, **scalars) if given.left else gemkm(x, factors, **scalars)


def _fake(given: Named) -> Tensor:
    for index, item in enumerate(given.factors):
        check_kind(f"factors[{index}]", item, given.x.dtype, "x and all factors have one type")
    found = _empty(given)
    if given.z is not None:
        check_kind("z", given.z, found.dtype, "z is of the result's type")
    return found


def _empty(given: Named) -> Tensor:
    """A row-major tensor of the result's shape and type."""
    x, z, shapes = given.x, given.z, [tuple(item.shape) for item in given.factors]
    *lead, rows, columns = result_shape(tuple(x.shape), shapes, _side(given), common_shape)
    if z is not None:
        lead = [*common_shape([("X and factors", tuple(lead)), ("Z", tuple(z.shape[:-2]))])]
    element = torch.int32 if x.dtype is torch.int8 else x.dtype
    return x.new_empty((*lead, rows, columns), dtype=element)


def _side(given: Named) -> Side:
    return Side.Left if given.left else Side.Right


def _fake_backward(given: Named) -> list[Tensor]:
    tensors = zip((given.x, *given.factors), given.needs, strict=True)
    return [item.new_empty(item.shape) for item, need in tensors if need]


def _gradients(
    given: Named,
    needs: Named,
    grad: Tensor,
    backward: Callable[[Named], list[Tensor]] | None = None,
) -> Gradients:
    """The gradients of kronop::kron, computed by kronop::kron_backward, or by `backward` if
    given."""
    found = {"z": grad * given.beta} if needs.z else {}
    if any([needs.x, *needs.factors]):
        # Z may have more batch dimensions than x and the factors: sum over them.
        grad = grad.sum_to_size(*leading(given.x, *given.factors), *grad.shape[-2:])
        of = _backward_of(given, needs, grad)
        every = backward(of) if backward else kron_backward(*vars(of).values())
        found["x"], *found["factors"] = _scatter(every, of.needs)
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
            found = [*map(added, found, _scatter(terms, wanted))]
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
            found = [*map(added, found, _scatter(terms, needs))]
    return [item for item, need in zip(found, given.needs, strict=True) if need]


def _mapped_backward(size: int, given: Named, dims: Named) -> tuple[list[Tensor], list[int]]:
    """torch.vmap: every gradient gets the mapped dimension, as the first of the leading ones."""
    tensors = [given.grad, given.x, *given.factors]
    every = [dims.grad, dims.x, *dims.factors]
    for at, wanted in enumerate((True, *given.needs)):
        if wanted and every[at] is None:
            tensors[at], every[at] = tensors[at].expand(size, *tensors[at].shape), 0
    of = zip(tensors[1:], every[1:], given.needs, strict=True)
    shapes = [item.movedim(dim, 0).shape for item, dim, need in of if need]
    grad, x, *factors = aligned(tensors, every)
    found = kron_backward.library(grad, x, factors, given.alpha, given.left, given.needs)
    results = [item.reshape(shape) for item, shape in zip(found, shapes, strict=True)]
    return results, [0] * len(results)


def _replaced(operands: Sequence[Tensor], at: int, direction: Tensor) -> list[Tensor]:
    return [*operands[:at], direction, *operands[at + 1 :]]


def _scatter(found: Sequence[Tensor | None], needs: Sequence[bool]) -> list[Tensor | None]:
    """The gradients in `found`, with None where none was asked for."""
    remaining = iter(found)
    return [next(remaining) if need else None for need in needs]


def _decomposed(given: Named) -> Tensor:
    """kronop::kron by torch's own matrix products, with derivatives."""
    x, factors, z = given.x, given.factors, given.z
    if x.dtype is torch.int8:
        x, factors = x.int(), [factor.int() for factor in factors]
    if given.left:
        y = _turned(_product(_turned(x), [_turned(factor) for factor in factors]))
    else:
        y = _product(x, factors)
    y = scaled(y, given.alpha)
    y = y if z is None or not given.beta else y + scaled(z, given.beta)
    return y.contiguous()


def _product(x: Tensor, factors: Sequence[Tensor]) -> Tensor:
    """x (F1 x ... x FN), one factor after the other, from the last: each multiplies the last digit
    of x's columns and moves it to the front, so that the digits are in order after all."""
    for factor in reversed(factors):
        digits = x.unflatten(-1, (-1, factor.shape[-2])) @ factor.unsqueeze(-3)
        x = _turned(digits).flatten(-2)
    return x


def _turned(item: Tensor) -> Tensor:
    return item.transpose(-1, -2)  # The older one of torch's exporters to ONNX knows no `mT`.


def _prepare(given: Named) -> Prepared | None:
    """The repeatable call of a product like an earlier one, if there was one; products with z have
    none."""
    if given.z is not None or given.beta:
        return None
    call = known_call(given.x, given.factors, _side(given), given.alpha)
    return Prepared.of_call(call, [given.x, *given.factors, None, None])


def _prepare_backward(given: Named, needs: Named, grad: Tensor) -> Prepared | None:
    return repeated(_backward_of(given, needs, grad)) if given.kinds.z is None else None


def _backward_of(given: Named, needs: Named, grad: Tensor) -> Named:
    """The arguments of kronop::kron_backward."""
    scalars = {"alpha": given.alpha, "left": given.left, "needs": [needs.x, *needs.factors]}
    return Named(grad=grad, x=given.x, factors=given.factors, **scalars)


kron = register(
    Operator(
        schema="kron(Tensor x, Tensor[] factors, Tensor? z, Scalar alpha, Scalar beta, bool left)"
        " -> Tensor",
        compute=_compute,
        fake=_fake,
        saved=("x", "factors"),
        backward=_gradients,
        jvp=_tangent,
        vmap={"x": 2, "factors": 2, "z": 2},
        decomposed=_decomposed,
        prepare=_prepare,
        autocast=Autocast.Narrow,
        direct=Direct(
            parameters=("factors",),
            backward=functools.partial(_gradients, backward=gradients),
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
        vmap=_mapped_backward,
    )
)
