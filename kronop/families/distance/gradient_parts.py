"""What designs of both targets share for gradients of distances: the parameter struct."""

from __future__ import annotations

from typing import Any

from kronop.artifacts import Field, KernelSignature, Scalar
from kronop.families.distance.description import Strided
from kronop.families.distance.gradient_description import GradientProblem
from kronop.families.distance.parts import BATCH_DIMS, padded

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
            Field("batch", integer, BATCH_DIMS),
            *(Field(f"{name}_batch", integer, BATCH_DIMS) for name in (*_OPERANDS, "power")),
            *(Field(f"{name}_{way}", integer) for name in _OPERANDS for way in ("row", "column")),
            *(Field(name, integer) for name in ("y_output", "z_output", "threads")),
            Field("number", Scalar.FLOAT64),
            scalars,
        ),
    )


def values_of(problem: GradientProblem, threads: int) -> dict[str, Any]:
    """The members of the parameter struct."""
    operands = {name: getattr(problem, name) or Strided(0, ()) for name in _OPERANDS}
    power = problem.power
    return {
        **{name: item.pointer for name, item in operands.items()},
        "power": power.pointer,
        **{name: getattr(problem, name) for name in ("m", "n", "k", "o")},
        "batch": padded(problem.batch, 1),
        **{f"{name}_batch": padded(item.batch) for name, item in operands.items()},
        "power_batch": padded(power.batch),
        **{f"{name}_row": item.row for name, item in operands.items()},
        **{f"{name}_column": item.column for name, item in operands.items()},
        "y_output": problem.y_output,
        "z_output": problem.z_output,
        "threads": threads,
        "number": power.number,
        "scalars": problem.scalars,
    }
