"""What XLA does to the sums of a kernel: it adds a bias and applies an activation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from kronop.core.calls import check_activation
from kronop.descriptions import activation as activations
from kronop.descriptions.expression import BOUND
from kronop.errors import ArgumentError
from kronop.jax.checks import array, check_types, computed_in


def check_activated(activation: str | None, dtype: jnp.dtype) -> None:
    """Refuses what is no activation of products of arrays of a dtype.

    Raises:
        ArgumentError: there is no such activation.
        DescriptionError: an activation of integers.
    """
    check_activation(activation)
    if activation is not None:
        getattr(activations, activation)(computed_in(dtype))


def checked_bias(bias: ArrayLike, result: jax.Array, axis: int) -> jax.Array:
    """A bias that fits an axis of the result.

    Raises:
        ArgumentError, ElementTypeError: it does not.
    """
    found, features = array("bias", bias, 1), result.shape[axis]
    check_types(result, [found], "bias")
    if found.shape != (features,):
        raise ArgumentError(
            "shape of bias",
            expected=(features,),
            got=found.shape,
            hint="one value for each output feature",
        )
    return found


def activate(name: str, x: jax.Array) -> jax.Array:
    """The activation; JAX's gelu is the approximate one unless told otherwise. JAX gives NaN for
    minus infinity where activations fall to 0."""
    if name in ("silu", "hardswish", "gelu"):
        x = jnp.maximum(x, BOUND)
    if name == "hardswish":
        return jax.nn.hard_swish(x)
    if name == "gelu":
        return jax.nn.gelu(x, approximate=False)
    return getattr(jnp if name == "tanh" else jax.nn, name)(x)
