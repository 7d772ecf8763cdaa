"""A chain of Kronecker-sparse factors on plain tensors. If it needs gradients, it is launched
factor by factor, and the results between factors are kept for the backward."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kronop.families.ksparse import api as functional_ksparse
from kronop.families.ksparse.torch import steps
from kronop.families.ksparse.torch.shapes import bias_gradient, turned
from kronop.torch.declaration import Direct, Gradients, Named, Prepared


def _forward(given: Named, needs: Named) -> tuple[Tensor, Sequence[Tensor | None]]:
    x, chain, last, z = given.x, given.weights, given.batch_last, given.z
    if not any(needs.weights):
        steps.check_differentiable(x, chain)
        return _product(given, x, chain), ()
    if z is None and not given.beta:
        *between, result = steps.products(x, chain, given.bias, given.alpha, last)
    else:
        steps.check_differentiable(x, chain)
        functional_ksparse.chain_patterns(chain)
        between = steps.products(x, chain[:-1], None, 1.0, last) if chain[1:] else []
        result = _product(given, (x, *between)[-1], chain[-1:])
    return result, _kept(between, needs.weights[1:])


def _kept(between: Sequence[Tensor | None], needed: Sequence[bool]) -> list[Tensor | None]:
    """The operands of the factors after the first, with None for factors without a gradient."""
    return [item if need else None for item, need in zip(between, needed, strict=True)]


def _product(given: Named, x: Tensor, chain: Sequence[Tensor]) -> Tensor:
    return functional_ksparse.ksmm(
        x,
        chain,
        batch_last=given.batch_last,
        bias=given.bias,
        alpha=given.alpha,
        beta=given.beta,
        z=given.z,
    )


def _backward(
    given: Named, kinds: Named, between: Sequence[Tensor | None], needs: Named, grad: Tensor
) -> Gradients:
    last, found = given.batch_last, {}
    if needs.bias:
        found["bias"] = bias_gradient(grad, last, kinds.bias)
    if needs.z:
        found["z"] = grad * given.beta
    if any(needs.weights):
        found["x"], found["weights"] = steps.gradients(
            *_step_back(given, kinds, between, needs, grad)
        )
    elif needs.x:
        around = [turned(weight) for weight in reversed(given.weights)]
        found["x"] = functional_ksparse.ksmm(grad, around, batch_last=last, alpha=given.alpha)
    return found


def _step_back(
    given: Named, kinds: Named, between: Sequence[Tensor | None], needs: Named, grad: Tensor
) -> tuple[Any, ...]:
    """The arguments of `steps.gradients`."""
    wanted = [
        _gradient_kind(kind, given.x) if need else None
        for kind, need in zip(kinds.weights, needs.weights, strict=True)
    ]
    operands = [given.x if needs.weights[0] else None, *between]
    return grad, given.weights, operands, wanted, given.alpha, given.batch_last, needs.x


def _gradient_kind(kind: torch.dtype | None, x: Tensor) -> torch.dtype:
    """The type that the kernel gives a weight's gradient: the weight's own if that is float32, else
    that of x, which autograd casts."""
    return kind if kind is torch.float32 else x.dtype


def prepare(given: Named) -> Prepared | None:
    """The repeatable call of a product without gradients like an earlier one, if there was one;
    products with z have none."""
    if given.z is not None or given.beta:
        return None
    x, weights, bias = given.x, given.weights, given.bias
    options = (given.batch_last, bias, given.activation, given.alpha)
    call = functional_ksparse.known_call(x, weights, *options)
    if call is None:
        return None
    run, rest = call.run, [None] * (3 if bias is None else 2)
    zeros = [0] * len(rest)
    return Prepared(
        tensors=[x, *weights] if bias is None else [x, *weights, bias],
        launch=lambda tensors, addresses: run([*tensors, *rest], addresses + zeros),
        finish=lambda made, tensors: made,
    )


def _prepare_forward(given: Named, needs: Named) -> Prepared | None:
    x, weights, bias = given.x, given.weights, given.bias
    if given.z is not None or given.beta:
        return None
    if not any(needs.weights):
        found = prepare(given)
        if found is None:
            return None
        return dataclasses.replace(found, finish=lambda made, tensors: (made, ()))
    program = steps.known_products(x, weights, bias, given.alpha, given.batch_last)
    if program is None:
        return None
    needed = needs.weights[1:]

    def finish(made: list[Tensor], tensors: Sequence[Tensor]) -> tuple[Tensor, list[Tensor | None]]:
        *between, result = made
        return result, _kept(between, needed)

    return Prepared(
        tensors=[x, *weights] if bias is None else [x, *weights, bias],
        launch=program.run,
        finish=finish,
    )


def _prepare_backward(
    given: Named, kinds: Named, between: Sequence[Tensor | None], needs: Named, grad: Tensor
) -> Prepared | None:
    if not any(needs.weights) or kinds.z is not None:
        return None
    step = _step_back(given, kinds, between, needs, grad)
    program = steps.known_gradients(*step)
    if program is None:
        return None
    _, chain, operands, wanted, _, last, _ = step
    kind, needs_x, needs_bias, has_bias = kinds.bias, needs.x, needs.bias, kinds.bias is not None

    is_all = all(item is not None for item in wanted)

    def finish(made: list[Tensor], tensors: Sequence[Tensor]) -> list[Tensor | None]:
        of_x = made.pop() if needs_x else None
        remaining = iter(made)
        every = made if is_all else [None if item is None else next(remaining) for item in wanted]
        found = [of_x, *every]
        if has_bias:
            found.append(bias_gradient(tensors[0], last, kind) if needs_bias else None)
        return found

    return Prepared(
        tensors=[grad, *chain, *(item for item in operands if item is not None)],
        launch=program.run,
        finish=finish,
    )


DIRECT = Direct(
    forward=_forward,
    backward=_backward,
    parameters=("weights", "bias"),
    prepare=_prepare_forward,
    prepare_backward=_prepare_backward,
)
