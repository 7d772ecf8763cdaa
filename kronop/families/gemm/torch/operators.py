"""The operators kronop::matmul and kronop::matmul_activated, and their derivatives.

With T = alpha A B + beta C + bias and G its gradient,

    dA = alpha G B'    dB = alpha A' G    dC = beta G    dbias = the sum of G's rows

where the products are calls of kronop::matmul, to which transposed operands are strides only. For D
= f(T), G is the gradient of D times f'(T). So there are derivatives of any order, in both modes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from kronop.core.calls import check_activation
from kronop.descriptions.activation import BOUNDED
from kronop.families.gemm import api
from kronop.families.gemm.torch import batching, shapes
from kronop.families.gemm.torch.activations import RULES
from kronop.torch.declaration import Autocast, Direct, Gradients, Named, Operator, Prepared
from kronop.torch.registration import register
from kronop.torch.scaling import scaled


def _compute(
    a: Tensor,
    b: Tensor,
    c: Tensor | None,
    bias: Tensor | None,
    alpha: float,
    beta: float,
    activation: str | None = None,
) -> Tensor:
    # Operators of torch take strings.
    return api.matmul(a, b, c, alpha, beta, bias, activation)  # type: ignore[arg-type]


def _fake(
    a: Tensor,
    b: Tensor,
    c: Tensor | None,
    bias: Tensor | None,
    alpha: float,
    beta: float,
    activation: str | None = None,
) -> Tensor:
    check_activation(activation)
    return shapes.result(a, b, c, bias)


def _gradients(
    given: Named, needs: Named, grad: Tensor, multiply: Callable[..., Tensor] | None = None
) -> Gradients:
    """The gradients of kronop::matmul, from that of its result; products are its own, or those of
    `multiply`."""
    found, multiply = {}, multiply or product
    if needs.a:
        found["a"] = multiply(grad, given.b.mT, None, None, given.alpha, 0)
    if needs.b:
        found["b"] = multiply(given.a.mT, grad, None, None, given.alpha, 0)
    if needs.c:
        found["c"] = scaled(grad, given.beta)
    if needs.bias:
        found["bias"] = grad
    return found


def _tangent(given: Named, tangents: Named) -> Tensor | None:
    """The tangent of kronop::matmul's result; None if it has none."""
    found = tangents.bias
    if tangents.c is not None:
        of_c = scaled(tangents.c, given.beta)
        found = of_c if found is None else of_c + found
    for a, b in ((tangents.a, given.b), (given.a, tangents.b)):
        if a is not None and b is not None:
            found = product(a, b, found, None, given.alpha, 0 if found is None else 1)
    return found


def _linear(given: Named) -> Tensor:
    """What the activation of kronop::matmul_activated is applied to."""
    return product(given.a, given.b, given.c, given.bias, given.alpha, given.beta)


def _gradients_activated(given: Named, needs: Named, grad: Tensor) -> Gradients:
    return _gradients(given, needs, RULES[given.activation].slope(grad, _linear(given)))


def _tangent_activated(given: Named, tangents: Named) -> Tensor | None:
    found = _tangent(given, tangents)
    if found is None:
        return None
    inner = _linear(given)
    return RULES[given.activation].slope(found.expand_as(inner), inner)


def _mapped(size: int, given: Named, dims: Named) -> tuple[Tensor, int]:
    *tensors, beta = batching.mapped(size, given, dims)
    return product.library(*tensors, given.alpha, beta), 0


def _mapped_activated(size: int, given: Named, dims: Named) -> tuple[Tensor, int]:
    *tensors, beta = batching.mapped(size, given, dims)
    return activated.library(*tensors, given.alpha, beta, given.activation), 0


def _decomposed(
    a: Tensor,
    b: Tensor,
    c: Tensor | None,
    bias: Tensor | None,
    alpha: float,
    beta: float,
    activation: str | None = None,
) -> Tensor:
    """The result by torch's own operations."""
    kind = shapes.result_kind(a.dtype)
    found = scaled(a.to(kind) @ b.to(kind), alpha)
    if c is not None and beta:
        found = found + scaled(c, beta)
    if bias is not None:
        found = found + bias
    return (found if activation is None else RULES[activation].of(found)).contiguous()


