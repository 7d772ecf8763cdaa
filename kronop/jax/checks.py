"""Checks that the functions of kronop.jax make of their arguments."""

from __future__ import annotations

import numbers
from collections.abc import Sequence

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.scalars import scalar
from kronop.descriptions.shared import beta_beside
from kronop.errors import ArgumentError, ElementTypeError
from kronop.jax.recording import element_of


def array(name: str, item: object, dimensions: int) -> jax.Array:
    """The argument as a JAX array of at least so many dimensions; arrays of NumPy are taken too.

    Raises:
        ElementTypeError: it is neither, or no kernel knows its element type.
        ArgumentError: it has too few dimensions, or symbolic ones.
    """
    if not isinstance(item, (jax.Array, np.ndarray)):
        raise ElementTypeError(
            name,
            expected="a JAX or NumPy array",
            got=type(item).__name__,
            hint="the functions of the same names in kronop and kronop.torch take tensors of"
            " other frameworks",
        )
    made = jnp.asarray(item)
    element_of(name, made.dtype)
    if any(jax.export.is_symbolic_dim(extent) for extent in made.shape):
        raise ArgumentError(
            f"shape of {name}",
            expected="extents that are numbers",
            got=made.shape,
            hint="kernels are planned for given shapes: jax.jit compiles a function for each"
            " that it is called with",
        )
    if made.ndim < dimensions:
        raise ArgumentError(
            f"shape of {name}",
            expected=f"at least {dimensions} dimensions",
            got=made.shape,
            hint="reshape it",
        )
    return made


def arrays(name: str, items: object, dimensions: int) -> list[jax.Array]:
    """As `array`, for each item of a list or tuple.

    Raises:
        ElementTypeError, ArgumentError: as `array`; or it is no list, or an empty one.
    """
    if not isinstance(items, (list, tuple)) or not items:
        raise ElementTypeError(
            name,
            expected="a list or tuple of at least one array",
            got="an empty one" if isinstance(items, (list, tuple)) else type(items).__name__,
            hint="wrap a single one in a list",
        )
    return [array(f"{name}[{at}]", item, dimensions) for at, item in enumerate(items)]


def check_types(x: jax.Array, others: Sequence[jax.Array], name: str) -> None:
    """Refuses operands of another element type than x: JAX would promote them, kernels don't."""
    for at, item in enumerate(others):
        if item.dtype != x.dtype:
            raise ElementTypeError(
                f"element types of x and {name}[{at}]",
                expected=f"one type for x and all {name}",
                got=f"{x.dtype} of x and {item.dtype} of {name}[{at}]",
                hint=f"convert one: {name}[{at}].astype(x.dtype), say",
            )


def computed_in(dtype: jnp.dtype) -> DataType:
    """The type in which kernels apply scalars and activations to products of arrays of a dtype."""
    return MathInstruction.simt(element_of("operands", dtype)).element_accumulator


def number(name: str, value: object, dtype: jnp.dtype) -> float:
    """The scalar of a product of arrays of a dtype, which is a constant of the compiled function.

    Raises:
        ElementTypeError: it is an array, a tracer, or no number.
        ArgumentError: it is not finite in the type that the kernels compute in or, for integers,
            not whole.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ElementTypeError(
            name,
            expected="a Python number",
            got=type(value).__name__,
            hint="scalars are constants without gradients; multiply the result by an array",
        )
    return scalar(name, value, computed_in(dtype))


def with_source(result: jax.Array, z: ArrayLike | None, beta: float | None) -> jax.Array:
    """result + beta z, which is rounded once from a sum in float32 at least.

    Raises:
        ElementTypeError: z has another element type, or beta is no number.
        ArgumentError: z has another shape; beta is given without z, or z without beta; `number`.
    """
    beta = number("beta", beta_beside(z, beta), result.dtype)
    if z is None:
        if beta:
            raise ArgumentError("beta", expected="0 without z", got=beta, hint="pass z")
        return result
    z = array("z", z, 0)
    if z.dtype != result.dtype or z.shape != result.shape:
        raise (ElementTypeError if z.dtype != result.dtype else ArgumentError)(
            "z",
            expected=f"{result.dtype} of shape {result.shape}, as the result",
            got=f"{z.dtype} of shape {z.shape}",
            hint="convert or broadcast it",
        )
    wide = np.dtype(computed_in(result.dtype).name)
    return (result.astype(wide) + beta * z.astype(wide)).astype(result.dtype) if beta else result
