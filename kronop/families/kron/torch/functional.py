"""gemkm and gekmm with gradients, on torch tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kronop.descriptions.shared import beta_beside
from kronop.errors import ArgumentError, ElementTypeError
from kronop.families.kron.torch.operators import kron
from kronop.torch.checks import are_symbols, check_source, check_tensor, check_tensors, number


def gemkm(
    x: Tensor,
    factors: Sequence[Tensor],
    alpha: float = 1.0,
    beta: float | None = None,
    z: Tensor | None = None,
) -> Tensor:
    """alpha x (F1 x ... x FN) + beta z, differentiable in x, every factor and z.

    As `kronop.gemkm`, and a torch operator: autograd to any order and in both modes, torch.compile
    without a graph break, torch.vmap, torch.func. Gradients are computed by kronop's own kernels:

    - of x alone: one product, with the transposed factors.
    - of N factors: neighbours are merged into n <= N runs (n = 3 for 8^5 and 64^3, 2 for 2^12).
      The backward is 2 n - 1 products with one run each, one of which gives the gradient of x,
      and n contractions over all rows (on CPUs by torch's matmul). Only x and the factors are
      kept between forward and backward. The backward works on one part of the rows (gekmm: of the
      batch) after the other, in at most n buffers.
    - a second derivative takes up to 2 N + 1 products and N + 1 backwards.
    - a tangent (torch.func.jvp, torch.autograd.forward_ad): one product for each of x and the
      factors that has one.

    Args:
        x: (..., M, K) or (K,), with K the product of the factors' rows.
        factors: a list, tuple or ParameterList of one (..., P, Q) tensor each; leading dimensions
            broadcast as in `matmul`, and gradients are summed over what was broadcast.
        alpha, beta: numbers, without gradient; beta needs `z`, and `z` a beta.
        z: like the result; read only where beta is not 0.

    Returns:
        (..., M, product of the factors' columns), of x's element type (int32 of int8) and device.

    Raises:
        ArgumentError: shapes, devices or scalars that do not fit.
        ElementTypeError: what is no torch tensor, or element types that do not fit.
        CompileError, DeviceError, OutOfMemoryError: as `kronop.gemkm`.

    Example:
        >>> import torch
        >>> generator = torch.manual_seed(0)
        >>> x = torch.randn(3, 16)
        >>> factors = [torch.randn(4, 4, requires_grad=True) for _ in range(2)]
        >>> y = kronop.torch.gemkm(x, factors)
        >>> bool(torch.allclose(y, x @ torch.kron(*factors), atol=1e-5))
        True
        >>> y.sum().backward()
        >>> factors[0].grad.shape
        torch.Size([4, 4])
    """
    return _kron(x, factors, alpha, beta, z, False)


def gekmm(
    factors: Sequence[Tensor],
    x: Tensor,
    alpha: float = 1.0,
    beta: float | None = None,
    z: Tensor | None = None,
) -> Tensor:
    """alpha (F1 x ... x FN) x + beta z, differentiable in x, every factor and z.

    Args:
        factors: a list, tuple or ParameterList of one (..., P, Q) tensor each; leading dimensions
            broadcast as in `matmul`.
        x: (..., K, M) or (K,), with K the product of the factors' columns.
        alpha, beta: numbers, without gradient; beta needs `z`, and `z` a beta.
        z: like the result; read only where beta is not 0.

    Returns:
        (..., product of the factors' rows, M), of x's element type (int32 of int8) and device.

    The gradients, what they cost and the errors are those of `gemkm`.

    Example:
        >>> import torch
        >>> generator = torch.manual_seed(0)
        >>> factors = [torch.randn(4, 4), torch.randn(4, 4)]
        >>> x = torch.randn(16, 3, requires_grad=True)
        >>> y = kronop.torch.gekmm(factors, x)
        >>> bool(torch.allclose(y, torch.kron(*factors) @ x, atol=1e-5))
        True
        >>> y.sum().backward()
        >>> x.grad.shape
        torch.Size([16, 3])
    """
    return _kron(x, factors, alpha, beta, z, True)


_ELSEWHERE = "kronop.gemkm and kronop.gekmm"
_LISTED = "a list or tuple of at least one tensor"
_IN_A_LIST = "gemkm(x, factors) and gekmm(factors, x); wrap a single factor in a list"


def _kron(
    x: Tensor, factors: Any, alpha: float, beta: float | None, z: Tensor | None, left: bool
) -> Tensor:
    beta = beta_beside(z, beta)
    if isinstance(factors, torch.nn.ParameterList):
        factors = list(factors)
    if not torch.compiler.is_compiling():
        result = kron.plain.again(x, factors, z, alpha, beta, left)
        if result is not None:
            return result
    is_list = isinstance(factors, (list, tuple))
    if not is_list or not factors:
        got = "an empty one" if is_list else type(factors).__name__
        raise ElementTypeError("factors", expected=_LISTED, got=got, hint=_IN_A_LIST)
    if are_symbols(given := (x, *factors, z)):
        others = {"alpha": alpha, "beta": beta, "z": z}
        call, operands = (gekmm, (factors, x)) if left else (gemkm, (x, factors))
        return torch.overrides.handle_torch_function(call, given, *operands, **others)
    check_tensor("x", x, 1, _ELSEWHERE)
    check_tensors("factors", factors, 2, _ELSEWHERE)
    if z is not None:
        check_tensor("z", z, 1, _ELSEWHERE)
    alpha, beta = number("alpha", alpha), number("beta", beta)
    check_source(beta, z)
    at = -1 if left else -2
    if x.dim() == 1:
        z = None if z is None else z.unsqueeze(at)
        result = kron(x.unsqueeze(at), list(factors), z, alpha, beta, left)
        return result.squeeze(at)
    if z is not None and z.dim() < 2:
        raise ArgumentError(
            "shape of z", expected="that of the result", got=tuple(z.shape), hint="as x"
        )
    return kron(x, list(factors), z, alpha, beta, left)
