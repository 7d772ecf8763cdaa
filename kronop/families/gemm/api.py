"""Matrix products in one line, on plain tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from kronop.args.device import target_of
from kronop.args.tensor import check_element, describe
from kronop.args.view import TensorView
from kronop.core import prepared
from kronop.core.calls import (
    check_activation,
    describe_output,
    epilogue_of,
    finish,
    operand_of,
    operation_of,
)
from kronop.descriptions.activation import ActivationName
from kronop.descriptions.shared import Array, beta_beside
from kronop.descriptions.tensor import TensorDescription
from kronop.families.gemm.arguments import GemmArguments
from kronop.families.gemm.operation import GemmOperationUniversal
from kronop.families.gemm.shape_arguments import are_vectors, multiplied, steps_forward
from kronop.tensors import Tensor

_DIFFERENTIABLE = GemmArguments.differentiable


def matmul(
    a: Array,
    b: Tensor,
    c: Tensor = None,
    alpha: float = 1.0,
    beta: float | None = None,
    bias: Tensor = None,
    activation: ActivationName | None = None,
    out: Tensor = None,
) -> Array:
    """A matrix product, `activation(alpha a b + beta c + bias)`, as one operation.

    Args:
        a: (..., M, K), of NumPy, torch or CuPy, any strides, in float64, 32, 16 or 8, bfloat16 or
            integers of 64, 32 or 8 bits; (K,) is one row.
        b: (..., K, N), of the same type; leading dimensions broadcast. (K,) is one column.
        c: (..., M, N), or what broadcasts to it; read only if beta is not 0.
        alpha, beta: numbers, whole ones for integers; c needs a beta, which is 0 without c.
        bias: (N), of the result's type, is added to each row.
        activation: "relu", "leaky_relu", "tanh", "sigmoid", "silu", "hardswish", "gelu" or None.
        out: where to write the result, maybe c itself; a new tensor like `a` if None. int8 gives
            int32, or int8 where `out` has that; 8-bit floats give bfloat16, or `out`'s type, which
            has at least 16 bits or is an integer.

    Returns:
        (..., M, N), of a's kind and device; without M if a is a vector, without N if b is one.

    Raises:
        ArgumentError: shapes, devices, scalars, an activation or overlaps that do not fit.
        ElementTypeError: no tensor, or element types that do not fit.
        DescriptionError: this device has no kernel for these types.
        CompileError, DeviceError: no compiler, or a kernel that does not load or run here.
        OutOfMemoryError: no room for the result.

    Example:
        >>> a, b = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
        >>> bias = np.arange(4, dtype=np.float32)
        >>> kronop.gemm.matmul(a, b, bias=bias).tolist()
        [[3.0, 4.0, 5.0, 6.0], [3.0, 4.0, 5.0, 6.0]]
    """
    beta = beta_beside(c, beta, "c")
    check_activation(activation)
    if are_vectors(a, b, c):
        for name, item in (("a", a), ("b", b)):
            operand_of(item, name, _DIFFERENTIABLE)

        def multiply(a: Any, b: Any, c: Any, out: Any) -> Any:
            return matmul(a, b, c, alpha, beta, bias, activation, out)

        return cast("Array", multiplied(multiply, a, b, c, out))
    result, lesson = prepared.repeat(("gemm", activation), alpha, beta, [a, b, bias, c, out])
    if result is not None:
        return result
    return finish(arguments_of(a, b, c, alpha, beta, bias, activation, out), lesson)


def known_call(
    a: Tensor, b: Any, bias: Any, c: Any, alpha: Any, beta: Any, activation: str | None
) -> prepared.Call | None:
    """The repeatable call that equals this `matmul` (without out), if there was one before; else
    None. Its tensors are a, b, bias, c and the result, in this order."""
    return prepared.find(("gemm", activation), alpha, beta, [a, b, bias, c, None])


def arguments_of(
    a: Tensor,
    b: Tensor,
    c: Tensor = None,
    alpha: float = 1.0,
    beta: float | None = None,
    bias: Tensor = None,
    activation: str | None = None,
    out: Tensor = None,
) -> GemmArguments:
    """The arguments of `matmul` for these tensors, with their operation."""
    beta = beta_beside(c, beta, "c")
    check_activation(activation)
    (first, second), (A, B) = described(a, b)
    names = {"Z": "c", "Y": "out"}
    C = describe_output(first.element, second.shape[-1], c, out, names, _DIFFERENTIABLE)
    epilogue = epilogue_of(first.element, C, activation)
    operation = operation_of(GemmOperationUniversal, target_of(first), A, B, C, epilogue)
    output_op = operation.epilogue_type(alpha, beta)
    return GemmArguments(operation=operation, A=a, B=b, C=c, D=out, output_op=output_op, bias=bias)


def described(
    a: Tensor, b: Any, called: Sequence[str] = ("a", "b"), like: tuple[str, Any] | None = None
) -> tuple[list[TensorView], list[TensorDescription]]:
    """The views of a product's operands, and what is true of them: the largest alignment that each
    keeps, which is none where maps of GPUs can't follow it.

    Args:
        called: their names for the caller.
        like: the name and the tensor whose element type they have; None for a.
    """
    views = [
        operand_of(item, name, _DIFFERENTIABLE) for name, item in zip(called, (a, b), strict=True)
    ]
    told, first = like or (called[0], views[0])
    found = []
    for name, item in zip(called, views, strict=True):
        check_element(item.element, first.element, name, f", the type of {told}")
        own = describe(item, name)
        follows = len(item.shape) < 2 or steps_forward(item)
        found.append(own if follows else TensorDescription(own.element, own.layout, 1))
    return views, found