def _prepare(given: Named) -> Prepared | None:
    """The repeatable call of a product like an earlier one, if there was one."""
    operands = [given.a, given.b, given.bias, given.c]
    how = (given.alpha, given.beta, getattr(given, "activation", None))
    call = api.known_call(given.a, given.b, given.bias, given.c, *how)
    if call is None:
        return None
    run, places = call.run, [at for at, item in enumerate(operands) if item is not None]

    def launch(tensors: Sequence[Tensor], addresses: list[int]) -> Any:
        every, where = [None] * 5, [0] * 5
        for at, item, address in zip(places, tensors, addresses, strict=True):
            every[at], where[at] = item, address
        return run(every, where)

    return Prepared(
        tensors=[operands[at] for at in places], launch=launch, finish=lambda made, tensors: made
    )


def _forward(given: Named, needs: Named) -> tuple[Tensor, tuple[()]]:
    return _compute(*vars(given).values()), ()


def _prepare_forward(given: Named, needs: Named) -> Prepared | None:
    found = _prepare(given)
    if found is None:
        return None
    return dataclasses.replace(found, finish=lambda made, tensors: (made, ()))


def _backward(
    given: Named, kinds: Named, extra: Sequence[Tensor | None], needs: Named, grad: Tensor
) -> Gradients:
    return _gradients(given, needs, grad, _compute)


def _forward_activated(given: Named, needs: Named) -> tuple[Tensor, tuple[Tensor]]:
    """D, and what the backward finds f'(T) from: D, or else T, which is then rounded before f."""
    rule = RULES[given.activation]
    if rule.keeps_result:
        found = _compute(*vars(given).values())
        return found, (found,)
    operands = (given.a, given.b, given.c, given.bias)
    inner = _compute(*operands, given.alpha, given.beta, BOUNDED)
    return rule.apply(inner), (inner,)


def _backward_activated(
    given: Named, kinds: Named, extra: Sequence[Tensor | None], needs: Named, grad: Tensor
) -> Gradients:
    inner = RULES[given.activation].kept_slope(grad, extra[0])
    return _gradients(given, needs, inner, _compute)


def _prepare_activated(given: Named, needs: Named) -> Prepared | None:
    found = _prepare(given) if RULES[given.activation].keeps_result else None
    if found is None:
        return None
    return dataclasses.replace(found, finish=lambda made, tensors: (made, (made,)))


_TENSORS = "Tensor a, Tensor b, Tensor? c, Tensor? bias, Scalar alpha, Scalar beta"
product = register(
    Operator(
        schema=f"matmul({_TENSORS}) -> Tensor",
        compute=_compute,
        fake=_fake,
        saved=("a", "b"),
        backward=_gradients,
        jvp=_tangent,
        vmap=_mapped,
        record=shapes.refuse_gradient,
        autocast=Autocast.Narrow,
        prepare=_prepare,
        decomposed=_decomposed,
        direct=Direct(forward=_forward, backward=_backward, prepare=_prepare_forward),
    )
)
activated = register(
    Operator(
        schema=f"matmul_activated({_TENSORS}, str activation) -> Tensor",
        compute=_compute,
        fake=_fake,
        saved=("a", "b", "c", "bias"),
        backward=_gradients_activated,
        jvp=_tangent_activated,
        vmap=_mapped_activated,
        record=shapes.refuse_gradient,
        autocast=Autocast.Narrow,
        prepare=_prepare,
        decomposed=_decomposed,
        direct=Direct(
            forward=_forward_activated, backward=_backward_activated, prepare=_prepare_activated
        ),
    )
)


def composed(
    a: Tensor,
    b: Tensor,
    c: Tensor | None,
    bias: Tensor | None,
    alpha: float,
    beta: float,
    activation: str,
) -> Tensor:
    """kronop::matmul_activated as a product and torch's activation, whose gradient needs no further
    product: for graphs, in which torch.compile fuses activations with what follows."""
    found: Tensor = RULES[activation].of(product(a, b, c, bias, alpha, beta))
    return found
