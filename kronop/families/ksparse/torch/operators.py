"""The operators kronop::ksmm and kronop::ksmm_gradient, and their derivatives.

With K the factor of weights w, g the gradient of alpha x K' + beta z + bias,

    of x: alpha g K          of w: alpha sum over the batch of g x, entry by entry
    of z: beta g             of bias: sum over the batch of g

K is the transpose of the factor K': its product is that with the weights (a, c, b, d). Both
operators are linear in each of their operands, and their derivatives consist of calls of both.
"""

from __future__ import annotations

from torch import Tensor

from kronop.errors import ArgumentError, mismatch
from kronop.families.ksparse.torch import batching, computing, decomposed
from kronop.families.ksparse.torch.chain import DIRECT, prepare
from kronop.families.ksparse.torch.shapes import bias_gradient, turned
from kronop.torch.declaration import Autocast, Gradients, Named, Operator
from kronop.torch.memory import settled
from kronop.torch.registration import register


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
    found["weights"] = [None] * len(weights)
    operands = [x]
    for at in range(max(at for at, need in enumerate(needs.weights) if need)):
        operands.append(_factor(operands[at], weights[at], last))
    first = -1 if needs.x else list(needs.weights).index(True)
    alpha = given.alpha  # Applied at the last factor only: the gradient contains it from there on.
    for at in reversed(range(len(weights))):
        weight = weights[at]
        if needs.weights[at]:
            shape = list(weight.shape)
            found["weights"][at] = ksmm_gradient(operands[at], grad, shape, alpha, last)
        if at > first:
            grad, alpha = _factor(grad, turned(weight), last, alpha), 1
    return found | {"x": grad} if needs.x else found


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
    z, beta = (None, 0) if not given.beta else (tangents.z, given.beta)
    if all(item is None for item in (found, *tangents.weights)):
        return _tangent_of_summands(given, tangents.bias, z)
    for at, (weight, of_weight) in enumerate(zip(weights[:-1], tangents.weights, strict=False)):
        found = _sum_of_products(found, weight, x, of_weight, (None, None, 1, 0), last)
        if any(item is not None for item in tangents.weights[at + 1 :]):
            x = _factor(x, weight, last)
    others = (tangents.bias, z, given.alpha, 0 if z is None else beta)
    return _sum_of_products(found, weights[-1], x, tangents.weights[-1], others, last)


def _sum_of_products(
    tangent: Tensor | None,
    weight: Tensor,
    x: Tensor,
    of_weight: Tensor | None,
    others: tuple[Tensor | None, Tensor | None, float, float],
    last: bool,
) -> Tensor | None:
    """alpha (u K' + x dK') + beta z + bias, leaving out the summands whose tangent is None.

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


def _tangent_of_summands(
    given: Named, of_bias: Tensor | None, of_z: Tensor | None
) -> Tensor | None:
    if of_bias is not None:
        behind = given.x.dim() - 1 if given.batch_last else 0
        of_bias = of_bias.reshape(-1, *[1] * behind)
    if of_z is None:
        return of_bias
    return given.beta * of_z if of_bias is None else given.beta * of_z + of_bias


def _tangent_of_gradient(given: Named, tangents: Named) -> Tensor | None:
    """The tangent of kronop::ksmm_gradient's result."""
    others = (list(given.pattern), given.alpha, given.batch_last)
    found = None if tangents.x is None else ksmm_gradient(tangents.x, given.grad, *others)
    if tangents.grad is None:
        return found
    other = ksmm_gradient(given.x, tangents.grad, *others)
    return other if found is None else found + other


def _check_recorded(given: Named) -> None:
    if given.activation is not None:
        raise ArgumentError(
            mismatch(
                "activation of kronop::ksmm",
                expected="None where a gradient is needed",
                got=given.activation,
                hint="apply it to the result, as kronop.torch.ksmm does",
            )
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
        vmap=batching.ksmm,
        decomposed=decomposed.ksmm,
        record=_check_recorded,
        prepare=prepare,
        autocast=Autocast.Narrow,
        direct=DIRECT,
    )
)
ksmm_gradient = register(
    Operator(
        schema="ksmm_gradient(Tensor x, Tensor grad, int[] pattern, Scalar alpha,"
        " bool batch_last) -> Tensor",
        compute=computing.compute_gradient,
        fake=computing.fake_gradient,
        saved=("x", "grad"),
        backward=_gradients_of_gradient,
        jvp=_tangent_of_gradient,
        vmap=batching.ksmm_gradient,
    )
)
