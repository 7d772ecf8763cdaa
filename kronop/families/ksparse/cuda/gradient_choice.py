"""The choice of a kernel and tile that sum up a gradient of weights: candidates, and the cheapest.

The sums run over the rows and, for tied weights, over further indices; p is the digit of G, q that
of X, and k counts along the sums.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

from kronop.artifacts import Status
from kronop.descriptions.datatype import float32
from kronop.descriptions.math_instruction import MathInstruction, MathOperation, OpClass
from kronop.descriptions.tile import TileDescription
from kronop.emit.cuda import operands
from kronop.emit.cuda.machine import hertz
from kronop.emit.plan import Plan
from kronop.families.ksparse.cuda.gradient import Gradient
from kronop.families.ksparse.cuda.gradient_ends import ends_of
from kronop.families.ksparse.cuda.gradient_room import REGISTERS, TEAM_ROWS
from kronop.families.ksparse.cuda.gradient_sums import GradientSums, Sums, is_contiguous
from kronop.families.ksparse.cuda.gradient_tile import SLAB_BYTES, GradientTile
from kronop.families.ksparse.cuda.gradient_tile_sums import HALF, TileSums
from kronop.families.ksparse.cuda.gradient_warp_group import GradientWarpGroup
from kronop.families.ksparse.cuda.lanes import MOST_LANES
from kronop.families.ksparse.gradient_description import KSparseGradientDescription
from kronop.machine import Feature
from kronop.target import Target

_MOST_REJECTED = 8
_MOST_HALVES, _STAGES = 8, 3
# Warps of a block along p, q and k.
_WARPS = tuple(
    shape
    for shape in itertools.product((1, 2, 4), (1, 2, 4), (1, 2, 4, 8))
    if math.prod(shape) in (4, 8)
)
# Sizes to try for `gradient_warp_group`: elements of one copy, indices q of a block, rows of a
# stage, indices p of a team (in units of 64), and numbers of stages.
_PIECE = 8
_WIDTHS = (256, 192, 128, 96, 64, 48, 32, 16)
_DEPTHS = (128, 64)
_TEAM_PARTS = (3, 2, 1)
_MOST_STAGES, _LEAST_STAGES = 8, 2


def supports(description: KSparseGradientDescription, target: Target) -> Status:
    """Whether any candidate fits, for any number of rows, or the reason why none does."""
    status = _accept_math(description.math)
    if not status:
        return status
    accepted, rejected = _candidates(description, target, operands.MANY_ROWS)
    return Status.accept() if accepted else Status.reject(rejected[0][1])


def plans(
    description: KSparseGradientDescription, target: Target, count: int, rows: int | None
) -> tuple[Plan, ...]:
    """The plans of the `count` cheapest tiles that fit, each with the steps that follow the sums.
    The first plan lists the tiles that it was chosen over."""
    accepted, rejected = _candidates(description, target, rows or operands.MANY_ROWS)
    clock = hertz(target)
    slower = [
        (str(design), f"{took * clock:.0f} cycles, the best {accepted[0][0] * clock:.0f}")
        for took, design in accepted[1 : 1 + _MOST_REJECTED]
    ]
    add, factors = ends_of(description, target)
    found = [Gradient(sums=item, add=add, factors=factors) for _, item in accepted[:count]]
    return tuple(
        Plan(
            target=target,
            steps=item.steps(target),
            rejected=() if place else (*slower, *rejected[:_MOST_REJECTED]),
            pipeline=item,
        )
        for place, item in enumerate(found)
    )


def _accept_math(instruction: MathInstruction) -> Status:
    """Whether the instruction is one of the tensor cores: a plain one, or three TF32 products for
    one of float32."""
    exact = instruction.math_operation is MathOperation.multiply_add
    three = instruction.math_operation is MathOperation.multiply_add_fast_f32
    if (
        instruction.opcode_class is OpClass.TensorOp
        and instruction.instruction_shape in ((16, 8, 8), (8, 8, 4))
        and (exact or (three and instruction.element_a is float32))
    ):
        return Status.accept()
    return Status.reject(f"no kernel for {instruction}; use MathInstruction.tensor_op")


@functools.lru_cache(maxsize=64)
def _candidates(
    description: KSparseGradientDescription, target: Target, rows: int
) -> tuple[list[tuple[float, GradientSums]], list[tuple[str, str]]]:
    """The designs that fit, as (seconds of a call, design), the cheapest first, and (name, reason)
    of those that don't."""
    accepted: list[tuple[float, GradientSums]] = []
    rejected: list[tuple[str, str]] = []
    tiles = list(_tiles(description))
    for design in (*_of_warp_groups(description, target), *tiles):
        status = design.status(target)
        if status:
            accepted.append((design.seconds(rows, target), design))
        else:
            rejected.append((str(design), status.reason))
    if not tiles:
        rejected.append(("threadblock_shape", "Tile_M and Tile_N are no 8, 16, 32 or 64 a warp"))
    return sorted(accepted, key=lambda item: item[0]), rejected


def _tiles(description: KSparseGradientDescription) -> Iterator[GradientTile]:
    """Tiles of `ksparse_gradient`: all that the user's tile permits, or a few sizes without one."""
    work, tile = tile_sums(description), description.tile
    for halves, warps, k, stages in _proposed(work) if tile is None else _given(tile):
        yield GradientTile(
            work=work,
            halves_p=halves[0],
            halves_q=halves[1],
            warps_p=warps[0],
            warps_q=warps[1],
            warps_k=warps[2],
            k=k,
            stages=stages,
        )


