"""The gradient of weights in one line, on plain tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kronop.args.device import target_of
from kronop.args.tensor import describe, view
from kronop.core import prepared
from kronop.core.calls import finish, operation_of
from kronop.descriptions.datatype import result_type
from kronop.descriptions.epilogue import LinearCombination
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.shared import beta_beside
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import DescriptionError
from kronop.families.ksparse.gradient_arguments import KSparseGradientArguments
from kronop.families.ksparse.operation import KSparseGradientOperation


def weight_gradient(
    x: Any,
    g: Any,
    pattern: Sequence[int],
    *,
    tied: bool = False,
    batch_last: bool = False,
    alpha: float = 1.0,
    beta: float | None = None,
    z: Any = None,
    out: Any = None,
    factors: Sequence[Any] = (),
) -> Any:
    """alpha times the gradient of the weights of `ksmm`, or of a factor of `gemkm`, plus beta z.

    With g the gradient of ksmm(x, weights), that of the weights at [i, p, q, l] is the sum over the
    batch n of g[n, i, p, l] x[n, i, q, l]. If `tied`, all i and l share one (c, b) matrix of
    weights, like the factor of a Kronecker product with `a` elements before its digit and `d`
    behind it; its gradient is also summed over i and l. GPU tensors only.

    Args:
        x: (..., B, a c d), or (..., a c d, B) with `batch_last`; at most one dimension in front,
            which the gradient has too.
        g: (..., B, a b d), or (..., a b d, B).
        pattern: (a, b, c, d).
        tied: whether all i and l have the same weights.
        batch_last: the batch is behind the features.
        alpha, beta: scalars; beta needs `z`, and `z` a beta.
        z: like the result; it may be `out`.
        out: where to write the result, of x's element type or float32; a new tensor like `x`
            where None.
        factors: the at least two matrices whose Kronecker product the tied (c, b) matrix is, for
            their gradients instead of its own; there is no dimension in front then.

    Returns:
        (..., a, b, c, d), or (..., c, b) where `tied`; of `factors` one vector with all of their
        gradients, each row-major, in their order.

    Raises:
        ArgumentError: shapes, devices or scalars that do not fit.
        ElementTypeError: types that do not.
        DescriptionError: integers, or tensors on the host.
        CompileError, DeviceError: no compiler, or a kernel that does not load or run here.
        OutOfMemoryError: no room for the result or for the workspace.

    Example:
        >>> x, g = np.ones((4, 16), np.float32), np.ones((4, 16), np.float32)
        >>> kronop.weight_gradient(x, g, (2, 8, 8, 1))
        Traceback (most recent call last):
            ...
        kronop.errors.DescriptionError: weight_gradient: expected tensors on a GPU, ...
        >>> # The lines from here on need a GPU.
        >>> import cupy  # doctest: +SKIP
        >>> x, g = cupy.ones((2, 4, 16), "float32")  # doctest: +SKIP
        >>> kronop.weight_gradient(x, g, (2, 8, 8, 1)).shape  # doctest: +SKIP
        (2, 8, 8, 1)
    """
    beta, lesson = beta_beside(z, beta), None
    if type(pattern) is tuple and type(factors) in (tuple, list):
        form = ("weight_gradient", pattern, tied, batch_last)
        result, lesson = prepared.repeat(form, alpha, beta, [x, g, *factors, z, out])
        if result is not None:
            return result
    options = {"tied": tied, "batch_last": batch_last, "factors": factors, "z": z, "out": out}
    return finish(gradient_arguments(x, g, pattern, alpha=alpha, beta=beta, **options), lesson)


def gradient_arguments(
    x: Any,
    g: Any,
    pattern: Sequence[int],
    *,
    tied: bool = False,
    batch_last: bool = False,
    alpha: float = 1.0,
    beta: float | None = None,
    z: Any = None,
    out: Any = None,
    factors: Sequence[Any] = (),
) -> KSparseGradientArguments:
    """The arguments that `weight_gradient` runs for these tensors, with their operation."""
    x_view, g_view = view(x, "X"), view(g, "G")
    if x_view.device.is_host:
        raise DescriptionError(
            "weight_gradient",
            expected="tensors on a GPU, which alone has its kernels",
            got="X on the host",
            hint="there autograd of kronop.torch.ksmm, or of its gemkm, computes it",
        )
    element = result_type(x_view.element) if out is None else view(out, "Y").element
    accumulator = MathInstruction.simt(x_view.element).element_accumulator
    operation = operation_of(
        KSparseGradientOperation,
        target_of(x_view),
        describe(x_view, "X"),
        describe(g_view, "G"),
        TensorDescription(element),
        LinearCombination(element, 1, accumulator, accumulator),
        tuple(pattern),
        tied,
        batch_last,
        x_view.shape[0] if len(x_view.shape) == 3 else None,
        tuple(view(item, f"factors[{index}]").shape for index, item in enumerate(factors)),
    )
    return KSparseGradientArguments(
        operation=operation,
        X=x,
        G=g,
        Z=z,
        Y=out,
        output_op=operation.epilogue_type(alpha, beta_beside(z, beta)),
        factors=factors,
    )
