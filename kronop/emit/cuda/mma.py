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
from kronop.emit.cuda import half, operands
from kronop.emit.cuda.shapes import Ends, PassShape, multiply_adds, shrinking
from kronop.emit.cuda.tile import TileShape, tile_signature
from kronop.emit.plan import Constant, Step
from kronop.target import Target

# A warp holds 16 whole fibers of a digit in registers.
MOST_CONTRACTED = 128
MOST_DIGITS = 16
HELD_FACTOR_BYTES = 64
_AHEAD_BYTES, _AHEAD_THREADS = 64, 512
LEAST_GROUPED = 32
_OFFSETS_OF_A_ROW = 3 * 8
# Measured with ptxas 13.4: what addresses and loops take besides; and how much of all this it gets
# by with where it has to, without a spill.
_REGISTERS_PLAIN, _REGISTERS_OTHERS, _REGISTERS_LONG = 56, 80, 32
_REGISTERS_SHARE = 0.72
# Elements that go from or to the tile in shared memory in one access.
_PIECE = 4
SHARED_BYTES_PER_CYCLE = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class MmaTile(TileShape):
    """Rows x group x columns of a block, its threads, and how the phases go about it.

    Where X is not staged, the first phase reads it from memory itself; where Y is not, the last one
    writes it. So many `pairs` of neighbouring digits, from the last ones on, are contracted in one
    phase each. Neighbouring factors are multiplied out up to `merged` rows and columns. The blocks
    of a `cluster` share a tile by its first digit, which is contracted last. With `grouped`, four
    warps multiply digits of 32 and more together. With `half`, the tile holds 16-bit elements,
    and of two `buffers` one is filled while the other one is worked on.
    """

    staged_in: bool
    staged_out: bool
    pairs: int
    merged: int
    cluster: int
    grouped: bool
    half: bool = False
    buffers: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A free index of a phase: its extent, and the strides of its steps.

    In the tile; in rows; and, where the phase reads or writes memory, along the group of digits and
    in columns.
    """

    extent: int
    shared: int
    row: int = 0
    group: int = 0
    column: int = 0

    def continues(self, inner: Axis) -> bool:
        """Whether `inner`, the next axis, and this one walk together as one."""
        return all(
            own == inner.extent * other
            for own, other in (
                (self.shared, inner.shared),
                (self.row, inner.row),
                (self.group, inner.group),
                (self.column, inner.column),
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MmaPhase:
    """One digit, or two: what a warp takes at once, and the axes of the fibers.

    A warp takes `groups` times 16 fibers of one digit, so that a thread has `lanes` of them; or as
    many blocks of two: of `digit`, which is contracted first, and of `other`.
    """

    digit: int
    other: int | None
    lanes: int
    neighbours: bool
    grouped: bool
    axes: tuple[Axis, ...]

    @property
    def digits(self) -> tuple[int, ...]:
        return (self.digit,) if self.other is None else (self.digit, self.other)

    @property
    def groups(self) -> int:
        return self.lanes // 2

    @property
    def at_once(self) -> int:
        """Fibers or blocks that a warp, or a group of four, takes at once."""
        return 64 if self.grouped else self.lanes if self.other is not None else 16 * self.groups

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


def splits_of(math_instruction: MathInstruction) -> bool | None:
    """Whether operands are taken as two each for this instruction, a rounded value and its rest.

    None where `kron_mma` has no such product. What is between two 16-bit factors is rounded to
    their type where the tile holds such elements, and else as TF32, whose significand is that of
    float16.
    """
    if math_instruction.opcode_class is not OpClass.TensorOp:
        return None
    element, operation = math_instruction.element_a, math_instruction.math_operation
    if element is float64:
        return False
    if math_instruction.instruction_shape != (16, 8, 8):
        return None
    if element is float32 and operation is MathOperation.multiply_add_fast_f32:
        return True
    known = operation is MathOperation.multiply_add and element in (float32, float16, bfloat16)
    return False if known else None


def strides_of(shape: PassShape, tile: MmaTile, accumulator: DataType) -> tuple[int, ...]:
    """Stride of each digit in the tile, last digit contiguous or next to the columns."""
    if tile.half:
        return half.strides_of(shape.group, tile.columns)[1:]
    strides: list[int] = []
    stride = tile.columns
    count = len(shape.group)
    banks = SHARED_BYTES_PER_CYCLE // accumulator.bytes
    for index in reversed(range(count)):
        # Of two digits that are contracted together, a warp walks 8 steps of the first one.
        outer = (count - index) % 2 == 0 and count - index <= 2 * tile.pairs and strides[-1] > 1
        strides.append(_apart(stride, banks // 8 if outer else banks // 4, banks))
        slots = max(shape.group[index])
        # Pairs of a contiguous digit stay within it.
        stride = strides[-1] * (operands.round_up(slots, 2) if strides[-1] == 1 else slots)
    return tuple(reversed(strides))


def _apart(stride: int, step: int, banks: int) -> int:
    """`stride`, or a little more, so that 4 steps of it and 8 neighbours meet no bank twice: an odd
    multiple of `step` banks."""
    if stride < banks // 4 or stride % 4:
        return stride
    wanted = range(stride, stride + banks + 1, min(step, 4))
    padded = next(s for s in wanted if s % step == 0 and s // step % 2 == 1)
    return padded if padded <= 1.25 * stride else stride


def row_stride(shape: PassShape, tile: MmaTile, strides: Sequence[int]) -> int:
    if tile.half:
        return half.strides_of(shape.group, tile.columns)[0]
    # A cluster writes the results of its last phase to memory.
    slots = shape.group[0][0] // tile.cluster if tile.cluster > 1 else max(shape.group[0])
    return strides[0] * (operands.round_up(slots, 2) if strides[0] == 1 else slots)


def digits_of_phases(
    group: Sequence[tuple[int, int]], tile: MmaTile
) -> tuple[tuple[int, int | None], ...]:
    """(digit, its partner or None) of the phases in their order: pairs, then the rest."""
    if tile.half:
        return tuple((digit, None) for digit in half.order(group, tile))
    last = len(group) - 1
    paired = [(last - 2 * index, last - 2 * index - 1) for index in range(tile.pairs)]
    single = sorted(
        range(len(group) - 2 * tile.pairs),
        key=lambda d: (tile.cluster > 1 and d == 0, shrinking(group[d]), -d),
    )
    return (*paired, *((digit, None) for digit in single))


def phases_of(
    shape: PassShape, tile: MmaTile, strides: Sequence[int], accumulator: DataType
) -> tuple[MmaPhase, ...]:
    """The phases in the order of execution."""
    done: set[int] = set()
    result = []
    order = digits_of_phases(shape.group, tile)
    for place, (digit, other) in enumerate(order):
        reads = place == 0 and not tile.staged_in
        writes = place == len(order) - 1 and not tile.staged_out
        inside = not (reads or writes)
        if writes:
            done |= {digit} if other is None else {digit, other}
        sizes = [q if index in done else p for index, (p, q) in enumerate(shape.group)]
        sizes[0] //= tile.cluster
        axes = [Axis(extent=tile.rows, shared=row_stride(shape, tile, strides), row=1)]
        axes += [
            Axis(
                extent=size,
                shared=strides[index],
                group=0 if inside else math.prod(sizes[index + 1 :]),
            )
            for index, size in enumerate(sizes)
            if index not in (digit, other)
        ]
        axes.append(Axis(extent=tile.columns, shared=1, column=0 if inside else 1))
        if tile.half and strides[digit] > 1:
            axes = _in_rows(axes, columns=tile.columns > 1)
        collapsed = _collapse(axes)
        lanes = _lanes(shape.group, digit, other, accumulator, strides[digit] == 1)
        if tile.half:
            lanes = _half_lanes(shape.group[digit], strides[digit] == 1, collapsed, tile)
        neighbours = _neighbours(collapsed, (digit, other), strides, lanes)
        result.append(
            MmaPhase(
                digit=digit,
                other=other,
                lanes=lanes,
                neighbours=neighbours,
                grouped=other is None and _grouped(shape.group[digit], tile),
                axes=collapsed,
            )
        )
        done |= {digit} if other is None else {digit, other}
    return tuple(result)


def _in_rows(axes: Sequence[Axis], columns: bool) -> list[Axis]:
    """The axes with what is contiguous in the tile in rows: columns, or the last digit."""
    index = len(axes) - (1 if columns else 2)
    inner = Axis(extent=half.rows(axes[index].extent), shared=half.ROW)
    return [*axes[:index], inner]


def _half_lanes(digit: tuple[int, int], unit: bool, axes: Sequence[Axis], tile: MmaTile) -> int:
    fibers = math.prod(axis.extent for axis in axes)
    return 2 * half.groups(digit, unit, fibers, _grouped(digit, tile), tile.threads // 32)


def _neighbours(
    axes: Sequence[Axis], digits: Sequence[int | None], strides: Sequence[int], lanes: int
) -> bool:
    """Whether a thread's fibers are one aligned vector wherever they are read or written."""
    own = [strides[digit] for digit in digits if digit is not None]
    last = axes[-1]
    aligned = all(
        step % lanes == 0 for axis in axes[:-1] for step in (axis.shared, axis.group, axis.column)
    )
    return (
        all(stride != 1 and stride % lanes == 0 for stride in own)
        and aligned
        and last.shared == 1
        and last.extent % lanes == 0
    )


