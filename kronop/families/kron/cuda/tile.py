"""Planning of one `kron_tile` pass: the tile, its phases and padding, and the resulting step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kronop.artifacts import Field, KernelSignature, Scalar, Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS
from kronop.emit.cuda import operands
from kronop.emit.design import Constant, Flat
from kronop.emit.plan import Step
from kronop.families.kron.cuda.banks import choose_padding
from kronop.families.kron.cuda.shapes import Ends, PassShape, multiply_adds, shrinking
from kronop.families.kron.description import KronMatmulDescription
from kronop.target import Target

MOST_FACTORS = 32
# A thread holds all inputs of a digit in registers, and all outputs of a small one.
MOST_CONTRACTED = 32
SMALL_DIGIT = 8
# Elements that a thread holds of small digits: 64-bit integer products need registers of their own.
_SMALL_BLOCKS = {"float32": 64, "int32": 64, "float64": 32, "int64": 16}
_OFFSETS_OF_A_ROW = 3 * 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TileShape:
    """Rows x group x columns of a block, and its threads."""

    rows: int
    columns: int
    threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Digits [first, end) of the group, contracted between two barriers.

    `together` is how many fibers a thread takes at once for one large digit; 0 for small digits.
    `axes` are (extent, stride) of what stays free, last one fastest.
    """

    first: int
    end: int
    together: int
    block: int
    stride: int
    axes: tuple[tuple[int, int], ...]

    @property
    def fibers(self) -> int:
        return math.prod(extent for extent, _ in self.axes)


@dataclass(frozen=True, slots=True, kw_only=True)
class TileLayout:
    """Where everything lies in a block's shared memory, in elements of the accumulator."""

    slots: tuple[int, ...]
    strides: tuple[int, ...]
    pitches: tuple[int, ...]
    factor_offsets: tuple[int, ...]
    factor_elements: int
    row_stride: int
    elements: int


def chunk_of(accumulator: DataType) -> int:
    """Outputs of a large digit that a thread produces at a time."""
    return 32 // accumulator.bytes


def layout_of(shape: PassShape, tile: TileShape, accumulator: DataType) -> TileLayout:
    """Slots, strides and the factors' places."""
    slots = tuple(max(item) for item in shape.group)
    strides = tuple(tile.columns * math.prod(slots[index + 1 :]) for index in range(len(slots)))
    small = [max(item) <= SMALL_DIGIT for item in shape.group]
    vector = operands.vector_of(accumulator)
    pitches = tuple(
        operands.round_up(q, vector if is_small else chunk_of(accumulator))
        for (_, q), is_small in zip(shape.group, small, strict=True)
    )
    sizes = [p * pitch for (p, _), pitch in zip(shape.group, pitches, strict=True)]
    offsets = tuple(sum(sizes[:index]) for index in range(len(sizes)))
    row_stride = math.prod(slots) * tile.columns
    return TileLayout(
        slots=slots,
        strides=strides,
        pitches=pitches,
        factor_offsets=offsets,
        factor_elements=sum(sizes),
        row_stride=row_stride,
        elements=row_stride * tile.rows,
    )


def shared_bytes(
    layout: TileLayout, tile: TileShape, accumulator: DataType, pad_shift: int = 5
) -> int:
    """Row offsets, factors and the padded tile."""
    padded = layout.elements + (layout.elements >> pad_shift if pad_shift else 0)
    rows = operands.round_up(_OFFSETS_OF_A_ROW * tile.rows, operands.VECTOR_BYTES)
    factors = operands.round_up(layout.factor_elements * accumulator.bytes, operands.VECTOR_BYTES)
    return rows + factors + padded * accumulator.bytes


def fits(shape: PassShape, tile: TileShape, accumulator: DataType, target: Target) -> Status:
    """Whether `kron_tile` can run this pass with this tile: the one rule."""
    if len(shape.group) > MOST_FACTORS:
        return Status.reject(f"{len(shape.group)} factors in one pass, at most {MOST_FACTORS}")
    largest = max(p for p, _ in shape.group)
    if largest > MOST_CONTRACTED:
        return Status.reject(
            f"a digit of {largest} does not fit a thread's registers, at most {MOST_CONTRACTED}"
        )
    if not 32 <= tile.threads <= 1024:
        return Status.reject(
            f"{tile.threads} threads of a block, expected 32 to 1024; change warp_count"
        )
    wanted = shared_bytes(layout_of(shape, tile, accumulator), tile, accumulator)
    if wanted > target.shared_bytes:
        return Status.reject(
            f"a tile of {tile.rows} x {shape.group_in} x {tile.columns} wants {wanted} bytes"
            f" of shared memory, {target.shared_bytes} are there; use a smaller tile"
        )
    # Beyond this many threads a thread has too few registers for what it holds.
    most = operands.REGISTERS // (operands.round_up(registers(shape, accumulator), 8))
    if tile.threads > most:
        return Status.reject(
            f"{tile.threads} threads leave too few registers, at most {most // 32 * 32} fit;"
            " change warp_count"
        )
    return Status.accept()


