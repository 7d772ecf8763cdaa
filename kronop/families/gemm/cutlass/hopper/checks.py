"""Which kernels CUTLASS 3.x has, checked before anything is compiled."""

from __future__ import annotations

from collections.abc import Callable

from kronop import doors
from kronop.artifacts import Status
from kronop.descriptions.datatype import (
    ColumnMajor,
    DataType,
    RowMajor,
    bfloat16,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    int8,
    int32,
)
from kronop.descriptions.math_instruction import MathOperation, OpClass
from kronop.descriptions.tile import EpilogueScheduleType, KernelScheduleType, TileSchedulerType
from kronop.emit.cuda.cutlass import checks
from kronop.families.gemm.cutlass.hopper.tile import IN_TURN, HopperTile
from kronop.machine import Feature
from kronop.target import Target

# Bytes of a row of an operand in shared memory; a tile has exactly one row along K.
LINE_BYTES = 128
_SUMS: dict[DataType, tuple[DataType, ...]] = {
    float32: (float16, bfloat16, float32, float8_e4m3fn, float8_e5m2),
    int32: (int8,),
}
_OUTPUTS: dict[DataType, tuple[DataType, ...]] = {
    float32: (float32, float16, bfloat16),
    int32: (int32, int8),
}
_OPERATIONS = (MathOperation.multiply_add, MathOperation.multiply_add_saturate)
_WARPS = {
    KernelScheduleType.TmaWarpSpecializedPingpong: IN_TURN,
    KernelScheduleType.TmaWarpSpecializedCooperative: (8, 1, 1),
}
_CLUSTERS = ((1, 1, 1), (2, 1, 1), (4, 1, 1))
_GRANULE = 16  # Alignment in bytes of addresses and strides of mapped tensors.
# Rows of an instruction's A, and of a swizzle; columns of an instruction, and rows of a TMA box.
_ROWS, _SWIZZLED, _MOST_LINES, _MOST_COLUMNS = 64, 8, 256, 256
_WARP_GROUP, _MOST_SUMS = 128, 128  # Threads of a warp group; registers of a thread for sums.


def status(design: HopperTile, target: Target) -> Status:
    """Whether CUTLASS has the design's kernel, it fits the target, and headers are installed."""
    rules: tuple[Callable[[HopperTile], str], ...] = (
        lambda _: "" if target.has(Feature.warp_groups) else f"{target} has no warp-group products",
        _types,
        _words,
        _operands,
        _tiles,
        lambda item: checks.shared(item, target),
        lambda _: doors.cutlass_missing[0](),
    )
    return Status.first_of(rule(design) for rule in rules)


def _types(design: HopperTile) -> str:
    math, source = design.math, design.source
    sums = math.element_accumulator
    known = math.opcode_class is OpClass.TensorOp and math.math_operation in _OPERATIONS
    if not known or source not in _SUMS.get(sums, ()):
        return f"CUTLASS 3.x has no products by {math}"
    if design.output not in _OUTPUTS[sums]:
        names = " or ".join(item.name for item in _OUTPUTS[sums])
        return f"sums of {sums.name} become {names} here, not {design.output.name}"
    return ""


def _words(design: HopperTile) -> str:
    if design.tile_scheduler is TileSchedulerType.StreamK:
        return "no kernel here cuts sums among blocks as stream-K does; take split_k_slices"
    if design.epilogue_schedule is EpilogueScheduleType.TmaWarpSpecialized:
        return "results of CUTLASS 3.x leave from registers here: NoSmemWarpSpecialized"
    if design.warps not in _WARPS.values():
        return f"{design.warps} warps; ping-pong has (4, 1, 1), cooperative (8, 1, 1)"
    schedule = design.kernel_schedule
    wanted = _WARPS.get(schedule, design.warps)
    if wanted != design.warps:
        return f"{schedule.name} has {wanted} warps, not {design.warps}"
    if design.cluster_shape not in _CLUSTERS:
        return f"a cluster of {design.cluster_shape} blocks; they are 1, 2 or 4 along M"
    return ""


def _operands(design: HopperTile) -> str:
    given = (
        ("A", design.layout_a, RowMajor, design.alignment_a),
        ("B", design.layout_b, ColumnMajor, design.alignment_b),
    )
    for name, layout, wanted, alignment in given:
        if layout is not wanted:
            return f"{name} is {layout.value}; maps of CUTLASS 3.x run along K here: {wanted.value}"
        if alignment * design.source.bytes < _GRANULE:
            return f"{name} promises {alignment} elements; maps take multiples of {_GRANULE} bytes"
    return ""


def _tiles(design: HopperTile) -> str:
    m, n, k = design.tile_m, design.tile_n, design.tile_k
    warp_groups = 1 if design.alternate else 2
    if k * design.source.bytes != LINE_BYTES:
        return f"tile K of {k} {design.source.name} is not {LINE_BYTES} bytes"
    if m % (_ROWS * warp_groups) or m > _MOST_LINES:
        return f"tile M of {m} is no multiple of {_ROWS * warp_groups}, or above {_MOST_LINES}"
    # Integer instructions have fewer choices of N than those of floats.
    step = max(_SWIZZLED * design.cluster, 32 if design.source is int8 else 8)
    if n % step or n > _MOST_COLUMNS:
        return f"tile N of {n} is no multiple of {step}, or above {_MOST_COLUMNS}"
    if m * n > _MOST_SUMS * _WARP_GROUP * warp_groups:
        return (
            f"a thread has {m * n // (_WARP_GROUP * warp_groups)} sums of a tile; {_MOST_SUMS} fit"
        )
    return "" if design.stages > 1 else "main loops have 2 stages or more, not 1"
