"""Where the steps of a product of a kernel matrix leave in the workspace what later ones read."""

from __future__ import annotations

import math

from kronop.artifacts import Decision
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS, Strided, padded
from kronop.emit.cuda import operands
from kronop.families.distance.description import KernelMatmulProblem, varying
from kronop.frozen import dataclass

_ALIGNED = 256
# What there is of points, in the order in which it lies in the workspace.
PLACES_OF_POINTS = ("halves1", "halves2", "norms1", "norms2", "largest", "centre")


@dataclass(frozen=True, slots=True, kw_only=True)
class Room(Decision):
    """How an operand is packed: [problem][row / tile][depth][row % tile].

    Attributes:
        rows, columns: of the operand.
        depth: columns with padding.
        zeros: rows are padded with zeros, and not with the last row.
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
    """Points for tensor cores. All is 0 where there are none.

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
    """A product, with addresses in the workspace: what all of its steps are launched for.

    Attributes:
        rooms: of X1, X2 and V.
        packed: addresses of X1, X2 and V.
        partial: the sums of all shares.
        shares: how many there are.
    """

    problem: KernelMatmulProblem
    rooms: tuple[Room, Room, Room]
    packed: tuple[int, ...]
    partial: int
    shares: int
    points: PlacedPoints

    @property
    def sources(self) -> tuple[Strided, Strided, Strided]:
        """What is packed."""
        return self.problem.x1, self.problem.x2, self.problem.v


def packed_batch(
    extents: tuple[int, ...], *read: Strided
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(extents of the batch of what is packed from these operands, its strides in problems): 1 and
    0 where they repeat over the batch."""
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
    """Bytes up to where the next array of the workspace may start."""
    return operands.round_up(size, _ALIGNED)
