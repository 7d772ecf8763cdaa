"""What CUTLASS 2.x has kernels for, checked before anything is compiled.

The rules are those of CUTLASS's static assertions; where these are missing, and a kernel would
compute something else than was described, a comment says what.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kronop import doors
from kronop.artifacts import Status
from kronop.descriptions.datatype import (
    INTERLEAVE,
    DataType,
    Layout,
    bfloat16,
    float16,
    float32,
    float64,
    int8,
    int32,
)
from kronop.families.gemm.cuda.mma_design import multiplies
from kronop.families.gemm.cutlass import words
from kronop.machine import BLOCK_THREADS, Feature
from kronop.target import Target

if TYPE_CHECKING:
    from kronop.families.gemm.cutlass.design import CutlassGemm

_ACCESS_BYTES, _LEAST_COPY = 16, 4
_LEAST_THREADS_OF_DOUBLE, _MANY_BESIDE = 64, 8
_SIMT_STEPS, _SIMT_SUMS = 8, 4
# Of interleaved products: with two stages, main loops copy through registers, and columns of B stay
# where they are; a warp of more results of int32 spills a kilobyte a thread.
_LEAST_STAGES_OF_PANELS, _MOST_WIDE_RESULTS = 3, 2048
# Bytes along K of a tile of tensor cores: rows of shared memory are permuted within 128 bytes.
_TILE_BYTES = (32, 64, 128)
# Columns of a row of shared memory, and of a warp, for operands that are contiguous along M or N.
_LINE_BYTES = 128
_SIMT_TYPES = (float32, float64)
_OUTPUTS = {
    float64: (float64,),
    float32: (float32, float16, bfloat16),
    float16: (float16,),
    int32: (int32, int8, float32),
}


def status(design: CutlassGemm, target: Target) -> Status:
    """Whether CUTLASS has the design's kernel, it fits the target, and headers are installed."""
    rules: tuple[Callable[[CutlassGemm], str], ...] = (
        lambda _: _served(target),
        _types,
        _layouts,
        _divisions,
        _simt if design.is_simt else _tensor_cores,
        _interleaved,
        _copies,
        _alignments,
        lambda item: _shared(item, target),
        lambda _: doors.cutlass_missing[0](),
    )
    return Status.first_of(rule(design) for rule in rules)


def _served(target: Target) -> str:
    """Why the target has none of these kernels, which are CUTLASS's for sm_80."""
    has = target.has(Feature.wide_products) and target.has(Feature.asynchronous_copies)
    return "" if has else f"CUTLASS's kernels are for sm_80 and later, not for {target}"


def _types(design: CutlassGemm) -> str:
    math = design.math
    sums = math.element_accumulator
    if design.is_simt and design.source not in _SIMT_TYPES:
        names = " and ".join(item.name for item in _SIMT_TYPES)
        return f"CUTLASS 2.x multiplies {names} on ordinary cores, not {design.source.name}"
    if not design.is_simt and not multiplies(math):
        return f"tensor cores of a GPU do not have {math}"
    if design.source not in words.ELEMENTS or sums not in _OUTPUTS:
        return f"CUTLASS 2.x has no products of {design.source.name} with sums of {sums.name}"
    if design.output not in _OUTPUTS[sums]:
        names = " or ".join(item.name for item in _OUTPUTS[sums])
        return f"sums of {sums.name} become {names} in CUTLASS 2.x, not {design.output.name}"
    return ""


def _layouts(design: CutlassGemm) -> str:
    layouts = (design.layout_a, design.layout_b)
    # Tensor cores read 8-bit operands in words along K, which shared memory can't turn.
    plain = design.source is int8 and not design.interleaved
    if plain and layouts != (Layout.RowMajor, Layout.ColumnMajor):
        return "int8 operands of tensor cores are row-major A and column-major B, or interleaved"
    return ""


def _divisions(design: CutlassGemm) -> str:
    """Tiles consist of whole tiles of warps, and these of whole instructions."""
    shape = design.math.instruction_shape
    for name, tile, warps, step in zip(
        design.index_names, design.tile, design.warps, shape, strict=True
    ):
        if tile % warps or tile // warps % step:
            return (
                f"tile {name} of {tile} is not {warps} warps of whole instructions of {step}: each"
                f" warp would have {tile / warps:g}"
            )
    if design.threads > BLOCK_THREADS:
        return f"a block of {design.threads} threads; it has at most {BLOCK_THREADS}"
    steps = design.tile_k // design.warps_k // shape[2]
    # Main loops load the operands of one instruction while another one runs, in turns.
    if steps % 2:
        return f"a warp has {steps} instructions along K of a tile; it needs an even number"
    return ""


def _tensor_cores(design: CutlassGemm) -> str:
    item = design.source
    across, (m, n, _) = design.tile_k * item.bytes, design.tile
    if across not in _TILE_BYTES:
        return f"tile K of {design.tile_k} {item.name} is {across} bytes, not 32, 64 or 128"
    left, right = design.kernel_layouts
    names = design.index_names
    turned = ((left is Layout.ColumnMajor, names[0], m), (right is Layout.RowMajor, names[1], n))
    for is_turned, name, extent in turned:
        if is_turned and extent * item.bytes % _LINE_BYTES:
            return (
                f"tile {name} of {extent} is {extent * item.bytes} bytes of a contiguous index, not"
                f" a multiple of {_LINE_BYTES}"
            )
    # With two stages CUTLASS multiplies float32 in float16, whatever operation is asked.
    if design.stages < 3 and item in (float32, float64):
        return f"{item.name} on tensor cores takes 3 stages or more, not {design.stages}"
    if item is float64 and (reason := _float64(design, all(ahead for ahead, _, _ in turned))):
        return reason
    return _stored_at_once(design)


