"""conv2d with gradients, on torch tensors."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from kronop.core.calls import check_activation
from kronop.descriptions.activation import ActivationName
from kronop.families.conv2d.api import Layout, converts, misplaced
from kronop.families.conv2d.geometry import Extents, Geometry, Padding, Shape
from kronop.families.conv2d.torch.operators import activated, convolve
from kronop.torch.activated import chosen
from kronop.torch.checks import are_symbols, check_tensor


def conv2d(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    stride: Extents = 1,
    padding: Padding = 0,
    dilation: Extents = 1,
    groups: int = 1,
    activation: ActivationName | None = None,
    layout: Layout = None,
) -> Tensor:
    """activation(x * w + bias), a convolution of images with filters, differentiable in x, w and
    bias.

    As `kronop.conv.conv2d`, and a torch operator: autograd to any order and in both modes,
    torch.compile without a graph break, torch.vmap, torch.func, and cast to autocast's type as
    torch's own is. Gradients are kronop's convolutions, one for each of x and w, with the same bits
    in every run. With relu, leaky_relu, tanh or sigmoid the backward reads the result. With others
    the sums, rounded to the result's type, are kept beside it, and torch computes the activation of
    these.

    Args:
        x: (N, C, H, W), in memory with the channels last (torch.channels_last); (C, H, W) is one
            image.
        w: (K, C / groups, R, S), of the same type, likewise.
        bias: (K), of the result's type.
        stride, dilation: one number, or a pair (along H, along W).
        padding: likewise, zeros on both sides; or "same", or "valid" for none.
        groups: the channels and filters are divided in so many groups.
        activation: "relu", "leaky_relu", "tanh", "sigmoid", "silu", "hardswish", "gelu" or None.
        layout: "NCHW" converts tensors whose channels are not last, and the result back; None
            refuses them. Gradients are converted in any case.

    Returns:
        (N, K, P, Q), or (K, P, Q) of one image, of x's type; of int8 int32, without gradients, and
        of floats of 8 bits bfloat16. In memory the channels are last, or with layout "NCHW" it is
        contiguous.

    Raises:
        ArgumentError: shapes, devices, numbers, memory or an activation that do not fit.
        ElementTypeError: what is no torch tensor, or element types that do not fit.

    Example:
        >>> import torch
        >>> generator = torch.manual_seed(0)
        >>> last = torch.channels_last
        >>> x = torch.randn(2, 3, 8, 8).to(memory_format=last)
        >>> w = torch.randn(4, 3, 3, 3).to(memory_format=last).requires_grad_()
        >>> y = kronop.torch.conv2d(x, w, padding=1, activation="relu")
        >>> expected = torch.relu(torch.nn.functional.conv2d(x, w, padding=1))
        >>> bool(torch.allclose(y, expected, atol=1e-5))
        True
        >>> y.sum().backward()
        >>> w.grad.shape
        torch.Size([4, 3, 3, 3])
    """
    is_converted = converts(layout)
    if not is_converted:
        _check_memory(x, "x")
        _check_memory(w, "w")
    found = convolved(x, w, bias, stride, padding, dilation, groups, activation)
    return found.contiguous() if is_converted else found


def convolved(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    stride: Extents,
    padding: Padding,
    dilation: Extents,
    groups: int,
    activation: ActivationName | None,
) -> Tensor:
    """As `conv2d`, of tensors in any layout; in the result the channels are last."""
    given, how = (x, w, bias), (stride, padding, dilation, groups)
    if isinstance(x, Tensor) and x.dim() == len("CHW"):
        found = convolved(x.unsqueeze(0), w, bias, *how, activation)
        return found.squeeze(0)
    named = () if activation is None else (activation,)
    operator = convolve if activation is None else activated
    words = None if torch.compiler.is_compiling() else _remembered(x, w, how)
    if words is not None:
        found = operator.plain.again(*given, *words, *named)
        if found is not None:
            return found
    check_activation(activation)
    if are_symbols(given):
        found = torch.overrides.handle_torch_function(convolved, given, *given, *how, activation)
        return found  # noqa: RET504  # Its type is not known.
    for name, item, least in (("x", x, 3), ("w", w, 4), ("bias", bias, 1)):
        if item is not None or name != "bias":
            check_tensor(name, item, least, "kronop.conv.conv2d does")
    call = chosen(convolve, activated, given, bool(named))
    return call(*given, *(words or _words(*how, x.shape, w.shape)), *named)


def _words(
    stride: Extents, padding: Padding, dilation: Extents, groups: int, x: Shape, w: Shape
) -> tuple[Any, ...]:
    """What the operators take behind the tensors.

    Raises:
        ArgumentError: numbers or shapes that do not fit.
    """
    geometry = Geometry.of(stride, padding, dilation, groups)
    geometry.check(x, w)
    pads, pixels = geometry.pixels(x[2:], w[2:])
    return "fprop", pixels, geometry.stride, pads, geometry.dilation, geometry.groups


# Typed, because True is not 1.
_known_words = functools.lru_cache(maxsize=1024, typed=True)(_words)


def _remembered(x: object, w: object, how: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """As `_words`, if it was asked for before or can be remembered; None else, and for what is no
    tensor with a shape."""
    if not (isinstance(x, Tensor) and isinstance(w, Tensor)) or x.is_nested or w.is_nested:
        return None
    try:
        return _known_words(*how, x.shape, w.shape)
    except TypeError:  # A list has no hash.
        return None


def _check_memory(item: object, name: str) -> None:
    """Refuses a tensor whose channels are not last in memory."""
    if not isinstance(item, Tensor) or item.is_nested or item.dim() not in (3, 4):
        return  # Refused with what is wrong.
    axis = item.dim() - len("CHW")
    if item.shape[axis] > 1 and item.stride(axis) != 1 and item.numel():
        raise misplaced(name, tuple(item.shape), item.stride(axis))
