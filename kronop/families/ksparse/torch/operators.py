"""The operators kronop::ksmm and kronop::ksmm_gradient, and their derivatives.

With K the factor of weights w, g the gradient of alpha x K' + beta z + bias,

    of x: alpha g K          of w: alpha sum over the batch of g x, entry by entry
    of z: beta g             of bias: sum over the batch of g

K is the transpose of the factor K': its product is that with the weights (a, c, b, d). Both
operators are linear in each of their operands, and their derivatives consist of calls of both.

Plain tensors take a shorter way (`_DIRECT`): a chain that needs gradients is launched factor by
factor, and the results between factors are kept for the backward.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kronop.errors import ArgumentError
from kronop.families.ksparse import api as functional_ksparse
from kronop.families.ksparse.torch import computing, steps
from kronop.families.ksparse.torch.computing import bias_gradient, multiply, turned
from kronop.families.ksparse.torch.sparse import decomposed
from kronop.torch.declaration import Autocast, Direct, Gradients, Named, Operator, Prepared
from kronop.torch.memory import settled
from kronop.torch.registration import register
from kronop.torch.scaling import added


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


def _prepare(given: Named) -> Prepared | None:
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
        found = _prepare(given)
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


_DIRECT = Direct(
    forward=_forward,
    backward=_backward,
    parameters=("weights", "bias"),
    prepare=_prepare_forward,
    prepare_backward=_prepare_backward,
)


def _factor(x: Tensor, weight: Tensor, last: bool, alpha: float = 1) -> Tensor:
    """The product with one factor."""
    return ksmm(x, [weight], None, None, alpha, 0, last, None)


def _gradients(given: Named, needs: Named, grad: Tensor) -> Gradients:
    """The gradients of kronop::ksmm. The results between factors are computed again, from x."""
    x, weights, last, grad = given.x, given.weights, given.batch_last, settled(grad)
    found: dict[str, Tensor] = {}
    if needs.bias:
        found["bias"] = bias_gradient(grad, last)
    if needs.z:
        found["z"] = grad * given.beta
    if not any(needs.weights):
        if needs.x:
            around = [turned(weight) for weight in reversed(weights)]
            found["x"] = ksmm(grad, around, None, None, given.alpha, 0, last, None)
        return found
    operands = [x]
    for at in range(max(at for at, need in enumerate(needs.weights) if need)):
        operands.append(_factor(operands[at], weights[at], last))

    def gradient(at: int, grad: Tensor, alpha: float) -> Tensor:
        return ksmm_gradient(operands[at], grad, list(weights[at].shape), alpha, last)

    def product(at: int, grad: Tensor, alpha: float) -> Tensor:
        return _factor(grad, turned(weights[at]), last, alpha)

    back = (needs.weights, needs.x, given.alpha, gradient, product)
    of_x, found["weights"] = steps.walk_back(grad, *back)
    return found | {"x": of_x} if needs.x else found


def _gradients_of_gradient(given: Named, needs: Named, direction: Tensor) -> Gradients:
    """The gradients of kronop::ksmm_gradient: products with `direction` as weights."""
    last, alpha, found = given.batch_last, given.alpha, {}
    if needs.x:
        found["x"] = _factor(given.grad, turned(direction), last, alpha)
    if needs.grad:
        found["grad"] = _factor(given.x, direction, last, alpha)
    return found


def _tangent(given: Named, tangents: Named) -> Tensor | None:
    """The tangent of kronop::ksmm's result. If a factor's operand x has the tangent u, its result
    has the tangent u K' + x dK', where the weights of dK are the tangent of those of K."""
    x, weights, last, found = given.x, given.weights, given.batch_last, tangents.x
    bias, z = tangents.bias, tangents.z if given.beta else None
    if all(item is None for item in (found, *tangents.weights)):
        if bias is not None and last:
            bias = bias.reshape(-1, *[1] * (x.dim() - 1))
        return added(None if z is None else given.beta * z, bias)
    for at, (weight, of_weight) in enumerate(zip(weights, tangents.weights, strict=True)):
        is_end = at == len(weights) - 1
        alpha, others = (given.alpha, (bias, z)) if is_end else (1, (None, None))
        beta, terms = given.beta if is_end and z is not None else 0, []
        terms += [] if found is None else [(found, weight)]
        terms += [] if of_weight is None else [(x, of_weight)]
        found = None
        for operand, of in terms:
            found = ksmm(operand, [of], *others, alpha, beta, last, None)
            others, beta = (None, found), 1
        if any(item is not None for item in tangents.weights[at + 1 :]):
            x = _factor(x, weight, last)
    return found


def _tangent_of_gradient(given: Named, tangents: Named) -> Tensor | None:
    """The tangent of kronop::ksmm_gradient's result."""
    others = (list(given.pattern), given.alpha, given.batch_last)
    of_x, of_grad = tangents.x, tangents.grad
    found = None if of_x is None else ksmm_gradient(of_x, given.grad, *others)
    return added(found, None if of_grad is None else ksmm_gradient(given.x, of_grad, *others))


