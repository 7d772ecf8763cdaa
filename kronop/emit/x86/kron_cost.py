"""What a Kronecker candidate should cost on a CPU, in cycles per row: a ranking, no forecast."""

from __future__ import annotations

from kronop.emit.x86.kron_plan import Candidate, Kind, Pass, Setting
from kronop.emit.x86.planning import NEAR_BYTES

_TYPICAL_ROWS = 64
# Cycles per vector: issue of a load or multiply-add, a store with loop control, a transposing
# transfer, a copy, and what a second-level or farther access adds.
_ISSUE, _STORE, _TRANSPOSE, _COPY, _NEAR, _FAR = 0.5, 1.0, 5.0, 1.0, 1.0, 6.0
_TILE_OVERHEAD = 4.0


def cost(candidate: Candidate, setting: Setting) -> float:
    """Cycles per row."""
    total = 0.0
    last = len(candidate.passes) - 1
    for index, item in enumerate(candidate.passes):
        read = _transfer(item, candidate, setting, index == 0, setting.x_by_rows)
        write = _transfer(item, candidate, setting, index == last, setting.y_by_rows)
        each = _arithmetic(item, candidate, setting) + item.group * read + item.produced * write
        total += _vectors(item, candidate, setting) * each
    return total


def _vectors(item: Pass, candidate: Candidate, setting: Setting) -> float:
    """Vectors of lanes per row of X, with what incomplete blocks waste."""
    lanes = setting.width * candidate.vectors
    rows = min(candidate.row_tile, _TYPICAL_ROWS)
    count = {Kind.RowsAndLead: rows * item.lead, Kind.Trail: item.trail, Kind.Rows: rows}[item.kind]
    waste = -(-count // lanes) * lanes / count
    return item.lead * item.trail / setting.width * waste


def _arithmetic(item: Pass, candidate: Candidate, setting: Setting) -> float:
    state = 2 * item.peak * setting.width * candidate.vectors * setting.bytes
    total = 0.0
    for product in item.products:
        digit, tile = candidate.digits[product.digit], candidate.tiles[product.digit]
        blocks = -(-digit.produced // tile)
        sums = tile * candidate.vectors
        loads = (tile + candidate.vectors) / candidate.vectors
        step = _ISSUE * max(tile, loads)
        moved = (digit.contracted * blocks + digit.produced) * _level(state, setting)
        each = blocks * (digit.contracted * step + tile * (_STORE + _TILE_OVERHEAD / sums)) + moved
        total += product.left * product.right * each
    return total


def _level(size: int, setting: Setting) -> float:
    if size <= NEAR_BYTES:
        return 0.0
    return _NEAR if size <= setting.target.shared_bytes else _FAR


def _transfer(
    item: Pass, candidate: Candidate, setting: Setting, outside: bool, by_rows: bool
) -> float:
    """Cycles per vector between memory and the state."""
    if not outside:
        middle = candidate.row_tile * candidate.middle * setting.bytes
        far = _FAR if middle > setting.target.shared_bytes // 2 else _NEAR
        return far + (_TRANSPOSE if item.kind is Kind.RowsAndLead else 0.0)
    if item.kind is Kind.Trail:
        return float(setting.width) * 2 if by_rows else _COPY * (2 if setting.converts else 1)
    if item.kind is Kind.Rows and not by_rows and item.trail > 1:
        return float(setting.width) * 2
    return (
        _COPY if by_rows and item.lead == 1 else float(setting.width) * 2 if by_rows else _TRANSPOSE
    )
