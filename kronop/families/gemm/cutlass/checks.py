"""Which matrix products CUTLASS 2.x has, checked before anything is compiled.

These are the rules that depend on layouts; those of all its kernels are in `emit/cuda/cutlass`.
"""

from __future__ import annotations

from collections.abc import Callable

from kronop import doors
from kronop.artifacts import Status
from kronop.descriptions.datatype import INTERLEAVE, Layout, float64, int8, int32
from kronop.emit.cuda.cutlass import checks
from kronop.families.gemm.cutlass.tile import CutlassTile
from kronop.target import Target

_LEAST_THREADS_OF_DOUBLE = 64
# For interleaved products: with two stages, main loops copy through registers, where columns of B
# are not permuted; a warp with more int32 results spills a kilobyte per thread.
_LEAST_STAGES_OF_PANELS, _MOST_WIDE_RESULTS = 3, 2048
# Columns of a row of shared memory, and of a warp, for operands that are contiguous along M or N.
_LINE_BYTES = 128


def status(design: CutlassTile, target: Target) -> Status:
    """Whether CUTLASS has the design's kernel, it fits the target, and headers are installed."""
    tensor_cores = (checks.depth, _turned, checks.stages, _float64, checks.stored_at_once)
    rules: tuple[Callable[[CutlassTile], str], ...] = (
        lambda _: checks.served(target),
        checks.types,
        _layouts,
        checks.divisions,
        *((checks.simt,) if design.is_simt else tensor_cores),
        _interleaved,
        checks.copies,
        checks.alignments,
        lambda item: checks.shared(item, target),
        lambda _: doors.cutlass_missing[0](),
    )
    return Status.first_of(rule(design) for rule in rules)


def _layouts(design: CutlassTile) -> str:
    layouts = (design.layout_a, design.layout_b)
    # Tensor cores read 8-bit operands in words along K, which shared memory can't transpose.
    plain = design.source is int8 and not design.interleaved
    if plain and layouts != (Layout.RowMajor, Layout.ColumnMajor):
        return "int8 operands of tensor cores are row-major A and column-major B, or interleaved"
    return ""


def _contiguous(design: CutlassTile) -> tuple[tuple[str, int], ...]:
    """The index and the extent of a tile of each operand that is not contiguous along K."""
    left, right = design.kernel_layouts
    (m, n, _), names = design.tile, design.index_names
    found = ((left is Layout.ColumnMajor, names[0], m), (right is Layout.RowMajor, names[1], n))
    return tuple((name, extent) for is_turned, name, extent in found if is_turned)


def _turned(design: CutlassTile) -> str:
    """Why rows of shared memory are not whole lines along a contiguous index."""
    for name, extent in _contiguous(design):
        across = extent * design.source.bytes
        if across % _LINE_BYTES:
            return (
                f"tile {name} of {extent} is {across} bytes of a contiguous index, not a multiple"
                f" of {_LINE_BYTES}"
            )
    return ""


def _float64(design: CutlassTile) -> str:
    if design.source is not float64:
        return ""
    rows, columns = design.tile_m // design.warps_m, design.tile_n // design.warps_n
    if design.threads < _LEAST_THREADS_OF_DOUBLE or rows % 16 or columns % 16:
        return (
            "float64 takes 2 warps or more with multiples of 16 x 16 sums, not"
            f" {design.threads // 32} of {rows} x {columns}"
        )
    if design.tile_k % 16 and len(_contiguous(design)) < 2:
        return f"tile K of {design.tile_k} float64, contiguous along K, is no multiple of 16"
    return ""


def _interleaved(design: CutlassTile) -> str:
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
