"""What launches of CUTLASS 2.x's kernels have in common: sources, and split-K slices."""

from __future__ import annotations

from kronop.descriptions.datatype import DataType
from kronop.descriptions.strided import NOTHING, Strided
from kronop.emit.cuda import operands
from kronop.emit.cuda.cutlass.design import CutlassDesign
from kronop.errors import ArgumentError
from kronop.target import Target

# Elements to which rows of sums are aligned; blocks that add up sums, for each multiprocessor.
_LINE, _ADDING = 16, 8
MOST_WRAPPED = 2**17 - 1
"""Products of int8 in a sum. NOTE: CUTLASS's instructions saturate sums, while all others wrap
around; sums of so few products, each of at most 2^14, cannot reach the bounds of int32."""


def leading_of_sums(columns: int) -> int:
    """The stride between rows of the sums of a slice, in elements."""
    return operands.round_up(columns, _LINE)


def bytes_of_sums(sums: DataType, slices: int, rows: int, columns: int) -> int:
    """Bytes for the sums of slices; none if there is one slice."""
    return slices * rows * leading_of_sums(columns) * sums.bytes if slices > 1 else 0


def adding_blocks(design: CutlassDesign, rows: int, columns: int, target: Target) -> int:
    """Blocks of the launch that adds up sums."""
    return min(operands.cover(rows * columns, design.threads), _ADDING * target.cores)


def source_of(
    design: CutlassDesign,
    z: Strided | None,
    bias: Strided | None,
    scalars: tuple[float, ...],
    *,
    sliced: bool,
    by_rows: bool,
) -> tuple[Strided, tuple[float, ...]]:
    """The operands that epilogues read besides sums, and the scalars.

    CUTLASS's epilogues read one matrix, so that a bias replaces the source, with a `beta` of 1.
    Where sums of slices are added up, both are possible.

    Args:
        by_rows: results are row-major, as the user sees them.
    """
    if bias is None or sliced:
        return z or NOTHING, scalars
    width = design.alignment_c * design.output.bytes
    if not by_rows or z is not None or bias.pointer % width:
        raise ArgumentError(
            "bias",
            expected="none beside C, a row-major result, and an address that is a multiple of"
            f" {width} bytes, of a kernel of CUTLASS",
            got=f"C {'given' if z else 'not given'}, results that are"
            f" {'' if by_rows else 'not '}row-major, address {bias.pointer:#x}",
            hint="add it to each row of C"
            if design.interleaved
            else "describe the operation without a tile, whose kernels take any bias",
        )
    alpha, _, *more = scalars
    return bias, (alpha, 1, *more)
