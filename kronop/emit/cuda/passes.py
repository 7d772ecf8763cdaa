"""Splitting a Kronecker matmul into passes: candidates, legality, cost, best.

A pass takes a contiguous group of digits: on a tile in shared memory, or, for one digit that is too
large for that, as a tiled contraction. Fewer passes mean less traffic; a group must fit the chip.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kronop.artifacts import Status
from kronop.descriptions.datatype import DataType, RowMajor, float16
from kronop.descriptions.kron import KronMatmulDescription, Side
from kronop.emit.cuda import contract_step, half, mma, mma_cost, operands, tile
from kronop.emit.cuda.contract import Contraction, Order
from kronop.emit.cuda.contract_cost import SIMT_OVERHEAD
from kronop.emit.cuda.mma import MmaTile
from kronop.emit.cuda.shapes import Ends, PassShape, Shape, multiply_adds, shrinking
from kronop.emit.cuda.tile import TileShape
from kronop.target import Target

# NOTE: one H200 copies 4.28 TB/s and does about 25 T multiply-adds/s in float32: 0.17 bytes each.
_BYTES_OF_MULTIPLY_ADD = 0.17
# Cycles of one multiprocessor for 128 elements, for each byte of memory traffic an element.
_CYCLES_OF_A_BYTE = 128 / 16
_TILE_ELEMENTS = 8192
_TYPICAL_ROWS = 1024
_GOOD_RUN_BYTES = 64
_WHOLE_LINES = 128
_MOST_STAGED = 64
# What the tuner may choose from: ways to group digits, and about so many tilings of each.
_MOST_GROUPINGS = 4
_MOST_VARIANTS = 32

Groups = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How one pass runs: a tile of one of the kernels; the cost is in bytes per element."""

    tile: TileShape | MmaTile | contract_step.Tile
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One pass of a plan: digits [first, first + len(shape.group))."""

    first: int
    shape: PassShape
    ends: Ends
    choice: Choice


def ends_of(description: KronMatmulDescription) -> Ends:
    """What the operation as a whole reads and writes."""
    right = description.side is Side.Right
    x, y = description.X, description.Y
    return Ends(
        source=x.element,
        output=y.element,
        source_alignment=x.alignment,
        output_alignment=y.alignment,
        source_by_rows=(x.layout is RowMajor) != right,
        output_by_rows=(y.layout is RowMajor) != right,
    )


def split(
    description: KronMatmulDescription, target: Target
) -> tuple[tuple[Pass, ...], tuple[tuple[str, str], ...]]:
    """The passes in launch order, and what was rejected; no passes where nothing fits."""
    rejected: list[tuple[str, str]] = []
    groupings = _ranked_groups(description, target, rejected)
    if not groupings:
        return (), tuple(rejected)
    options = _options(description, groupings[0], target, rejected)
    return tuple(item[0] for item in options), tuple(rejected)


def variants(description: KronMatmulDescription, target: Target) -> list[tuple[Pass, ...]]:
    """What `split` gives, then other groups of digits and tiles of the passes by their cost."""
    found: dict[tuple[Pass, ...], float] = {}
    for groups in _ranked_groups(description, target, []):
        options = _options(description, groups, target, [])
        # About as many for each way to group: one pass of many tiles, or few tiles of each pass.
        most = max(2, round(_MOST_VARIANTS ** (1 / max(len(options), 1))))
        tiles = itertools.product(*(item[:most] for item in options))
        for passes in itertools.islice(tiles, 2 * _MOST_VARIANTS) if options else ():
            found[passes] = sum(item.choice.cost for item in passes)
    best = split(description, target)[0]
    found.pop(best, None)
    return [best, *sorted(found, key=lambda passes: found[passes])]


def _options(
    description: KronMatmulDescription,
    groups: Groups,
    target: Target,
    rejected: list[tuple[str, str]],
) -> list[list[Pass]]:
    """For each pass in launch order its ways to run, the cheapest first; none if one has none."""
    digits = description.contractions
    order = sorted(groups, key=lambda item: shrinking(_product(digits[item[0] : item[1]])))
    options = []
    sizes = [p for p, _ in digits]
    for index, (first, end) in enumerate(order):
        shape = PassShape(
            group=digits[first:end], left=math.prod(sizes[:first]), right=math.prod(sizes[end:])
        )
        ends = _ends(description, index == 0, index == len(order) - 1)
        choices, status = _choices(_Key(description), shape, ends, target)
        if not choices:
            rejected.append((f"digits {first} to {end - 1}", status.reason))
            return []
        options.append(
            [Pass(first=first, shape=shape, ends=ends, choice=choice) for choice in choices]
        )
        sizes[first:end] = [q for _, q in digits[first:end]]
    return options


def _product(group: Sequence[Shape]) -> Shape:
    return math.prod(p for p, _ in group), math.prod(q for _, q in group)


def _ends(description: KronMatmulDescription, is_first: bool, is_last: bool) -> Ends:
    """Intermediates are dense and keep the order of X."""
    ends = ends_of(description)
    between = _between(description)
    widest = operands.vector_of(between)
    if not is_first:
        ends = replace(ends, source=between, source_alignment=widest)
    if not is_last:
        ends = replace(
            ends, output=between, output_alignment=widest, output_by_rows=ends.source_by_rows
        )
    return ends


def _between(description: KronMatmulDescription) -> DataType:
    """The type of intermediates: the accumulator's; or what the tensor cores will round it to."""
    math = description.math
    rounds = mma.splits_of(math) is not None and math.element_a.bytes == half.BYTES
    return math.element_a if rounds else math.element_accumulator


