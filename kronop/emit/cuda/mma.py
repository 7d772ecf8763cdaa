"""Planning of one `kron_mma` pass: the tile, its phases on the tensor cores, and the step.

Each phase contracts one digit. The tile is in shared memory, with strides that keep a warp's
accesses apart in its banks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kronop.artifacts import Status
from kronop.descriptions.datatype import DataType, bfloat16, float16, float32, float64
from kronop.descriptions.kron import KronMatmulDescription
from kronop.descriptions.math_instruction import MathInstruction, MathOperation, OpClass
from kronop.emit.cuda import operands
from kronop.emit.cuda.shapes import Ends, PassShape, multiply_adds, shrinking
from kronop.emit.cuda.tile import TileShape, tile_signature
from kronop.emit.plan import Constant, Step
from kronop.target import Target

# A warp holds 16 whole fibers of a digit in registers.
MOST_CONTRACTED = 128
MOST_DIGITS = 16
_HELD_FACTOR_BYTES = 64
_OFFSETS_OF_A_ROW = 3 * 8
# Measured with ptxas 13.4: what addresses and loops take besides.
_REGISTERS_PLAIN, _REGISTERS_OTHERS, _REGISTERS_LONG = 56, 80, 32
# NOTE: fitted to 500 tiles of 17 passes on one H200 (copy 4.27 TB/s over 132 multiprocessors at
# 1.755 GHz), its choice 2 % from the best in the mean: 0.87 of copy speed, cycles of a 16 x 8 x 8
# product by bytes of the accumulator, what one block alone does not overlap, latency of a tile,
# warps that hide the latency of products.
_MEMORY_BYTES_PER_CYCLE = 16.0
_CYCLES_OF_PRODUCT = {4: 2.4, 8: 7.6}
_EXPOSED = 0.8
_CYCLES_OF_TILE = 500
_WARPS = 8
_SHARED_BYTES_PER_CYCLE = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class MmaTile(TileShape):
    """Rows x group x columns of a block, its threads, and whether X and Y go through the tile.

    What is not staged is a contiguous digit, which its phase reads and writes in memory itself.
    Neighbouring factors are multiplied out up to `merged` rows and columns.
    """

    staged: bool
    merged: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Splits:
    """Whether X and the factors are taken as two operands each: a rounded value and its rest."""

    x: bool
    factor: bool

    def products(self, exact_x: bool) -> int:
        return 1 + (self.x and not exact_x) + self.factor


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A free index of a phase: its extent, and the strides of its steps in the tile and in rows."""

    extent: int
    shared: int
    row: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MmaPhase:
    """One digit: groups of 16 fibers that a warp takes at once, and the axes of the fibers."""

    digit: int
    groups: int
    neighbours: bool
    axes: tuple[Axis, ...]

    @property
    def fibers(self) -> int:
        return math.prod(axis.extent for axis in self.axes)


def runs_of(group: Sequence[tuple[int, int]], merged: int) -> tuple[int, ...]:
    """How many neighbouring factors make each digit, so that none is larger than `merged`."""
    runs: list[int] = []
    p, q = 0, 0
    for contracted, produced in group:
        if runs and max(p * contracted, q * produced) <= merged:
            runs[-1] += 1
            p, q = p * contracted, q * produced
        else:
            runs.append(1)
            p, q = contracted, produced
    return tuple(runs)


def merge(shape: PassShape, merged: int) -> PassShape:
    """The pass with its factors multiplied out into digits."""
    group, first = [], 0
    for run in runs_of(shape.group, merged):
        factors = shape.group[first : first + run]
        group.append((math.prod(p for p, _ in factors), math.prod(q for _, q in factors)))
        first += run
    return replace(shape, group=tuple(group))


