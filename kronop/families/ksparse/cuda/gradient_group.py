"""Tiles of `gradient_group`: gradients of weights for many rows on sm_90a, in 16 bits."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from kronop.artifacts import Status
from kronop.descriptions.datatype import DataType, RowMajor
from kronop.descriptions.tensor import TensorDescription
from kronop.descriptions.tile import TileDescription
from kronop.emit.cuda import operands
from kronop.emit.design import Constant
from kronop.families.ksparse.cuda import lanes
from kronop.families.ksparse.gradient_description import KSparseGradientDescription
from kronop.target import Target

TEAM, TEAM_ROWS = 128, 64
# Elements of a line of 128 bytes, lines that a team copies at once, and what a line is copied by.
LINE, _TEAM_LINES, _PIECE = 64, 16, 8
# Registers of a thread that copies, and of one that multiplies, by (teams that multiply, that
# copy): 65536 in all. One team has what ptxas gives it.
# NOTE: measured: a second team of copies never costs time, and three teams have no room for one.
_REGISTERS = {(1, 2): (0, 168), (2, 2): (64, 192), (3, 1): (104, 136)}
# What addresses and loops take besides sums; sums of a thread.
_OTHERS, _MOST_SUMS = 40, 128
# NOTE: ptxas 13.0 wants more than 128 registers at the start of a kernel with products of 256.
_MOST_WIDE, _MOST_WIDE_OF_FOUR = 256, 192
# Measured with ptxas 13.0: addresses of more copies of a thread for a stage are spilled.
_MOST_COPIES = 24
_WIDTHS = (256, 192, 128, 96, 64, 48, 32, 16)
_DEPTHS = (128, 64)
# Times 64 indices p of a team.
_TEAM_PARTS = (3, 2, 1)
_MOST_STAGES, _LEAST_STAGES = 8, 2
_BARRIER = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSums:
    """What is to be summed up.

    Attributes:
        p, q: sizes of the digits of G and X.
        products: gradients that have nothing in common.
        lanes: lanes that are brought apart first; 1 where none are.
        along_sums: whether the rows are contiguous.
        element: of X and G.
    """

    p: int
    q: int
    products: int
    lanes: int
    along_sums: bool
    element: DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientGroupTile:
    """What a block takes at once.

    Attributes:
        teams: teams of four warps that multiply, each with its own indices p.
        team_p: how many times 64 indices p a team has.
        q: indices q, of all teams.
        k: rows of a stage.
        stages: those that are on their way or in use.
        copiers: teams that copy.
    """

    teams: int
    team_p: int
    q: int
    k: int
    stages: int
    copiers: int

    @property
    def p(self) -> int:
        return TEAM_ROWS * self.team_p * self.teams

    @property
    def threads(self) -> int:
        return (self.teams + self.copiers) * TEAM

    def __str__(self) -> str:
        block = f"{self.p} x {self.q} x {self.k}, {self.stages} stages"
        return f"{block}, {self.teams} teams, {self.copiers} of copies"


def is_contiguous(tensor: TensorDescription, batch_last: bool) -> bool:
    """Whether the batch is contiguous."""
    return batch_last == (tensor.layout is RowMajor)


def sums_of(description: KSparseGradientDescription, target: Target) -> GroupSums | None:
    """What this kernel would sum up; None where it does not serve."""
    (a, b, c, d), element = description.pattern, description.X.element
    if target.arch != "sm_90a" or element.kind != "float" or element.bytes != 2:
        return None
    along = is_contiguous(description.X, description.batch_last)
    if along != is_contiguous(description.G, description.batch_last):
        return None
    if description.tied and (a, d) != (1, 1):
        return None
    moved = d if not along else 1
    lead = description.products or 1
    promise = min(description.X.alignment, description.G.alignment)
    aligned = moved > 1 or promise % _PIECE == 0
    whole = along or (b % _PIECE == 0 and c % _PIECE == 0)
    movable = moved == 1 or (lead == 1 and moved <= lanes.MOST_LANES)
    if not (aligned and whole and movable) or c % 2:
        return None
    return GroupSums(
        p=b, q=c, products=lead * a * d, lanes=moved, along_sums=along, element=element
    )


def _padded(size: int, work: GroupSums, tile: GradientGroupTile) -> int:
    """Indices of an operand in a stage: whole lines, or whole passes of copies."""
    return operands.round_up(size, tile.copiers * _TEAM_LINES if work.along_sums else LINE)


def stage_bytes(work: GroupSums, tile: GradientGroupTile) -> int:
    """Bytes of a stage, with what is empty."""
    return sum(_padded(size, work, tile) for size in (tile.p, tile.q)) * tile.k * 2


def shared_bytes(work: GroupSums, tile: GradientGroupTile) -> int:
    """Stages and barriers."""
    barriers = operands.round_up(2 * tile.stages * _BARRIER, operands.VECTOR_BYTES)
    return tile.stages * stage_bytes(work, tile) + barriers


def fits(work: GroupSums, tile: GradientGroupTile, target: Target) -> Status:
    """Whether `gradient_group` can run this tile: the one rule."""
    if (tile.teams, tile.copiers) not in _REGISTERS:
        return Status.reject(
            f"{tile}: expected one of {sorted(_REGISTERS)} teams that multiply and that copy"
        )
    wanted = shared_bytes(work, tile)
    if wanted > target.shared_bytes:
        return Status.reject(
            f"{tile} wants {wanted} bytes of shared memory, {target.shared_bytes} are there;"
            " use a smaller threadblock_shape or fewer stages"
        )
    copies = stage_bytes(work, tile) // (tile.copiers * TEAM * operands.VECTOR_BYTES)
    if copies > _MOST_COPIES:
        return Status.reject(
            f"{tile} has {copies} copies of a thread for a stage, more than it has registers for;"
            " use a smaller Tile_K"
        )
    sums = tile.team_p * tile.q // 2
    widest = _MOST_WIDE if tile.threads < 512 else _MOST_WIDE_OF_FOUR
    most = min(_MOST_SUMS, _REGISTERS[tile.teams, tile.copiers][1] - _OTHERS)
    if sums > most or tile.q > widest:
        return Status.reject(
            f"{tile} has {sums} sums of a thread and {tile.q} columns, at most {most} and"
            f" {widest}; use a smaller threadblock_shape"
        )
    return Status.accept()


def proposed(
    work: GroupSums, target: Target, given: TileDescription | None
) -> Iterator[GradientGroupTile]:
    """Tiles to consider, large ones first: all that a user's tile leaves open, or of several sizes.

    Of tiles that wait for memory alone the large ones read the least again.
    """
    parts, widest = operands.cover(work.p, TEAM_ROWS), operands.round_up(work.q, 16)
    for (teams, copiers), team_p in itertools.product(_REGISTERS, _TEAM_PARTS):
        if teams * team_p >= parts + max(1, teams):
            continue  # A team would have nothing to do.
        for q, k in itertools.product(_WIDTHS, _DEPTHS):
            if q > max(16, widest + 15):
                continue
            stages = range(_MOST_STAGES, _LEAST_STAGES - 1, -1)
            if given is not None:
                stages = range(given.stages, given.stages - 1, -1)
            for count in stages:
                tile = GradientGroupTile(
                    teams=teams, team_p=team_p, q=q, k=k, stages=count, copiers=copiers
                )
                if given is not None and (tile.p, q, k, tile.threads) != (
                    *given.threadblock_shape,
                    32 * given.warps,
                ):
                    continue
                if given is not None or fits(work, tile, target):
                    yield tile
                    break


def constants(work: GroupSums, tile: GradientGroupTile) -> tuple[tuple[str, Constant], ...]:
    """The trait struct of `gradient_group`."""
    copies, products = _REGISTERS[tile.teams, tile.copiers]
    return (
        ("kThreads", tile.threads),
        ("kBlocks", 1),
        ("kStages", tile.stages),
        ("kTeams", tile.teams),
        ("kTeamP", tile.team_p),
        ("kP", work.p),
        ("kQ", work.q),
        ("kTileP", tile.p),
        ("kTileQ", tile.q),
        ("kTileK", tile.k),
        ("kAlongSums", work.along_sums),
        ("kCopyThreads", tile.copiers * TEAM),
        ("kCopyRegisters", copies),
        ("kProductRegisters", products),
        ("kBarriersAt", tile.stages * stage_bytes(work, tile)),
    )
