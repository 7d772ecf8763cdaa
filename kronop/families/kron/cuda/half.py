"""Phases of a `kron_mma` pass whose tile holds 16-bit elements; see kron_half.cuh.

Along its contiguous index the tile is divided into "rows" of 8 elements, 16 bytes. A warp loads and
stores 8 such rows at a time, so all strides are multiples of 8 elements. If that is cheap, they are
odd multiples: 8 rows at an odd multiple of 16 bytes have no bank conflicts.

NOTE: the results between two factors are rounded to the 16-bit type, and with a source Z also the
sum that the epilogue starts from: beyond 65504 they are infinite in float16.
"""

from __future__ import annotations

from typing import ClassVar

from kronop.artifacts import Status
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.cuda import operands
from kronop.families.kron.cuda.mma_style import MmaStyle, PlainAxis, remembered
from kronop.families.kron.cuda.shapes import Ends, Shape, shrinking
from kronop.frozen import dataclass
from kronop.machine import THREAD_REGISTERS, Feature
from kronop.target import Target

BYTES = 2
ROW = operands.VECTOR_BYTES // BYTES
_PART = 16
_MOST_PADDING = 1.5
# Measured with ptxas 13.4: registers of addresses and loops, if all sizes are powers of two, and if
# some are not.
_REGISTERS_PLAIN, _REGISTERS_OTHERS = 40, 64


@dataclass(frozen=True, kw_only=True)
class HalfStyle(MmaStyle):
    """Styles of tiles of 16-bit elements: each phase contracts one digit, without clusters."""

    element_bytes = BYTES
    exchanges = False
    # Before the tile: a row of zeros to read, and a dummy row for out of bounds stores.
    spare_bytes: ClassVar[int] = 2 * operands.VECTOR_BYTES
    # Every row is aligned to 16 bytes.
    piece: ClassVar[int] = ROW

    buffers: int = 1

    __hash__ = MmaStyle.__hash__

    def widest(self, size: int) -> int:
        return vector(size)

    @remembered
    def strides(self, columns: int) -> tuple[int, ...]:
        stride = 1 if columns == 1 else _apart(rows(columns) * ROW)
        result = [stride]
        for digit in reversed(self.digits):
            slots = max(digit)
            stride = _apart(rows(slots) * ROW if stride == 1 else stride * slots)
            result.append(stride)
        return tuple(reversed(result))

    @remembered
    def order(self) -> tuple[tuple[int, int | None], ...]:
        """Phases that shrink X most go first, but the phase that accesses global memory without
        staging is always the last digit's: its fibers are contiguous there."""
        last = len(self.digits) - 1

        def place(digit: int) -> tuple[bool, float, int]:
            ends = digit == last if self.staged_in else digit != last
            one_end = self.staged_in != self.staged_out
            return (one_end and ends, shrinking(self.digits[digit]), -digit)

        return tuple((digit, None) for digit in sorted(range(last + 1), key=place))

    def lanes(self, digit: int, other: int | None, unit: bool, fibers: int, warps: int) -> int:
        """Twice the tiles of 16 fibers of a warp: as many as registers allow, if each warp still
        has fibers."""
        shape = self.digits[digit]
        if self.uses_wgmma(shape):
            return 2
        each = warps * (_PART if unit else _PART // ROW)
        fitting = (count for count in (4, 2) if count <= _most(shape) and count * each <= fibers)
        return 2 * next(fitting, 1)

    def fibers(self, axes: list[PlainAxis], unit: bool, columns: int) -> list[PlainAxis]:
        """The free axes, with the contiguous one (columns, or the last digit) in rows of 8
        elements."""
        if unit:
            return axes
        index = len(axes) - (1 if columns > 1 else 2)
        return [*axes[:index], (rows(axes[index][0]), ROW, 0, 0, 0)]

    @remembered
    def registers(self, columns: bool) -> int:
        def of_digit(digit: Shape) -> int:
            together = self.uses_wgmma(digit)
            count = 1 if together else _most(digit)
            several = 32 if together or not self.staged_out else 16
            produced = 64 if together and digit[1] > 32 else several
            return 4 * count * parts(digit[0]) + count * produced // 2 + 8

        others = _REGISTERS_PLAIN if self.powers else _REGISTERS_OTHERS
        return min(THREAD_REGISTERS, max(map(of_digit, self.digits)) + others)

    def factor_bytes(self, digit: Shape) -> int:
        p, q = digit
        # A warp group has sums of 32 or 64 produced indices, so the factor is padded.
        together = (4 if q > 32 else 2) if self.uses_wgmma(digit) else 1
        return parts(p) * operands.round_up(parts(q), together) * _PART * _PART * BYTES

    @remembered
    def factors_bytes(self) -> tuple[int, ...]:
        return tuple(map(self.factor_bytes, self.digits))

    def status(self, columns: int, threads: int, target: Target) -> Status:
        return MmaStyle.status(self, columns, threads, target) and self._accept_ends(
            columns, target
        )

    def _accept_ends(self, columns: int, target: Target) -> Status:
        several = len(self.digits) > 1
        if not target.has(Feature.clusters):
            return Status.reject(f"{target} does not store matrices of 16-bit elements")
        if self.pairs or self.cluster > 1:
            return Status.reject(
                "digits of 16-bit elements are contracted one by one, by one block"
            )
        if self.buffers > 1 and not (self.staged_in and several):
            return Status.reject("the next tile is filled between two phases of a staged one")
        direct = not self.staged_in, not self.staged_out
        if any(direct) and columns > 1:
            return Status.reject("only a contiguous digit of 16-bit elements meets memory itself")
        if all(direct) and several:
            return Status.reject("one digit of 16-bit elements meets memory, not two")
        return Status.accept()


def takes(instruction: MathInstruction, ends: Ends) -> bool:
    """Whether all operands and results of a pass have the same 16-bit type."""
    element = instruction.element_a
    return element.bytes == BYTES and ends.source is element and ends.output is element


def parts(size: int) -> int:
    """MMAs along an index of this size."""
    return operands.cover(size, _PART)


def rows(size: int) -> int:
    """How many rows of 8 elements a contiguous index of this size has."""
    return operands.cover(size, ROW)


def products(digit: Shape) -> float:
    """MMAs for one fiber; one MMA has 16 fibers and 8 produced indices."""
    return parts(digit[0]) * parts(digit[1]) * 2 / _PART


def factor_bytes_read(digit: Shape, wgmma: bool, fiber_tiles: int) -> float:
    """Bytes of the factor that are read from shared memory for one fiber; a warp group reads the
    factor once for all its fibers."""
    at_once = _PART * (4 if wgmma else fiber_tiles)
    return parts(digit[0]) * parts(digit[1]) * _PART * _PART * BYTES / at_once


def vector(size: int) -> int:
    """Elements of a thread's vectorised access to global memory along a digit of this size."""
    return next(width for width in (8, 4, 2) if width == 2 or size % (4 * width) == 0)


def _most(digit: Shape) -> int:
    """The most tiles of 16 fibers of a digit for which a warp has registers."""
    return 4 if parts(digit[0]) <= 2 else 2


def _apart(stride: int) -> int:
    padded = stride if stride // ROW % 2 else stride + ROW
    return padded if padded <= _MOST_PADDING * stride else stride
