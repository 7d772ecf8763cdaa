"""Distances, kernel matrices and products of these in one line, on plain tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

import numpy as np

import kronop.families.distance.kernels as kernels
from kronop.args.device import target_of
from kronop.args.frameworks import dims
from kronop.core import prepared
from kronop.core.calls import describe_output, epilogue_of, finish, operation_of, plain
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.shared import Array, check_flag
from kronop.errors import ArgumentError
from kronop.families.distance.arguments import DistanceArguments, KernelMatmulArguments
from kronop.families.distance.composed import bound_of
from kronop.families.distance.form import Bound
from kronop.families.distance.kernels import Kernel, PowerNorm
from kronop.families.distance.operation import DistanceOperation, KernelMatmulOperation
from kronop.families.distance.shape_arguments import check_columns, check_points
from kronop.families.distance.value_arguments import (
    alike,
    in_memory,
    is_tensor,
    tensors_of,
    view_of,
)
from kronop.tensors import Tensor

__all__ = ["cdist", "kernel_matmul", "kernel_matrix", "kernels"]

# torch's words for when squared distances may be computed by a matrix product, and the number of
# points beyond which it does so "if necessary".
MODES = (
    "use_mm_for_euclid_dist_if_necessary",
    "use_mm_for_euclid_dist",
    "donot_use_mm_for_euclid_dist",
)
_MANY_POINTS = 25
DIRECT = MODES[2]


def cdist(
    x1: Array,
    x2: Tensor,
    p: Any = 2.0,
    compute_mode: str = MODES[0],
    skip_epilogue: bool = False,
    out: Tensor = None,
) -> Array:
    """The p-norm distances of all pairs of points:
    `(sum over k of |x1[m, k] - x2[n, k]|^p)^(1/p)`.

    p = 0 counts the features that differ, p = infinity takes the largest difference. The distance
    of a point to an equal one is 0, except where `compute_mode` allows matrix products, with which
    it is 0 only on the diagonal of `cdist(x, x)`. A point with NaN has the distance NaN to all.

    Args:
        x1: (..., M, K): M points of K features, of NumPy, torch or CuPy, any strides, in float64,
            32 or 16 or bfloat16.
        x2: (..., N, K), of the same type; leading dimensions broadcast. If it is `x1` itself, only
            half of the distances are computed.
        p: a number of at least 0; or a tensor (float64 for float64, else float32) of positive and
            finite powers, which broadcasts with the leading dimensions. 0 and infinity are powers
            only as a number. Values of NumPy's arrays are checked, those of torch and CuPy are not.
            The largest difference of a pair is factored out of the sum where p is at least 16,
            below 1/16 or not looked at: so powers of differences don't leave their type's range.
        compute_mode: as in torch.cdist, for p = 2: whether distances may be computed as
            `|x|^2 + |y|^2 - 2 x y`. Their squares then have errors relative to the largest
            `|x|^2`, not to themselves. "..._if_necessary" does so for more than 25 points on a
            side.
        skip_epilogue: give the p-th powers of distances, without the root.
        out: where to write the result; a new tensor like `x1` if None.

    Returns:
        (..., M, N), of x1's kind, element type and device.

    Raises:
        ArgumentError: shapes, devices, p or modes that do not fit.
        ElementTypeError: no tensor, or element types that do not fit.
        DescriptionError: this device has no kernel for these types.
        CompileError, DeviceError: no compiler, or a kernel that does not load or run here.
        OutOfMemoryError: no room for the result.

    Example:
        >>> x, y = np.array([[0.0, 0.0], [3.0, 4.0]]), np.array([[3.0, 0.0]])
        >>> kronop.cdist(x, y).tolist()
        [[3.0], [4.0]]
    """
    check_modes(compute_mode, skip_epilogue)
    norm = _norm if type(p) in (int, float) else PowerNorm
    bound = bound_of(norm(p, not skip_epilogue), batch_dims(x1, x2))
    return matrix_of(x1, x2, bound, compute_mode, out)


def kernel_matrix(
    x1: Array, x2: Any, kernel: Kernel, regularization: Any = 0.0, out: Any = None
) -> Array:
    """The kernel of all pairs of points, in one pass: `K[m, n] = kernel(x1[m], x2[n])`.

    Args:
        x1: (..., M, K), as for `cdist`.
        x2: (..., N, K).
        kernel: one of `kronop.kernels`, or a sum, product or multiple of them.
        regularization: a number, or a tensor that broadcasts with the leading dimensions, that is
            added to the diagonal, K[m, m]: one number for each problem, not for each point.
        out: where to write the result; a new tensor like `x1` if None.

    Returns:
        (..., M, N), of x1's kind, element type and device.

    Raises:
        ArgumentError: shapes, devices or values that do not fit.
        ElementTypeError: no tensor, no kernel, or element types that do not fit.
        DescriptionError, CompileError, DeviceError, OutOfMemoryError: as of `cdist`.

    Example:
        >>> x, y = np.array([[0.0, 0.0], [3.0, 4.0]]), np.zeros((1, 2))
        >>> gaussian = kronop.kernels.Gaussian(bandwidth=5.0)
        >>> kronop.kernel_matrix(x, y, gaussian).round(4).tolist()
        [[1.0], [0.6065]]
    """
    kernels.check_kernel(kernel)
    return matrix_of(x1, x2, bound_of(kernel, batch_dims(x1, x2), regularization), DIRECT, out)


def kernel_matmul(
    x1: Tensor, x2: Any, v: Array, kernel: Kernel, regularization: Any = None, out: Any = None
) -> Array:
    """The product of the kernel matrix of all pairs of points and a matrix, without the former::

        u[m, c] = sum over n of (kernel(x1[m], x2[n]) + regularization [m = n]) v[n, c]

    Args:
        x1: (..., M, K): M points of K features, of NumPy, torch or CuPy, any strides, in float64,
            32 or 16 or bfloat16.
        x2: (..., N, K), of the same type.
        v: (..., N, C), likewise; all leading dimensions broadcast. If the points are matrices, v
            may also be a vector (N,).
        kernel: one of `kronop.kernels`, or a sum, product or multiple of them.
        regularization: a number, or a tensor that broadcasts with the leading dimensions, that is
            added to the diagonal of the kernel matrix, K[m, m]; None for nothing.
        out: where to write the result; a new tensor like `x1` if None.

    Returns:
        (..., M, C), or (M,) for a vector v, of x1's kind, element type and device.

    Raises:
        ArgumentError: shapes, devices or values that do not fit.
        ElementTypeError: no tensor, or element types that do not fit.
        DescriptionError: this device has no kernel for these types.
        CompileError, DeviceError: no compiler, or a kernel that does not load or run here.
        OutOfMemoryError: no room for the result or for scratch memory.

    Example:
        >>> x, y = np.array([[0.0, 0.0], [3.0, 4.0]]), np.zeros((1, 2))
        >>> gaussian = kronop.kernels.Gaussian(bandwidth=5.0)
        >>> kronop.kernel_matmul(x, y, np.array([2.0]), gaussian).round(4).tolist()
        [2.0, 1.2131]
    """
    kernels.check_kernel(kernel)
    if dims(v) == 1:
        _check_vector(x1, x2, v, out)
        result = None if out is None else out[:, None]
        result = kernel_matmul(x1, x2, v[:, None], kernel, regularization, result)
        return cast("Array", result[..., 0] if out is None else out)
    bound = bound_of(kernel, batch_dims(x1, x2, v), regularization)
    return cast("Array", product_of(x1, x2, v, bound, out))


def _check_vector(x1: Any, x2: Any, v: Any, out: Any) -> None:
    """Refuses a vector v beside points, or a result, that it does not fit."""
    if out is not None and dims(out) != 1:
        raise ArgumentError(
            "shape of Y",
            expected="(M,), as v is a vector",
            got=getattr(out, "shape", out),
            hint="pass v[:, None] for a result of one column",
        )
    shapes: list[tuple[int, ...]] = [getattr(item, "shape", ()) for item in (x1, x2)]
    if max(map(len, shapes)) > 2:
        raise ArgumentError(
            "v",
            expected="(..., N, C) beside batched points",
            got=f"a vector of shape {tuple(v.shape)}",
            hint="pass v[:, None] for one column",
        )
    if len(shapes[1]) == 2 and v.shape[0] != shapes[1][0]:
        raise ArgumentError(
            "v",
            expected=f"shape ({shapes[1][0]},), a number for each point of x2",
            got=tuple(v.shape),
            hint="the result has a number for each point of x1",
        )


# Repeated calls find its form.
_norm = functools.lru_cache(maxsize=64)(PowerNorm)


def check_modes(compute_mode: object, skip_epilogue: object) -> None:
    """Refuses what `cdist` takes for neither."""
    if not isinstance(compute_mode, str) or compute_mode not in MODES:
        raise ArgumentError(
            "compute_mode",
            expected=f"one of {', '.join(MODES)}",
            got=repr(compute_mode),
            hint="these are torch.cdist's",
        )
    check_flag("skip_epilogue", skip_epilogue)


def is_expanded(mode: str, points: int) -> bool:
    """Whether squared distances of so many points on the larger side may be computed by matrix
    products."""
    return mode == MODES[1] or (mode == MODES[0] and points > _MANY_POINTS)


def batch_dims(*operands: Any) -> int:
    """The leading dimensions of points and the like, of those that have most."""
    return max(map(dims, operands)) - 2


def matrix_of(
    x1: Tensor, x2: Any, bound: Bound, mode: str = DIRECT, out: Any = None, diagonal: int = 0
) -> Any:
    """The matrix of a form and its values, as of `kernel_matrix`; `mode` as in `cdist`.

    The regularization is added where m + diagonal = n.
    """
    key = ("distance", mode, x1 is x2, diagonal)
    return _run(
        key,
        [x1, x2],
        bound,
        out,
        lambda values: distance_arguments(x1, x2, values, mode, out, diagonal),
    )


def product_of(x1: Any, x2: Any, v: Any, bound: Bound, out: Any = None) -> Any:
    """The product of a form and its values, as of `kernel_matmul`."""
    return _run(
        "kernel_matmul",
        [x1, x2, v],
        bound,
        out,
        lambda values: product_arguments(x1, x2, v, values, out),
    )


def _run(
    key: object, operands: list[Any], bound: Bound, out: Any, make: Callable[[Bound], Any]
) -> Any:
    """Runs the arguments that are made for these values, or repeats their launches."""
    if any(isinstance(item, np.ndarray) for item in (*bound.values, *bound.vectors)):
        # Here, so that a repeated call reads the converted arrays.
        points = view_of(operands[0], "X1")
        bound = in_memory(bound, MathInstruction.simt(points.element).element_accumulator, points)
    numbers = tuple(None if is_tensor(item) else item for item in bound.values)
    tensors = [*operands, *tensors_of(bound).values(), None, out]
    result, lesson = prepared.repeat((key, bound.form, numbers), 1.0, 0.0, tensors)
    return finish(make(bound), lesson) if result is None else result


def distance_arguments(
    x1: Tensor, x2: Any, bound: Bound, mode: str = DIRECT, out: Any = None, diagonal: int = 0
) -> DistanceArguments:
    """The arguments of `kernel_matrix` for these tensors, with their operation."""
    first, second = alike({"X1": x1, "X2": x2})
    check_points(first.shape, second.shape)
    expanded = is_expanded(mode, max(first.shape[-2], second.shape[-2]))
    Y = describe_output(first.element, second.shape[-2], None, out)
    X = plain(first.element)
    described = (X, X, Y, epilogue_of(X.element, Y, None), bound.form, x1 is x2, expanded)
    operation = operation_of(DistanceOperation, target_of(first), *described)
    return DistanceArguments(
        operation=operation, X1=x1, X2=x2, Y=out, kernel=bound, diagonal=diagonal
    )


def product_arguments(
    x1: Tensor, x2: Any, v: Any, bound: Bound, out: Any = None
) -> KernelMatmulArguments:
    """The arguments of `kernel_matmul` for these tensors, with their operation."""
    first, second, third = alike({"X1": x1, "X2": x2, "V": v})
    check_points(first.shape, second.shape)
    check_columns(third.shape, second.shape)
    Y = describe_output(first.element, third.shape[-1], None, out)
    X = plain(first.element)
    described = (X, X, X, Y, epilogue_of(X.element, Y, None), bound.form)
    operation = operation_of(KernelMatmulOperation, target_of(first), *described)
    return KernelMatmulArguments(operation=operation, X1=x1, X2=x2, V=v, Y=out, kernel=bound)
