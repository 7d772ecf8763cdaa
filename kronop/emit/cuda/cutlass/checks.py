"""What CUTLASS 2.x has kernels for, whatever they multiply, checked before anything is compiled.

The rules are those of CUTLASS's static assertions; where an assertion is missing and a kernel would
compute something else, a comment says what. Each function returns the reason why there is no such
kernel, or nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kronop.descriptions.datatype import (
    INTERLEAVE,
    DataType,
    bfloat16,
    float16,
    float32,
    float64,
    int8,
    int32,
)
from kronop.emit.cuda import operands
from kronop.emit.cuda.cutlass import words
from kronop.emit.cuda.cutlass.design import CutlassDesign
from kronop.machine import BLOCK_THREADS, Feature
from kronop.target import Target

_ACCESS_BYTES, _LEAST_COPY, _MANY_BESIDE = 16, 4, 8
_SIMT_STEPS, _SIMT_SUMS = 8, 4
# Bytes along K of a tile of tensor cores: rows of shared memory are permuted within 128 bytes.
_TILE_BYTES = (32, 64, 128)
_LEAST_THREADS_OF_DOUBLE = 64
# For interleaved operands: with two stages, main loops copy through registers, where columns of B
# are not permuted; a warp with more int32 results spills a kilobyte per thread.
_LEAST_STAGES_OF_PANELS, _MOST_WIDE_RESULTS = 3, 2048
# Columns of a row of shared memory, and of a warp, for operands that are contiguous along M or N.
_LINE_BYTES = 128
_SIMT_TYPES = (float32, float64)
_OUTPUTS = {
    float64: (float64,),
    float32: (float32, float16, bfloat16),
    float16: (float16,),
    int32: (int32, int8, float32),
}


class Staged(Protocol):
    """A pipelined kernel of CUTLASS 2.x or 3.x, with stages in shared memory."""

    @property
    def stages(self) -> int: ...
    @property
    def stage_bytes(self) -> int: ...
    @property
    def shared_bytes(self) -> int: ...


def served(target: Target) -> str:
    """Why the target can't run these kernels, which are CUTLASS's for sm_80."""
    has = target.has(Feature.wide_products) and target.has(Feature.asynchronous_copies)
    return "" if has else f"CUTLASS's kernels are for sm_80 and later, not for {target}"


def types(design: CutlassDesign) -> str:
    math = design.math
    sums = math.element_accumulator
    if design.is_simt and design.source not in _SIMT_TYPES:
        names = " and ".join(item.name for item in _SIMT_TYPES)
        return f"CUTLASS 2.x multiplies {names} on ordinary cores, not {design.source.name}"
    if not design.is_simt and not operands.multiplies(math):
        return f"tensor cores of a GPU do not have {math}"
    if design.source not in words.ELEMENTS or sums not in _OUTPUTS:
        return f"CUTLASS 2.x has no products of {design.source.name} with sums of {sums.name}"
    if design.output not in _OUTPUTS[sums]:
        names = " or ".join(item.name for item in _OUTPUTS[sums])
        return f"sums of {sums.name} become {names} in CUTLASS 2.x, not {design.output.name}"
    return ""


def divisions(design: CutlassDesign) -> str:
    """Why block, warp and instruction tiles do not divide each other."""
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
    # The main loop loads one k-step's operands while it multiplies another's, double-buffered.
    if steps % 2:
        return f"a warp has {steps} instructions along K of a tile; it needs an even number"
    return ""


def depth(design: CutlassDesign) -> str:
    """Why tensor cores have no such tile along K."""
    across = design.tile_k * design.source.bytes
    if across in _TILE_BYTES:
        return ""
    return f"tile K of {design.tile_k} {design.source.name} is {across} bytes, not 32, 64 or 128"


def stages(design: CutlassDesign) -> str:
    """Why this number of stages is not possible on tensor cores."""
    # With two stages CUTLASS multiplies float32 in float16, whatever operation is asked.
    if design.stages > 2 or design.source not in (float32, float64):
        return ""
    return f"{design.source.name} on tensor cores takes 3 stages or more, not {design.stages}"


def stored_at_once(design: CutlassDesign) -> str:
    """Why the tile lacks the rows of results that neighbouring warps store together."""
    (_, extent, _), (_, warps_n, warps_k) = design.tile, design.warps
    beside = warps_n * warps_k
    width = max(design.alignment_c, _ACCESS_BYTES // design.math.element_accumulator.bytes)
    columns = 4 * beside * width
    if design.interleaved or beside < _MANY_BESIDE or extent >= columns:
        return ""
    return f"{beside} warps beside each other store {columns} columns; the tile has {extent}"


def turned(design: CutlassDesign, contiguous: Sequence[tuple[str, int]]) -> str:
    """Why rows of shared memory are not whole lines along a contiguous index.

    Args:
        contiguous: the index and the extent of a tile of each operand that is not contiguous along
            K.
    """
    for name, extent in contiguous:
        across = extent * design.source.bytes
        if across % _LINE_BYTES:
            return (
                f"tile {name} of {extent} is {across} bytes of a contiguous index, not a multiple"
                f" of {_LINE_BYTES}"
            )
    return ""


def doubles(design: CutlassDesign, contiguous: Sequence[tuple[str, int]]) -> str:
    """Why tensor cores have no such product of float64; `contiguous` is as in `turned`."""
    if design.source is not float64:
        return ""
    rows, columns = design.tile_m // design.warps_m, design.tile_n // design.warps_n
    if design.threads < _LEAST_THREADS_OF_DOUBLE or rows % 16 or columns % 16:
        return (
            "float64 takes 2 warps or more with multiples of 16 x 16 sums, not"
            f" {design.threads // 32} of {rows} x {columns}"
        )
    if design.tile_k % 16 and len(contiguous) < 2:
        return f"tile K of {design.tile_k} float64, contiguous along K, is no multiple of 16"
    return ""


def interleaved(design: CutlassDesign) -> str:
    """Why interleaved epilogues can't store whole panels of a warp, or several warps split K."""
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


def simt(design: CutlassDesign) -> str:
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


def copies(design: CutlassDesign) -> str:
    """Why threads would not all issue the same number of vectorised loads."""
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


def alignments(design: CutlassDesign) -> str:
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


def _results(design: CutlassDesign) -> str:
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


def shared(design: Staged, target: Target) -> str:
    if design.shared_bytes <= target.shared_bytes:
        return ""
    return (
        f"a block takes {design.stages} stages of {design.stage_bytes}, in all"
        f" {design.shared_bytes} bytes of shared memory; {target} has {target.shared_bytes}"
    )
