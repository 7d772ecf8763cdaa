"""In one line, on plain tensors."""

from __future__ import annotations

from typing import Any

from kronop.args.device import target_of
from kronop.args.tensor import describe
from kronop.core import prepared
from kronop.core.calls import describe_output, epilogue_of, finish, operand_of, operation_of
from kronop.descriptions.shared import beta_beside
from kronop.descriptions.tensor import TensorDescription
from tests.families.scaled.arguments import ScaledArguments
from tests.families.scaled.operation import ScaledOperation


def scaled(
    x: Any, w: Any, *, alpha: float = 1.0, beta: float | None = None, z: Any = None, out: Any = None
) -> Any:
    """alpha x * w + beta z, of contiguous (M, N) tensors."""
    beta, lesson = beta_beside(z, beta), None
    result, lesson = prepared.repeat("scaled", alpha, beta, [x, w, z, out])
    if result is not None:
        return result
    arguments = scaled_arguments(x, w, alpha, beta, z, out)
    return finish(arguments, lesson)


def scaled_arguments(
    x: Any, w: Any, alpha: float = 1.0, beta: float = 0.0, z: Any = None, out: Any = None
) -> ScaledArguments:
    x_view = operand_of(x)
    Y = describe_output(x_view.element, x_view.shape[1], z, out)
    X, W = describe(x_view, "X"), TensorDescription(x_view.element)
    described = (X, W, Y, epilogue_of(X.element, Y, None), x_view.shape[1])
    operation = operation_of(ScaledOperation, target_of(x_view), *described)
    output_op = operation.epilogue_type(alpha, beta)
    return ScaledArguments(operation=operation, X=x, W=w, Z=z, Y=out, output_op=output_op)
