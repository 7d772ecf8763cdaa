"""Sizes of AMX tiles and of factors packed for them, for all families."""

from __future__ import annotations

from kronop.artifacts import Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction, OpClass
from kronop.descriptions.tile import TileDescription
from kronop.machine import Feature
from kronop.target import Target

# Rows of a tile, and also the sums of a row; bytes of a row; bytes of a unit: the neighbouring
# elements along the contraction that are multiplied together.
TILE, LINE_BYTES, UNIT_BYTES = 16, 64, 4
# Multiply-adds that vector kernels do per cycle instead, including stalls.
VECTOR_RATE = 16


def asks_for_tiles(math: MathInstruction, target: Target) -> bool:
    """Whether a description asks for the target's AMX tiles."""
    return (
        target.has(Feature.tiles)
        and math.opcode_class is OpClass.TensorOp
        and math.instruction_shape[:2] == (TILE, TILE)
    )


def tiles_status(tile: TileDescription | None) -> Status:
    """Whether the user's tile is possible: never, because AMX tiles have one size."""
    if tile is None:
        return Status.accept()
    return Status.reject(
        "AMX tiles take no TileDescription; leave it out, or use MathInstruction.simt"
    )


def steps(contracted: int, element: DataType) -> int:
    """Tile products along the contraction."""
    return -(-contracted // (LINE_BYTES // element.bytes))


def lines(contracted: int, element: DataType) -> int:
    """Units of 32 bits along the contraction, padded so that all tile products have equally
    many."""
    count = steps(contracted, element)
    return -(-contracted // (UNIT_BYTES // element.bytes * count)) * count


def factor_bytes(contracted: int, produced: int, element: DataType) -> int:
    """Bytes of a packed factor: tiles of 16 rows, one or two for each block of 32 outputs."""
    blocks, tiles = -(-produced // (2 * TILE)), 1 if produced <= TILE else 2
    return blocks * tiles * steps(contracted, element) * TILE * LINE_BYTES