def _collapse(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """Neighbouring axes that walk together become one."""
    result: list[Axis] = []
    for axis in axes:
        if axis.extent == 1:
            continue
        if result and result[-1].continues(axis):
            result[-1] = replace(axis, extent=result[-1].extent * axis.extent)
        else:
            result.append(axis)
    return tuple(result) or (Axis(extent=1, shared=0),)


def parts_of(size: int) -> int:
    return operands.cover(size, 8)


def _grouped(digit: tuple[int, int], tile: MmaTile) -> bool:
    return tile.grouped and digit[0] >= LEAST_GROUPED


def _lanes(
    group: Sequence[tuple[int, int]],
    digit: int,
    other: int | None,
    accumulator: DataType,
    unit: bool,
) -> int:
    """Fibers, or blocks of two digits, that a thread holds: in vectors of 16 bytes at most."""
    parts = parts_of(group[digit][0])
    if other is None:
        return 4 if accumulator.bytes == 4 and parts <= 2 else 2
    parts *= parts_of(group[other][0])
    most = (8 if unit else 4) if parts == 1 else 4 if parts <= 4 else 1
    # Blocks of 8 produced indices are multiplied two by two.
    least = 2 if group[digit][1] <= 8 else 1
    return max(least, most * 4 // accumulator.bytes)


def registers(shape: PassShape, tile: MmaTile, splits: bool, accumulator: DataType) -> int:
    """An estimate of the registers of a thread: fibers, factor parts, sums, addresses."""
    if tile.half:
        return half.registers(shape, tile, [_grouped(digit, tile) for digit in shape.group])
    wanted = max(
        _registers_of_digit(shape, digit, splits, accumulator)
        if other is None
        else _registers_of_pair(shape, digit, other, splits, accumulator)
        for digit, other in digits_of_phases(shape.group, tile)
    )
    # Odd sizes are walked with more index arithmetic.
    plain = all(size & (size - 1) == 0 for digit in shape.group for size in digit)
    other = _REGISTERS_PLAIN if plain else _REGISTERS_OTHERS
    # NOTE: at P = 64 three blocks of 168 registers spilled a little and took 0.85 ms where two of
    # 240 took 0.74.
    long = max(parts_of(p) for p, _ in shape.group) >= 8
    most = max(p for p, _ in shape.group)
    share = _REGISTERS_SHARE if most <= (64 if tile.grouped else 32) else 1.0
    return min(255, round(share * (wanted + other + _REGISTERS_LONG * long)))


def _registers_of_digit(shape: PassShape, index: int, splits: bool, accumulator: DataType) -> int:
    words, digit = accumulator.bytes // 4, shape.group[index]
    groups = _lanes(shape.group, index, None, accumulator, False) // 2
    parts = parts_of(digit[0]) * parts_of(digit[1])
    fragment = 2 * words * (1 + splits)
    at_once = min(parts_of(digit[1]), (2 if parts_of(digit[0]) > 8 else 4) // groups)
    held = (parts_of(digit[0]) + 1 + splits) * 4 * groups * words
    sums = at_once * groups * 4 * words * (1 + splits)
    factor = fragment * (parts if parts * fragment * 4 <= HELD_FACTOR_BYTES else at_once)
    return held + sums + factor


def _registers_of_pair(
    shape: PassShape, digit: int, other: int, splits: bool, accumulator: DataType
) -> int:
    words = accumulator.bytes // 4
    (p1, q1), (p2, q2) = shape.group[digit], shape.group[other]
    lanes = _lanes(shape.group, digit, other, accumulator, True)
    sets = lanes // 2 if q1 <= 8 else lanes
    held = lanes * parts_of(p1) * parts_of(p2) * 2
    sums = sets * parts_of(q2) * 4 + parts_of(p2) * 8 * (1 + splits)
    return (held + sums + 8 * (1 + splits)) * words


def factor_bytes(digit: tuple[int, int], splits: bool, accumulator: DataType) -> int:
    """Bytes of one factor as its phase's threads take it."""
    return parts_of(digit[0]) * parts_of(digit[1]) * 32 * 2 * (1 + splits) * accumulator.bytes


def _left_factor_bytes(digit: tuple[int, int], splits: bool, accumulator: DataType) -> int:
    """The same for the digit that a pair contracts first: 16 produced indices at a time."""
    stacked = digit[1] <= 8
    elements = 4 * (1 + (splits and not stacked))
    return parts_of(digit[0]) * operands.cover(digit[1], 16) * 32 * elements * accumulator.bytes


def factors_bytes(
    shape: PassShape, tile: MmaTile, splits: bool, accumulator: DataType
) -> tuple[int, ...]:
    """Bytes of each digit's factor in shared memory."""
    first = {d for d, other in digits_of_phases(shape.group, tile) if other is not None}

    def size(index: int, digit: tuple[int, int]) -> int:
        if tile.half:
            return half.factor_bytes(digit, _grouped(digit, tile))
        if index in first:
            return _left_factor_bytes(digit, splits, accumulator)
        if _grouped(digit, tile):
            digit = (digit[0], operands.round_up(digit[1], 64 if digit[1] > 32 else 32))
        return factor_bytes(digit, splits, accumulator)

    return tuple(size(index, digit) for index, digit in enumerate(shape.group))


def _offset_bytes(tile: MmaTile) -> int:
    """Bytes of the row offsets of one of the tiles that are in flight."""
    return operands.round_up(_OFFSETS_OF_A_ROW * tile.rows, operands.VECTOR_BYTES)


def _offset_tiles(tile: MmaTile) -> int:
    """So many tiles are in flight: the one at work and the next; and, where these two may be
    exchanged, the one after, which memory is asked for."""
    return 3 if _may_exchange(tile) else 2


def _may_exchange(tile: MmaTile) -> bool:
    staged = tile.staged_in or tile.staged_out
    # Phases of 16-bit tiles have a loop of their own, which is not cut into chunks.
    return tile.rows == tile.columns == tile.cluster == 1 and not (staged or tile.half)


def exchanged(shape: PassShape, tile: MmaTile, phases: Sequence[MmaPhase]) -> int:
    """Fibers of the first phase in each chunk that it exchanges with the last one; 0 if it cannot.

    A chunk is all indices of both phases' digits, at one of those between: the last phase of a tile
    reads where the first one of the next writes, without a barrier between.
    """
    first, last = phases[0], phases[-1]
    if not (_may_exchange(tile) and len(phases) > 2 and powers(shape, tile)):
        return 0
    square = all(p == q for p, q in shape.group)
    if not square or max(last.digits) > min(first.digits) or first.grouped != last.grouped:
        return 0
    each = math.prod(shape.group[digit][0] for digit in last.digits)
    # Each turn of a warp is some whole chunks, and of the first phase all that it takes at once.
    tasks, crews = first.fibers // first.at_once, tile.threads // (128 if first.grouped else 32)
    if not tasks or first.at_once % each or last.fibers % (tasks * last.at_once):
        return 0
    return each if tasks % max(crews, 1) == 0 else 0


def shared_bytes(shape: PassShape, tile: MmaTile, splits: bool, accumulator: DataType) -> int:
    """Row offsets, factors, and the tile where more than one phase meets in it."""
    factors = sum(factors_bytes(shape, tile, splits, accumulator))
    elements = row_stride(shape, tile, strides_of(shape, tile, accumulator)) * tile.rows
    meets = tile.staged_in or tile.staged_out or len(shape.group) - tile.pairs > 1
    spare = half.SPARE_BYTES * tile.half
    offsets = _offset_tiles(tile) * _offset_bytes(tile)
    return (
        offsets + factors + spare + elements * tile_bytes(tile, accumulator) * meets * tile.buffers
    )


def blocks_of(
    shape: PassShape, tile: MmaTile, splits: bool, accumulator: DataType, target: Target
) -> int:
    """Blocks that a multiprocessor holds."""
    wanted = shared_bytes(shape, tile, splits, accumulator)
    return operands.resident_blocks(
        tile.threads, registers(shape, tile, splits, accumulator), wanted, target
    )


def fits(
    shape: PassShape, tile: MmaTile, splits: bool, accumulator: DataType, target: Target
) -> Status:
    """Whether `kron_mma` can run this pass with this tile: the one rule."""
    if len(shape.group) > MOST_DIGITS:
        return Status.reject(f"{len(shape.group)} factors in one pass, at most {MOST_DIGITS}")
    status = _fits_cluster(shape, tile, target) and _fits_groups(tile, accumulator, target)
    if tile.half:
        status = status and half.fits(shape, tile, target)
    if not status:
        return status
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
    most = operands.REGISTERS // operands.round_up(registers(shape, tile, splits, accumulator), 8)
    if tile.threads > most:
        return Status.reject(
            f"{tile.threads} threads leave too few registers, at most {most // 32 * 32} fit;"
            " change warp_count"
        )
    return Status.accept()


def _fits_groups(tile: MmaTile, accumulator: DataType, target: Target) -> Status:
    if not tile.grouped:
        return Status.accept()
    if target.arch != "sm_90a" or accumulator.bytes != 4:
        return Status.reject(f"{target} has no products of warp groups for {accumulator}")
    if tile.threads % 128:
        return Status.reject(f"{tile.threads} threads are no groups of four warps")
    return Status.accept()


def _fits_cluster(shape: PassShape, tile: MmaTile, target: Target) -> Status:
    if tile.cluster == 1:
        return Status.accept()
    if target.generation < 9:
        return Status.reject(f"{target} has no clusters of blocks; use a cluster of 1")
    if tile.staged_in or tile.staged_out or len(shape.group) <= max(1, 2 * tile.pairs):
        return Status.reject("the first digit of a cluster's tile goes from memory to memory alone")
    if shape.group[0][0] % tile.cluster:
        return Status.reject(
            f"{tile.cluster} blocks do not share a digit of {shape.group[0][0]} evenly"
        )
    return Status.accept()


def tile_bytes(tile: MmaTile, accumulator: DataType) -> int:
    """Bytes of an element of the tile."""
    return half.BYTES if tile.half else accumulator.bytes


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
        bytes_per_row=shape.columns_in * ends.source.bytes + shape.columns_out * ends.output.bytes,
        operations_per_row=operations,
        note=note,
        launch=tuple(launch),
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
    return (
        not tile.staged_in
        and elements * accumulator.bytes <= _AHEAD_BYTES
        and tile.threads * blocks <= _AHEAD_THREADS
    )


def powers(shape: PassShape, tile: MmaTile) -> bool:
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
    at = _offset_tiles(tile) * _offset_bytes(tile)
    sizes = factors_bytes(shape, tile, splits, accumulator)
    ins, outs = [p for p, _ in shape.group], [q for _, q in shape.group]
    return (
        ("kStagedIn", tile.staged_in),
        ("kStagedOut", tile.staged_out),
        ("kRegular", powers(shape, tile)),
        ("kCluster", tile.cluster),
        ("kOffsetBytes", _offset_bytes(tile)),
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
