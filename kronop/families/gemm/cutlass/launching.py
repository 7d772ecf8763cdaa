"""Launches of CUTLASS's matrix products: the kernel's parameters of a problem."""

from __future__ import annotations

from typing import Any

from kronop.artifacts import Launch
from kronop.descriptions.datatype import (
    INTERLEAVE,
    AnyLayout,
    InterleavedLayout,
    Layout,
    RowMajorInterleaved32,
    int8,
)
from kronop.descriptions.strided import NOTHING, Strided, padded
from kronop.emit.cuda import operands
from kronop.emit.cuda.cutlass import launching as shared
from kronop.emit.design import members
from kronop.errors import ArgumentError
from kronop.families.gemm.cutlass.tile import CutlassTile
from kronop.families.gemm.description import GemmProblem
from kronop.families.gemm.size import GemmSize
from kronop.frozen import dataclass
from kronop.target import Target

# The largest extent, since coordinates are 32-bit integers.
_MOST_EXTENT = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """How K is split: `slices` of `depth` indices each."""

    slices: int
    depth: int


def workspace_bytes(design: CutlassTile, size: GemmSize) -> int:
    """Bytes for the sums of slices, whether or not the product is transposed."""
    cut = _cut(design, size.k, size.slices)
    m, n = (size.n, size.m) if design.swapped else (size.m, size.n)
    return shared.bytes_of_sums(design.math.element_accumulator, cut.slices, m, n)


def launches(design: CutlassTile, problem: GemmProblem, target: Target) -> tuple[Launch, ...]:
    problem = problem.transposed if design.swapped else problem
    _check_extents(design, problem)
    cut = _cut(design, problem.k, problem.slices)
    values = _values(design, problem, cut)
    m, n, _ = design.tile
    tiles = operands.cover(problem.m, m) * operands.cover(problem.n, n)
    blocks = tiles * max(cut.slices, problem.problems)
    operands.check_blocks(blocks)
    found = [operands.make_launch(design, blocks, values)]
    if cut.slices > 1:
        adding = shared.adding_blocks(design, problem.m, problem.n, target)
        found.append(operands.make_launch(design, adding, {**values, "adds_up": 1}))
    return tuple(found)


def _cut(design: CutlassTile, k: int, slices: int) -> Cut:
    """Slices of whole tiles: fewer than asked for if there are not as many tiles, and one for
    interleaved products, whose sums only their own epilogue can store."""
    slices = 1 if design.interleaved else slices
    tiles = max(1, operands.cover(k, design.tile_k))
    each = operands.cover(tiles, min(slices, tiles))
    return Cut(slices=operands.cover(tiles, each), depth=each * design.tile_k)


def _values(design: CutlassTile, problem: GemmProblem, cut: Cut) -> dict[str, Any]:
    left, right = design.kernel_layouts
    source, scalars = shared.source_of(
        design,
        problem.z,
        problem.bias,
        problem.scalars,
        sliced=cut.slices > 1,
        by_rows=design.layout_c is Layout.RowMajor,
    )
    bias, names = problem.bias or NOTHING, design.operand_names
    of_source = "bias" if source is problem.bias else "C"
    result = design.result_layout
    rows, columns = problem.m, problem.n
    sliced = cut.slices > 1
    strided = {"a": problem.a, "b": problem.b, "source": source, "result": problem.y}
    return {
        **{name: item.pointer for name, item in strided.items()},
        **{f"{name}_batch": padded(item.batch, 0) for name, item in strided.items()},
        "bias": bias.pointer if sliced else 0,
        "partial": problem.workspace if sliced else 0,
        **members(problem, "m n k"),
        "ld_a": _leading(names[0], problem.a, left, (rows, problem.k)),
        "ld_b": _leading(names[1], problem.b, right, (problem.k, columns)),
        "ld_source": _leading(of_source, source, result, (rows, columns)),
        "ld_result": _leading("D", problem.y, result, (rows, columns)),
        "ld_partial": shared.leading_of_sums(columns),
        "batch": padded(problem.batch, 1),
        "bias_row": bias.row,
        "bias_column": bias.column,
        **members(cut, "slices depth"),
        "adds_up": 0,
        "scalars": scalars,
    }


def _leading(name: str, item: Strided, layout: AnyLayout, extents: tuple[int, int]) -> int:
    """The leading dimension.

    Raises:
        ArgumentError: the other index is not contiguous.
    """
    if not item.pointer:
        return item.column
    if isinstance(layout, InterleavedLayout):
        return _panel(name, item, layout)
    by_rows = layout is Layout.RowMajor
    leading, along = (item.row, item.column) if by_rows else (item.column, item.row)
    if extents[by_rows] > 1 and along != 1:
        raise ArgumentError(
            f"memory of {name}",
            expected="the layout that was described, with unit stride, of a kernel of CUTLASS",
            got=f"strides {item.row} and {item.column}",
            hint="copy the tensor, or describe the operation without a tile",
        )
    return leading


def _panel(name: str, item: Strided, layout: InterleavedLayout) -> int:
    """The stride of panels.

    Raises:
        ArgumentError: B's is no multiple of 32 columns, whose order is derived from addresses.
    """
    columns = INTERLEAVE * INTERLEAVE
    if layout is RowMajorInterleaved32 and item.column % columns:
        raise ArgumentError(
            f"memory of {name}",
            expected=f"panels that are a multiple of {columns} elements apart, of a kernel of"
            " CUTLASS",
            got=item.column,
            hint="copy the tensor",
        )
    return item.column


def _check_extents(design: CutlassTile, problem: GemmProblem) -> None:
    """Refuses extents along contiguous memory that are no multiples of the vectors that CUTLASS's
    kernels access."""
    m, n, k = problem.m, problem.n, problem.k
    most_k = shared.MOST_WRAPPED if design.source is int8 else _MOST_EXTENT
    for name, extent, most in zip(
        design.index_names, (m, n, k), (_MOST_EXTENT, _MOST_EXTENT, most_k), strict=True
    ):
        if extent > most:
            raise ArgumentError(
                f"{name} of {design.source.name}",
                expected=f"at most {most}, of a kernel of CUTLASS",
                got=extent,
                hint="cut K, and add up the products"
                if design.interleaved
                else "leave out the tile",
            )
    left, right = design.kernel_layouts
    first, second = design.kernel_alignments
    panel = design.panel
    names = design.operand_names
    wanted = (
        (names[0], m if left is Layout.ColumnMajor else k, max(first, panel)),
        (names[1], k if right is Layout.ColumnMajor else n, max(second, panel)),
        ("C and D", n, max(design.alignment_c, panel)),
    )
    for name, extent, multiple in wanted:
        if extent % multiple:
            raise ArgumentError(
                f"extent of {name} that is contiguous",
                expected=f"a multiple of {multiple}, as the alignment says, of a kernel of CUTLASS",
                got=extent,
                hint="describe a smaller alignment, pad the tensors, or leave out the tile",
            )
