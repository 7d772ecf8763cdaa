"""cdist, kernel_matrix and kernel_matmul with gradients, on torch tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kronop.families.distance import api
from kronop.families.distance.form import Bound
from kronop.families.distance.kernels import Kernel, PowerNorm, check_kernel
from kronop.families.distance.shape_arguments import matrix_shape
from kronop.families.distance.torch.operators import matrix
from kronop.families.distance.torch.products import product
from kronop.families.distance.torch.terms import Values
from kronop.families.distance.value_arguments import (
    check_bandwidths,
    check_kind,
    check_type,
    names_of,
    tensors_of,
)
from kronop.torch.autocasting import is_casting
from kronop.torch.checks import check_tensor


def cdist(
    x1: Tensor,
    x2: Tensor,
    p: Any = 2.0,
    compute_mode: str = api.MODES[0],
    skip_epilogue: bool = False,
) -> Tensor:
    """`kronop.cdist`, differentiable in x1, x2 and (if it is a tensor) p.

    A torch operator: autograd, torch.compile without a graph break, torch.vmap. Backward holds
    nothing of size M N K. The gradient of a distance of 0 is 0. Gradients have gradients for p = 2;
    those of other powers have none.

    Args:
        x1: (..., M, K).
        x2: (..., N, K); leading dimensions broadcast.
        p: a number of at least 0, or a tensor that broadcasts with the leading dimensions.
        compute_mode, skip_epilogue: as for `kronop.cdist`.

    Returns:
        (..., M, N), of x1's element type and device.

    Raises:
        ArgumentError: shapes, devices, p or modes that do not fit.
        ElementTypeError: what is no torch tensor, or element types that do not fit.

    Example:
        >>> import torch
        >>> generator = torch.manual_seed(0)
        >>> x1, x2 = torch.randn(5, 3, requires_grad=True), torch.randn(4, 3)
        >>> distances = kronop.torch.cdist(x1, x2)
        >>> bool(torch.allclose(distances, torch.cdist(x1, x2), atol=1e-5))
        True
        >>> distances.sum().backward()
        >>> x1.grad.shape
        torch.Size([5, 3])
    """
    api.check_modes(compute_mode, skip_epilogue)
    return _matrix(x1, x2, PowerNorm(p, root=not skip_epilogue), None, compute_mode)


def kernel_matrix(x1: Tensor, x2: Tensor, kernel: Kernel, regularization: Any = 0.0) -> Tensor:
    """`kronop.kernel_matrix`, differentiable in x1, x2 and all tensors of the kernel.

    A torch operator: autograd, torch.compile without a graph break, torch.vmap. Backward holds
    nothing of size M N K. Gradients have gradients for kernels of squared distances and inner
    products; Matérn kernels and Laplace of norm 2 take a derivative of 0 between equal points,
    which is right for the first gradient alone.

    Args:
        x1: (..., M, K).
        x2: (..., N, K); leading dimensions broadcast.
        kernel: one of `kronop.kernels`.
        regularization: a number or tensor that is added to the diagonal.

    Returns:
        (..., M, N), of x1's element type and device.

    Raises:
        ArgumentError: shapes, devices or values that do not fit.
        ElementTypeError: what is no torch tensor, or element types that do not fit.

    Example:
        >>> import torch
        >>> generator = torch.manual_seed(0)
        >>> x1, x2 = torch.randn(5, 3), torch.randn(4, 3)
        >>> bandwidth = torch.tensor(2.0, requires_grad=True)
        >>> matrix = kronop.torch.kernel_matrix(x1, x2, kronop.kernels.Gaussian(bandwidth))
        >>> bool(torch.allclose(matrix, torch.exp(-torch.cdist(x1, x2).square() / 8), atol=1e-5))
        True
        >>> matrix.sum().backward()
        >>> bool(bandwidth.grad > 0)  # a wider kernel is larger everywhere
        True
    """
    check_kernel(kernel)
    return _matrix(x1, x2, kernel, regularization, api.DIRECT)


def _matrix(x1: Tensor, x2: Tensor, kernel: Kernel, regularization: Any, mode: str) -> Tensor:
    for name, item in (("x1", x1), ("x2", x2)):
        check_kind(item, name)
        check_tensor(name, item, 2, "kronop.cdist and kronop.kernel_matrix")
    return matrix(*_bound((x1, x2), kernel, regularization), mode)


def _bound(operands: Sequence[Tensor], kernel: Kernel, regularization: Any) -> list[Any]:
    """The operands, of which the first two are points, and what an operator takes of a kernel."""
    x1, x2, *others = operands
    bound = kernel.bound(max(item.dim() for item in operands) - 2, regularization)
    _check_values(bound, x1, x2)
    x1, x2, bound = with_common_vector(x1, x2, bound)
    return [x1, x2, *others, *Values.of(bound, x1).arguments, bound.form.text()]


def kernel_matmul(
    x1: Tensor, x2: Tensor, v: Tensor, kernel: Kernel, regularization: Any = 0.0
) -> Tensor:
    """`kronop.kernel_matmul`, differentiable in x1, x2, v and all tensors of the kernel.

    A torch operator: autograd, torch.compile without a graph break, torch.vmap. Gradients are
    products of kernel matrices again: for kernels of squared distances and inner products, forward
    and backward hold nothing of size M N, and gradients have gradients. Those of other norms hold
    some rows of the matrix at a time.

    Args:
        x1: (..., M, K).
        x2: (..., N, K).
        v: (..., N, C), or (N,) if the points are matrices; leading dimensions broadcast.
        kernel, regularization: as for `kernel_matrix`.

    Returns:
        (..., M, C), or (M,) for a vector v, of x1's element type and device.

    Raises:
        ArgumentError: shapes, devices or values that do not fit.
        ElementTypeError: what is no torch tensor, or element types that do not fit.

    Example:
        >>> import torch
        >>> generator = torch.manual_seed(0)
        >>> x1, x2, v = torch.randn(5, 3), torch.randn(4, 3), torch.randn(4, 2)
        >>> kernel = kronop.kernels.Gaussian(torch.tensor(2.0))
        >>> u = kronop.torch.kernel_matmul(x1, x2, v, kernel)
        >>> expected = kronop.torch.kernel_matrix(x1, x2, kernel) @ v
        >>> u.shape, bool(torch.allclose(u, expected, atol=1e-5))
        (torch.Size([5, 2]), True)
    """
    check_kernel(kernel)
    for name, item, dims in (("x1", x1, 2), ("x2", x2, 2), ("v", v, 1)):
        check_kind(item, name)
        check_tensor(name, item, dims, "kronop.kernel_matmul takes")
    if v.dim() == 1:
        return kernel_matmul(x1, x2, v.unsqueeze(-1), kernel, regularization).squeeze(-1)
    return product(*_bound((x1, x2, v), kernel, regularization))


def _check_values(bound: Bound, x1: Tensor, x2: Tensor) -> None:
    """Refuses values of other types than sums have, or that don't broadcast over the batch."""
    names = names_of(bound)
    of_sums = torch.promote_types(x1.dtype, torch.float32)
    if not is_casting(x1.device.type):  # Else the operators convert them.
        for place, item in tensors_of(bound).items():
            if isinstance(item, Tensor):
                check_type(names[place], *[str(kind)[6:] for kind in (item.dtype, of_sums)])
    if not torch.compiler.is_compiling():  # Extents may be symbols there.
        matrix_shape(tuple(x1.shape), tuple(x2.shape), bound)


def with_common_vector(x1: Tensor, x2: Tensor, bound: Bound) -> tuple[Tensor, Tensor, Bound]:
    """The points divided by bandwidths per feature, and the kernel without them, if all terms have
    the same ones: more kernels are fast without vectors. Else everything as it is.

    Raises:
        ArgumentError: there are more or fewer bandwidths than features.
    """
    for vector in bound.vectors:
        check_bandwidths(tuple(vector.shape), x1.shape[-1])
    if len({term.vector for term in bound.form.terms}) > 1 or not bound.vectors:
        return x1, x2, bound
    (vector,) = bound.vectors
    vector = torch.as_tensor(vector, device=x1.device).unsqueeze(-2)
    terms = tuple(dataclasses.replace(term, vector=-1) for term in bound.form.terms)
    form = dataclasses.replace(bound.form, terms=terms, vectors=0)
    scaled = [(item / vector).to(item.dtype) for item in (x1, x2)]
    return scaled[0], scaled[1], Bound(form=form, values=bound.values, vectors=())
