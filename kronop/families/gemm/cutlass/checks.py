"""Which matrix products CUTLASS 2.x has, checked before anything is compiled.

These are the rules that depend on layouts; those of all its kernels are in `emit/cuda/cutlass`.
"""

from __future__ import annotations

from collections.abc import Callable

from kronop import doors
from kronop.artifacts import Status
from kronop.descriptions.datatype import Layout, int8
from kronop.emit.cuda.cutlass import checks
from kronop.families.gemm.cutlass.tile import CutlassTile
from kronop.target import Target


def status(design: CutlassTile, target: Target) -> Status:
    """Whether CUTLASS has the design's kernel, it fits the target, and headers are installed."""
    contiguous = _contiguous(design)
    tensor_cores: tuple[Callable[[CutlassTile], str], ...] = (
        checks.depth,
        lambda item: checks.turned(item, contiguous),
        checks.stages,
        lambda item: checks.doubles(item, contiguous),
        checks.stored_at_once,
    )
    rules: tuple[Callable[[CutlassTile], str], ...] = (
        lambda _: checks.served(target),
        checks.types,
        _layouts,
        checks.divisions,
        *((checks.simt,) if design.is_simt else tensor_cores),
        checks.interleaved,
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