def _float64(design: CutlassGemm, turned: bool) -> str:
    """Why there is no kernel of float64. `turned`: neither operand is contiguous along K."""
    rows, columns = design.tile_m // design.warps_m, design.tile_n // design.warps_n
    if design.threads < _LEAST_THREADS_OF_DOUBLE or rows % 16 or columns % 16:
        return (
            "float64 takes 2 warps or more with multiples of 16 x 16 sums, not"
            f" {design.threads // 32} of {rows} x {columns}"
        )
    if design.tile_k % 16 and not turned:
        return f"tile K of {design.tile_k} float64, contiguous along K, is no multiple of 16"
    return ""


def _stored_at_once(design: CutlassGemm) -> str:
    """Warps beside each other store rows of results together, which the tile has to have."""
    (_, extent, _), (_, warps_n, warps_k) = design.tile, design.warps
    beside = warps_n * warps_k
    width = max(design.alignment_c, _ACCESS_BYTES // design.math.element_accumulator.bytes)
    columns = 4 * beside * width
    if design.interleaved or beside < _MANY_BESIDE or extent >= columns:
        return ""
    return f"{beside} warps beside each other store {columns} columns; the tile has {extent}"


def _interleaved(design: CutlassGemm) -> str:
    """Epilogues of interleaved products store whole panels of a warp, and add up no warps' sums."""
    if not design.interleaved:
        return ""
    if design.is_simt:
        return "interleaved products take tensor cores"
    columns = design.tile_n // design.warps_n
    if columns % INTERLEAVE:
        return f"a warp has {columns} columns; interleaved ones are multiples of {INTERLEAVE}"
    if design.warps_k != 1:
        return f"warps along K are 1 of interleaved operands, not {design.warps_k}"
    rows = design.tile_m // design.warps_m
    if design.output is int32 and rows * columns > _MOST_WIDE_RESULTS:
        return (
            f"a warp has {rows} x {columns} results of int32; interleaved, {_MOST_WIDE_RESULTS} of"
            " them stay in registers"
        )
    if design.stages < _LEAST_STAGES_OF_PANELS:
        return (
            f"interleaved operands take {_LEAST_STAGES_OF_PANELS} stages or more, not"
            f" {design.stages}"
        )
    return ""


def _simt(design: CutlassGemm) -> str:
    if design.tile_k != _SIMT_STEPS:
        return f"tile K is {_SIMT_STEPS} on ordinary cores, not {design.tile_k}"
    if design.warps_k != 1:
        return f"warps along K are 1 on ordinary cores, not {design.warps_k}"
    m, n, _ = (tile // warps for tile, warps in zip(design.tile, design.warps, strict=True))
    # Lanes of a warp: 8 x 4 or 4 x 8, the more along the longer side.
    lanes_m = 8 if m > n else 4
    lanes_n = 32 // lanes_m
    if m % (lanes_m * _SIMT_SUMS) or n % (lanes_n * _SIMT_SUMS):
        return (
            f"a warp's {m} x {n} sums are not {lanes_m} x {lanes_n} lanes of multiples of"
            f" {_SIMT_SUMS} x {_SIMT_SUMS}"
        )
    return ""


def _copies(design: CutlassGemm) -> str:
    """Threads bring the same number of accesses each."""
    width = 1 if design.is_simt else _ACCESS_BYTES // design.source.bytes
    if not design.is_simt and design.source is float64:
        width = 1  # The accesses of float64 are single elements.
    for name, extent in (("A", design.tile_m), ("B", design.tile_n)):
        count = extent * design.tile_k // width
        if count % design.threads:
            return (
                f"a tile of {name} has {extent} x {design.tile_k} elements, {count} accesses, which"
                f" {design.threads} threads do not share evenly"
            )
    return ""


def _alignments(design: CutlassGemm) -> str:
    if design.stages < 2:
        return f"main loops have 2 stages or more, not {design.stages}"
    given = {"A": design.alignment_a, "B": design.alignment_b}
    for name, alignment in given.items():
        copied = alignment * design.source.bytes
        if design.interleaved and copied != _ACCESS_BYTES:
            return f"interleaved {name} takes an alignment of {_ACCESS_BYTES}, not {alignment}"
        if design.stages > 2 and copied < _LEAST_COPY:
            return (
                f"{name} promises {alignment} elements, {copied} bytes; with {design.stages} stages"
                f" copies take {_LEAST_COPY} or more, with 2 any"
            )
    return _results(design)


def _results(design: CutlassGemm) -> str:
    width = design.alignment_c
    if design.is_simt:
        return "" if width == 1 else f"ordinary cores store single elements, not {width} at once"
    narrow: dict[DataType, int] = {int8: 8 if design.interleaved else 4}
    least = narrow.get(design.output, 1)
    if design.interleaved and width != 8:
        return f"interleaved C and D promise {width} elements; stores take 8, or 16 bytes"
    if width < least:
        return f"{design.output.name} is stored {least} elements at once or more, not {width}"
    return ""


def _shared(design: CutlassGemm, target: Target) -> str:
    if design.shared_bytes <= target.shared_bytes:
        return ""
    return (
        f"a block takes {design.stages} stages of {design.stage_bytes}, in all"
        f" {design.shared_bytes} bytes of shared memory; {target} has {target.shared_bytes}"
    )
