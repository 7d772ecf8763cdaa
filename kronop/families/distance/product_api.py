"""Products of kernel matrices in one line, on plain tensors."""

from __future__ import annotations

import functools
from typing import Any, cast

import numpy as np

from kronop.args.device import target_of
from kronop.args.frameworks import dims
from kronop.core import prepared
from kronop.core.calls import describe_output, epilogue_of, finish
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.shared import Array
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import ArgumentError, mismatch
from kronop.families.distance.composed import bound_of
from kronop.families.distance.form import Bound, Form
from kronop.families.distance.kernels import Kernel, check_kernel
from kronop.families.distance.point_arguments import alike, view_of
from kronop.families.distance.product_arguments import KernelMatmulArguments
from kronop.families.distance.product_operation import KernelMatmulOperation
from kronop.families.distance.shape_arguments import check_columns, check_points
from kronop.families.distance.value_arguments import in_memory, is_tensor, tensors_of


def kernel_matmul(
    x1: Any, x2: Any, v: Array, kernel: Kernel, regularization: Any = None, out: Any = None
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
    check_kernel(kernel)
    if dims(v) == 1:
        _check_vector(x1, x2, v, out)
        result = None if out is None else out[:, None]
        result = kernel_matmul(x1, x2, v[:, None], kernel, regularization, result)
        return cast("Array", result[..., 0] if out is None else out)
    bound = bound_of(kernel, max(map(dims, (x1, x2, v))) - 2, regularization)
    return cast("Array", product_of(x1, x2, v, bound, out))


def _check_vector(x1: Any, x2: Any, v: Any, out: Any) -> None:
    """Refuses a vector v beside points, or a result, that it does not fit."""
    if out is not None and dims(out) != 1:
        raise ArgumentError(
            mismatch(
                "shape of Y",
                expected="(M,), as v is a vector",
                got=getattr(out, "shape", out),
                hint="pass v[:, None] for a result of one column",
            )
        )
    shapes: list[tuple[int, ...]] = [getattr(item, "shape", ()) for item in (x1, x2)]
    if max(map(len, shapes)) > 2:
        raise ArgumentError(
            mismatch(
                "v",
                expected="(..., N, C) beside batched points",
                got=f"a vector of shape {tuple(v.shape)}",
                hint="pass v[:, None] for one column",
            )
        )
    if len(shapes[1]) == 2 and v.shape[0] != shapes[1][0]:
        raise ArgumentError(
            mismatch(
                "v",
                expected=f"shape ({shapes[1][0]},), a number for each point of x2",
                got=tuple(v.shape),
                hint="the result has a number for each point of x1",
            )
        )


def product_of(x1: Any, x2: Any, v: Any, bound: Bound, out: Any = None) -> Any:
    """The product of a form and its values, as of `kernel_matmul`."""
    if any(isinstance(item, np.ndarray) for item in (*bound.values, *bound.vectors)):
        # Here, so that a repeated call reads the converted arrays.
        points = view_of(x1, "X1")
        bound = in_memory(bound, MathInstruction.simt(points.element).element_accumulator, points)
    tensors = tensors_of(bound)
    numbers = tuple(None if is_tensor(item) else item for item in bound.values)
    key = ("kernel_matmul", bound.form, numbers)
    result, lesson = prepared.repeat(key, 1.0, 0.0, [x1, x2, v, *tensors.values(), None, out])
    if result is not None:
        return result
    arguments = product_arguments(x1, x2, v, bound, out)
    slots = {"X1": 0, "X2": 1, "V": 2, **{name: 3 + index for index, name in enumerate(tensors)}}
    return finish(arguments, lesson, slots)


def product_arguments(
    x1: Any, x2: Any, v: Any, bound: Bound, out: Any = None
) -> KernelMatmulArguments:
    """The arguments of `kernel_matmul` for these tensors, with their operation."""
    first, second, third = alike({"X1": x1, "X2": x2, "V": v})
    check_points(first.shape, second.shape)
    check_columns(third.shape, second.shape)
    operation = _operation(
        target_of(first),
        *(TensorDescription(item.element) for item in (first, second, third)),
        describe_output(first.element, third.shape[-1], None, out),
        bound.form,
    )
    return KernelMatmulArguments(operation=operation, X1=x1, X2=x2, V=v, Y=out, kernel=bound)


@functools.lru_cache(maxsize=256)
def _operation(
    target: str,
    X1: TensorDescription,
    X2: TensorDescription,
    V: TensorDescription,
    Y: TensorDescription,
    form: Form,
) -> KernelMatmulOperation:
    epilogue = epilogue_of(X1.element, Y, None)
    return KernelMatmulOperation(target, None, X1, X2, V, Y, epilogue, form)
