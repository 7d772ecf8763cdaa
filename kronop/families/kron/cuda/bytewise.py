"""Phases of a `kron_mma` pass that multiply bytes on the tensor cores; see byte_mma.cuh."""

from __future__ import annotations

from typing import ClassVar

from kronop.descriptions.datatype import DataType, int8
from kronop.emit.cuda import operands
from kronop.families.kron.cuda.mma_style import MmaStyle
from kronop.families.kron.cuda.shapes import Shape
from kronop.frozen import dataclass

_PART, _WARP = 8, 32
# Words at hand while bytes change places.
_TURNED = 8


@dataclass(frozen=True, kw_only=True)
class ByteStyle(MmaStyle):
    """Elements of 32 bits are multiplied byte by byte."""

    # Planes of bytes stand beside the elements.
    copies: ClassVar[int] = 2

    __hash__ = MmaStyle.__hash__

    def digit_registers(self, index: int) -> int:
        """Planes, elements, sums and factor."""
        (p, q), (groups, at_once) = self.digits[index], self.turns(index)
        held = depth(p) * steps(p) + operands.cover(p, _PART)
        fragments = steps(p) * min(at_once, operands.cover(q, _PART))
        return 4 * groups * (held + at_once) + fragments * depth(p) // 2 + _TURNED

    def factor_bytes(self, digit: Shape) -> int:
        p, q = digit
        return steps(p) * operands.cover(q, _PART) * _WARP * 2 * depth(p)


def takes(accumulator: DataType) -> bool:
    """Whether operands of such sums are multiplied byte by byte."""
    return accumulator.kind == "int"


def depth(contracted: int) -> int:
    """Parts of 8 contracted indices that one product takes."""
    return 2 if contracted <= 2 * _PART else 4


def steps(contracted: int) -> int:
    """Products along a contracted index of this size."""
    return operands.cover(contracted, _PART * depth(contracted))


def planes(place: int, source: DataType) -> int:
    """Bytes that count, of an element of the phase at this place: there is a product with each.

    Of what comes in, one; of the sum of up to mma.MOST_CONTRACTED products of two bytes, three.
    """
    return (1, 3)[place] if source is int8 and place < 2 else 4
