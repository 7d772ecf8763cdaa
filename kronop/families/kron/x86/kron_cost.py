"""Modelled cycles of the parts of a Kronecker plan on a CPU: good for ranking, not as a forecast.

Constants were fitted to one core with AVX2 (`FITTED_CPU`; one store a cycle).
"""

from __future__ import annotations

import functools

from kronop.emit.x86.planning import DEFAULT_UNROLL, LEAST_VECTOR, core_of
from kronop.families.kron.x86.kron_parts import Kind, Setting, Tile
from kronop.machine import FITTED_CPU

# Cycles of a load; of the latency of a multiply-add; to start and end a register tile; and of each
# of its sums beyond the first _FREE, which the next tile hides (with 16 and with 32 vector
# registers). NOTE: with AVX-512, tiles of 8 x 2 take 0.89 of the time of 8 x 1 for 16 x 16 factors.
_LOAD, _LATENCY, _TILE, _EDGE, _EDGE_OF_32, _FREE = 0.53, 4.2, 2.0, 2.0, 0.5, 9
_RELOADED, _FEW_ROWS = 1.2, 3
# Cycles of a vector to copy it to a state, to convert it, to transpose it; of each single element
# that is read or written alone; added by an access to the second-level cache or beyond. Cycles to
# compute the address of a run of lanes.
_COPY, _CONVERT, _TRANSPOSE, SINGLE, _NEAR, _FAR, _RUN = 1.0, 2.0, 8.0, 2.0, 2.5, 4.0, 2.0
# The same beyond all near caches. NOTE: with AVX-512 and 2 MB between passes, two passes of 8^6 in
# float64 take 0.77 of the time of three.
BEYOND = 8.0
# Cycles of a product besides its tiles. NOTE: 8^4 is 4 to 6 % faster in blocks of four fibers.
CALL = 8.0
# Cycles of far accesses: to a single number, to a run of lanes; and the factor for columns that are
# written out of order. NOTE: with rows 4 KiB apart, a number costs 20 cycles and a run 40.
_SINGLE_FAR, _FAR_RUN, _WRITTEN_FAR = 10.0, 40.0, 1.5
# Working sets up to these bytes cost nothing more. Above, an access of a vector adds so many cycles
# if the first-level cache holds the working set, or half of it.
_CLOSE_BYTES = 24 * 1024
_NEAREST, _HALF_NEAREST = 0.5, 1.5
# Cycles to join two halves of a vector, and to split a vector in halves.
_JOIN, _PART = 0.5, 1.0
_MOST_VECTORS, _MOST_TILE_ROWS = 4, 10
_UNROLLED = 8


def tile_cycles(contracted: int, rows: int, vectors: int, registers: int) -> float:
    """Cycles of one register tile: its multiply-adds, loads or latency, and its start and end.

    With one vector, each multiply-add waits for its own load. With four vectors and few rows,
    vectors are loaded more than once.
    """
    sums = rows * vectors
    issue = max(sums / FITTED_CPU.arithmetic, _LOAD * (rows + vectors), _LATENCY)
    if vectors == _MOST_VECTORS and rows <= _FEW_ROWS:
        issue *= _RELOADED
    edge = _EDGE if registers <= 16 else _EDGE_OF_32
    return contracted * issue + _TILE + edge * max(0, sums - _FREE)


