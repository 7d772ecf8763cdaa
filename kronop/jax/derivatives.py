"""What the derivatives of all products of x and a list of factors share.

Such a product is linear in x and in each factor. Without a tangent of a factor, its tangent is the
product with the tangent of x. Else it is differentiated as a chain of products with one factor
each, for which the values between factors are kept, as in a sequence of layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad

from kronop.errors import ElementTypeError

Steps = Callable[..., jax.Array]
"""The product of x and factors, with the parameters by name, as a chain of single ones."""
Gradient = Callable[..., jax.Array]
"""The gradient of one factor from (gradient of the result, x, the factor's outline)."""

Operands = Sequence[jax.Array]
Parameters = Mapping[str, object]

Labels = Sequence[str]
"""A name for each dimension; those of one name are multiplied, and summed where it is not kept."""


def differentiate(
    product: Primitive, steps: Steps, transposed: Callable[..., jax.Array], gradient: Gradient
) -> None:
    """Defines the derivatives of a product in both modes, to any order.

    Args:
        product: takes x and the factors.
        steps: the same product as a chain of products with single factors.
        transposed: of a gradient and the factors, the product with the transposed operator.
        gradient: of the only factor.
    """

    def tangent(
        primals: Operands, tangents: Operands, **parameters: object
    ) -> tuple[jax.Array, jax.Array]:
        result = product.bind(*primals, **parameters)
        if primals[0].dtype != result.dtype:
            raise ElementTypeError(
                "element type of a product with derivatives",
                expected="float64, 32 or 16, or bfloat16",
                got=primals[0].dtype.name,
                hint="8-bit types have no derivatives",
            )
        moving = [at for at, item in enumerate(tangents) if not isinstance(item, ad.Zero)]
        if len(primals) > 2 and any(moving):
            return result, _along(steps, primals, tangents, moving, parameters)
        terms = ((*primals[:at], tangents[at], *primals[at + 1 :]) for at in moving)
        first, *others = (product.bind(*operands, **parameters) for operands in terms)
        return result, sum(others, start=first)

    def transpose(
        ct: jax.Array, *operands: jax.Array, **parameters: object
    ) -> list[jax.Array | None]:
        found: list[jax.Array | None] = [None] * len(operands)
        (at,) = (i for i, item in enumerate(operands) if ad.is_undefined_primal(item))
        if isinstance(ct, ad.Zero):
            found[at] = ad.Zero(operands[at].aval)
        elif at == 0:
            result = transposed(ct, operands[1:], **parameters)
            found[0] = reduced(result, operands[0].aval.shape)
        elif len(operands) == 2:
            found[1] = gradient(ct, operands[0], operands[1].aval, **parameters)
        else:
            found[at] = _of_chain(steps, ct, operands, at, parameters)
        return found

    ad.primitive_jvps[product] = tangent
    ad.primitive_transposes[product] = transpose


def _along(
    steps: Steps,
    primals: Operands,
    tangents: Operands,
    moving: Sequence[int],
    parameters: Parameters,
) -> jax.Array:
    """The tangent of the chain, differentiated in what has a tangent. Its result is not used: a
    function's value must not depend on whether its derivative is asked for."""

    def chain(*given: jax.Array) -> jax.Array:
        operands = list(primals)
        for at, item in zip(moving, given, strict=True):
            operands[at] = item
        return steps(*operands, **parameters)

    of_moving = [primals[at] for at in moving], [tangents[at] for at in moving]
    return jax.jvp(chain, *of_moving)[1]


def _of_chain(
    steps: Steps, ct: jax.Array, operands: Operands, at: int, parameters: Parameters
) -> jax.Array:
    """The gradient of one of several factors, in which alone the product is linear."""
    aval = operands[at].aval

    def chain(factor: jax.Array) -> jax.Array:
        return steps(*operands[:at], factor, *operands[at + 1 :], **parameters)

    (found,) = jax.linear_transpose(chain, aval)(ct)
    return found


def contract(
    left: jax.Array, right: jax.Array, labels: tuple[Labels, Labels, Labels], alpha: float = 1
) -> jax.Array:
    """alpha times `jnp.einsum` of two operands, which sums in float32 at least and rounds once, as
    kernels do. A label for each dimension of left, of right and of the result."""
    of_left, of_right, kept = map(list, labels)
    highest, wide = jax.lax.Precision.HIGHEST, _wide(left)
    summed = jnp.einsum(
        left, of_left, right, of_right, kept, precision=highest, preferred_element_type=wide
    )
    return (summed * alpha if alpha != 1 else summed).astype(left.dtype)


def reduced(gradient: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """The gradient of an operand of this shape, from that of the operand as it was broadcast; it
    sums in float32 at least and rounds once."""
    lead = len(gradient.shape) - len(shape)
    axes = [axis for axis in range(lead, len(gradient.shape)) if shape[axis - lead] == 1]
    spread = tuple(axis for axis in axes if gradient.shape[axis] != 1)
    summed = gradient.sum((*range(lead), *spread), dtype=_wide(gradient))
    return summed.astype(gradient.dtype).reshape(shape)


def _wide(item: jax.Array) -> jnp.dtype:
    """The dtype in which to sum what the array holds."""
    return jnp.promote_types(item.dtype, jnp.float32)
