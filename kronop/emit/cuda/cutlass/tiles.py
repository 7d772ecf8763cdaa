"""Tiles of CUTLASS 2.x: those to choose from, the user's, and their modelled time."""

from __future__ import annotations

import itertools

from kronop.descriptions.datatype import DataType
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.math_instruction import MathInstruction, OpClass
from kronop.descriptions.tensor import TensorDescription
from kronop.descriptions.tile import TileDescription
from kronop.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """Rows, columns and bytes along K of a tile (on ordinary cores: elements), warps, stages."""

    m: int
    n: int
    depth: int
    warps: tuple[int, int, int]
    stages: int


# The best ones for large products by CUTLASS's own profiler; the last ones are for small products.
_TENSOR = (
    Shape(128, 256, 64, (2, 4, 1), 3),
    Shape(256, 128, 64, (4, 2, 1), 3),
    Shape(128, 128, 64, (2, 2, 1), 4),
    Shape(128, 128, 128, (2, 2, 1), 3),
    Shape(128, 64, 64, (2, 2, 1), 4),
    Shape(64, 128, 64, (2, 2, 1), 4),
    Shape(64, 64, 64, (2, 2, 1), 5),
)
_DOUBLE = (
    Shape(128, 128, 128, (4, 2, 1), 3),
    Shape(64, 128, 128, (2, 4, 1), 3),
    Shape(64, 64, 128, (2, 2, 1), 4),
    Shape(32, 32, 128, (2, 2, 1), 4),
)
_SIMT = (
    Shape(128, 128, 8, (4, 2, 1), 4),
    Shape(64, 128, 8, (2, 2, 1), 4),
    Shape(128, 64, 8, (2, 2, 1), 4),
)
# Warps that a user's tile may leave open; of equally fast ones, the first is chosen.
_WARPS = ((2, 2, 1), (4, 2, 1), (2, 4, 1), (4, 4, 1), (2, 1, 1), (1, 2, 1), (1, 1, 1))
_STAGES = (4, 3, 2)
_DOUBLE_BYTES = 8
# Elements that a thread stores to a panel, and bytes of the widest access.
_PANEL_STORE, _WIDEST_ACCESS = 8, 16


def shapes(
    math: MathInstruction, element: DataType, tile: TileDescription | None
) -> tuple[Shape, ...]:
    """Those of the user's tile, or those to choose from."""
    simt = math.opcode_class is OpClass.Simt
    if tile is not None:
        m, n, k = tile.threadblock_shape
        depth = k if simt else k * element.bytes
        every = itertools.product(tile.warp_counts_among(_WARPS), tile.stages_among(_STAGES))
        return tuple(Shape(m, n, depth, warps, stages) for warps, stages in every)
    if simt:
        return _SIMT
    return _DOUBLE if element.bytes == _DOUBLE_BYTES else _TENSOR


def stored_at_once(result: TensorDescription, epilogue: Epilogue, *, panels: bool) -> int:
    """Elements of a store: in panels, those of a thread, as far as C's alignment allows."""
    if not panels:
        return epilogue.epilogue_vector_length
    promised = result.alignment * result.element.bytes
    enough = min(_PANEL_STORE * result.element.bytes, _WIDEST_ACCESS)
    return _PANEL_STORE if promised >= enough else result.alignment