def registers(shape: PassShape, accumulator: DataType) -> int:
    """An upper estimate of the registers of a thread: what it holds, sums, addresses."""
    chunk = chunk_of(accumulator)
    words = accumulator.bytes // 4
    wanted = 0
    for phase in _group_phases(shape, accumulator):
        if phase.together == 0:
            wanted = max(wanted, (phase.block + 32) * words + 64)
        else:
            # NOTE: ptxas 13.4 spilled odd sizes below about 150 registers (addresses of padded
            # elements), and the largest ones at 168 too, which more than 8 warps would leave.
            held = phase.together * (phase.block + chunk + 8) * words + 64
            odd = phase.block & (phase.block - 1) != 0
            large = phase.together * phase.block * words > 40
            wanted = max(wanted, held, (208 if large else 152) if odd else 0)
    return min(wanted, 255)


def phases_of(shape: PassShape, tile: TileShape, accumulator: DataType) -> tuple[Phase, ...]:
    """The phases in the order of execution, with their free axes at that time."""
    layout = layout_of(shape, tile, accumulator)
    done: set[int] = set()
    result = []
    for phase in _group_phases(shape, accumulator):
        inside = range(phase.first, phase.end)
        axes = [(tile.rows, layout.row_stride)]
        axes += [
            (digit[1] if index in done else digit[0], layout.strides[index])
            for index, digit in enumerate(shape.group)
            if index not in inside
        ]
        result.append(
            Phase(
                first=phase.first,
                end=phase.end,
                together=phase.together,
                block=phase.block,
                stride=layout.strides[phase.end - 1],
                axes=_collapse([*axes, (tile.columns, 1)]),
            )
        )
        done |= set(inside)
    return tuple(result)


