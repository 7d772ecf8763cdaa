"""Common parts of the NumPy references: the type they compute in, and the epilogue on arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from kronop.descriptions.datatype import DataType
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.scalars import EpilogueArguments, saturated
from kronop.descriptions.shared import beta_beside
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.descriptions.visitor_arguments import VisitorArguments
from kronop.errors import ElementTypeError


def widen(element: DataType) -> Any:
    """The NumPy type in which references compute."""
    return np.float64 if element.kind == "float" else np.int64


def finish_visitor(epilogue: VisitorEpilogue, output_op: Any, accumulator: Any) -> dict[str, Any]:
    """The results of a visitor tree on whole arrays, by their names.

    Args:
        output_op: what `epilogue_type` gave, with operands that NumPy can read.
        accumulator: the sums, (..., M, N).

    Raises:
        ElementTypeError: `output_op` is none of a visitor tree.
    """
    if not isinstance(output_op, VisitorArguments):
        raise ElementTypeError(
            "output_op of a visitor tree",
            expected="operation.epilogue_type(name=value, ...)",
            got=repr(output_op),
            hint="name all scalars and operands",
        )
    scalars = dict(zip(epilogue.scalar_names, output_op.scalars, strict=True))
    return epilogue.evaluate(accumulator, {**scalars, **output_op.tensors})


def finish(
    epilogue: Epilogue,
    output_op: EpilogueArguments | None,
    accumulator: Any,
    source: Any = None,
    bias: Any = None,
) -> Any:
    """The epilogue on whole arrays; integer results are brought into the output type's range.

    An integer `accumulator` is first wrapped to the accumulator's width, as kernels' sums are. Of a
    visitor tree, whose operands `output_op` has, the results by their names: see `finish_visitor`.

    Raises:
        ArgumentError: there is a source, but `output_op` has no beta.
    """
    if isinstance(epilogue, VisitorEpilogue):
        return finish_visitor(epilogue, output_op, accumulator)
    output_op = output_op or epilogue.epilogue_type()
    beta_beside(source, output_op.beta if output_op.has_beta else None)
    scalars = output_op.scalars
    wide = widen(epilogue.element_compute)
    if epilogue.element_accumulator.kind == "int":
        accumulator = np.asarray(accumulator).astype(epilogue.element_accumulator.name)
    zero = wide(0)
    values = {name: wide(value) for name, value in zip(epilogue.scalar_names, scalars, strict=True)}
    values |= {
        "accumulator": np.asarray(accumulator, wide),
        "source": zero if source is None or values["beta"] == 0 else np.asarray(source, wide),
        "bias": zero if bias is None else np.asarray(bias, wide),
    }
    result = np.asarray(epilogue.expression.evaluate(values))
    if epilogue.element_output.kind == "float":
        return result.astype(np.float64)
    if epilogue.element_compute.kind == "int":  # Which wraps around, as the sum does.
        result = result.astype(epilogue.element_compute.name)
    return saturated(result, epilogue.element_output)