def tile_sums(description: KSparseGradientDescription) -> TileSums:
    """The sums in the form that `ksparse_gradient` needs."""
    by_rows = is_contiguous(description.X, description.batch_last)
    narrow = TileSums(
        pattern=description.pattern,
        lead=description.products or 1,
        tied=description.tied,
        by_rows=by_rows,
        math=description.math,
        output=description.Y.element,
        vector=1,
    )
    if by_rows != is_contiguous(description.G, description.batch_last):
        return narrow
    return replace(narrow, vector=_vector(description, narrow))


def _vector(description: KSparseGradientDescription, work: TileSums) -> int:
    """Elements of one copy: at most the alignment that both operands promise, and a divisor of the
    contiguous extents."""
    _, b, c, d = description.pattern
    promise = min(
        description.X.alignment, description.G.alignment, operands.vector_of(work.element)
    )
    if work.by_rows:
        return promise
    if work.along_sums:
        return math.gcd(promise, d)
    return math.gcd(promise, *((b * d, c * d) if work.lanes == d else (work.lanes,)))


# Halves and warps of a tile, k and stages.
_Shape = tuple[tuple[int, int], tuple[int, int, int], int, int]


def _proposed(work: TileSums) -> Iterator[_Shape]:
    slab = SLAB_BYTES // work.element.bytes
    sizes = operands.powers_of_two(1, _MOST_HALVES)
    needed_p, needed_q = (operands.cover(size, HALF) for size in (work.p, work.q))
    for halves, warps in itertools.product(itertools.product(sizes, sizes), _WARPS):
        if halves[0] * warps[0] >= 2 * needed_p or halves[1] * warps[1] >= 2 * needed_q:
            continue  # At least half of the tile would be padding.
        for repeats in (1, 2, 4, 8):
            yield halves, warps, repeats * (slab if work.along_sums else work.bite), _STAGES


def _given(tile: TileDescription) -> Iterator[_Shape]:
    p, q, k = tile.threadblock_shape
    allowed = operands.powers_of_two(1, _MOST_HALVES)
    for warps, stages in itertools.product(
        tile.warp_counts_among(_WARPS), tile.stages_among((_STAGES,))
    ):
        halves_p, halves_q = p // (HALF * warps[0]), q // (HALF * warps[1])
        whole = p == HALF * halves_p * warps[0] and q == HALF * halves_q * warps[1]
        if whole and halves_p in allowed and halves_q in allowed:
            yield (halves_p, halves_q), warps, k, stages


def _of_warp_groups(
    description: KSparseGradientDescription, target: Target
) -> Iterator[GradientWarpGroup]:
    """Tiles of `gradient_warp_group`, each with as many stages as fit: all that the user's
    tile permits, or a few sizes without one; none if that kernel does not serve the operands.

    Large tiles go first: costs are equal among tiles that only wait for memory, and larger ones
    read X and G fewer times.
    """
    if not _serves_warp_groups(description, target):
        return
    work, given = warp_group_sums(description), description.tile
    parts, widest = operands.cover(work.p, TEAM_ROWS), operands.round_up(work.q, 16)
    for (teams, copiers), team_p in itertools.product(REGISTERS, _TEAM_PARTS):
        if teams * team_p >= parts + max(1, teams):
            continue  # The last team would have no indices p.
        for q, k in itertools.product(_WIDTHS, _DEPTHS):
            if q > max(16, widest + 15):
                continue
            stages = range(_MOST_STAGES, _LEAST_STAGES - 1, -1)
            staged = (
                GradientWarpGroup(
                    work=work, teams=teams, team_p=team_p, q=q, k=k, stages=count, copiers=copiers
                )
                for count in (stages if given is None else given.stages_among(stages))
            )
            asked = (it for it in staged if given is None or _is_given(it, given))
            if given is None or given.stages is None:
                yield from itertools.islice((it for it in asked if it.status(target)), 1)
            else:
                yield from asked


def _is_given(design: GradientWarpGroup, tile: TileDescription) -> bool:
    shape = (design.p, design.q, design.k)
    return shape == tile.threadblock_shape and tile.allows_threads(design.threads)


def warp_group_sums(description: KSparseGradientDescription) -> Sums:
    """The sums in the form that `gradient_warp_group` needs."""
    return Sums(
        pattern=description.pattern,
        lead=description.products or 1,
        tied=description.tied,
        by_rows=is_contiguous(description.X, description.batch_last),
        math=description.math,
        output=description.Y.element,
    )


def _serves_warp_groups(description: KSparseGradientDescription, target: Target) -> bool:
    """Whether `gradient_warp_group` supports such operands."""
    (a, b, c, d), element = description.pattern, description.X.element
    if not target.has(Feature.warp_groups) or element.kind != "float" or element.bytes != 2:
        return False
    along = is_contiguous(description.X, description.batch_last)
    if along != is_contiguous(description.G, description.batch_last):
        return False
    if description.tied and (a, d) != (1, 1):
        return False
    moved = d if not along else 1
    promise = min(description.X.alignment, description.G.alignment)
    aligned = moved > 1 or promise % _PIECE == 0
    whole = along or (b % _PIECE == 0 and c % _PIECE == 0)
    movable = moved == 1 or (description.products in (None, 1) and moved <= MOST_LANES)
    return aligned and whole and movable and c % 2 == 0
