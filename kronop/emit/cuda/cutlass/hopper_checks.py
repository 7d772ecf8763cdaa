"""What CUTLASS 3.x has kernels for, whatever they multiply, checked before anything is compiled.

Each function returns the reason why there is no such kernel, or nothing.
"""

from __future__ import annotations

from kronop.descriptions.datatype import (
    DataType,
    bfloat16,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    int8,
    int32,
)
from kronop.descriptions.math_instruction import MathOperation, OpClass
from kronop.descriptions.tile import EpilogueScheduleType
from kronop.emit.cuda.cutlass.hopper import WARP_GROUP, HopperDesign
from kronop.machine import Feature
from kronop.target import Target

LINE_BYTES = 128
"""Bytes of a row of an operand in shared memory; a tile has exactly one row along K."""
_SUMS: dict[DataType, tuple[DataType, ...]] = {
    float32: (float16, bfloat16, float32, float8_e4m3fn, float8_e5m2),
    float16: (float16,),
    int32: (int8,),
}
_OUTPUTS: dict[DataType, tuple[DataType, ...]] = {
    float32: (float32, float16, bfloat16),
    float16: (float16,),
    int32: (int32, int8),
}
_OPERATIONS = (MathOperation.multiply_add, MathOperation.multiply_add_saturate)
_GRANULE = 16  # Alignment in bytes of addresses and strides of mapped tensors.
# Rows of an instruction's A; columns of an instruction, and rows of a TMA box.
_ROWS, _MOST_LINES, _MOST_COLUMNS = 64, 256, 256
_MOST_SUMS = 128  # Registers of a thread for sums.


def served(target: Target) -> str:
    return "" if target.has(Feature.warp_groups) else f"{target} has no warp-group products"


def types(design: HopperDesign) -> str:
    math, source = design.math, design.source
    sums = math.element_accumulator
    known = math.opcode_class is OpClass.TensorOp and math.math_operation in _OPERATIONS
    if not known or source not in _SUMS.get(sums, ()):
        return f"CUTLASS 3.x has no products by {math}"
    if design.output not in _OUTPUTS[sums]:
        names = " or ".join(item.name for item in _OUTPUTS[sums])
        return f"sums of {sums.name} become {names} here, not {design.output.name}"
    return ""


def schedules(design: HopperDesign) -> str:
    if design.epilogue_schedule is EpilogueScheduleType.TmaWarpSpecialized:
        return "results of CUTLASS 3.x leave from registers here: NoSmemWarpSpecialized"
    return ""


def alignments(design: HopperDesign) -> str:
    for name, alignment in (("A", design.alignment_a), ("B", design.alignment_b)):
        if alignment * design.source.bytes < _GRANULE:
            return f"{name} promises {alignment} elements; maps take multiples of {_GRANULE} bytes"
    return ""


def tiles(design: HopperDesign, warp_groups: int, columns: int) -> str:
    """Why so many warp groups don't share tiles, whose columns are multiples of `columns`."""
    m, n, k = design.tile_m, design.tile_n, design.tile_k
    if k * design.source.bytes != LINE_BYTES:
        return f"tile K of {k} {design.source.name} is not {LINE_BYTES} bytes"
    if m % (_ROWS * warp_groups) or m > _MOST_LINES:
        return f"tile M of {m} is no multiple of {_ROWS * warp_groups}, or above {_MOST_LINES}"
    # CUTLASS has fewer choices of N for TF32 and int8; CuTe's copies have no odd multiples of 8.
    step = max(columns, 32 if design.source in (float32, int8) else 16)
    if n % step or n > _MOST_COLUMNS:
        return f"tile N of {n} is no multiple of {step}, or above {_MOST_COLUMNS}"
    if m * n > _MOST_SUMS * WARP_GROUP * warp_groups:
        return (
            f"a thread has {m * n // (WARP_GROUP * warp_groups)} sums of a tile; {_MOST_SUMS} fit"
        )
    return "" if design.stages > 1 else "main loops have 2 stages or more, not 1"
