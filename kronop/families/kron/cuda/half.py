"""Phases of a `kron_mma` pass whose tile holds 16-bit elements; see kron_half.cuh.

What is contiguous in the tile comes in rows of 8 elements, 16 bytes, which a warp loads and stores
8 at a time: so all strides are multiples of 8, and odd ones where that is cheap, since 8 rows at an
odd multiple of 16 bytes meet no bank of shared memory twice.

NOTE: what is between two factors, and with a source Z what the epilogue starts from, is rounded to
the 16-bit type: beyond 65504 it is infinite in float16.
"""

from __future__ import annotations

from typing import ClassVar

from kronop.artifacts import Status
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.cuda import operands
from kronop.families.kron.cuda.mma_style import MmaStyle, PlainAxis, remembered
from kronop.families.kron.cuda.shapes import Ends, Shape, shrinking
from kronop.frozen import dataclass
from kronop.target import Target

BYTES = 2
ROW = operands.VECTOR_BYTES // BYTES
_PART = 16
_MOST_PADDING = 1.5
# Measured with ptxas 13.4: what addresses and loops take besides.
_REGISTERS_PLAIN, _REGISTERS_OTHERS = 40, 64


@dataclass(frozen=True, kw_only=True)
class HalfStyle(MmaStyle):
    """Digits of 16-bit elements are contracted one by one, by one block."""

    # Rows of zeros and of what nobody reads, before the tile.
    spare_bytes: ClassVar[int] = 2 * operands.VECTOR_BYTES
    # A row is aligned to whole vectors.
    piece: ClassVar[int] = ROW

    buffers: int = 1

    __hash__ = MmaStyle.__hash__

    @property
    def element_bytes(self) -> int:
        return BYTES

    def widest(self, size: int) -> int:
        return vector(size)

    @property
    def exchanges(self) -> bool:
        # These phases have a loop of their own, which is not cut into chunks.
        return False

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
        """Memory is met by the last, contiguous, digit."""
        last = len(self.digits) - 1

        def place(digit: int) -> tuple[bool, float, int]:
            ends = digit == last if self.staged_in else digit != last
            one_end = self.staged_in != self.staged_out
            return (one_end and ends, shrinking(self.digits[digit]), -digit)

        return tuple((digit, None) for digit in sorted(range(last + 1), key=place))

    def lanes(self, digit: int, other: int | None, unit: bool, fibers: int, warps: int) -> int:
        """A warp takes so many times 16 fibers as registers allow and all warps can get."""
        shape = self.digits[digit]
        if self.is_grouped(shape):
            return 2
        each = warps * (_PART if unit else _PART // ROW)
        fitting = (count for count in (4, 2) if count <= _most(shape) and count * each <= fibers)
        return 2 * next(fitting, 1)

    def fibers(self, axes: list[PlainAxis], unit: bool, columns: int) -> list[PlainAxis]:
        """With what is contiguous in the tile in rows: columns, or the last digit."""
        if unit:
            return axes
        index = len(axes) - (1 if columns > 1 else 2)
        return [*axes[:index], (rows(axes[index][0]), ROW, 0, 0, 0)]

    @remembered
    def registers(self, columns: bool) -> int:
        def of_digit(digit: Shape) -> int:
            together = self.is_grouped(digit)
            count = 1 if together else _most(digit)
            several = 32 if together or not self.staged_out else 16
            produced = 64 if together and digit[1] > 32 else several
            return 4 * count * parts(digit[0]) + count * produced // 2 + 8

        others = _REGISTERS_PLAIN if self.powers else _REGISTERS_OTHERS
        return min(255, max(map(of_digit, self.digits)) + others)

    def factor_bytes(self, digit: Shape) -> int:
        p, q = digit
        # Sums may be of 32 or 64 columns.
        together = (4 if q > 32 else 2) if self.is_grouped(digit) else 1
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
        if target.generation < 9:
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
    """Whether operands and results of a pass all are of one 16-bit type."""
    element = instruction.element_a
    return element.bytes == BYTES and ends.source is element and ends.output is element


def parts(size: int) -> int:
    """Products of the tensor cores along an index of this size."""
    return operands.cover(size, _PART)


def rows(size: int) -> int:
    """Rows of 8 elements of a contiguous index."""
    return operands.cover(size, ROW)


def products(digit: Shape) -> float:
    """Products of the tensor cores for one fiber: of 16 fibers by 8 produced indices each."""
    return parts(digit[0]) * parts(digit[1]) * 2 / _PART


def factor_bytes_read(digit: Shape, grouped: bool, groups: int) -> float:
    """Bytes of a factor from shared memory for one fiber; four warps together read it once."""
    at_once = _PART * (4 if grouped else groups)
    return parts(digit[0]) * parts(digit[1]) * _PART * _PART * BYTES / at_once


def vector(size: int) -> int:
    """Elements of a thread's access to memory along a digit of this size."""
    return next(width for width in (8, 4, 2) if width == 2 or size % (4 * width) == 0)


def _most(digit: Shape) -> int:
    """How many times 16 fibers of a digit a warp has registers for."""
    return 4 if parts(digit[0]) <= 2 else 2


def _apart(stride: int) -> int:
    padded = stride if stride // ROW % 2 else stride + ROW
    return padded if padded <= _MOST_PADDING * stride else stride
