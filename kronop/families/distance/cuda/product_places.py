"""Workspace addresses that the steps of a product of a kernel matrix share."""

from __future__ import annotations

import math

from kronop.artifacts import Decision
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS, Strided, padded
from kronop.emit.cuda import operands
from kronop.families.distance.description import KernelMatmulProblem, varying
from kronop.frozen import dataclass

_ALIGNED = 256
# Arrays of the points, in the order of the workspace.
PLACES_OF_POINTS = ("halves1", "halves2", "norms1", "norms2", "largest", "centre")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedLayout(Decision):
    """The packed layout of an operand: [problem][row / tile][depth][row % tile].

    Attributes:
        rows, columns: of the operand.
        depth: columns with padding.
        zeros: rows are padded with zeros, not with copies of the last row.
    """

    rows: int
    columns: int
    tile: int
    depth: int
    zeros: bool = False

    @property
    def tiles(self) -> int:
        return operands.cover(self.rows, self.tile)

    @property
    def numbers(self) -> int:
        """Numbers of one problem."""
        return self.tiles * self.tile * self.depth


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPoints:
    """Packed points for tensor cores. All addresses are 0 if there are none.

    Attributes:
        halves1, halves2, norms1, norms2: addresses of those of X1 and X2.
        largest, centre: addresses of the largest norms, and of the centre of the points.
        rows: rows of X1 and X2 with padding.
        batch: strides of halves and norms over the batch, in problems.
    """

    halves1: int = 0
    halves2: int = 0
    norms1: int = 0
    norms2: int = 0
    largest: int = 0
    centre: int = 0
    rows: tuple[int, int] = (0, 0)
    batch: tuple[int, ...] = (0,) * MOST_BATCH_DIMENSIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedProduct:
    """A product with its addresses in the workspace: the problem of all of its steps.

    Attributes:
        layouts: packed layouts of X1, X2 and V.
        packed: addresses of X1, X2 and V.
        partial: the sums of all shares.
        shares: how many there are.
    """

    problem: KernelMatmulProblem
    layouts: tuple[PackedLayout, PackedLayout, PackedLayout]
    packed: tuple[int, ...]
    partial: int
    shares: int
    points: PlacedPoints

    @property
    def sources(self) -> tuple[Strided, Strided, Strided]:
        """The operands that are packed."""
        return self.problem.x1, self.problem.x2, self.problem.v


def packed_batch(
    extents: tuple[int, ...], *read: Strided
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(extents of the batch of packed operands, its strides in problems): 1 and 0 where they are
    broadcast over the batch."""
    kept = varying(extents, *(item.batch for item in read))
    strides = tuple(
        math.prod(kept[index + 1 :]) if extent > 1 else 0 for index, extent in enumerate(kept)
    )
    return padded(kept, 1), padded(strides)


def points_batch(problem: KernelMatmulProblem) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(extents of the batch of halves, its strides in problems): halves of both operands depend on
    both, because the centre of X2 is subtracted from X1 too."""
    return packed_batch(problem.batch, problem.x1, problem.x2)


def aligned(size: int) -> int:
    """`size` rounded up to the alignment of arrays in the workspace."""
    return operands.round_up(size, _ALIGNED)