def _ranked_groups(
    description: KronMatmulDescription, target: Target, rejected: list[tuple[str, str]]
) -> list[Groups]:
    """The cheapest cuts of the digits into groups: dynamic programming over the last group."""
    digits = description.contractions
    best: list[list[tuple[float, Groups]]] = [[(0.0, ())]]
    after = [math.prod(p for p, _ in digits[index:]) for index in range(len(digits) + 1)]
    reasons: dict[tuple[int, int], str] = {}
    for end in range(1, len(digits) + 1):
        found: list[tuple[float, Groups]] = []
        for first in range(end - 1, max(-1, end - 1 - tile.MOST_FACTORS), -1):
            shape = PassShape(group=digits[first:end], left=1, right=after[end])
            ends = ends_of(description)
            if end - first < len(digits):
                # Another pass reads what this one writes, or wrote what it reads.
                ends = replace(ends, output=_between(description))
            choice, status = choose(description, shape, ends, target)
            if choice is None:
                reasons[first, end] = status.reason
                # A larger group wants no less of anything.
                if end - first > 1:
                    break
            else:
                found += [
                    (cost + choice.cost, (*groups, (first, end))) for cost, groups in best[first]
                ]
        best.append(sorted(found, key=lambda item: item[0])[:_MOST_GROUPINGS])
    largest = sorted(reasons.items(), key=lambda item: item[0][0] - item[0][1])[:4]
    rejected += [
        (f"digits {first} to {end - 1} in one pass", reason) for (first, end), reason in largest
    ]
    if not best[-1]:
        # The reason that counts is why some digit cannot even stand alone.
        alone = next(key for key in reasons if key[1] - key[0] == 1)
        rejected.append((f"digit {alone[0]} alone", reasons[alone]))
    return [groups for _, groups in best[-1]]


def choose(
    description: KronMatmulDescription, shape: PassShape, ends: Ends, target: Target
) -> tuple[Choice | None, Status]:
    """The cheapest way to run a pass, or the reason why there is none."""
    choices, status = _choices(_Key(description), shape, ends, target)
    return (choices[0] if choices else None), status


def by_columns(description: KronMatmulDescription) -> bool:
    """Whether neighbours in a factor's memory are outputs of the canonical form."""
    return (description.F.layout is RowMajor) == (description.side is Side.Right)


class _Key:
    """What of a description a pass depends on, for the memo."""

    def __init__(self, description: KronMatmulDescription) -> None:
        self.tile, self.math = description.tile, description.math
        self.by_columns = by_columns(description)
        self.factor_alignment = description.F.alignment
        self.identity = (self.tile, self.math, self.by_columns, self.factor_alignment)

    def __hash__(self) -> int:
        return hash(self.identity)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.identity == other.identity


