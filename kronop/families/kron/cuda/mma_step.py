"""The step of a `kron_mma` pass: the constants that its kernel is made with."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kronop.descriptions.datatype import DataType
from kronop.emit.cuda import operands
from kronop.emit.design import Constant, Flat
from kronop.emit.plan import Step
from kronop.families.kron.cuda import bytewise, half
from kronop.families.kron.cuda.mma import (
    MmaPhase,
    MmaTile,
    merge,
    parts_of,
    phases_of,
    powers,
    row_stride,
    runs_of,
    strides_of,
)
from kronop.families.kron.cuda.mma_resources import (
    blocks_of,
    exchanged,
    factors_bytes,
    offset_bytes,
    offset_tiles,
    shared_bytes,
)
from kronop.families.kron.cuda.shapes import Ends, PassShape, multiply_adds, shrinking
from kronop.families.kron.cuda.tile import tile_signature
from kronop.families.kron.description import KronMatmulDescription
from kronop.target import Target

_AHEAD_BYTES, _AHEAD_THREADS = 64, 512
# Elements that go from or to the tile in shared memory in one access.
_PIECE = 4


def mma_step(
    description: KronMatmulDescription,
    shape: PassShape,
    ends: Ends,
    tile: MmaTile,
    splits: bool,
    target: Target,
    *,
    entry: str,
    note: str,
    launch: Sequence[tuple[str, Constant]],
    last: bool,
) -> Step:
    """The step of a pass that `fits`."""
    accumulator = description.math.element_accumulator
    factors, runs = shape.group, runs_of(shape.group, tile.merged)
    order = sorted(factors, key=shrinking)
    operations = 2 * multiply_adds(list(order), shape.left, shape.right)
    shape = merge(shape, tile.merged)
    strides = strides_of(shape, tile, accumulator)
    phases = phases_of(shape, tile, strides, accumulator)
    wanted = shared_bytes(shape, tile, splits, accumulator)
    blocks = blocks_of(shape, tile, splits, accumulator, target)
    epilogue = description.epilogue if last else None
    scalar = operands.scalar_kind(epilogue)
    return Step(
        entry=entry,
        bytes_per_row=shape.columns_in * ends.source.bytes + shape.columns_out * ends.output.bytes,
        operations_per_row=operations,
        note=note,
        design=Flat(
            header="kronop/kron_mma.cuh",
            template="kronop::kron_mma",
            parameters=f"kronop::KronTileParameters<{scalar.cxx}, {len(factors)}>",
            types=operands.element_types(description.math, ends.source, ends.output, epilogue),
            constants=(
                *_block_constants(shape, ends, tile, strides, phases, accumulator, blocks),
                ("kSplit", splits),
                ("kHalf", tile.half),
                ("kReadVector", half.vector(shape.group[phases[0].digit][0])),
                ("kWriteVector", half.vector(shape.group[phases[-1].digit][1])),
                ("kSaturate", operands.saturates(epilogue)),
                *_factor_constants(factors, runs),
                *_tile_constants(shape, tile, strides, splits, accumulator),
                *_phase_constants(phases),
            ),
            signature=tile_signature(scalar, len(factors)),
            epilogue=epilogue,
            threads=tile.threads,
            shared_bytes=wanted,
            launch=tuple(launch),
        ),
    )


def _block_constants(
    shape: PassShape,
    ends: Ends,
    tile: MmaTile,
    strides: Sequence[int],
    phases: Sequence[MmaPhase],
    accumulator: DataType,
    blocks: int,
) -> tuple[tuple[str, Constant], ...]:
    """The threads of a block, and how they go about memory."""
    x_vector = _vector(shape, phases[0], tile, strides, ends.source_alignment, 0)
    y_vector = _vector(shape, phases[-1], tile, strides, ends.output_alignment, 1)
    ahead = _reads_ahead(shape, phases[0], tile, accumulator, blocks)
    # Several blocks go on at once anyway.
    alone = ahead and blocks == 1 and min(x_vector, y_vector) > 1
    return (
        ("kThreads", tile.threads),
        ("kBlocks", blocks),
        ("kAhead", ahead),
        ("kExchange", exchanged(shape, tile, phases) if alone else 0),
        ("kXVector", x_vector),
        ("kYVector", y_vector),
        ("kXDigit", 0 if ends.source_by_rows else shape.right),
        ("kYDigit", 0 if ends.output_by_rows else shape.right),
    )


def _reads_ahead(
    shape: PassShape, phase: MmaPhase, tile: MmaTile, accumulator: DataType, blocks: int
) -> bool:
    """Whether the phase that reads X has registers for the elements of two turns."""
    elements = 2 * phase.lanes * parts_of(shape.group[phase.digit][0])
    if phase.other is not None:
        elements *= parts_of(shape.group[phase.other][0])
    if bytewise.takes(accumulator):
        elements *= 2  # Planes of bytes stand beside the elements.
    return (
        not tile.staged_in
        and elements * accumulator.bytes <= _AHEAD_BYTES
        and tile.threads * blocks <= _AHEAD_THREADS
    )


def _vector(
    shape: PassShape,
    phase: MmaPhase,
    tile: MmaTile,
    strides: Sequence[int],
    alignment: int,
    produced: int,
) -> int:
    """Elements of one access to memory: of a staged tile, or of a phase's pair."""
    if tile.staged_out if produced else tile.staged_in:
        return _staged_vector(shape, tile, strides, alignment, produced)
    if strides[phase.digit] == 1:
        size = shape.group[phase.digit][produced]
        most = half.vector(size) if tile.half else 2
        return operands.widest_divisor(min(alignment, most), [size])
    return math.gcd(alignment, phase.lanes) if phase.neighbours else 1