def _group_phases(shape: PassShape, accumulator: DataType) -> list[Phase]:
    """Runs of small digits share a phase; the phases that shrink go first."""
    phases: list[Phase] = []
    most = _SMALL_BLOCKS[accumulator.name]
    for index, digit in enumerate(shape.group):
        slots = max(digit)
        last = phases[-1] if phases else None
        if slots > SMALL_DIGIT:
            most_together = 2 if digit[0] & (digit[0] - 1) else 4
            together = max(1, min(most_together, 256 // (accumulator.bytes * digit[0])))
            phases.append(
                Phase(
                    first=index, end=index + 1, together=together, block=digit[0], stride=0, axes=()
                )
            )
        elif last is not None and last.together == 0 and last.block * slots <= most:
            phases[-1] = Phase(
                first=last.first,
                end=index + 1,
                together=0,
                block=last.block * slots,
                stride=0,
                axes=(),
            )
        else:
            phases.append(
                Phase(first=index, end=index + 1, together=0, block=slots, stride=0, axes=())
            )
    return sorted(
        phases, key=lambda phase: shrinking(_product(shape.group[phase.first : phase.end]))
    )


def _product(group: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return math.prod(p for p, _ in group), math.prod(q for _, q in group)


def _collapse(axes: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Neighbouring axes that walk one stride together become one."""
    result: list[tuple[int, int]] = []
    for extent, stride in axes:
        if extent == 1:
            continue
        if result and result[-1][1] == extent * stride:
            result[-1] = (result[-1][0] * extent, stride)
        else:
            result.append((extent, stride))
    return tuple(result) or ((1, 0),)


def tile_step(
    description: KronMatmulDescription,
    shape: PassShape,
    ends: Ends,
    tile: TileShape,
    target: Target,
    *,
    entry: str,
    note: str,
    launch: Sequence[tuple[str, Constant]],
    last: bool,
) -> Step:
    """The step of a pass that `fits`."""
    accumulator = description.math.element_accumulator
    layout = layout_of(shape, tile, accumulator)
    phases = phases_of(shape, tile, accumulator)
    x_vector, y_vector = vectors(shape, ends, tile)
    shift, adds = choose_padding(shape, tile, layout, phases, accumulator, x_vector, y_vector)
    wanted = shared_bytes(layout, tile, accumulator, shift)
    blocks = operands.resident_blocks(tile.threads, registers(shape, accumulator), wanted, target)
    epilogue = description.epilogue if last else None
    scalar = operands.scalar_kind(epilogue)
    digits = len(shape.group)
    order = sorted(shape.group, key=shrinking)
    return Step(
        entry=entry,
        bytes_per_row=shape.columns_in * ends.source.bytes + shape.columns_out * ends.output.bytes,
        operations_per_row=2 * multiply_adds(list(order), shape.left, shape.right),
        note=note,
        design=Flat(
            header="kronop/kron_tile.cuh",
            template="kronop::kron_tile",
            parameters=f"kronop::KronTileParameters<{scalar.cxx}, {digits}>",
            types=operands.element_types(description.math, ends.source, ends.output, epilogue),
            constants=(
                ("kThreads", tile.threads),
                ("kBlocks", blocks),
                ("kXVector", x_vector),
                ("kYVector", y_vector),
                ("kUnroll", max(1, min(8, 64 // (x_vector * 4)))),
                ("kPadShift", shift),
                ("kPadAdds", adds),
                ("kSaturate", operands.saturates(epilogue)),
                *_tile_constants(shape, tile, layout, accumulator),
                *_phase_constants(phases, accumulator),
            ),
            signature=tile_signature(scalar, digits),
            epilogue=epilogue,
            threads=tile.threads,
            shared_bytes=wanted,
            launch=tuple(launch),
        ),
    )


def _tile_constants(
    shape: PassShape, tile: TileShape, layout: TileLayout, accumulator: DataType
) -> tuple[tuple[str, Constant], ...]:
    """Sizes of the tile and where its parts lie in shared memory."""
    factors_at = operands.round_up(_OFFSETS_OF_A_ROW * tile.rows, operands.VECTOR_BYTES)
    factor_bytes = operands.round_up(
        layout.factor_elements * accumulator.bytes, operands.VECTOR_BYTES
    )
    return (
        ("kRows", tile.rows),
        ("kColumns", tile.columns),
        ("kDigits", len(shape.group)),
        ("kEqualFactors", len(set(shape.group)) == 1),
        ("kGroupIn", shape.group_in),
        ("kGroupOut", shape.group_out),
        ("kContracted", tuple(p for p, _ in shape.group)),
        ("kProduced", tuple(q for _, q in shape.group)),
        ("kStride", layout.strides),
        ("kRowStride", layout.row_stride),
        ("kDenseIn", all(p >= q for p, q in shape.group)),
        ("kDenseOut", all(q >= p for p, q in shape.group)),
        ("kFactorPitch", layout.pitches),
        ("kFactorOffset", layout.factor_offsets),
        ("kFactorVector", operands.vector_of(accumulator)),
        ("kFactorBytesAt", factors_at),
        ("kTileBytesAt", factors_at + factor_bytes),
    )


def _phase_constants(
    phases: Sequence[Phase], accumulator: DataType
) -> tuple[tuple[str, Constant], ...]:
    """What each phase contracts, and the axes that its fibers walk, all phases in a row."""
    ends = [0]
    for phase in phases:
        ends.append(ends[-1] + len(phase.axes))
    return (
        ("kChunk", chunk_of(accumulator)),
        ("kTogether", 16 // accumulator.bytes),
        ("kPhases", len(phases)),
        ("kPhaseFirst", tuple(phase.first for phase in phases)),
        ("kPhaseEnd", tuple(phase.end for phase in phases)),
        ("kPhaseBlock", tuple(phase.block for phase in phases)),
        ("kPhaseStride", tuple(phase.stride for phase in phases)),
        ("kPhaseFibers", tuple(phase.fibers for phase in phases)),
        ("kPhaseTogether", tuple(phase.together for phase in phases)),
        ("kPhaseAxis", tuple(ends)),
        ("kAxisExtent", tuple(extent for phase in phases for extent, _ in phase.axes)),
        ("kAxisStride", tuple(stride for phase in phases for _, stride in phase.axes)),
    )


def vectors(shape: PassShape, ends: Ends, tile: TileShape) -> tuple[int, int]:
    """Elements of one access to X and to Y."""
    if tile.columns > 1:
        sizes = [tile.columns] if ends.source_by_rows else [tile.columns, shape.right]
        return (
            operands.widest_divisor(ends.source_alignment, sizes),
            operands.widest_divisor(ends.output_alignment, sizes),
        )
    x = operands.widest_divisor(ends.source_alignment, [shape.group_in])
    return x, operands.widest_divisor(ends.output_alignment, [shape.group_out])


def tile_signature(scalar: Scalar, factors: int) -> KernelSignature:
    batch = MOST_BATCH_DIMENSIONS
    return operands.signature(
        "KronTileParameters",
        scalar,
        [("x", 1), ("y", 1), ("z", 1)],
        [
            ("x_vector", 1),
            ("y_vector", 1),
            ("tiles", 3),
            *((f"outer_{name}", 2) for name in ("extent", "x", "y", "z")),
            *((f"inner_{name}", 1) for name in ("extent", "x", "y", "z")),
            *((f"digit_{name}", 1) for name in ("x", "y", "z")),
            *((f"batch_{name}", batch) for name in ("extent", "x", "y", "z")),
        ],
        [
            Field("factor", Scalar.POINTER, factors),
            Field("factor_row", Scalar.INT64, factors),
            Field("factor_column", Scalar.INT64, factors),
            Field("factor_batch", Scalar.INT64, factors * batch),
        ],
    )