def splits_of(math_instruction: MathInstruction) -> Splits | None:
    """How operands are split for this instruction; None where `kron_mma` has no such product."""
    if math_instruction.opcode_class is not OpClass.TensorOp:
        return None
    element, operation = math_instruction.element_a, math_instruction.math_operation
    shape = math_instruction.instruction_shape
    if element is float64:
        return Splits(x=False, factor=False)
    if shape != (16, 8, 8):
        return None
    if element is float32 and operation is MathOperation.multiply_add_fast_f32:
        return Splits(x=True, factor=True)
    if operation is not MathOperation.multiply_add:
        return None
    if element is float32:
        return Splits(x=False, factor=False)
    # 16-bit operands are exact; intermediates are not.
    return Splits(x=True, factor=False) if element in (float16, bfloat16) else None


def splits_for(splits: Splits, shape: PassShape, merged: int) -> Splits:
    """As `splits`; but products of 16-bit factors are no longer exact."""
    if splits.x and any(run > 1 for run in runs_of(shape.group, merged)):
        return Splits(x=True, factor=True)
    return splits


def strides_of(shape: PassShape, tile: MmaTile, accumulator: DataType) -> tuple[int, ...]:
    """Stride of each digit in the tile, last digit contiguous or next to the columns."""
    strides: list[int] = []
    stride = tile.columns
    for index in reversed(range(len(shape.group))):
        strides.append(_apart(stride, accumulator))
        slots = max(shape.group[index])
        # Pairs of a contiguous digit stay within it.
        stride = strides[-1] * (operands.round_up(slots, 2) if strides[-1] == 1 else slots)
    return tuple(reversed(strides))


