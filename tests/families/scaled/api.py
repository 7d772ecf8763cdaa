"""In one line, on plain tensors; and on the command line: `show scaled 8`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from kronop.args.device import target_of
from kronop.args.tensor import describe
from kronop.core import prepared
from kronop.core.calls import describe_output, epilogue_of, finish, operand_of, operation_of, plain
from kronop.core.command import DEFAULT_ROWS, Command, Common, MakeTensor
from kronop.descriptions.shared import beta_beside
from tests.families.scaled.operation import ScaledArguments, ScaledOperation


def scaled(
    x: Any, w: Any, *, alpha: float = 1.0, beta: float | None = None, z: Any = None, out: Any = None
) -> Any:
    """alpha x * w + beta z, of contiguous (M, N) tensors."""
    beta = beta_beside(z, beta)
    result, lesson = prepared.repeat("scaled", alpha, beta, [x, w, z, out])
    return finish(_arguments(x, w, alpha, beta, z, out), lesson) if result is None else result


def _arguments(
    x: Any, w: Any, alpha: float = 1.0, beta: float = 0.0, z: Any = None, out: Any = None
) -> ScaledArguments:
    view = operand_of(x)
    X, Y = describe(view, "X"), describe_output(view.element, view.shape[1], z, out)
    described = (X, plain(X.element), Y, epilogue_of(X.element, Y, None), view.shape[1])
    operation = operation_of(ScaledOperation, target_of(view), *described)
    output_op = operation.epilogue_type(alpha, beta)
    return ScaledArguments(operation, output_op, X=x, W=w, Z=z, Y=out)


class _Command(Command):
    products = "products element by element"
    shapes = "columns"
    examples = {"8": "rows of 8 elements"}  # noqa: RUF012

    def operation(
        self, options: argparse.Namespace, shapes: Sequence[str], common: Common
    ) -> ScaledOperation:
        return ScaledOperation(*common, int(shapes[0]))

    def arguments(
        self, options: argparse.Namespace, shape: str, rows: int | None, tensor: MakeTensor
    ) -> ScaledArguments:
        x, w = (tensor((rows or DEFAULT_ROWS, int(shape))) for _ in range(2))
        return _arguments(x, w)


COMMAND = _Command()
