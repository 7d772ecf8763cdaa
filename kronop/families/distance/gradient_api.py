"""Gradients of distances in one line, on plain tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kronop.args.device import target_of
from kronop.args.tensor import view
from kronop.core import prepared
from kronop.core.calls import epilogue_of, finish, operation_of, plain
from kronop.descriptions.math_instruction import MathInstruction
from kronop.families.distance.form import TermKind
from kronop.families.distance.gradient_arguments import DistanceGradientArguments
from kronop.families.distance.gradient_description import kind_of
from kronop.families.distance.operation import DistanceGradientOperation
from kronop.families.distance.value_arguments import is_tensor, item_in_memory, view_of
from kronop.families.distance.values import check_array


def cdist_grad(
    kernel_matrix: Any, data_x: Any, coefficients: Any, data_z: Any, p: Any = 2.0, out: Any = None
) -> Any:
    """Sums of the derivatives of powers of differences, as in gradients of distances and kernels::

        out[o, n, m] = sum over k of coefficients[o, k] kernel_matrix[k, m] s(t),
        t = data_z[n, m] - data_x[n, k], s(t) = sgn(t) |t|^(p - 1), s(0) = 0.

    s is the derivative of `|t|^p / p`. Features are rows here and points are columns; matrices with
    points as rows are passed transposed, which costs no copy.

    Args:
        kernel_matrix: (..., K, M), of NumPy, torch or CuPy, any strides, in float64, 32 or 16 or
            bfloat16.
        data_x: (..., N, K), of the same type; leading dimensions broadcast.
        coefficients: (..., O, K); None for ones, and a result without the dimension O.
        data_z: (..., N, M).
        p: a positive number, or a tensor that broadcasts with the leading dimensions (float64 for
            float64, else float32), whose values are checked if it is NumPy's.
        out: where to write the result; a new tensor like `kernel_matrix` if None.

    For p = 2 the sums may be multiplied out into matrix products, around a point among the data:
    errors are then relative to the largest differences from that point.

    Returns:
        (..., O, N, M), or (..., N, M) without coefficients.

    Raises:
        ArgumentError: shapes, devices or powers that do not fit.
        ElementTypeError: no tensor, or element types that do not fit.
        DescriptionError: this device has no kernel for these types.
        CompileError, DeviceError: no compiler, or a kernel that does not load or run here.
        OutOfMemoryError: no room for the result.

    Example:
        >>> x, z = np.array([[0.0, 2.0]]), np.array([[3.0]])  # one feature; two points and one
        >>> kronop.cdist_grad(np.ones((2, 1)), x, None, z).tolist()  # (3 - 0) + (3 - 2)
        [[4.0]]
    """
    return sums_of_slopes([kernel_matrix, data_x, coefficients, data_z], p, out=out)


def sums_of_slopes(operands: Sequence[Any], p: Any, largest: Any = None, out: Any = None) -> Any:
    """As `cdist_grad` of the operands A, B, C and D; if the largest differences of pairs are given,
    (..., K, M), of differences divided by these."""
    if isinstance(p, np.ndarray):
        check_array("p", p)
        # Here, so that a repeated call reads the converted array.
        first = view_of(operands[0], "A")
        p = item_in_memory(p, MathInstruction.simt(first.element).element_accumulator, first)
    powers = [p] if is_tensor(p) else []
    power = TermKind.General if powers else kind_of(p)
    power = TermKind.Relative if largest is not None else power
    key = ("distance gradient", power, None if powers else float(p), operands[2] is None)
    result, lesson = prepared.repeat(key, 1.0, 0.0, [*operands, largest, *powers, None, out])
    if result is not None:
        return result
    given = {**dict(zip("ABCD", operands, strict=True)), "L": largest}
    a, *_ = [view_of(item, name) for name, item in given.items() if item is not None]
    X, Y = (plain(each.element) for each in (a, a if out is None else view(out, "Y")))
    described = (X, X, X, X, Y, epilogue_of(a.element, Y, None), power, power is TermKind.Two)
    operation = operation_of(DistanceGradientOperation, target_of(a), *described)
    return finish(DistanceGradientArguments(operation=operation, **given, Y=out, p=p), lesson)
