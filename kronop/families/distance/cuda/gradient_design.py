"""Designs of gradients of distances on a GPU."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kronop.artifacts import KernelSignature, Launch
from kronop.descriptions.datatype import DataType
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.cuda import operands
from kronop.emit.design import Design, Instantiation, named, package_folder
from kronop.families.distance import parts
from kronop.families.distance.form import TermKind
from kronop.families.distance.gradient_description import GradientProblem
from kronop.frozen import dataclass
from kronop.target import Target

# Slabs in shared memory.
_STAGES = 3
# Kinds of elements in a row of b that affect signs: see `Unordered` in the header.
_UNORDERED = 3


@dataclass(frozen=True, kw_only=True)
class GradientKernel(Design):
    """A block has a tile of pairs, for some rows of coefficients c.

    Attributes:
        tile: N and M of a block.
        outputs: rows of coefficients at once.
    """

    math: MathInstruction
    epilogue: Epilogue
    outputs: int

    if TYPE_CHECKING:

        @property
        def tile(self) -> tuple[int, int]: ...

    @property
    def signature(self) -> KernelSignature:
        return parts.gradient_signature(operands.scalar_fields(self.epilogue))

    def launches(self, problem: GradientProblem, target: Target) -> tuple[Launch, ...]:
        tile_n, tile_m = self.tile
        tiles = operands.cover(problem.n, tile_n) * operands.cover(problem.m, tile_m)
        blocks = tiles * operands.cover(problem.o, self.outputs) * math.prod(problem.batch)
        return (operands.make_launch(self, blocks, parts.gradient_values_of(problem, 0)),)


@dataclass(frozen=True, kw_only=True)
class GradientTile(GradientKernel):
    """Tiles by direct differences.

    Attributes:
        source, output: types of the operands and of the result.
        power: the kind of the power.
        threads_m: threads along M.
        depth: indices k of a stage in shared memory.
        blocks: resident blocks per multiprocessor, which bound the registers of a thread.
    """

    source: DataType
    output: DataType
    power: TermKind
    tile: tuple[int, int]
    threads_m: int
    threads: int = 128
    depth: int = 16
    blocks: int = 2

    @property
    def shared_bytes(self) -> int:
        element = self.math.element_accumulator.bytes
        rows, columns = (extent + operands.VECTOR_BYTES // element for extent in self.tile)
        slab = self.depth * (rows + columns + self.outputs)
        slab += self.depth * columns * (self.power is TermKind.Relative)
        room = max(_STAGES * slab, self.tile[0] * columns) * element
        return room + operands.round_up(_UNORDERED * self.tile[0], operands.VECTOR_BYTES)

    def instantiation(self, target: Target) -> Instantiation:
        return Instantiation(
            header="gradient_tile.cuh",
            parameters=parts.gradient_parameters_of(operands.scalar_fields(self.epilogue)),
            types=operands.element_types(self.math, self.source, self.output, self.epilogue),
            constants=(
                *named(self, "threads blocks power outputs"),
                *zip(("kTileN", "kTileM"), self.tile, strict=True),
                *named(self, "threads_m depth"),
                ("kStages", _STAGES),
            ),
            folders=(package_folder(__package__),),
        )