@functools.lru_cache(maxsize=4096)
def lane_tile(
    contracted: int,
    produced: int,
    extent: int,
    width: int,
    size: int,
    registers: int,
    unroll: int,
    whole: bool = False,
) -> tuple[Tile, float] | None:
    """The best tile for one digit with vectors along `extent` contiguous elements, and its cycles.

    Args:
        width, size: elements of the widest vector, bytes of an element.
        whole: only tiles that hold all outputs and don't overlap; there may be none.
    """
    width = _width_within(extent, width, size)
    vectors_in_all = -(-extent // width)
    best: tuple[float, Tile] | None = None
    for rows in _heights(produced, whole):
        for vectors in range(1, min(_MOST_VECTORS, extent // width) + 1):
            if rows * vectors + vectors + 1 > registers:
                continue
            if whole and extent % (vectors * width):
                continue
            tiles = -(-vectors_in_all // vectors) * -(-produced // rows)
            cycles = tiles * tile_cycles(contracted, rows, vectors, registers)
            tile = Tile(rows=rows, vectors=vectors, width=width, panel=rows, unroll=unroll)
            if best is None or cycles < best[0]:
                best = cycles, tile
    return None if best is None else (best[1], best[0])


@functools.lru_cache(maxsize=4096)
def pair_tile(
    contracted: int, produced: int, width: int, registers: int, unroll: int, whole: bool = False
) -> tuple[Tile, float] | None:
    """The best tile for one digit if contiguous runs fill half a vector, so that two of them share
    one; and its cycles for one run. `whole` is as for `lane_tile`."""
    best: tuple[float, Tile] | None = None
    for rows in _heights(produced, whole):
        cycles = -(-produced // rows) * (
            tile_cycles(contracted, rows, 1, registers) + _JOIN * contracted + _PART * rows
        )
        tile = Tile(rows=rows, vectors=1, width=width, panel=rows, unroll=unroll)
        if best is None or cycles < best[0]:
            best = cycles, tile
    return None if best is None else (best[1], best[0] / 2)


@functools.lru_cache(maxsize=4096)
def row_tile(
    contracted: int,
    produced: int,
    rows_in_all: int,
    width: int,
    size: int,
    registers: int,
    unroll: int,
) -> tuple[Tile, float]:
    """The best tile for one digit with vectors along its outputs, and its cycles for `rows_in_all`
    rows."""
    width = _width_within(produced, width, size)
    best: tuple[float, Tile] | None = None
    for rows in range(1, min(rows_in_all, _MOST_TILE_ROWS) + 1):
        for vectors in range(1, min(_MOST_VECTORS, produced // width) + 1):
            if rows * vectors + vectors + 1 > registers:
                continue
            tiles = -(-rows_in_all // rows) * -(-produced // (vectors * width))
            cycles = tiles * tile_cycles(contracted, rows, vectors, registers)
            panel = vectors * width
            tile = Tile(rows=rows, vectors=vectors, width=width, panel=panel, unroll=unroll)
            if best is None or cycles < best[0]:
                best = cycles, tile
    assert best is not None
    return best[1], best[0]


def _heights(produced: int, whole: bool) -> range:
    """The numbers of outputs of a register tile to consider."""
    return range(produced if whole else 1, min(produced, _MOST_TILE_ROWS) + 1)


def _width_within(extent: int, width: int, size: int) -> int:
    """The widest vector that `extent` elements fill."""
    while width > extent and width * size > LEAST_VECTOR:
        width //= 2
    return width


def unroll_of(contracted: int, setting: Setting) -> int:
    """How many contracted indices the kernel's loop has between two branches."""
    if setting.unroll is not None:
        return setting.unroll
    return contracted if contracted <= _UNROLLED else DEFAULT_UNROLL


def residence(size: float, setting: Setting) -> float:
    """The cycles that each vector access adds, for a working set of `size` bytes."""
    nearest, near = core_of(setting.target).level_1_bytes, setting.target.shared_bytes
    if size <= 2 * nearest:
        return 0.0 if size <= _CLOSE_BYTES else _NEAREST if size <= nearest else _HALF_NEAREST
    return _NEAR if size <= near // 4 else _FAR if size <= near else BEYOND


def transfer(
    kind: Kind,
    lanes: int,
    lead: int,
    trail: int,
    outside: bool,
    by_rows: bool,
    setting: Setting,
    writes: bool = False,
) -> float:
    """Cycles to move one vector between memory and the state."""
    converts = _CONVERT if outside and setting.converts else 0.0
    straight = not (outside and by_rows)
    scattered = setting.width * (SINGLE if setting.typical_rows <= setting.width else _SINGLE_FAR)
    if kind is Kind.Whole:
        return converts + (0.0 if straight else scattered)
    if kind is Kind.RowsAndLead:
        if straight:
            return converts + _TRANSPOSE
        return converts + (_FAR_RUN / (lanes / setting.width) if lead == 1 else scattered)
    if kind is Kind.Trail:
        run = _RUN / (lanes / setting.width)
        return converts + run + (_COPY if straight else scattered)
    if straight and outside:
        return converts + (_TRANSPOSE if trail == 1 else scattered)
    far = _FAR_RUN * (_WRITTEN_FAR if writes and trail > 1 else 1.0)
    return converts + (far if outside else _RUN) / (lanes / setting.width) + _COPY