@functools.lru_cache(maxsize=4096)
def _choices(
    key: _Key, shape: PassShape, ends: Ends, target: Target
) -> tuple[tuple[Choice, ...], Status]:
    """The ways to run a pass, the cheapest first, or the reason why there is none."""
    accumulator = key.math.element_accumulator
    status = Status.reject("no tile")
    found: list[Choice] = []
    splits = mma.splits_of(key.math)
    if splits is not None:
        status = _choose_mma(key, shape, ends, splits, target, found)
    # A tile names its instruction: no kernel for other cores stands in for it.
    simt = splits is None or key.tile is None
    for shape_of_tile in _tiles(key, shape, ends, accumulator) if simt else ():
        status = _fits(key, shape, ends, shape_of_tile, accumulator, target)
        if status:
            found.append(
                Choice(
                    tile=shape_of_tile,
                    cost=_tile_cost(shape, ends, shape_of_tile, accumulator, target),
                )
            )
    if len(shape.group) == 1 and (simt or max(shape.group[0]) > mma.MOST_CONTRACTED):
        work = contraction(key.by_columns, key.factor_alignment, shape, ends)
        accepted, rejected = contract_step.candidates(work, key.math, target, key.tile)
        found += [Choice(tile=item, cost=cost) for cost, item in accepted[:_MOST_VARIANTS]]
        if rejected and not accepted:
            status = Status.reject(f"{status.reason}; as a contraction: {rejected[0][1]}")
    return _ranked(found), Status.accept() if found else status


def _ranked(found: list[Choice]) -> tuple[Choice, ...]:
    return tuple(sorted(found, key=lambda item: item.cost)[:_MOST_VARIANTS])


def _obeys(key: _Key, shape: PassShape, ends: Ends, candidate: TileShape) -> Status:
    """Whether a pass keeps to the sizes of the description's tile."""
    if key.tile is not None:
        across = candidate.rows if ends.source_by_rows else candidate.columns
        held, most = (
            across * math.prod(max(digit) for digit in shape.group),
            key.tile.threadblock_shape[1],
        )
        if held > most:
            return Status.reject(
                f"a block holds {held} elements of a row, threadblock_shape gives {most};"
                " raise Tile_N"
            )
        if key.tile.stages != 1:
            return Status.reject(
                f"a pass over tiles of digits does not prefetch, got {key.tile.stages} stages;"
                " use stages 1"
            )
    return Status.accept()


def _choose_mma(
    key: _Key,
    shape: PassShape,
    ends: Ends,
    splits: bool,
    target: Target,
    found: list[Choice],
) -> Status:
    """Adds the tiles that `kron_mma` can run; the last reason where there are none."""
    accumulator = key.math.element_accumulator
    status = Status.reject("no tile")
    for candidate in _mma_tiles(key, shape, ends, accumulator):
        status = _obeys(key, shape, ends, candidate)
        digits = mma.merge(shape, candidate.merged)
        status = status and mma.fits(digits, candidate, splits, accumulator, target)
        if status:
            partial = _partial(shape, ends, candidate)
            cost = mma_cost.cycles(digits, ends, candidate, splits, accumulator, target, partial)
            found.append(Choice(tile=candidate, cost=cost / _CYCLES_OF_A_BYTE))
    return Status.accept() if found else status


