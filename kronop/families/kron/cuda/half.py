"""Planning of a `kron_mma` pass whose tile holds 16-bit elements; see kron_half.cuh.

What is contiguous in the tile comes in rows of 8 elements, 16 bytes, which a warp loads and stores
8 at a time: so all strides are multiples of 8, and odd ones where that is cheap, since 8 rows at an
odd multiple of 16 bytes meet no bank of shared memory twice.

NOTE: what is between two factors, and with a source Z what the epilogue starts from, is rounded to
the 16-bit type: beyond 65504 it is infinite in float16.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kronop.artifacts import Status
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.cuda import operands
from kronop.families.kron.cuda.shapes import Ends, PassShape, Shape, shrinking
from kronop.target import Target

if TYPE_CHECKING:
    from kronop.families.kron.cuda.mma import MmaPhase, MmaTile, Style

BYTES = 2
# Rows of zeros and of what nobody reads, before the tile.
SPARE_BYTES = 2 * operands.VECTOR_BYTES
ROW = operands.VECTOR_BYTES // BYTES
_PART = 16
_MOST_PADDING = 1.5
# Measured with ptxas 13.4: what addresses and loops take besides.
_REGISTERS_PLAIN, _REGISTERS_OTHERS = 40, 64


def takes(instruction: MathInstruction, ends: Ends) -> bool:
    """Whether operands and results of a pass all are of one 16-bit type."""
    element = instruction.element_a
    return element.bytes == BYTES and ends.source is element and ends.output is element


def parts(size: int) -> int:
    """Products of the tensor cores along an index of this size."""
    return operands.cover(size, _PART)


def rows(size: int) -> int:
    """Rows of 8 elements of a contiguous index."""
    return operands.cover(size, ROW)


@functools.lru_cache(maxsize=4096)
def strides_of(group: Sequence[Shape], columns: int) -> tuple[int, ...]:
    """Stride of the tile's rows, and then of each digit."""
    stride = 1 if columns == 1 else _apart(rows(columns) * ROW)
    result = [stride]
    for digit in reversed(group):
        slots = max(digit)
        stride = _apart(rows(slots) * ROW if stride == 1 else stride * slots)
        result.append(stride)
    return tuple(reversed(result))


def _apart(stride: int) -> int:
    padded = stride if stride // ROW % 2 else stride + ROW
    return padded if padded <= _MOST_PADDING * stride else stride


def order(group: Sequence[Shape], style: Style) -> list[int]:
    """The digits in the order of their phases: memory is met by the last, contiguous, digit."""
    last = len(group) - 1

    def place(digit: int) -> tuple[bool, float, int]:
        ends = digit == last if style.staged_in else digit != last
        return (style.staged_in != style.staged_out and ends, shrinking(group[digit]), -digit)

    return sorted(range(len(group)), key=place)


def groups(digit: Shape, unit: bool, fibers: int, grouped: bool, warps: int) -> int:
    """How many times 16 fibers a warp takes at once: what registers allow and all warps can get."""
    if grouped:
        return 1
    most = 4 if parts(digit[0]) <= 2 else 2
    each = warps * (_PART if unit else _PART // ROW)
    return next((count for count in (4, 2) if count <= most and count * each <= fibers), 1)


def factor_bytes(digit: Shape, grouped: bool) -> int:
    """Bytes of one factor as its phase's threads take it; sums may be of 32 or 64 columns."""
    p, q = digit
    together = (4 if q > 32 else 2) if grouped else 1
    produced = operands.round_up(parts(q), together)
    return parts(p) * produced * _PART * _PART * BYTES


def products(digit: Shape) -> float:
    """Products of the tensor cores for one fiber: of 16 fibers by 8 produced indices each."""
    return parts(digit[0]) * parts(digit[1]) * 2 / _PART


def factor_bytes_read(digit: Shape, phase: MmaPhase) -> float:
    """Bytes of a factor from shared memory for one fiber; four warps together read it once."""
    at_once = _PART * (4 if phase.grouped else phase.groups)
    return parts(digit[0]) * parts(digit[1]) * _PART * _PART * BYTES / at_once


def vector(size: int) -> int:
    """Elements of a thread's access to memory along a digit of this size."""
    return next(width for width in (8, 4, 2) if width == 2 or size % (4 * width) == 0)


def registers(group: Sequence[Shape], staged_out: bool, grouped: Sequence[bool]) -> int:
    """An upper estimate of the registers of a thread: fibers, sums, factor, addresses."""

    def of_digit(digit: Shape, together: bool) -> int:
        count = 1 if together else 4 if parts(digit[0]) <= 2 else 2
        several = 32 if together or not staged_out else 16
        columns = 64 if together and digit[1] > 32 else several
        return 4 * count * parts(digit[0]) + count * columns // 2 + 8

    plain = all(size & (size - 1) == 0 for digit in group for size in digit)
    wanted = max(of_digit(*item) for item in zip(group, grouped, strict=True))
    return min(255, wanted + (_REGISTERS_PLAIN if plain else _REGISTERS_OTHERS))


def fits(shape: PassShape, tile: MmaTile, target: Target) -> Status:
    """What a tile of 16-bit elements has to keep to besides."""
    if target.generation < 9:
        return Status.reject(f"{target} does not store matrices of 16-bit elements")
    if tile.pairs or tile.cluster > 1:
        return Status.reject("digits of 16-bit elements are contracted one by one, by one block")
    if tile.buffers > 1 and not (tile.staged_in and len(shape.group) > 1):
        return Status.reject("the next tile is filled between two phases of a staged one")
    direct = not tile.staged_in, not tile.staged_out
    if any(direct) and tile.columns > 1:
        return Status.reject("only a contiguous digit of 16-bit elements meets memory itself")
    if all(direct) and len(shape.group) > 1:
        return Status.reject("one digit of 16-bit elements meets memory, not two")
    return Status.accept()
