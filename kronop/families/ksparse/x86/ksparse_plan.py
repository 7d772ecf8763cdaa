"""The candidate designs of a Kronecker-sparse product on the vectors of a CPU."""

from __future__ import annotations

from collections.abc import Iterator

from kronop.emit.x86.planning import core_of
from kronop.families.ksparse.x86.ksparse_design import KSparseWork
from kronop.families.ksparse.x86.ksparse_vectors import (
    KSparseVectors,
    VectorsAlongBatch,
    VectorsAlongOutputs,
    column_cycles,
)
from kronop.frozen import dataclass
from kronop.target import Target

# The fraction of the first-level cache for the operand that register tiles read repeatedly; bytes
# of the second-level cache for a block of rows or of weights.
_NEAR = 0.75
_BLOCK_BYTES = 256 * 1024
_STATE_BYTES = 256 * 1024
_PACKED_BYTES = 512 * 1024
# Most bytes of a thread's packed weights. They may exceed the second-level cache, because they are
# streamed once for each block.
_PANEL_BYTES = 4 << 20
# The fraction of the registers for the sums of a register tile.
# NOTE: tiles of 8 x 3 reached 0.99 of the peak of one core, 12 x 2 0.97, 8 x 2 0.95, 14 x 2 0.90;
# with 48 x 48 weights 0.86, 0.73, 0.72, 0.66 in this order (Emerald Rapids).
_SUMS = 0.75
_ROWS_ALONG_BATCH, _ROWS_ALONG_OUTPUTS, _MOST_ROWS = 512, 96, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The problem that designs are made for: a product, the target, the user's tile (or None)."""

    work: KSparseWork
    target: Target
    shape: tuple[int, int, int] | None


def designs(setting: Setting) -> Iterator[KSparseVectors]:
    """All designs to consider, legal or not."""
    work = setting.work
    if not work.x_by_rows and work.pattern[3] == 1:
        for vectors in _spans(setting, are_contiguous=True):
            yield _along_outputs(vectors, setting)
    for vectors in _spans(setting, are_contiguous=work.x_by_rows):
        yield _along_batch(vectors, setting)


def _spans(setting: Setting, *, are_contiguous: bool) -> tuple[int, ...]:
    """Numbers of vectors of a register tile to consider; at equal cost, the first wins.

    Not 3 with 16 registers, as these would leave only four numbers to multiply vectors by; nor if X
    is transposed, as more vectors then take more scratch memory.
    """
    return (3, 2, 1) if setting.target.registers > 16 and are_contiguous else (2, 1)


def _along_outputs(vectors: int, setting: Setting) -> VectorsAlongOutputs:
    work, (_, b, c, _) = setting.work, setting.work.pattern
    rows, widest, deepest = setting.shape or (_ROWS_ALONG_OUTPUTS, b, c)
    depth, outputs, lanes = min(deepest, c), min(widest, b), work.width * vectors
    if setting.shape is None:
        depth = _near_depth(lanes, setting)
        limit = min(_PANEL_BYTES // (c * work.bytes), b)
        outputs = _whole(b, limit, lanes)
    return VectorsAlongOutputs(
        work=work,
        tile=min(_most(vectors, setting), _MOST_ROWS),
        vectors=vectors,
        blocks=blocks_of(work, c * outputs * work.bytes),
        slices=1,
        outputs=outputs,
        depth=depth,
        row_tile=rows,
    )


def _along_batch(vectors: int, setting: Setting) -> VectorsAlongBatch:
    work, (_, b, c, _) = setting.work, setting.work.pattern
    rows, widest, deepest = setting.shape or (_ROWS_ALONG_BATCH, b, c)
    depth, outputs, lanes = min(deepest, c), min(widest, b), work.width * vectors
    slices = work.slices_along_batch
    tile = _tile(_most(vectors, setting), outputs, vectors)
    if setting.shape is None:
        line = lanes * (slices | 1) * work.bytes
        depth = _even(_near_depth(lanes, setting), max(8, _STATE_BYTES // line))
        rows = max(1, min(rows, _STATE_BYTES // (depth * line) * lanes) // lanes) * lanes
        limit = min(_PANEL_BYTES // (c * slices * work.bytes), _BLOCK_BYTES // (depth * work.bytes))
        outputs = _whole(b, limit, tile)
    elif outputs < b:
        tile = max(size for size in range(1, tile + 1) if outputs % size == 0)
    return VectorsAlongBatch(
        work=work,
        tile=tile,
        vectors=vectors,
        blocks=blocks_of(work, slices * c * outputs * work.bytes),
        slices=slices,
        outputs=outputs,
        depth=depth,
        row_tile=rows,
    )


def blocks_of(work: KSparseWork, packed: int) -> int:
    """Indices i of an item, each with `packed` bytes of packed weights: several if a row of X is
    contiguous, so that it is read sequentially."""
    return 1 if work.x_by_rows else min(work.pattern[0], max(1, _PACKED_BYTES // packed))


def _near_depth(lanes: int, setting: Setting) -> int:
    """Indices k to contract at once, so that a register tile's operand stays in the first-level
    cache."""
    near = int(core_of(setting.target).level_1_bytes * _NEAR)
    return _even(setting.work.pattern[2], max(16, near // (lanes * setting.work.bytes)))


def _most(vectors: int, setting: Setting) -> int:
    """Most single numbers of a register tile with `vectors` vectors."""
    return int(setting.target.registers * _SUMS) // vectors


def _tile(most: int, outputs: int, vectors: int) -> int:
    """The height of the register tiles that cover all outputs in the least time."""
    return min(
        range(1, min(most, outputs) + 1),
        key=lambda tile: (column_cycles(outputs, tile, vectors), -tile),
    )


def _whole(count: int, limit: int, unit: int) -> int:
    """Outputs of an item, in whole register tiles, and at most about `limit`."""
    return min(count, _up(_even(count, max(limit, unit)), unit))


def _even(count: int, most: int) -> int:
    """The size of equal pieces of `count`, as few as possible with at most `most` each; a multiple
    of 8 if there are several."""
    parts = -(-count // most)
    return count if parts == 1 else min(count, _up(-(-count // parts), 8))


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
