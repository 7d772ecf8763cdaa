"""The gradient of weights in one line, on plain tensors."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from kronop import prepared
from kronop.args.device import target_of
from kronop.args.ksparse_gradient import KSparseGradientArguments
from kronop.args.tensor import describe, view
from kronop.descriptions.datatype import DataType
from kronop.descriptions.epilogue import LinearCombination
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.tensor import TensorDescription
from kronop.operation import KSparseGradientOperation

_Pattern = tuple[int, int, int, int]


def weight_gradient(
    x: Any,
    g: Any,
    pattern: Sequence[int],
    *,
    tied: bool = False,
    batch_last: bool = False,
    alpha: float = 1.0,
    beta: float = 0.0,
    z: Any = None,
    out: Any = None,
) -> Any:
    """alpha times the gradient of the weights of `ksmm`, or of a factor of `gemkm`, plus beta z.

    With g the gradient of ksmm(x, weights), that of the weights is the sum over the batch n of
    g[n, i, p, l] x[n, i, q, l]; where `tied`, the sum over i and l as well: the gradient of the
    one (c, b) matrix that all of them are, as for the factor of a Kronecker product that has `a`
    elements before its digit and `d` behind it. GPU tensors only.

    Args:
        x: (..., B, a c d), or (..., a c d, B) with `batch_last`; at most one dimension in front,
            which the gradient has too.
        g: (..., B, a b d), or (..., a b d, B).
        pattern: (a, b, c, d).
        tied: whether all i and l have the same weights.
        batch_last: the batch is behind the features.
        alpha, beta: scalars; beta needs `z`.
        z: like the result; it may be `out`.
        out: where to write the result, of x's element type or float32; a new tensor like `x`
            where None.

    Returns:
        (..., a, b, c, d), or (..., c, b) where `tied`.

    Raises:
        ArgumentError: shapes, devices or scalars that do not fit.
        ElementTypeError: types that do not.
        DescriptionError: integers, or tensors on the host.
    """
    lesson = None
    if type(pattern) is tuple:
        form = ("weight_gradient", pattern, tied, batch_last)
        result, lesson = prepared.repeat(form, alpha, beta, [x, g, z, out])
        if result is not None:
            return result
    x_view, g_view = view(x, "X"), view(g, "G")
    element = x_view.element if out is None else view(out, "Y").element
    products = x_view.shape[0] if len(x_view.shape) == 3 else None
    operation = _operation(
        target_of(x_view),
        describe(x_view, "X"),
        describe(g_view, "G"),
        element,
        tuple(pattern),
        tied,
        batch_last,
        products,
    )
    arguments = KSparseGradientArguments(
        operation=operation,
        X=x,
        G=g,
        Z=z,
        Y=out,
        output_op=operation.epilogue_type(alpha, beta),
    )
    operation.run(arguments)
    if lesson is not None:
        lesson.add(arguments, {"G": 1, "Z": 2})
        lesson.end()
    return arguments.Y


@functools.lru_cache(maxsize=512)
def _operation(
    target: str,
    X: TensorDescription,
    G: TensorDescription,
    element: DataType,
    pattern: _Pattern,
    tied: bool,
    batch_last: bool,
    products: int | None,
) -> KSparseGradientOperation:
    accumulator = MathInstruction.simt(X.element).element_accumulator
    epilogue = LinearCombination(element, 1, accumulator, accumulator)
    Y = TensorDescription(element)
    return KSparseGradientOperation(
        target, None, X, G, Y, epilogue, pattern, tied, batch_last, products
    )
