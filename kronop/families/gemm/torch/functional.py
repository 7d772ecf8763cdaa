"""matmul with gradients, on torch tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from kronop.core.calls import check_activation
from kronop.descriptions.activation import ActivationName
from kronop.descriptions.shared import beta_beside
from kronop.families.gemm.shape_arguments import are_vectors, multiplied
from kronop.families.gemm.torch.operators import activated, product
from kronop.torch.activated import chosen
from kronop.torch.checks import are_symbols, check_source, check_tensor, number


def matmul(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    alpha: float = 1.0,
    beta: float | None = None,
    bias: Tensor | None = None,
    activation: ActivationName | None = None,
) -> Tensor:
    """activation(alpha a b + beta c + bias), differentiable in a, b, c and bias.

    As `kronop.gemm.matmul`, and a torch operator: autograd to any order and in both modes,
    torch.compile without a graph break, torch.vmap, torch.func, and cast to autocast's type as
    `torch.matmul` is. Gradients are kronop's products: one for each of a and b. With relu,
    leaky_relu, tanh or sigmoid the backward reads the result. With others the sums, rounded to the
    result's type, are kept beside it, and torch computes the activation of these.

    Args:
        a: (..., M, K), any strides; (K,) is one row.
        b: (..., K, N), of the same type; leading dimensions broadcast. (K,) is one column.
        c: (..., M, N), or what broadcasts to it; read only if beta is not 0.
        alpha, beta: numbers, without gradient, whole ones for integers; c needs a beta.
        bias: (N), of the result's type, is added to each row.
        activation: "relu", "leaky_relu", "tanh", "sigmoid", "silu", "hardswish", "gelu" or None.

    Returns:
        (..., M, N), of a's type; int32 of int8, bfloat16 of 8-bit floats, which have no gradients.
        Without M if a is a vector, without N if b is one.

    Raises:
        ArgumentError: shapes, devices, scalars or an activation that do not fit.
        ElementTypeError: what is no torch tensor, or element types that do not fit.

    Example:
        >>> import torch
        >>> generator = torch.manual_seed(0)
        >>> a, b, bias = torch.randn(3, 16), torch.randn(16, 5, requires_grad=True), torch.randn(5)
        >>> y = kronop.torch.matmul(a, b, bias=bias, activation="relu")
        >>> bool(torch.allclose(y, torch.relu(a @ b + bias), atol=1e-5))
        True
        >>> y.sum().backward()
        >>> b.grad.shape
        torch.Size([16, 5])
    """
    beta, given = beta_beside(c, beta, "c"), (a, b, c, bias)
    named = () if activation is None else (activation,)
    operator = product if activation is None else activated
    if not torch.compiler.is_compiling():
        found = operator.plain.again(*given, alpha, beta, *named)
        if found is not None:
            return found
    check_activation(activation)
    if are_symbols(given):
        how = {"c": c, "alpha": alpha, "beta": beta, "bias": bias, "activation": activation}
        found = torch.overrides.handle_torch_function(matmul, given, a, b, **how)
        return found  # noqa: RET504  # Its type is not known.
    for name, item, least in (("a", a, 1), ("b", b, 1), ("c", c, 0), ("bias", bias, 1)):
        if item is not None or name in ("a", "b"):
            check_tensor(name, item, least, "kronop.gemm.matmul does")
    if are_vectors(a, b, c):

        def multiply(a: Tensor, b: Tensor, c: Tensor | None, out: None) -> Tensor:
            return matmul(a, b, c, alpha, beta, bias, activation)

        result: Tensor = multiplied(multiply, a, b, c)
        return result
    alpha, beta = number("alpha", alpha), number("beta", beta)
    check_source(beta, c, "c")
    call = chosen(product, activated, given, bool(named))
    rows = _flattened(a, b, c)
    if rows is None:
        return call(*given, alpha, beta, *named)
    found = call(rows[0], b, rows[1], bias, alpha, beta, *named)
    return found.view(*a.shape[:-1], b.shape[-1])


def _flattened(a: Tensor, b: Tensor, c: Tensor | None) -> tuple[Tensor, Tensor | None] | None:
    """(a, c) with all rows of a batch that b multiplies as one matrix; None if they are no batch,
    or do not lie in memory so.

    One tall product needs no sum over a batch for the gradient of b, and fills tiles of any size.
    """
    # What is refused is refused with the shapes that were given.
    fits = a.dim() > 2 and b.dim() == 2 and a.shape[-1] == b.shape[0] and a.is_contiguous()
    if not fits or (c is not None and c.dim() and c.shape[-1] not in (1, b.shape[1])):
        return None
    if c is None or c.dim() < 2:
        return a.flatten(0, -2), c
    is_whole = c.shape[:-1] == a.shape[:-1] and c.is_contiguous()
    return (a.flatten(0, -2), c.flatten(0, -2)) if is_whole else None