def _mma_tiles(key: _Key, shape: PassShape, ends: Ends, accumulator: DataType) -> list[MmaTile]:
    """Tiles of a few sizes, from several blocks a multiprocessor to one, staged or not."""
    slots = math.prod(max(digit) for digit in shape.group)
    plain: dict[tuple[int, int, int], None] = {}
    if key.tile is not None:
        tiles = _tiles(key, shape, ends, accumulator)
        plain = {(item.rows, item.columns, item.threads): None for item in tiles}
    else:
        # NOTE: measured: 32 and 64 columns of a run win over fewer, and 2048 elements never won.
        for columns in sorted(_columns(shape, ends))[-2:]:
            for elements in (4096, 8192, 16384, 32768):
                rows = max(1, elements // slots // columns)
                for threads in (128, 256, 512):
                    if threads * 32 <= max(4096, rows * slots * columns):
                        plain[rows, columns, threads] = None
    return [
        MmaTile(rows=rows, columns=columns, threads=threads, merged=merged, **style)
        for merged in _mergers(shape)
        for rows, columns, threads in plain
        for style in (
            *_styles(mma.merge(shape, merged), columns, rows, accumulator),
            *_half_styles(key, shape, mma.merge(shape, merged), ends),
        )
    ]


def _styles(
    shape: PassShape, columns: int, rows: int, accumulator: DataType
) -> Iterator[dict[str, Any]]:
    """Ways to go about the phases of a pass.

    Staged, which suits any layout; or with ends in memory: digits one by one, by two, or shared
    by a cluster of two; each with warps that multiply alone or, for large digits, in groups.
    """
    # NOTE: measured: clusters of 4 and 8 blocks took 1.1 to 3 times as long as of 2, or as two
    # passes; tiles of columns with ends in memory 1.1 to 2.6 times as long as staged ones, but for
    # one digit too long to stage.
    digits = shape.group
    large = accumulator.bytes == 4 and max(p for p, _ in digits) >= mma.LEAST_GROUPED
    pairs = sorted({0, _most_pairs(digits), min(_most_pairs(digits), (len(digits) - 1) // 2)})
    direct = columns == 1 or (len(digits) == 1 and digits[0][0] > _MOST_STAGED)
    for grouped in (False, True) if large else (False,):
        style = {"grouped": grouped, "cluster": 1, "pairs": 0}
        yield {**style, "staged_in": True, "staged_out": True}
        style |= {"staged_in": False, "staged_out": False}
        for count in pairs if direct else ():
            for cluster in (1, 2) if rows == columns == 1 < len(digits) else (1,):
                yield {**style, "pairs": count, "cluster": cluster}


def _half_styles(
    key: _Key, factors: PassShape, shape: PassShape, ends: Ends
) -> Iterator[dict[str, Any]]:
    """The same with a tile of 16-bit elements: staged, or one end in memory."""
    if not half.takes(key.math, ends):
        return
    # Products of factors may leave the range of float16 where the result does not.
    if ends.source is float16 and shape.group != factors.group:
        return
    grouped = (False, True) if max(p for p, _ in shape.group) >= mma.LEAST_GROUPED else (False,)
    both = (True, False)
    for together, staged_in, staged_out, buffers in itertools.product(grouped, both, both, (1, 2)):
        yield {
            "staged_in": staged_in,
            "staged_out": staged_out,
            "pairs": 0,
            "cluster": 1,
            "grouped": together,
            "half": True,
            "buffers": buffers,
        }


def _most_pairs(digits: Sequence[Shape]) -> int:
    """How many pairs of neighbouring digits, from the last ones on, fit a thread's registers."""
    last = len(digits) - 1
    count = 0
    while (
        2 * count + 1 <= last
        and max(*digits[last - 2 * count], *digits[last - 2 * count - 1]) <= 32
    ):
        count += 1
    return count


def _mergers(shape: PassShape) -> list[int]:
    """Limits of merged factors that lead to different digits; what can merge to 8 does."""
    different = {mma.runs_of(shape.group, merged): merged for merged in (16, 8, 1)}
    limits = sorted(different.values())
    return limits[1:] if len(limits) == 3 else limits


def _partial(shape: PassShape, ends: Ends, candidate: TileShape) -> float:
    """How much longer memory takes for short runs and for columns that do not exist."""
    run = candidate.columns if candidate.columns > 1 else shape.group_in
    ragged = (
        1.0
        if ends.source_by_rows
        else operands.cover(shape.right, candidate.columns) * candidate.columns / shape.right
    )
    partial = math.pow(max(1.0, _WHOLE_LINES / (run * ends.source.bytes)), 0.4)
    if candidate.columns > 1 and candidate.columns * ends.source.bytes % 32:
        partial *= 1.15
    return partial * ragged


def _fits(
    key: _Key,
    shape: PassShape,
    ends: Ends,
    candidate: TileShape,
    accumulator: DataType,
    target: Target,
) -> Status:
    return _obeys(key, shape, ends, candidate) and tile.fits(shape, candidate, accumulator, target)


def contraction(
    by_columns: bool, factor_alignment: int, shape: PassShape, ends: Ends
) -> Contraction:
    """One digit as a contraction whose rows are all free indices."""
    ((contracted, produced),) = shape.group
    inside = Order.Rows if shape.right > 1 else Order.Own
    return Contraction(
        contracted=contracted,
        produced=produced,
        lanes=1,
        rows=_TYPICAL_ROWS * shape.left * shape.right,
        source=ends.source,
        output=ends.output,
        x_alignment=ends.source_alignment,
        w_alignment=factor_alignment,
        y_alignment=ends.output_alignment,
        x_order=Order.Rows if ends.source_by_rows else inside,
        w_order=Order.Rows if by_columns else Order.Own,
        y_order=Order.Rows if ends.output_by_rows else inside,
    )


def _tiles(key: _Key, shape: PassShape, ends: Ends, accumulator: DataType) -> list[TileShape]:
    """Tiles to consider: columns that make long runs, rows and threads that fill a block."""
    slots = math.prod(max(digit) for digit in shape.group)
    if key.tile is not None:
        m, n, _ = key.tile.threadblock_shape
        rows, columns = (
            (max(1, n // slots), m)
            if ends.source_by_rows
            else (m, min(shape.right, max(1, n // slots)))
        )
        return [TileShape(rows=rows, columns=columns, threads=32 * key.tile.warps)]
    most = max(1, _TILE_ELEMENTS * 4 // accumulator.bytes // slots)
    result = []
    for columns in _columns(shape, ends):
        rows = 1 << max(0, (most // columns).bit_length() - 1)
        rows = min(rows, 128)
        for height in {rows, max(1, rows // 2), max(1, rows // 4)}:
            elements = height * slots * columns
            fitting = [count for count in (512, 256, 128, 64) if count * 32 <= elements] or [64]
            result += [TileShape(rows=height, columns=columns, threads=count) for count in fitting]
    return result


def _columns(shape: PassShape, ends: Ends) -> list[int]:
    if ends.source_by_rows:
        return [8, 16, 32, 64]
    if shape.right <= 16:
        return [shape.right]
    divisors = [size for size in range(5, 65) if shape.right % size == 0]
    return sorted({*divisors, 8, 16, 32, 64} - {size for size in (32, 64) if size > shape.right})


def _tile_cost(
    shape: PassShape, ends: Ends, candidate: TileShape, accumulator: DataType, target: Target
) -> float:
    """Time in bytes per element of X: traffic, arithmetic, and what does not overlap."""
    x, y = ends.source.bytes, ends.output.bytes * shape.group_out / shape.group_in
    run = candidate.columns if candidate.columns > 1 else shape.group_in
    ragged = (
        1.0
        if ends.source_by_rows
        else (operands.cover(shape.right, candidate.columns) * candidate.columns / shape.right)
    )
    partial = math.sqrt(max(1.0, _GOOD_RUN_BYTES / (run * ends.source.bytes)))
    if candidate.columns > 1 and candidate.columns * ends.source.bytes % 32:
        partial *= 1.15
    vectors = tile.vectors(shape, ends, candidate)
    narrow = 1 + 0.02 * sum(operands.VECTOR_BYTES / (4 * size) for size in vectors)
    memory = (x + y) * partial * narrow
    layout = tile.layout_of(shape, candidate, accumulator)
    elements = shape.group_in * candidate.columns * candidate.rows
    factors = layout.factor_elements * 0.5 * accumulator.bytes / elements
    work = multiply_adds(sorted(shape.group, key=shrinking), 1, 1) / shape.group_in
    arithmetic = work * _BYTES_OF_MULTIPLY_ADD * accumulator.bytes / 4 * ragged
    phases = len(tile.phases_of(shape, candidate, accumulator)) * 0.6 * accumulator.bytes / 4
    wanted = tile.shared_bytes(layout, candidate, accumulator)
    registers = tile.registers(shape, accumulator)
    blocks = operands.resident_blocks(candidate.threads, registers, wanted, target)
    resident = min(blocks * candidate.threads, 512) / 512
    # Two or more resident blocks overlap one's memory with another's arithmetic.
    exposed = 1.0 if blocks < 2 else 0.4
    slow, fast = max(memory, arithmetic + phases), min(memory, arithmetic + phases)
    return (slow + exposed * fast + factors) * (1 + 0.15 * (1 - resident)) * SIMT_OVERHEAD
