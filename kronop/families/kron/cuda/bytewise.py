"""Phases of a `kron_mma` pass that multiply byte by byte on the tensor cores; see byte_mma.cuh."""

from __future__ import annotations

from typing import ClassVar

from kronop.descriptions.datatype import DataType, int8
from kronop.emit.cuda import operands
from kronop.families.kron.cuda.mma_style import MmaStyle
from kronop.families.kron.cuda.shapes import Shape
from kronop.frozen import dataclass
from kronop.machine import WARP

_PART = 8
# Registers to transpose bytes.
_TURNED = 8


@dataclass(frozen=True, kw_only=True)
class ByteStyle(MmaStyle):
    """Elements of 32 bits are multiplied byte by byte."""

    # Registers hold an element both whole and as planes of its bytes.
    copies: ClassVar[int] = 2

    __hash__ = MmaStyle.__hash__

    def digit_registers(self, index: int) -> int:
        """Registers for the byte planes, the elements, the sums and the factor."""
        (p, q), (fiber_tiles, at_once) = self.digits[index], self.register_tile(index)
        held = depth(p) * steps(p) + operands.cover(p, _PART)
        fragments = steps(p) * min(at_once, operands.cover(q, _PART))
        return 4 * fiber_tiles * (held + at_once) + fragments * depth(p) // 2 + _TURNED

    def factor_bytes(self, digit: Shape) -> int:
        p, q = digit
        return steps(p) * operands.cover(q, _PART) * WARP * 2 * depth(p)


def takes(accumulator: DataType) -> bool:
    """Whether the tensor cores multiply byte by byte for this accumulator."""
    return accumulator.kind == "int"


def depth(contracted: int) -> int:
    """How many times 8 contracted indices one MMA has."""
    return 2 if contracted <= 2 * _PART else 4


def steps(contracted: int) -> int:
    """MMAs along a contracted index of this size."""
    return operands.cover(contracted, _PART * depth(contracted))


def planes(place: int, source: DataType) -> int:
    """How many low bytes of an element the phase at this position multiplies, one MMA for each.

    int8 elements of X have one. Sums of up to mma.MOST_CONTRACTED products of two bytes, which the
    second phase reads, fit in three. All others have four.
    """
    return (1, 3)[place] if source is int8 and place < 2 else 4
