"""conv2d on JAX arrays: one primitive for convolutions and their gradients, linear in both
operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters import ad, batching
from jax.typing import ArrayLike

from kronop.args.base import Arguments
from kronop.args.view import TensorView
from kronop.descriptions.activation import ActivationName
from kronop.families.conv2d import bilinear
from kronop.families.conv2d.api import arguments_of
from kronop.families.conv2d.bilinear import Form
from kronop.families.conv2d.geometry import Extents, Geometry, Padding, Shape
from kronop.jax.checks import array, check_types
from kronop.jax.epilogues import activate, check_activated, checked_bias
from kronop.jax.primitives import primitive

__all__ = ["conv2d"]
_CHANNELS = 3


def conv2d(
    x: ArrayLike,
    w: ArrayLike,
    bias: ArrayLike | None = None,
    stride: Extents = 1,
    padding: Padding = 0,
    dilation: Extents = 1,
    groups: int = 1,
    activation: ActivationName | None = None,
) -> jax.Array:
    """activation(x * w + bias), a convolution of images with filters, on JAX arrays, on a CPU or an
    NVIDIA GPU.

    The channels are the last axis, as JAX's arrays lie in memory. Filters are not flipped: results
    are those of `jax.lax.conv_general_dilated` with dimension_numbers=("NHWC", "OHWI", "NHWC").

    It is a primitive of JAX, as `kronop.jax.gemkm` is: under jit, vmap, grad, jvp, linearize,
    checkpoint and their compositions, to any order. Gradients are kronop's convolutions, one for
    each of x and w. XLA adds the bias and applies the activation.

    Args:
        x: (N, H, W, C), in float64 (with jax_enable_x64), 32 or 16, bfloat16, a float of 8 bits,
            int64, 32 or 8.
        w: (K, R, S, C / groups), of x's type.
        bias: (K), of the result's type.
        stride, dilation: one number, or a pair (along H, along W).
        padding: likewise, zeros on both sides; or "same", or "valid" for none.
        groups: the channels and filters are divided in so many groups.
        activation: None, or one of relu, leaky_relu, tanh, sigmoid, silu, hardswish, gelu.

    Returns:
        (N, P, Q, K), of x's element type (int32 of int8, bfloat16 of floats of 8 bits).

    Raises:
        ArgumentError: shapes, numbers or an activation that do not fit.
        ElementTypeError: what is no array, or element types that do not fit.
        DescriptionError: an activation of integers.
        CompileError, DeviceError: no compiler, or a kernel that does not load here.

    Example:
        >>> import jax, kronop.jax
        >>> x, w = np.ones((1, 4, 4, 2), np.float32), np.ones((3, 3, 3, 2), np.float32)
        >>> y = jax.jit(kronop.jax.conv2d)(x, w)
        >>> y.shape, float(y[0, 0, 0, 0])
        ((1, 2, 2, 3), 18.0)
        >>> jax.grad(lambda w: kronop.jax.conv2d(x, w).sum())(w).shape
        (3, 3, 3, 2)
    """
    x, w = array("x", x, 1), array("w", w, 1)
    check_activated(activation, x.dtype)
    check_types(x, [w], "w")
    geometry = Geometry.of(stride, padding, dilation, groups)
    images, filters = _first(x.shape), _first(w.shape)
    geometry.check(images, filters, "x is (N, H, W, C), w (K, R, S, C / groups)")
    pads, pixels = geometry.pixels(images[2:], filters[2:])
    form = Form("fprop", pixels, geometry.stride, pads, geometry.dilation, geometry.groups)
    result = _multiply(form, x, w)
    if bias is not None:
        result = result + checked_bias(bias, result, -1)
    return result if activation is None else activate(activation, result)


def _first(shape: Shape) -> Shape:
    """A shape with the channels behind the first axis, of one with the channels last."""
    if len(shape) != len("NHWC"):
        return shape  # It is refused later.
    return (shape[0], shape[_CHANNELS], *shape[1:_CHANNELS])


def _multiply(form: Form, a: jax.Array, b: jax.Array) -> jax.Array:
    return convolve.bind(a, b, form=form)


def _shape(a: jax.Array, b: jax.Array, form: Form) -> tuple[int, ...]:
    first, channels, *pixels = form.shape(_first(a.shape), _first(b.shape))
    return (first, *pixels, channels)


def _arguments(a: TensorView, b: TensorView, out: TensorView, form: Form) -> Arguments:
    size = form.size(_first(a.shape), _first(b.shape))
    return arguments_of(form.operator, a, b, size, out=out, called=form.called)


def _gradient(form: Form, at: int, operands: Sequence[Any], ct: jax.Array) -> jax.Array:
    """The gradient in the operand at `at`, of which only the shape is known."""
    pixels = operands[at].aval.shape[1:_CHANNELS]
    return _multiply(*form.gradient(at, operands, ct, pixels))


def _mapped(
    operands: Sequence[jax.Array], dims: Sequence[int | None], form: Form
) -> tuple[jax.Array, int]:
    """jax.vmap: the mapped dimension becomes a part of another one."""
    pairs = zip(operands, dims, strict=True)
    every = [item if dim is None else jnp.moveaxis(item, dim, 0) for item, dim in pairs]
    are = [dim is not None for dim in dims]
    return bilinear.mapped(form, every, are, _CHANNELS, jnp.moveaxis, _multiply), 0


convolve = primitive("kronop_conv2d", _shape, _arguments)
ad.defbilinear(
    convolve,
    lambda ct, a, b, form: _gradient(form, 0, (a, b), ct),
    lambda ct, a, b, form: _gradient(form, 1, (a, b), ct),
)
batching.primitive_batchers[convolve] = _mapped
