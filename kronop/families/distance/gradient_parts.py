"""What designs of both targets share for gradients of distances: the parameter struct."""

from __future__ import annotations

from typing import Any

from kronop.artifacts import Field, KernelSignature, Scalar
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS, padded
from kronop.emit.design import members, strided_values
from kronop.families.distance.gradient_description import GradientProblem

_OPERANDS = ("a", "b", "c", "d", "y", "z", "largest")


def parameters_of(scalars: Field) -> str:
    """The C++ name of the parameter struct."""
    return f"kronop::powers_of_distances::Parameters<{scalars.count}, {scalars.scalar.cxx}>"


def signature(scalars: Field) -> KernelSignature:
    integer = Scalar.INT64
    return KernelSignature(
        "powers_of_distances::Parameters",
        (
            *(Field(name, Scalar.POINTER) for name in (*_OPERANDS, "power")),
            *(Field(name, integer) for name in ("m", "n", "k", "o")),
            Field("batch", integer, MOST_BATCH_DIMENSIONS),
            *(
                Field(f"{name}_batch", integer, MOST_BATCH_DIMENSIONS)
                for name in (*_OPERANDS, "power")
            ),
            *(Field(f"{name}_{way}", integer) for name in _OPERANDS for way in ("row", "column")),
            *(Field(name, integer) for name in ("y_output", "z_output", "threads")),
            Field("number", Scalar.FLOAT64),
            scalars,
        ),
    )


def values_of(problem: GradientProblem, threads: int) -> dict[str, Any]:
    """The members of the parameter struct."""
    power = problem.power
    return {
        **strided_values(problem, _OPERANDS),
        "power": power.memory.pointer,
        **members(problem, "m n k o"),
        "batch": padded(problem.batch, 1),
        "power_batch": padded(power.memory.batch),
        "y_output": problem.y.strides[0],
        "z_output": problem.z.strides[0] if problem.z else 0,
        "threads": threads,
        "number": power.number,
        "scalars": problem.scalars,
    }
