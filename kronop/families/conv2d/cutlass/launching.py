"""Launches of CUTLASS's convolutions: the kernel's parameters of a problem."""

from __future__ import annotations

from typing import Any

from kronop.artifacts import Launch
from kronop.descriptions.strided import NOTHING, Strided
from kronop.emit.cuda import operands
from kronop.emit.cuda.cutlass import launching as shared
from kronop.emit.design import members
from kronop.errors import ArgumentError
from kronop.families.conv2d.cutlass import checks
from kronop.families.conv2d.cutlass.tile import Conv2dTile
from kronop.families.conv2d.description import Conv2dProblem
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.conv2d.vocabulary import IteratorAlgorithm, Operator
from kronop.frozen import dataclass
from kronop.target import Target

_HINT = "describe the operation without a tile, whose kernels take any convolution"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """How sums are split: in `slices`, each of which takes `depth` tiles for each of `taps`."""

    slices: int
    taps: int
    depth: int


def cut_of(design: Conv2dTile, size: Conv2dSize) -> Cut:
    """Slices of whole tiles: at most as many as there are tiles for a pixel of a filter; one of
    groups, and of panels, whose sums only their own epilogue can store."""
    kind, pixels = design.conv_kind, size.r * size.s
    taps, summed, tile = 1, size.n * size.p * size.q, design.tile_k
    if kind is Operator.fprop:
        taps, summed = pixels, size.channels
    elif kind is Operator.dgrad:
        taps, summed = pixels, size.filters
    if design.iterator_algorithm is IteratorAlgorithm.fixed_channels:
        taps, summed, tile = 1, pixels, tile // size.channels
    elif design.iterator_algorithm is IteratorAlgorithm.few_channels:
        taps, summed = 1, pixels * size.channels
    tiles = operands.cover(summed, tile)
    slices = 1 if design.panels or size.groups > 1 else max(1, min(size.slices, tiles))
    return Cut(slices=slices, taps=taps, depth=operands.cover(tiles, slices))


def workspace_bytes(design: Conv2dTile, size: Conv2dSize) -> int:
    """Bytes for the sums of slices."""
    m, n, _ = design.conv_kind.extents(size)
    slices = cut_of(design, size).slices
    return shared.bytes_of_sums(design.math.element_accumulator, slices, m, n)


def launches(design: Conv2dTile, problem: Conv2dProblem, target: Target) -> tuple[Launch, ...]:
    size = problem.size
    status = checks.status_of(design, size)
    if not status:
        raise ArgumentError(
            "convolution",
            expected="one that the described kernel of CUTLASS takes",
            got=status.reason,
            hint=_HINT,
        )
    cut = cut_of(design, size)
    values = _values(design, problem, cut)
    tiles = values["row_tiles"] * values["column_tiles"]
    blocks = tiles * max(cut.slices, size.groups)
    operands.check_blocks(blocks)
    found = [operands.make_launch(design, blocks, values)]
    if cut.slices > 1:
        adding = shared.adding_blocks(design, values["m"], values["n"], target)
        found.append(operands.make_launch(design, adding, {**values, "adds_up": 1}))
    return tuple(found)


def _values(design: Conv2dTile, problem: Conv2dProblem, cut: Cut) -> dict[str, Any]:
    size, product, result = problem.size, problem.product, problem.result
    sliced = cut.slices > 1
    source, scalars = shared.source_of(
        design,
        problem.z,
        problem.bias,
        problem.scalars,
        sliced=sliced,
        by_rows=not design.panels,
    )
    bias = problem.bias or NOTHING
    m, n, _ = problem.kind.extents(size)
    for name, matrix in (("C", source), ("D", result)):
        _check_rows(design, name, matrix, n)
    return {
        "a": problem.a.pointer,
        "b": problem.b.pointer,
        "result": result.pointer,
        "source": source.pointer,
        "bias": bias.pointer if sliced else 0,
        "partial": problem.workspace if sliced else 0,
        "images": size.n,
        **members(size, "h w r s p q pad_h pad_w stride_h stride_w dilation_h dilation_w"),
        "c": size.channels,
        "k": size.filters,
        "flipped": int(size.flipped),
        "a_steps": _steps(design, "A", problem.a, design.alignment_a),
        "b_steps": _steps(design, "B", problem.b, design.alignment_b),
        "ld_source": source.row,
        "ld_result": result.row,
        "ld_partial": shared.leading_of_sums(n),
        "a_group": product.a.batch[0],
        "b_group": product.b.batch[0],
        "source_group": next(iter(source.batch), 0),
        "result_group": next(iter(result.batch), 0),
        "m": m,
        "n": n,
        "row_tiles": _row_tiles(design, size, m),
        "column_tiles": operands.cover(n, design.tile_n),
        **members(cut, "slices taps depth"),
        "adds_up": 0,
        "bias_row": bias.row,
        "bias_column": bias.column,
        "scalars": scalars,
    }


def _row_tiles(design: Conv2dTile, size: Conv2dSize, rows: int) -> int:
    if not design.strided_rows:
        return operands.cover(rows, design.tile_m)
    # For each pixel of a stride, the rows whose distance from it is whole strides.
    h, w = operands.cover(size.h, size.stride_h), operands.cover(size.w, size.stride_w)
    return size.stride_h * size.stride_w * operands.cover(size.n * h * w, design.tile_m)


def _steps(design: Conv2dTile, name: str, tensor: Strided, width: int) -> tuple[int, ...]:
    """Strides from the innermost axis outwards, without that of channels.

    Raises:
        ArgumentError: channels are not contiguous, or a stride is no multiple of vectors.
    """
    if design.panels:
        return (0, 0, 0)
    *outer, channels = tensor.strides
    if channels != 1 or any(stride % width for stride in outer):
        raise ArgumentError(
            f"memory of {name}",
            expected=f"channels with unit stride, and other strides that are multiples of {width},"
            " of a kernel of CUTLASS",
            got=f"strides {tensor.strides}",
            hint="copy the tensor, or describe the operation without a tile",
        )
    return tuple(reversed(outer))


def _check_rows(design: Conv2dTile, name: str, matrix: Strided, columns: int) -> None:
    """Refuses rows that are not contiguous, or not as far apart as whole vectors."""
    if design.panels or not matrix.pointer:
        return
    width = design.alignment_c
    if (columns > 1 and matrix.column != 1) or matrix.row % width:
        raise ArgumentError(
            f"memory of {name}",
            expected=f"channels with unit stride, and rows that are a multiple of {width} apart, of"
            " a kernel of CUTLASS",
            got=f"strides {matrix.row} and {matrix.column}",
            hint="copy the tensor, or describe the operation without a tile",
        )