def _staged_vector(
    shape: PassShape, tile: MmaTile, strides: Sequence[int], alignment: int, produced: int
) -> int:
    """Elements of a run that go from the tile to memory or back at once."""
    run = tile.columns if tile.columns > 1 else shape.group[-1][produced]
    width = operands.widest_divisor(alignment, [run])
    # A row of a 16-bit tile is aligned to whole vectors; elsewhere these are cut into pieces.
    piece = width if tile.half else min(width, _PIECE)
    outer = strides if tile.columns > 1 else strides[:-1]
    fits = operands.widest_divisor(piece, [*outer, row_stride(shape, tile, strides)])
    return width if fits == piece else fits


def _factor_constants(
    factors: Sequence[tuple[int, int]], runs: Sequence[int]
) -> tuple[tuple[str, Constant], ...]:
    """The factors of the pass, and which of them make each digit."""
    return (
        ("kFactors", len(factors)),
        ("kFactorFirst", tuple(sum(runs[:index]) for index in range(len(runs) + 1))),
        ("kFactorContracted", tuple(p for p, _ in factors)),
        ("kFactorProduced", tuple(q for _, q in factors)),
    )


def _tile_constants(
    shape: PassShape,
    tile: MmaTile,
    strides: Sequence[int],
    splits: bool,
    accumulator: DataType,
) -> tuple[tuple[str, Constant], ...]:
    at = offset_tiles(tile) * offset_bytes(tile)
    sizes = factors_bytes(shape, tile, splits, accumulator)
    ins, outs = [p for p, _ in shape.group], [q for _, q in shape.group]
    return (
        ("kStagedIn", tile.staged_in),
        ("kStagedOut", tile.staged_out),
        ("kRegular", powers(shape.group, tile)),
        ("kCluster", tile.cluster),
        ("kOffsetBytes", offset_bytes(tile)),
        ("kSquare", all(p == q for p, q in shape.group)),
        ("kRows", tile.rows),
        ("kColumns", tile.columns),
        ("kDigits", len(shape.group)),
        ("kGroupIn", shape.group_in),
        ("kGroupOut", shape.group_out),
        ("kContracted", tuple(ins)),
        ("kProduced", tuple(outs)),
        ("kGroupStrideIn", tuple(math.prod(ins[index + 1 :]) for index in range(len(ins)))),
        ("kGroupStrideOut", tuple(math.prod(outs[index + 1 :]) for index in range(len(outs)))),
        ("kStride", tuple(strides)),
        ("kRowStride", row_stride(shape, tile, strides)),
        ("kDenseIn", False),
        ("kDenseOut", False),
        ("kFactorBytesAt", tuple(at + sum(sizes[:index]) for index in range(len(sizes)))),
        ("kBuffers", tile.buffers),
        ("kTileBytes", row_stride(shape, tile, strides) * tile.rows * half.BYTES),
        ("kTileBytesAt", at + sum(sizes) + half.SPARE_BYTES * tile.half),
    )


def _phase_constants(phases: Sequence[MmaPhase]) -> tuple[tuple[str, Constant], ...]:
    ends = [0]
    for phase in phases:
        ends.append(ends[-1] + len(phase.axes))
    axes = [axis for phase in phases for axis in phase.axes]
    return (
        ("kPhases", len(phases)),
        ("kPhaseDigit", tuple(phase.digit for phase in phases)),
        ("kPhaseOther", tuple(-1 if phase.other is None else phase.other for phase in phases)),
        ("kPhaseLanes", tuple(phase.lanes for phase in phases)),
        ("kPhaseGrouped", tuple(int(phase.grouped) for phase in phases)),
        ("kPhaseNeighbours", tuple(int(phase.neighbours) for phase in phases)),
        ("kPhaseFibers", tuple(phase.fibers for phase in phases)),
        ("kPhaseAxis", tuple(ends)),
        ("kAxisExtent", tuple(axis.extent for axis in axes)),
        ("kAxisShared", tuple(axis.shared for axis in axes)),
        ("kAxisRow", tuple(axis.row for axis in axes)),
        ("kAxisGroup", tuple(axis.group for axis in axes)),
        ("kAxisColumn", tuple(axis.column for axis in axes)),
    )
