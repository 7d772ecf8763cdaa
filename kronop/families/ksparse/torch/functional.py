"""Chains of Kronecker-sparse products with gradients, on torch tensors."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kronop.core.calls import check_activation
from kronop.descriptions.activation import ActivationName
from kronop.descriptions.shared import beta_beside
from kronop.families.ksparse.shape_arguments import chain_patterns
from kronop.families.ksparse.torch.operators import ksmm as product
from kronop.torch import transforms
from kronop.torch.checks import (
    LISTS,
    are_symbols,
    check_source,
    check_tensor,
    check_tensors,
    number,
)
from kronop.torch.direct import is_plain, needs_gradient


def ksmm(
    x: Tensor,
    weights: Tensor | Sequence[Tensor],
    *,
    batch_last: bool = False,
    bias: Tensor | None = None,
    activation: ActivationName | None = None,
    alpha: float = 1.0,
    beta: float | None = None,
    z: Tensor | None = None,
) -> Tensor:
    """activation(alpha x K' + beta z + bias), differentiable in x, all weights, bias and z.

    As `kronop.ksmm`, and a torch operator: autograd to any order and in both modes, autocast,
    torch.compile without a graph break, torch.export, torch.vmap, torch.func. Gradients are
    computed by kronop's kernels (those of weights on a CPU by torch's matrix products): one product
    with the transposed factor and one gradient of weights for each factor; tangents by one product
    for each of x and the weights that has one. The patterns (a, b, c, d) are those of Gonon, Zheng,
    Carrivain and Le, "Fast inference with Kronecker-sparse matrices" (arXiv 2405.15013).

    Without a gradient, a list of weights is one call. With one, factors are applied one by one, and
    the results between them are kept for the backward, as in a sequence of modules. With
    torch.utils.checkpoint they are computed again instead, which costs a product for every factor
    but the last; a second derivative always computes them again. With a gradient, torch applies the
    activation, because its gradient needs the values that it was applied to.

    Args:
        x: (..., a c d), or (a c d, ...) with `batch_last`.
        weights: one (a, b, c, d) tensor of x's type and device, or a list, tuple or ParameterList
            of them, the right-most factor, which is applied first, first. Under autocast types of
            16 and 32 bits are cast to autocast's.
        batch_last: the batch is behind the features.
        bias: (a b d,) of the last factor applied.
        activation: None, or one of relu, leaky_relu, tanh, sigmoid, silu, hardswish, gelu.
        alpha, beta: numbers, without gradient; beta needs `z`, and `z` a beta.
        z: like the result; read only where beta is not 0.

    Returns:
        (..., a b d), or (a b d, ...) with `batch_last`, of x's element type (int32 of int8,
        bfloat16 of 8-bit floats, which have no gradients) and device.

    Raises:
        ArgumentError: shapes, devices or scalars that do not fit.
        ElementTypeError: what is no torch tensor, or element types that do not fit.
        CompileError, DeviceError, OutOfMemoryError: as `kronop.ksmm`.

    Example:
        >>> import torch
        >>> generator = torch.manual_seed(0)
        >>> x, w = torch.randn(3, 16), torch.randn(4, 4, 4, 1, requires_grad=True)
        >>> y = kronop.torch.ksmm(x, w)
        >>> blocks = w.squeeze(-1)  # a = 4 dense blocks of b x c = 4 x 4, as d is 1
        >>> bool(torch.allclose(y, x @ torch.block_diag(*blocks).T, atol=1e-5))
        True
        >>> y.sum().backward()
        >>> w.grad.shape
        torch.Size([4, 4, 4, 1])
    """
    beta = beta_beside(z, beta)
    chain = list(weights) if isinstance(weights, LISTS) else [weights]
    if not torch.compiler.is_compiling():
        result = product.plain.again(x, chain, bias, z, alpha, beta, batch_last, activation)
        if result is not None:
            return result
    given = (x, *chain, bias, z)
    if x is not None and is_plain(given):
        if not needs_gradient(given):
            return product.plain(x, chain, bias, z, alpha, beta, batch_last, activation)
        check_activation(activation)
        alpha, beta = number("alpha", alpha), number("beta", beta)
        result = product.plain(x, chain, bias, z, alpha, beta, batch_last, None)
        return _activated(result, activation)
    if are_symbols(given):
        others = {"activation": activation, "alpha": alpha, "beta": beta, "z": z}
        return torch.overrides.handle_torch_function(
            ksmm, given, x, chain, batch_last=batch_last, bias=bias, **others
        )
    if not isinstance(weights, LISTS):
        check_tensor("weights", weights, 4, "lists of tensors are taken as well; kronop.ksmm does")
    _check(x, chain, bias, z, activation)
    alpha, beta = number("alpha", alpha), number("beta", beta)
    check_source(beta, z)
    # torch.jit.trace checks its graph without gradients, and wants the same one again.
    is_derived = torch.jit.is_tracing() or _may_need_derivative(given)
    if torch.compiler.is_exporting() or torch.jit.is_tracing() or not is_derived:
        fused = None if is_derived else activation
        result = product(x, chain, bias, z, alpha, beta, batch_last, fused)
        return _activated(result, activation if is_derived else None)
    for weight in chain[:-1]:
        x = product(x, [weight], None, None, 1, 0, batch_last, None)
    result = product(x, chain[-1:], bias, z, alpha, beta, batch_last, None)
    return _activated(result, activation)


def again(
    x: Tensor, weights: Sequence[Tensor], bias: Tensor | None, batch_last: bool
) -> Tensor | None:
    """The result of `ksmm` by repeating an earlier call with tensors like these; None if there was
    none, so that `ksmm` has to be called. Not for use under tracing. No tensor may be a list."""
    tensors = [x, *weights] if bias is None else [x, *weights, bias]
    return product.plain.repeat(_frame(len(weights), bias is None, batch_last), tensors)


@functools.lru_cache(maxsize=64)
def _frame(count: int, is_plain: bool, batch_last: bool) -> tuple[object, ...]:
    """The structure of the arguments in the order of the operator's schema: 1 for a tensor, the
    number of tensors for a list, and the values of all others."""
    return (1, count, None if is_plain else 1, None, 1.0, 0.0, batch_last, None)


def _may_need_derivative(tensors: Sequence[Tensor]) -> bool:
    """Whether a derivative may be needed; True if that can't be told.

    Under torch.func transforms it can't: requires_grad is False for a mapped row of a tensor that
    requires a gradient, and other transforms hide tangents.
    """
    if not transforms.are_needed():
        return needs_gradient(tensors)
    is_recorded = torch.is_grad_enabled() or transforms.are_tangents_possible()
    return is_recorded and bool(tensors[0].is_floating_point())


def _activated(result: Tensor, activation: str | None) -> Tensor:
    return result if activation is None else getattr(torch.nn.functional, activation)(result)


def _check(
    x: Tensor, chain: Sequence[Tensor], bias: Tensor | None, z: Tensor | None, activation: Any
) -> None:
    """Refuses arguments for which the operator's own messages would not say what is wrong."""
    check_tensor("x", x, 1, "kronop.ksmm does")
    check_tensors("weights", chain, 4, "kronop.ksmm does")
    chain_patterns([tuple(item.shape) for item in chain])
    for name, item in (("bias", bias), ("z", z)):
        if item is not None:
            check_tensor(name, item, 1, "kronop.ksmm does")
    check_activation(activation)
