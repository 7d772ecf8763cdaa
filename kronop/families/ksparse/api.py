"""Kronecker-sparse products in one line, on plain tensors: of one factor, or of a chain; and the
gradients of weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kronop.args.device import target_of
from kronop.args.tensor import describe, listed, view
from kronop.core import prepared
from kronop.core.calls import (
    check_activation,
    describe_output,
    epilogue_of,
    finish,
    operand_of,
    operation_of,
    plain,
)
from kronop.core.prepared import Call
from kronop.descriptions.activation import ActivationName
from kronop.descriptions.datatype import result_type
from kronop.descriptions.epilogue import LinearCombination
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.shared import Array, beta_beside, check_flag
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import DescriptionError, ElementTypeError
from kronop.families.ksparse import shape_arguments
from kronop.families.ksparse.arguments import (
    KSparseArguments,
    KSparseChainArguments,
    SparseArguments,
)
from kronop.families.ksparse.description import Pattern, outputs_of
from kronop.families.ksparse.gradient_arguments import KSparseGradientArguments
from kronop.families.ksparse.operation import (
    KSparseChainOperation,
    KSparseGradientOperation,
    KSparseOperation,
)
from kronop.tensors import Tensor


def ksmm(
    x: Array,
    weights: Any,
    *,
    batch_last: bool = False,
    bias: Tensor = None,
    activation: ActivationName | None = None,
    alpha: float = 1.0,
    beta: float | None = None,
    z: Tensor = None,
    out: Tensor = None,
) -> Array:
    """activation(alpha x K' + beta z + bias), K Kronecker-sparse or a product of such factors.

    A weight w of shape (a, b, c, d) stands for K = I_a x dense(b, c) x I_d in structure, which has
    a b d rows and a c d columns: with features counted by (i, j, l) and (i, k, l)::

        (x K')[..., i, j, l] = sum over k of x[..., i, k, l] w[i, j, k, l]

    (kronop.families.ksparse.description has its entries). With `batch_last` it is K x. The patterns
    (a, b, c, d) are those of Gonon, Zheng, Carrivain and Le, "Fast inference with Kronecker-sparse
    matrices" (arXiv 2405.15013).

    Several factors are one operation, of as few launches as pay; alpha, beta, z, bias and
    activation come after the last. The results between two factors are of x's element type: in
    float16 they overflow beyond 65504, even if the final result would not.

    Args:
        x: (..., a c d), or (a c d, ...) with `batch_last`; of NumPy, torch or CuPy, any strides, in
            float64, 32 or 16, bfloat16, int64, 32 or 8, or (CPUs, GPUs since sm_89) an 8-bit
            float.
        weights: one (a, b, c, d) tensor of x's type and device, or a list, tuple or
            ParameterList of them, the right-most factor, which is applied first, first.
        batch_last: the batch is behind the features.
        bias: (a b d,) of the last factor applied, of the result's type.
        activation: None, or one of relu, leaky_relu, tanh, sigmoid, silu, hardswish, gelu; integers
            have none.
        alpha, beta: scalars, whole numbers for integers; beta needs `z`, and `z` a
            beta.
        z: like the result; read only where beta is not 0.
        out: where to write the result, apart from x, weights and bias; a new tensor like `x`
            where None.

    Returns:
        (..., a b d), or (a b d, ...) with `batch_last`, of x's kind, element type and device. Of
        one factor only: of int8 as for `gemkm`; of 8-bit floats bfloat16, or what `out` is of
        (float16 and float32 as well), and `bias` and `z` are of that type. `alpha` is then the
        product of both operands' scales.

    Raises:
        ArgumentError: shapes, devices or scalars that do not fit.
        ElementTypeError: no tensor, or element types that do not fit.
        DescriptionError: this device has no kernel for these types.
        CompileError, DeviceError: no compiler, or a kernel that does not load or run here.
        OutOfMemoryError: no room for the result or for the workspace.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.standard_normal((4, 16), np.float32)
        >>> w = rng.standard_normal((2, 8, 8, 1), np.float32)
        >>> y = kronop.ksmm(x, w)
        >>> expected = np.einsum("nikl,ijkl->nijl", x.reshape(4, 2, 8, 1), w)
        >>> y.shape, bool(np.allclose(y, expected.reshape(4, 16), atol=1e-4))
        ((4, 16), True)
    """
    given = listed(weights)
    chain = [weights] if given is None else list(given)
    beta, lesson = beta_beside(z, beta), None
    if type(batch_last) is bool and (activation is None or type(activation) is str):
        form = ("ksmm", activation, batch_last)
        result, lesson = prepared.repeat(form, alpha, beta, [x, *chain, bias, z, out])
        if result is not None:
            return result
    check_activation(activation)
    check_flag("batch_last", batch_last)
    if given is None:
        view(weights, "weights")
    arguments = sparse_arguments(x, chain, batch_last, bias, activation, (alpha, beta), z, out)
    return finish(arguments, lesson)


def known_call(
    x: Tensor,
    chain: Sequence[Tensor],
    batch_last: bool,
    bias: Any,
    activation: str | None,
    alpha: float,
) -> Call | None:
    """The repeatable call that equals this `ksmm` (without z and out), if there was one before;
    else None."""
    form = ("ksmm", activation, batch_last)
    return prepared.find(form, alpha, 0.0, [x, *chain, bias, None, None])


def sparse_arguments(
    x: Tensor,
    chain: Sequence[Tensor],
    batch_last: bool,
    bias: Tensor = None,
    activation: str | None = None,
    scalars: tuple[float, float] = (1.0, 0.0),
    z: Tensor = None,
    out: Tensor = None,
) -> SparseArguments:
    """The arguments that `ksmm` runs for these tensors, with their operation."""
    patterns = chain_patterns(chain)
    _check_types(x, chain)
    x_view = operand_of(x)
    target = target_of(x_view)
    inner = math.prod(x_view.shape[1:]) if batch_last else outputs_of(patterns[-1])
    X, Y = describe(x_view, "X"), describe_output(x_view.element, inner, z, out)
    ends = (X, plain(X.element), Y, epilogue_of(X.element, Y, activation))
    given = {"X": x, "bias": bias, "Z": z, "Y": out}
    if len(chain) == 1:
        single = operation_of(KSparseOperation, target, *ends, patterns[0], batch_last)
        given["output_op"] = single.epilogue_type(*scalars)
        return KSparseArguments(operation=single, W=chain[0], **given)
    _check_chained(x)
    several = operation_of(KSparseChainOperation, target, *ends, tuple(patterns), batch_last)
    given["output_op"] = several.epilogue_type(*scalars)
    return KSparseChainArguments(operation=several, weights=chain, **given)


def chain_patterns(chain: Sequence[Tensor]) -> list[Pattern]:
    """The patterns of a list of weights, as of `shape_arguments.chain_patterns`."""
    named = ((f"weights[{index}]", item) for index, item in enumerate(chain))
    return shape_arguments.chain_patterns([view(item, name).shape for name, item in named])


def _check_types(x: Any, chain: Sequence[Tensor]) -> None:
    """Refuses operands of different types. The message names both, as either may be the wrong
    one."""
    element = operand_of(x).element
    for index, weight in enumerate(chain):
        other = view(weight, f"weights[{index}]").element
        if other != element:
            raise ElementTypeError(
                f"element types of X and weights[{index}]",
                expected="one type for X and all weights",
                got=f"{element.name} of X and {other.name} of weights[{index}]",
                hint="convert X to the type of the weights, or the weights to that of X",
            )


def _check_chained(x: Any) -> None:
    """Refuses element types whose results are wider, because a second factor could not take
    them."""
    element = view(x, "X").element
    if result_type(element) != element:
        raise ElementTypeError(
            "element type of X in a chain",
            expected="a type that results have as well",
            got=f"{element.name}, of which results are {result_type(element).name}",
            hint="convert x and the weights to it, or apply one factor at a time",
        )


def weight_gradient(
    x: Tensor,
    g: Tensor,
    pattern: Sequence[int],
    *,
    tied: bool = False,
    batch_last: bool = False,
    alpha: float = 1.0,
    beta: float | None = None,
    z: Tensor = None,
    out: Tensor = None,
    factors: Sequence[Tensor] = (),
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
    x: Tensor,
    g: Tensor,
    pattern: Sequence[int],
    *,
    tied: bool = False,
    batch_last: bool = False,
    alpha: float = 1.0,
    beta: float | None = None,
    z: Tensor = None,
    out: Tensor = None,
    factors: Sequence[Tensor] = (),
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
