"""A chain of Kronecker-sparse factors on plain tensors. If it needs gradients, it is launched
factor by factor, and the results between factors are kept for the backward."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kronop.families.ksparse import api as functional_ksparse
from kronop.families.ksparse.torch import steps
from kronop.families.ksparse.torch.computing import bias_gradient, multiply, turned
from kronop.torch.declaration import Direct, Gradients, Named, Prepared


def _forward(given: Named, needs: Named) -> tuple[Tensor, Sequence[Tensor | None]]:
    x, chain, last, z = given.x, given.weights, given.batch_last, given.z
    if not any(needs.weights):
        steps.check_differentiable(x, chain)
        return multiply(given), ()
    if z is None and not given.beta:
        *between, result = steps.products(x, chain, given.bias, given.alpha, last)
    else:
        steps.check_differentiable(x, chain)
        functional_ksparse.chain_patterns(chain)
        between = steps.products(x, chain[:-1], None, 1.0, last) if chain[1:] else []
        result = multiply(given, x=(x, *between)[-1], weights=chain[-1:])
    return result, _kept(between, needs.weights[1:])


def _kept(between: Sequence[Tensor | None], needed: Sequence[bool]) -> list[Tensor | None]:
    """The operands of the factors after the first, with None for factors without a gradient."""
    return [item if need else None for item, need in zip(between, needed, strict=True)]


def _backward(given: Named, needs: Named, grad: Tensor) -> Gradients:
    last, found = given.batch_last, {}
    if needs.bias:
        found["bias"] = bias_gradient(grad, last, given.kinds.bias)
    if needs.z:
        found["z"] = grad * given.beta
    if any(needs.weights):
        found["x"], found["weights"] = steps.gradients(_way_back(given, needs, grad))
    elif needs.x:
        around = [turned(weight) for weight in reversed(given.weights)]
        found["x"] = functional_ksparse.ksmm(grad, around, batch_last=last, alpha=given.alpha)
    return found


def _way_back(given: Named, needs: Named, grad: Tensor) -> steps.Back:
    # The kernel gives a gradient in float32 if the weight has it, else in the type of x, which
    # autograd casts.
    kinds = [kind if kind is torch.float32 else given.x.dtype for kind in given.kinds.weights]
    wanted = [kind if need else None for kind, need in zip(kinds, needs.weights, strict=True)]
    operands = [given.x if needs.weights[0] else None, *given.kept]
    how = (given.alpha, given.batch_last, needs.x)
    return steps.Back(grad, given.weights, operands, wanted, *how)


def prepare(given: Named) -> Prepared | None:
    """The repeatable call of a product without gradients like an earlier one, if there was one;
    products with z have none."""
    if given.z is not None or given.beta:
        return None
    x, weights, bias = given.x, given.weights, given.bias
    options = (given.batch_last, bias, given.activation, given.alpha)
    call = functional_ksparse.known_call(x, weights, *options)
    return Prepared.of_call(call, [x, *weights, bias, None, None])


def _prepare_forward(given: Named, needs: Named) -> Prepared | None:
    x, weights, bias = given.x, given.weights, given.bias
    if given.z is not None or given.beta:
        return None
    if not any(needs.weights):
        found = prepare(given)
        return None if found is None else found.as_forward()
    program = steps.known_products(x, weights, bias, given.alpha, given.batch_last)
    if program is None:
        return None
    needed = needs.weights[1:]

    def finish(made: list[Tensor], tensors: Sequence[Tensor]) -> tuple[Tensor, list[Tensor | None]]:
        *between, result = made
        return result, _kept(between, needed)

    tensors = [x, *weights] if bias is None else [x, *weights, bias]
    return Prepared(tensors=tensors, launch=program.run, finish=finish)


def _prepare_backward(given: Named, needs: Named, grad: Tensor) -> Prepared | None:
    if not any(needs.weights) or given.kinds.z is not None:
        return None
    back = _way_back(given, needs, grad)
    program = steps.known_gradients(back)
    if program is None:
        return None
    wanted, last, kind, needs_bias = back.kinds, back.last, given.kinds.bias, needs.bias
    is_all, needs_x = all(item is not None for item in wanted), needs.x

    def finish(made: list[Tensor], tensors: Sequence[Tensor]) -> list[Tensor | None]:
        of_x = made.pop() if needs_x else None
        remaining = iter(made)
        every = made if is_all else [None if item is None else next(remaining) for item in wanted]
        found = [of_x, *every]
        if kind is not None:
            found.append(bias_gradient(tensors[0], last, kind) if needs_bias else None)
        return found

    return Prepared(tensors=back.tensors, launch=program.run, finish=finish)


DIRECT = Direct(
    forward=_forward,
    backward=_backward,
    parameters=("weights", "bias"),
    prepare=_prepare_forward,
    prepare_backward=_prepare_backward,
)