def _mapped_product(size: int, given: Named, dims: Named) -> tuple[Tensor, int]:
    """torch.vmap: if weights are mapped, n factors (a, b, c, d) become one factor (n a, b, c, d) on
    n times the features. Otherwise the mapped dimension joins the batch."""
    product = ksmm.library
    batch_last, bias, z = given.batch_last, given.bias, given.z
    scalars = (given.alpha, given.beta, batch_last, given.activation)
    of_bias = None if bias is None else dims.bias
    # If only x and z are mapped, the mapped dimension joins the batch.
    if all(dim is None for dim in (*dims.weights, of_bias)):
        at = 1 if batch_last else 0
        x = _mapped(given.x, dims.x, size).movedim(0, at)
        z = None if z is None else _mapped(z, dims.z, size).movedim(0, at)
        return product(x, given.weights, bias, z, *scalars), at
    x = _features(_mapped(given.x, dims.x, size), batch_last)
    z = None if z is None else _features(_mapped(z, dims.z, size), batch_last)
    weights = [
        _mapped(item, dim, size).flatten(0, 1)
        for item, dim in zip(given.weights, dims.weights, strict=True)
    ]
    bias = None if bias is None else _mapped(bias, of_bias, size).flatten(0, 1)
    result = product(x, weights, bias, z, *scalars)
    if batch_last:
        return result.unflatten(0, (size, -1)), 0
    return result.unflatten(-1, (size, -1)), result.dim() - 1


def _mapped_gradient(size: int, given: Named, dims: Named) -> tuple[Tensor, int]:
    """The rule of kronop::ksmm_gradient: there is a gradient for every index of the mapped
    dimension."""
    x, grad = (
        _features(_mapped(item, dim, size), given.batch_last)
        for item, dim in ((given.x, dims.x), (given.grad, dims.grad))
    )
    a, *others = given.pattern
    result = ksmm_gradient.library(x, grad, [size * a, *others], given.alpha, given.batch_last)
    return result.unflatten(0, (size, a)), 0


def _mapped(item: Tensor, dim: int | None, size: int) -> Tensor:
    """`item` with the mapped dimension first; expanded to `size` if it is not mapped."""
    return item.expand(size, *item.shape) if dim is None else item.movedim(dim, 0)


def _features(item: Tensor, batch_last: bool) -> Tensor:
    """`item` with its first dimension merged into the features, as their slowest digit."""
    return item.flatten(0, 1) if batch_last else item.movedim(0, -2).flatten(-2)


def _check_recorded(given: Named) -> None:
    if given.activation is not None:
        raise ArgumentError(
            "activation of kronop::ksmm",
            expected="None where a gradient is needed",
            got=given.activation,
            hint="apply it to the result, as kronop.torch.ksmm does",
        )


ksmm = register(
    Operator(
        schema="ksmm(Tensor x, Tensor[] weights, Tensor? bias, Tensor? z, Scalar alpha,"
        " Scalar beta, bool batch_last, str? activation) -> Tensor",
        compute=computing.compute,
        fake=computing.fake,
        saved=("x", "weights"),
        backward=_gradients,
        jvp=_tangent,
        vmap=_mapped_product,
        decomposed=decomposed,
        record=_check_recorded,
        prepare=_prepare,
        autocast=Autocast.Narrow,
        direct=_DIRECT,
    )
)
ksmm_gradient = register(
    Operator(
        schema="ksmm_gradient(Tensor x, Tensor grad, int[] pattern, Scalar alpha,"
        " bool batch_last) -> Tensor",
        compute=lambda given: computing.compute_gradient(**vars(given)),
        fake=computing.fake_gradient,
        saved=("x", "grad"),
        backward=_gradients_of_gradient,
        jvp=_tangent_of_gradient,
        vmap=_mapped_gradient,
    )
)
