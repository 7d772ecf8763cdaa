"""ksmm on JAX arrays: one primitive, linear in x and in each factor's weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters import batching
from jax.typing import ArrayLike

from kronop.args.base import Arguments
from kronop.args.view import TensorView
from kronop.descriptions.activation import ActivationName
from kronop.descriptions.shared import check_flag
from kronop.families.ksparse.api import sparse_arguments
from kronop.families.ksparse.shape_arguments import chain_patterns, result_shape
from kronop.jax.checks import array, arrays, check_types, number, with_source
from kronop.jax.derivatives import contract, differentiate
from kronop.jax.epilogues import activate, check_activated, checked_bias
from kronop.jax.primitives import primitive

__all__ = ["ksmm"]


def ksmm(
    x: ArrayLike,
    weights: ArrayLike | Sequence[ArrayLike],
    *,
    batch_last: bool = False,
    bias: ArrayLike | None = None,
    activation: ActivationName | None = None,
    alpha: float = 1.0,
    beta: float | None = None,
    z: ArrayLike | None = None,
) -> jax.Array:
    """activation(alpha x K' + beta z + bias) on JAX arrays, on a CPU or an NVIDIA GPU.

    As `kronop.ksmm`, and a primitive of JAX, as `kronop.jax.gemkm` is. XLA adds z and bias and
    applies the activation. With a gradient of weights, factors are applied one by one, and the
    results between them are kept for the backward.

    Args:
        x: (..., a c d), or (a c d, ...) with `batch_last`, of the types of `kronop.jax.gemkm`.
        weights: one (a, b, c, d) array of x's type, or a list or tuple of them, the right-most
            factor, which is applied first, first.
        batch_last: the batch is behind the features.
        bias: (a b d,) of the last factor applied, of the result's type.
        activation: None, or one of relu, leaky_relu, tanh, sigmoid, silu, hardswish, gelu.
        alpha, beta: Python numbers, constants of a compiled function; beta needs `z`.
        z: like the result.

    Returns:
        (..., a b d), or (a b d, ...) with `batch_last`, of x's element type (int32 of int8).

    Raises:
        ArgumentError: shapes or scalars that do not fit.
        ElementTypeError: what is no array, or element types that do not fit.
        DescriptionError: an activation of integers.
        CompileError, DeviceError: no compiler, or a kernel that does not load here.

    Example:
        >>> import kronop.jax
        >>> rng = np.random.default_rng(0)
        >>> x = rng.standard_normal((3, 16), np.float32)
        >>> w = rng.standard_normal((4, 4, 4, 1), np.float32)
        >>> y = kronop.jax.ksmm(x, w)
        >>> expected = np.einsum("nikl,ijkl->nijl", x.reshape(3, 4, 4, 1), w)
        >>> y.shape, bool(np.allclose(y, expected.reshape(3, 16), atol=1e-5))
        ((3, 16), True)
    """
    check_flag("batch_last", batch_last)
    x = array("x", x, 1)
    check_activated(activation, x.dtype)
    chain = weights if isinstance(weights, (list, tuple)) else [weights]
    chain = arrays("weights", chain, 4)
    check_types(x, chain, "weights")
    batch = x.shape[1:] if batch_last else x.shape[:-1]
    rows = math.prod(batch)
    folded = x.reshape((len(x), rows) if batch_last else (rows, x.shape[-1]))
    alpha = number("alpha", alpha, x.dtype)
    made = ksparse.bind(folded, *chain, batch_last=batch_last, alpha=alpha)
    shape = (len(made), *batch) if batch_last else (*batch, made.shape[-1])
    result = with_source(made.reshape(shape), z, beta)
    if bias is not None:
        bias = checked_bias(bias, result, 0 if batch_last else -1)
        spread = (-1, *(1,) * (result.ndim - 1))
        result = result + (bias.reshape(spread) if batch_last else bias)
    return result if activation is None else activate(activation, result)


def _shape(x: jax.Array, *weights: jax.Array, batch_last: bool, alpha: float) -> tuple[int, ...]:
    return result_shape(x.shape, chain_patterns([item.shape for item in weights]), batch_last)


def _arguments(
    x: TensorView, *weights: TensorView, out: TensorView, batch_last: bool, alpha: float
) -> Arguments:
    return sparse_arguments(x, weights, batch_last, None, None, (alpha, 0.0), None, out)


def _steps(x: jax.Array, *weights: jax.Array, batch_last: bool, alpha: float) -> jax.Array:
    """The product as one product with each factor."""
    for weight in weights:
        x, alpha = ksparse.bind(x, weight, batch_last=batch_last, alpha=alpha), 1
    return x


def _transposed(
    ct: jax.Array, weights: Sequence[jax.Array], batch_last: bool, alpha: float
) -> jax.Array:
    turned = [item.swapaxes(1, 2) for item in reversed(weights)]
    return ksparse.bind(ct, *turned, batch_last=batch_last, alpha=alpha)


def _gradient(
    ct: jax.Array, x: jax.Array, weight: jax.Array, batch_last: bool, alpha: float
) -> jax.Array:
    a, b, c, d = weight.shape
    if batch_last:
        labels, blocks = ("ikln", "ijln"), ((a, c, d, x.shape[1]), (a, b, d, x.shape[1]))
    else:
        labels, blocks = ("nikl", "nijl"), ((len(x), a, c, d), (len(x), a, b, d))
    of_x, of_ct = x.reshape(blocks[0]), ct.reshape(blocks[1])
    return contract(of_x, of_ct, (*labels, "ijkl"), alpha)


def _mapped(
    operands: Sequence[jax.Array], dims: Sequence[Any], *, batch_last: bool, alpha: float
) -> tuple[jax.Array, int]:
    """jax.vmap: of x alone it is more batch, of weights it is more blocks."""
    across = 1 if batch_last else 0  # The dimension of the batch in x, and the features' one.
    along = 1 - across
    x, *weights = operands
    if all(dim is None for dim in dims[1:]):
        x, at = jnp.moveaxis(x, dims[0], across), across
        weights = list(weights)
    else:
        # V factors (a, b, c, d) are one factor (V a, b, c, d) over V times the features.
        size = next(i.shape[at] for i, at in zip(operands, dims, strict=True) if at is not None)
        x, at = _with_mapped(x, dims[0], along, size), along
        mapped = (_with_mapped(*item, 0, size) for item in zip(weights, dims[1:], strict=True))
        weights = [item.reshape(-1, *item.shape[2:]) for item in mapped]
    size = x.shape[at]
    folded = x.reshape(*x.shape[:at], size * x.shape[at + 1], *x.shape[at + 2 :])
    made = ksparse.bind(folded, *weights, batch_last=batch_last, alpha=alpha)
    shape = (*made.shape[:at], size, made.shape[at] // size, *made.shape[at + 1 :])
    return made.reshape(shape), at


def _with_mapped(item: jax.Array, dim: int | None, to: int, size: int) -> jax.Array:
    """The operand with its mapped dimension at `to`, where it is repeated if it has none."""
    if dim is not None:
        return jnp.moveaxis(item, dim, to)
    shape = (*item.shape[:to], size, *item.shape[to:])
    return jnp.broadcast_to(jnp.expand_dims(item, to), shape)


ksparse = primitive("kronop_ksparse", _shape, _arguments)
differentiate(ksparse, _steps, _transposed, _gradient)
batching.primitive_batchers[ksparse] = _mapped
