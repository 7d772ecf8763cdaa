"""Products by warp groups with an ordinary epilogue (no visitor tree): gemm_warp_group.cuh."""

from __future__ import annotations

import functools
from typing import Any

from kronop.artifacts import Field, KernelSignature, Scalar
from kronop.descriptions.datatype import DataType
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.strided import NOTHING
from kronop.emit.cuda import operands
from kronop.families.gemm.cuda.warp_group_problem import (
    GRANULE,
    LINE_BYTES,
    step_of,
    strides_of,
    tensor_map,
)
from kronop.families.gemm.description import GemmProblem
from kronop.tensor_map import TensorMap

_POINTERS = ("y", "z", "bias")
_NUMBERS = (
    *("m", "n", "k", "problems"),
    *("y_row", "y_column", "y_batch", "z_row", "z_column", "z_batch"),
    *("bias_row", "bias_column", "a_repeats", "b_repeats", "maps_y"),
)


def scalars_of(epilogue: Epilogue) -> str:
    """The type and number of scalars, as template arguments of parameter structs."""
    return f"{operands.scalar_kind(epilogue).cxx}, {len(epilogue.scalar_names)}"


def parameters_of(epilogue: Epilogue) -> str:
    """The C++ name of the parameter struct."""
    return f"kronop::GemmWarpGroupParameters<{scalars_of(epilogue)}>"


@functools.cache
def signature(epilogue: Epilogue) -> KernelSignature:
    return KernelSignature(
        "GemmWarpGroupParameters",
        (
            *operands.map_blocks("aby"),
            *(Field(name, Scalar.POINTER) for name in _POINTERS),
            *(Field(name, Scalar.INT64) for name in _NUMBERS),
            Field("scalars", operands.scalar_kind(epilogue), len(epilogue.scalar_names)),
        ),
    )


def values_of(output: DataType, part: GemmProblem) -> dict[str, Any]:
    """The members of the parameter struct for the epilogue and the results."""
    y, bias, maps = part.y, part.bias or NOTHING, _maps(output, part)
    result: TensorMap | bytes = b""
    if maps:
        box, extents = (LINE_BYTES // output.bytes, 64, 1), (part.n, part.m, part.problems)
        result = tensor_map(y, extents, y.row, box, output, False)
    return {
        "y_map": result,
        **strides_of("y", y),
        **strides_of("z", part.z),
        "bias": bias.pointer,
        "bias_row": bias.row,
        "bias_column": bias.column,
        "maps_y": int(maps),
    }


def _maps(output: DataType, part: GemmProblem) -> bool:
    """Whether a tensor map describes Y. Its stores write whole granules, also at a row's end."""
    y, each = part.y, output.bytes
    multiples = (y.pointer, y.row * each, step_of(y) * each, part.n * each)
    # Maps have no negative strides; a part's batch has none: see `parts`.
    follows = y.row >= 0 and (y.column == 1 or part.n == 1)
    return follows and each < 8 and not any(item % GRANULE for item in multiples)
