"""How a Kronecker-sparse product is cut up on a CPU: candidates, legality, cost."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from dataclasses import dataclass

from kronop.artifacts import Status
from kronop.emit.x86.planning import LINE, aligned, near_bytes
from kronop.target import Target


class Way(enum.Enum):
    """What the lanes of a vector are."""

    Batch = "batch"
    Outputs = "outputs"


# What of the first-level cache the operand may take that a register tile reads again and again,
# and what of the second-level cache a block of rows or of weights may.
_NEAR = 0.75
_BLOCK_BYTES = 256 * 1024
_STATE_BYTES = 256 * 1024
_MOST_SLICES = 32
GROUP_BYTES = 512 * 1024
# Packed weights of a thread: beyond the second-level cache they are streamed, once per block.
_PANEL_BYTES = 4 << 20
# Sums of a register tile, of all registers.
# NOTE: of the peak of one core, 8 x 3 tiles reached 0.99, 12 x 2 0.97, 8 x 2 0.95, 14 x 2 0.90, and
# with 48 x 48 weights 0.86, 0.73, 0.72, 0.66 (Emerald Rapids).
_SUMS = 0.75
_ROWS = {Way.Batch: 512, Way.Outputs: 96}
# Cycles per vector; see the kernel's header for where each arises.
COPY, TRANSPOSE, _TILE, _PACK, _FEWEST_SUMS = 1.5, 5.0, 8.0, 1.5, 10
_TYPICAL_ROWS = 1024
_MOST_ROWS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One way to serve a pattern.

    Attributes:
        way: what the lanes of a vector are.
        tile: single values of a register tile: outputs, or rows where the lanes are outputs.
        vectors: vectors that each of them is multiplied with.
        blocks: indices i of an item of work.
        slices: indices l of an item of work.
        outputs: indices j of an item of work.
        depth: indices k that are taken at once.
        row_tile: rows of one item of work.
    """

    way: Way
    tile: int
    vectors: int
    blocks: int
    slices: int
    outputs: int
    depth: int
    row_tile: int

    def __str__(self) -> str:
        return (
            f"lanes along the {self.way.value}, tiles of {self.tile} by {self.vectors} vectors,"
            f" {self.row_tile} rows by {self.blocks} blocks by {self.outputs} outputs by"
            f" {self.slices} slices, {self.depth} contraction steps at once"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What candidates are made for: the pattern, the machine, and the user's tile (None: any).

    `x_by_rows` and `y_by_rows`: contiguous along the batch rather than along the features.
    `converts`: X is of another type than the sums. `direct`: results are stored as they are.
    """

    pattern: tuple[int, int, int, int]
    target: Target
    width: int
    bytes: int
    x_by_rows: bool
    y_by_rows: bool
    converts: bool
    direct: bool
    shape: tuple[int, int, int] | None

    @property
    def b(self) -> int:
        return self.pattern[1]

    @property
    def c(self) -> int:
        return self.pattern[2]

    @property
    def d(self) -> int:
        return self.pattern[3]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """Where parts of a thread's scratch memory begin, in bytes; `pitch`: elements from k to k + 1
    (lanes along the batch), or from row to row, of X in it."""

    pitch: int
    bias: int
    input: int
    results: int
    size: int


def candidates(setting: Setting) -> Iterator[Candidate]:
    """Every way that is worth a look, legal or not."""
    for way in _ways(setting):
        for vectors in _spans(way, setting):
            yield from _cut(way, vectors, setting)


def _ways(setting: Setting) -> Iterator[Way]:
    if not setting.x_by_rows and setting.d == 1:
        yield Way.Outputs
    yield Way.Batch


def _spans(way: Way, setting: Setting) -> tuple[int, ...]:
    """Vectors of a register tile, the better of equals first.

    With 16 registers three vectors leave four numbers to multiply them with; X that is transposed
    takes more scratch the more of them there are.
    """
    are_contiguous = way is Way.Outputs or setting.x_by_rows
    return (3, 2, 1) if setting.target.registers > 16 and are_contiguous else (2, 1)


def _cut(way: Way, vectors: int, setting: Setting) -> Iterator[Candidate]:
    """Candidates of a way whose register tiles have so many vectors."""
    most = int(setting.target.registers * _SUMS) // vectors
    b, c, width = setting.b, setting.c, setting.width
    rows, widest, deepest = setting.shape or (_ROWS[way], b, c)
    lanes = width * vectors
    slices = slices_of(way, setting)
    depth = min(deepest, c)
    if setting.shape is None:
        depth = _even(
            c, max(16, int(near_bytes(setting.target) * _NEAR) // (lanes * setting.bytes))
        )
        if way is Way.Batch:
            line = lanes * (slices | 1) * setting.bytes
            depth = _even(depth, max(8, _STATE_BYTES // line))
            rows = max(1, min(rows, _STATE_BYTES // (depth * line) * lanes) // lanes) * lanes
    outputs = min(widest, b)
    tile = _tile(most, outputs, vectors) if way is not Way.Outputs else min(most, _MOST_ROWS)
    unit = lanes if way is Way.Outputs else tile
    if setting.shape is None:
        limit = min(
            _PANEL_BYTES // (c * slices * setting.bytes),
            _BLOCK_BYTES // (depth * setting.bytes) if way is Way.Batch else b,
        )
        outputs = min(b, _up(_even(b, max(limit, unit)), unit))
    elif outputs < b and way is not Way.Outputs:
        tile = max(size for size in range(1, tile + 1) if outputs % size == 0)
    yield Candidate(
        way=way,
        tile=tile,
        vectors=vectors,
        blocks=_blocks(slices * c * outputs, setting),
        slices=slices,
        outputs=outputs,
        depth=depth,
        row_tile=rows,
    )


def slices_of(way: Way, setting: Setting) -> int:
    """Slices of an item: all where X or Y is contiguous along the features, or whole lines."""
    if way is Way.Outputs or (setting.x_by_rows and setting.y_by_rows):
        return 1
    line, d = max(1, LINE // setting.bytes), setting.d
    fitting = [s for s in range(line, min(d, _MOST_SLICES) + 1, line) if d % s == 0]
    return max(fitting, default=d) if d > _MOST_SLICES else d


def _blocks(weights: int, setting: Setting) -> int:
    """Blocks of an item: where a row of X is contiguous, it is read from one end to the other."""
    if setting.x_by_rows:
        return 1
    return min(setting.pattern[0], max(1, GROUP_BYTES // (weights * setting.bytes)))


def _tile(most: int, outputs: int, vectors: int) -> int:
    """The height that covers all outputs in the least time."""
    return min(
        range(1, min(most, outputs) + 1), key=lambda tile: (_steps(outputs, tile, vectors), -tile)
    )


def _steps(outputs: int, tile: int, vectors: int) -> float:
    """Cycles that tiles of `outputs` values take for one k."""
    full, rest = divmod(outputs, tile)
    return full * _step(tile, vectors) + (_step(rest, vectors) if rest else 0)


def _step(tile: int, vectors: int) -> float:
    """Two multiply-adds or loads a cycle, of 4 cycles each."""
    return max(tile * vectors, tile + vectors, _FEWEST_SUMS) / 2


def _even(count: int, most: int) -> int:
    """The size of the fewest parts of at most `most`, in whole eights where there are several."""
    parts = -(-count // most)
    return count if parts == 1 else min(count, _up(-(-count // parts), 8))


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def scratch_of(candidate: Candidate, setting: Setting, bias_bytes: int) -> Scratch:
    """The scratch memory of a thread; `bias_bytes` for each of the bias's values."""
    width, slices, c = setting.width, candidate.slices, setting.c
    rows, outputs, depth = candidate.row_tile, candidate.outputs, candidate.depth
    line = max(1, LINE // setting.bytes)
    if candidate.way is Way.Batch:
        # NOTE: an odd number of lines spreads over all sets of a cache.
        lanes = width * candidate.vectors
        pitch = (slices | 1) * lanes
        blocks = -(-rows // lanes)
        panels, held, made = slices * c * outputs, blocks * depth * pitch, outputs * slices * lanes
        made *= blocks
    else:
        pitch = (_up(depth, line) // line | 1) * line
        panels, held, made = c * _up(outputs, width), rows * pitch, rows * _up(outputs, width)
    blocks = candidate.blocks
    bias = aligned(blocks * panels * setting.bytes)
    begin = bias + aligned(blocks * outputs * slices * bias_bytes)
    results = begin + aligned(held * setting.bytes)
    return Scratch(
        pitch=pitch,
        bias=bias,
        input=begin,
        results=results,
        size=results + aligned(made * setting.bytes),
    )


def legality(candidate: Candidate, setting: Setting) -> Status:
    """Whether the user's tile is whole vectors."""
    lanes = setting.width * (candidate.vectors if candidate.way is Way.Batch else 1)
    if candidate.row_tile % lanes:
        return Status.reject(
            f"Tile_M of {candidate.row_tile} rows is no multiple of {lanes} lanes;"
            f" use a multiple of {setting.width} in threadblock_shape[0]"
        )
    return Status.accept()


def cost(candidate: Candidate, setting: Setting) -> float:
    """Cycles per row of the batch, for one i."""
    b, c, d, width = setting.b, setting.c, setting.d, setting.width
    tile, vectors = candidate.tile, candidate.vectors
    depth_parts, output_parts = math.ceil(c / candidate.depth), math.ceil(b / candidate.outputs)
    if candidate.way is Way.Batch:
        each = d * _steps(b, tile, vectors) / (width * vectors)
        tiles = d * -(-b // tile) / (width * vectors)
        sums = d * b / width
    else:
        full, rest = divmod(b, width * vectors)
        each = (full * _step(tile, vectors) + -(-rest // width) * _step(tile, 1)) / tile
        tiles = (full + -(-rest // width)) / tile
        sums = math.ceil(b / width)
    arithmetic = c * each + depth_parts * (tiles * _TILE + 2 * sums)
    reading = output_parts * c * d / width * _read(candidate, setting)
    writing = sums * write_cycles(candidate.way, setting)
    packing = _PACK * b * c * d / _TYPICAL_ROWS
    return arithmetic + reading + writing + packing


def _read(candidate: Candidate, setting: Setting) -> float:
    """Cycles per vector of X on its way to where tiles read it."""
    if candidate.way is Way.Outputs:
        return COPY if setting.converts else 0.0
    if setting.x_by_rows:
        return COPY
    return TRANSPOSE if candidate.depth * setting.d >= setting.width else 2.0 * setting.width


def streams(candidate: Candidate, setting: Setting) -> bool:
    """Whether register tiles may put results past the caches: whole lines of Y, of whole sums."""
    whole = setting.target.vector_bytes >= LINE and candidate.depth == setting.c
    return whole and setting.direct and _is_along(candidate.way, setting)


def _is_along(way: Way, setting: Setting) -> bool:
    """Whether the lanes of a vector are contiguous in Y."""
    return setting.y_by_rows == (way is Way.Batch)


def write_cycles(way: Way, setting: Setting) -> float:
    """Cycles per vector of results on its way from a tile's scratch to Y."""
    if _is_along(way, setting):
        return 0.0 if setting.direct else COPY
    return TRANSPOSE if way is Way.Batch else 2.0 * setting.width