def _apart(stride: int, accumulator: DataType) -> int:
    """`stride`, or a little more, so that 4 steps of it and 8 neighbours meet no bank twice."""
    banks = _SHARED_BYTES_PER_CYCLE // accumulator.bytes
    wanted = {banks // 4, banks - banks // 4}
    if stride < banks // 4 or stride % 4:
        return stride
    padded = next(s for s in range(stride, stride + banks + 1, 4) if s % banks in wanted)
    return padded if padded <= 1.25 * stride else stride


def row_stride(shape: PassShape, strides: Sequence[int]) -> int:
    slots = max(shape.group[0])
    return strides[0] * (operands.round_up(slots, 2) if strides[0] == 1 else slots)


def phases_of(
    shape: PassShape, tile: MmaTile, strides: Sequence[int], accumulator: DataType
) -> tuple[MmaPhase, ...]:
    """The phases in the order of execution."""
    order = sorted(range(len(shape.group)), key=lambda d: (shrinking(shape.group[d]), -d))
    done: set[int] = set()
    result = []
    for digit in order:
        sizes = [q if index in done else p for index, (p, q) in enumerate(shape.group)]
        groups = _groups(shape.group[digit], accumulator)
        axes = [Axis(extent=tile.rows, shared=row_stride(shape, strides), row=1)]
        axes += [
            Axis(extent=size, shared=strides[index])
            for index, size in enumerate(sizes)
            if index != digit
        ]
        axes.append(Axis(extent=tile.columns, shared=1))
        collapsed = _collapse(axes)
        result.append(
            MmaPhase(
                digit=digit,
                groups=groups,
                neighbours=_neighbours(collapsed, strides[digit], 2 * groups),
                axes=collapsed,
            )
        )
        done.add(digit)
    return tuple(result)


def _neighbours(axes: Sequence[Axis], stride: int, lanes: int) -> bool:
    """Whether a thread's fibers are one aligned vector wherever they are read or written."""
    last = axes[-1]
    aligned = all(axis.shared % lanes == 0 for axis in axes[:-1])
    return (
        stride != 1
        and stride % lanes == 0
        and aligned
        and last.shared == 1
        and (last.extent % lanes == 0)
    )


def _collapse(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """Neighbouring axes that walk together become one."""
    result: list[Axis] = []
    for axis in axes:
        if axis.extent == 1:
            continue
        last = result[-1] if result else None
        if last is not None and (
            (last.shared, last.row) == (axis.extent * axis.shared, axis.extent * axis.row)
        ):
            result[-1] = Axis(
                extent=last.extent * axis.extent,
                shared=axis.shared,
                row=axis.row,
            )
        else:
            result.append(axis)
    return tuple(result) or (Axis(extent=1, shared=0),)


def _parts(size: int) -> int:
    return operands.cover(size, 8)


def _groups(digit: tuple[int, int], accumulator: DataType) -> int:
    """Two groups of 16 fibers where a thread can hold them, in vectors of 16 bytes at most."""
    return 2 if accumulator.bytes == 4 and _parts(digit[0]) <= 2 else 1


def registers(shape: PassShape, splits: Splits, accumulator: DataType) -> int:
    """An upper estimate of the registers of a thread: fibers, factor parts, sums, addresses."""
    words = accumulator.bytes // 4
    wanted = 0
    for digit in shape.group:
        groups = _groups(digit, accumulator)
        parts = _parts(digit[0]) * _parts(digit[1])
        fragment = 2 * words * (1 + splits.factor)
        at_once = min(_parts(digit[1]), (2 if _parts(digit[0]) > 8 else 4) // groups)
        held = (_parts(digit[0]) + 1 + splits.x) * 4 * groups * words
        sums = at_once * groups * 4 * words * (1 + splits.factor)
        factor = fragment * (parts if parts * fragment * 4 <= _HELD_FACTOR_BYTES else at_once)
        wanted = max(wanted, held + sums + factor)
    # Odd sizes are walked with more index arithmetic; 16-bit operands pass through registers.
    plain = all(size & (size - 1) == 0 for digit in shape.group for size in digit)
    other = _REGISTERS_PLAIN if plain and splits.x == splits.factor else _REGISTERS_OTHERS
    # NOTE: at P = 64 three blocks of 168 registers spilled a little and took 0.85 ms where two of
    # 240 took 0.74.
    long = max(_parts(p) for p, _ in shape.group) >= 8 and splits.x == splits.factor
    return min(255, wanted + other + _REGISTERS_LONG * long)


def factor_bytes(digit: tuple[int, int], splits: Splits, accumulator: DataType) -> int:
    """Bytes of one factor as its phase's threads take it."""
    return _parts(digit[0]) * _parts(digit[1]) * 32 * 2 * (1 + splits.factor) * accumulator.bytes


def _offset_bytes(tile: MmaTile) -> int:
    """Bytes of the row offsets of one of the two tiles that are in flight."""
    return operands.round_up(_OFFSETS_OF_A_ROW * tile.rows, operands.VECTOR_BYTES)


def shared_bytes(shape: PassShape, tile: MmaTile, splits: Splits, accumulator: DataType) -> int:
    """Row offsets, factors, and the tile where more than one phase meets in it."""
    factors = sum(factor_bytes(digit, splits, accumulator) for digit in shape.group)
    elements = row_stride(shape, strides_of(shape, tile, accumulator)) * tile.rows
    return 2 * _offset_bytes(tile) + factors + elements * accumulator.bytes * tile.staged


def fits(
    shape: PassShape, tile: MmaTile, splits: Splits, accumulator: DataType, target: Target
) -> Status:
    """Whether `kron_mma` can run this pass with this tile: the one rule."""
    if len(shape.group) > MOST_DIGITS:
        return Status.reject(f"{len(shape.group)} factors in one pass, at most {MOST_DIGITS}")
    largest = max(p for p, _ in shape.group)
    if largest > MOST_CONTRACTED:
        return Status.reject(
            f"a digit of {largest} does not fit a thread's registers, at most {MOST_CONTRACTED}"
        )
    if not 32 <= tile.threads <= 1024 or tile.threads % 32:
        return Status.reject(
            f"{tile.threads} threads of a block, expected 32 to 1024; change warp_count"
        )
    wanted = shared_bytes(shape, tile, splits, accumulator)
    if wanted > target.shared_bytes:
        return Status.reject(
            f"a tile of {tile.rows} x {shape.group_in} x {tile.columns} wants {wanted} bytes"
            f" of shared memory, {target.shared_bytes} are there; use a smaller tile"
        )
    most = operands.REGISTERS // operands.round_up(registers(shape, splits, accumulator), 8)
    if tile.threads > most:
        return Status.reject(
            f"{tile.threads} threads leave too few registers, at most {most // 32 * 32} fit;"
            " change warp_count"
        )
    return Status.accept()


def cycles(
    shape: PassShape,
    ends: Ends,
    tile: MmaTile,
    splits: Splits,
    accumulator: DataType,
    target: Target,
    partial: float,
) -> float:
    """Cycles of one multiprocessor for 128 elements of X; `partial` is lost memory bandwidth."""
    x, y = ends.source.bytes, ends.output.bytes * shape.group_out / shape.group_in
    memory = 128 * (x + y) * partial / _MEMORY_BYTES_PER_CYCLE
    tensor = shared = 0.0
    strides = strides_of(shape, tile, accumulator)
    phases = phases_of(shape, tile, strides, accumulator)
    elements = 128.0
    for index, phase in enumerate(phases):
        p, q = shape.group[phase.digit]
        blocks = _parts(p) * _parts(q) * elements / (16 * p)
        exact = index == 0 and ends.source.bytes == 2
        idle = _idle(phase, tile.threads // 32)
        tensor += blocks * splits.products(exact) * _CYCLES_OF_PRODUCT[accumulator.bytes] * idle
        if _parts(p) * _parts(q) * 2 * accumulator.bytes * (1 + splits.factor) > _HELD_FACTOR_BYTES:
            fragment = factor_bytes((8, 8), splits, accumulator) / _SHARED_BYTES_PER_CYCLE
            shared += blocks / phase.groups * fragment
        width = accumulator.bytes / _SHARED_BYTES_PER_CYCLE
        # What a phase reads in memory itself comes in short runs.
        shared += elements * width * (1 if tile.staged or p <= 8 else 2)
        elements *= q / p
        shared += elements * width * (1 if tile.staged or q <= 8 else 2)
    shared += 128 * accumulator.bytes / _SHARED_BYTES_PER_CYCLE * tile.staged
    shared += elements * accumulator.bytes / _SHARED_BYTES_PER_CYCLE * tile.staged
    compute = max(tensor, shared) + 0.25 * min(tensor, shared) + 3 * len(phases)
    wanted = shared_bytes(shape, tile, splits, accumulator)
    blocks = operands.resident_blocks(
        tile.threads, registers(shape, splits, accumulator), wanted, target
    )
    compute *= math.sqrt(max(1.0, _WARPS / (blocks * tile.threads / 32)))
    held = tile.rows * tile.columns * shape.group_in * blocks
    latency = _CYCLES_OF_TILE * 128 / held
    exposed = _EXPOSED / math.sqrt(blocks)
    return max(memory, compute) + exposed * min(memory, compute) + latency


def _idle(phase: MmaPhase, warps: int) -> float:
    """How much longer a phase takes because its fibers do not fill all warps."""
    pieces = operands.cover(phase.fibers, 16 * phase.groups)
    return operands.cover(pieces, warps) * warps / pieces


def mma_step(
    description: KronMatmulDescription,
    shape: PassShape,
    ends: Ends,
    tile: MmaTile,
    splits: Splits,
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
    splits = splits_for(splits, shape, tile.merged)
    order = sorted(factors, key=shrinking)
    operations = 2 * multiply_adds(list(order), shape.left, shape.right)
    shape = merge(shape, tile.merged)
    strides = strides_of(shape, tile, accumulator)
    phases = phases_of(shape, tile, strides, accumulator)
    wanted = shared_bytes(shape, tile, splits, accumulator)
    blocks = operands.resident_blocks(
        tile.threads, registers(shape, splits, accumulator), wanted, target
    )
    epilogue = description.epilogue if last else None
    scalar = operands.scalar_kind(epilogue)
    x_vector = _vector(shape, phases[0], tile, strides, ends.source_alignment, 0)
    y_vector = _vector(shape, phases[-1], tile, strides, ends.output_alignment, 1)
    return Step(
        entry=entry,
        header="kronop/kron_mma.cuh",
        template="kronop::kron_mma",
        parameters=f"kronop::KronTileParameters<{scalar.cxx}, {len(factors)}>",
        types=operands.element_types(description.math, ends.source, ends.output, epilogue),
        constants=(
            ("kThreads", tile.threads),
            ("kBlocks", blocks),
            ("kXVector", x_vector),
            ("kYVector", y_vector),
            ("kXDigit", 0 if ends.source_by_rows else shape.right),
            ("kYDigit", 0 if ends.output_by_rows else shape.right),
            ("kSplitX", splits.x),
            ("kSplitFactor", splits.factor),
            ("kSaturate", operands.saturates(epilogue)),
            *_factor_constants(factors, runs),
            *_tile_constants(shape, tile, strides, splits, accumulator),
            *_phase_constants(phases),
        ),
        signature=tile_signature(scalar, len(factors)),
        epilogue=epilogue,
        threads=tile.threads,
        shared_bytes=wanted,
        bytes_per_row=shape.columns_in * ends.source.bytes + shape.columns_out * ends.output.bytes,
        operations_per_row=operations,
        note=note,
        launch=tuple(launch),
    )


def _powers(tile: MmaTile, shape: PassShape) -> bool:
    """Whether all sizes are powers of two, so that indices split into parts without carries."""
    digits = (size for digit in shape.group for size in digit)
    sizes = (tile.rows, tile.columns, tile.threads, *digits)
    return all(size & (size - 1) == 0 for size in sizes)


def _vector(
    shape: PassShape,
    phase: MmaPhase,
    tile: MmaTile,
    strides: Sequence[int],
    alignment: int,
    produced: int,
) -> int:
    """Elements of one access to memory: of a staged tile, or of a phase's pair."""
    last = shape.group[-1][produced]
    if tile.staged:
        return operands.widest_divisor(alignment, [tile.columns if tile.columns > 1 else last])
    return operands.widest_divisor(min(alignment, 2), [shape.group[phase.digit][produced]])


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
    splits: Splits,
    accumulator: DataType,
) -> tuple[tuple[str, Constant], ...]:
    at = 2 * _offset_bytes(tile)
    sizes = [factor_bytes(digit, splits, accumulator) for digit in shape.group]
    ins, outs = [p for p, _ in shape.group], [q for _, q in shape.group]
    return (
        ("kStaged", tile.staged),
        ("kRegular", _powers(tile, shape)),
        ("kOffsetBytes", _offset_bytes(tile)),
        ("kSquare", all(p == q for p, q in shape.group)),
        ("kRows", tile.rows),
        ("kColumns", tile.columns),
        ("kDigits", len(shape.group)),
        ("kGroupIn", shape.group_in),
        ("kGroupOut", shape.group_out),
        ("kContracted", tuple(ins)),
        ("kProduced", tuple(outs)),
        ("kStride", tuple(strides)),
        ("kRowStride", row_stride(shape, strides)),
        ("kDenseIn", False),
        ("kDenseOut", False),
        ("kFactorBytesAt", tuple(at + sum(sizes[:index]) for index in range(len(sizes)))),
        ("kTileBytesAt", at + sum(sizes)),
    )


def _phase_constants(phases: Sequence[MmaPhase]) -> tuple[tuple[str, Constant], ...]:
    ends = [0]
    for phase in phases:
        ends.append(ends[-1] + len(phase.axes))
    axes = [axis for phase in phases for axis in phase.axes]
    return (
        ("kPhases", len(phases)),
        ("kPhaseDigit", tuple(phase.digit for phase in phases)),
        ("kPhaseGroups", tuple(phase.groups for phase in phases)),
        ("kPhaseNeighbours", tuple(int(phase.neighbours) for phase in phases)),
        ("kPhaseFibers", tuple(phase.fibers for phase in phases)),
        ("kPhaseAxis", tuple(ends)),
        ("kAxisExtent", tuple(axis.extent for axis in axes)),
        ("kAxisShared", tuple(axis.shared for axis in axes)),
        ("kAxisRow", tuple(axis.row for axis in axes)),
    )
