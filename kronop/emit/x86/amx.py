"""What planning for AMX tiles has in common: their sizes, and those of packed factors."""

from __future__ import annotations

from kronop.artifacts import Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction, OpClass
from kronop.descriptions.tile import TileDescription
from kronop.target import Target

# Lines of a tile, which are also sums in one of its lines; bytes of a line, and of what stands
# next to each other along the contraction.
TILE, LINE_BYTES, UNIT_BYTES = 16, 64, 4


def asks_for_tiles(math: MathInstruction, target: Target) -> bool:
    """Whether a description's instruction is the target's tile product."""
    return (
        target.arch == "amx"
        and math.opcode_class is OpClass.TensorOp
        and math.instruction_shape[:2] == (TILE, TILE)
    )


def tiles_status(tile: TileDescription | None) -> Status:
    """Tiles have one size."""
    if tile is None:
        return Status.accept()
    return Status.reject(
        "AMX tiles take no TileDescription; leave it out, or use MathInstruction.simt"
    )


def steps(contracted: int, element: DataType) -> int:
    """Tile products along the contraction."""
    return -(-contracted // (LINE_BYTES // element.bytes))


def lines(contracted: int, element: DataType) -> int:
    """Units of 32 bits along the contraction, in equal steps."""
    count = steps(contracted, element)
    return -(-contracted // (UNIT_BYTES // element.bytes * count)) * count


def factor_bytes(contracted: int, produced: int, element: DataType) -> int:
    """Of a packed factor: tiles of 16 lines, one or two to a block of outputs."""
    blocks, tiles = -(-produced // (2 * TILE)), 1 if produced <= TILE else 2
    return blocks * tiles * steps(contracted, element) * TILE * LINE_BYTES
