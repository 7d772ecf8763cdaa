"""Gradients of weights on CUDA: blocks share a long sum, and a second step adds their shares."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from kronop.artifacts import Field, KernelSignature, Launch, Scalar, Status
from kronop.descriptions.datatype import DataType, float32
from kronop.descriptions.math_instruction import MathInstruction, MathOperation, OpClass
from kronop.descriptions.strided import StridedMatrix
from kronop.emit.cuda import operands
from kronop.emit.design import Constant, Flat
from kronop.emit.plan import Plan, Step
from kronop.errors import DescriptionError
from kronop.families.ksparse.cuda import (
    gradient_group,
    gradient_group_cost,
    gradient_group_step,
    gradient_tile,
)
from kronop.families.ksparse.cuda.gradient_ends import end_launches, end_steps
from kronop.families.ksparse.cuda.gradient_group import GradientGroupTile, is_contiguous
from kronop.families.ksparse.cuda.gradient_tile import GradientTile, Sums
from kronop.families.ksparse.gradient_description import (
    KSparseGradientDescription,
    KSparseGradientProblem,
)
from kronop.target import Target

_MOST_REJECTED = 8
# With so many elements, or bytes, behind the digit, k is taken along them; with fewer they are
# lanes.
_LONG_RUN, _LONG_RUN_BYTES = 16, 64
_MOST_APART = 4
# What tiles of warps take of their estimate: 1.1 to 1.5 times where they are near the best, up to 4
# where lanes are taken a few at a time.
_TAKEN = 1.4
_AXES = 3


@dataclass(frozen=True, slots=True)
class CudaKSparseGradientEmitter:
    """Plans gradients of weights for sm_80 and sm_90a."""

    def instruction(self, element: DataType, target: Target) -> MathInstruction:
        if element.kind == "int":
            return MathInstruction.simt(element)
        return MathInstruction.tensor_op(element)

    def supports(self, description: KSparseGradientDescription, target: Target) -> Status:
        """Whether `plan` will succeed, and the reason where not."""
        status = _accept_math(description.math)
        if not status:
            return status
        accepted, rejected = _candidates(description, target, None)
        return Status.accept() if accepted else Status.reject(rejected[0][1])

    def plan(
        self, description: KSparseGradientDescription, target: Target, rows: int | None = None
    ) -> Plan:
        """The sums with the cheapest tile that fits, and what is made of them.

        Raises:
            DescriptionError: `supports` says no.
        """
        return self.candidates(description, target, 1, rows)[0]

    def candidates(
        self,
        description: KSparseGradientDescription,
        target: Target,
        count: int,
        rows: int | None = None,
    ) -> tuple[Plan, ...]:
        """The `count` cheapest tiles that fit, the cheapest first, with what it beat.

        Raises:
            DescriptionError: `supports` says no.
        """
        status = self.supports(description, target)
        if not status:
            raise DescriptionError(status.reason)
        accepted, rejected = _candidates(description, target, rows)
        slower = [
            (str(tile), f"{cost:.0f} cycles, the best {accepted[0][0]:.0f}")
            for cost, tile in accepted[1:]
        ]
        beaten = (*slower[:_MOST_REJECTED], *rejected[:_MOST_REJECTED])
        return tuple(
            Plan(
                target=target,
                steps=_steps(description, tile, target),
                rejected=() if place else beaten,
            )
            for place, (_, tile) in enumerate(accepted[:count])
        )

    def workspace_bytes(self, plan: Plan, rows: int, threads: int) -> int:
        """What the shares leave: as many matrices as the blocks that run at once have tiles."""
        if gradient_group_step.is_grouped(plan):
            return gradient_group_step.shares_of(plan, rows).end
        step = plan.steps[0]
        every, *_ = _counts(step, plan.target, rows)
        size = operands.element_of(step, "Accumulator").bytes
        p, q = operands.integer(step, "kP"), operands.integer(step, "kQ")
        matrices = operands.integer(step, "products") * operands.integer(step, "kMatrices")
        return max(1, every) * matrices * p * q * size

    def launches(self, plan: Plan, problem: KSparseGradientProblem) -> tuple[Launch, ...]:
        """The sums, where there is anything to sum up, and what is made of their shares."""
        if gradient_group_step.is_grouped(plan):
            cut = gradient_group_step.shares_of(plan, problem.rows)
            sums = gradient_group_step.launches(plan, problem, cut)
            added, *others = end_launches(plan.steps, problem, cut.count)
            return *sums, replace(added, overlaps=bool(sums)), *others
        step = plan.steps[0]
        shares, tiles, blocks = _counts(step, plan.target, problem.rows)
        ends = end_launches(plan.steps, problem, shares)
        if not shares:
            return ends
        return _sum_launch(step, problem, shares, tiles, blocks), *ends


def _accept_math(instruction: MathInstruction) -> Status:
    """Tensor cores: as they are, or three products of TF32 for one of float32."""
    exact = instruction.math_operation is MathOperation.multiply_add
    three = instruction.math_operation is MathOperation.multiply_add_fast_f32
    if (
        instruction.opcode_class is OpClass.TensorOp
        and instruction.instruction_shape in ((16, 8, 8), (8, 8, 4))
        and (exact or (three and instruction.element_a is float32))
    ):
        return Status.accept()
    return Status.reject(f"no kernel for {instruction}; use MathInstruction.tensor_op")


_Tile = GradientTile | GradientGroupTile


def _candidates(
    description: KSparseGradientDescription, target: Target, rows: int | None
) -> tuple[list[tuple[float, _Tile]], list[tuple[str, str]]]:
    """Tiles that fit with cycles of a call, cheapest first, and those that do not."""
    work, rows = _sums(description), rows or gradient_group_cost.MANY_ROWS
    fitting, rejected = gradient_tile.candidates(work, target, description.tile)
    a, _, _, d = description.pattern
    bites = (description.products or 1) * a * d * rows / gradient_tile.HALF
    found: list[tuple[float, _Tile]] = [
        (gradient_group_cost.FIXED + _TAKEN * clocks * bites / target.cores, tile)
        for clocks, tile in fitting
    ]
    grouped = gradient_group.sums_of(description, target)
    refused: list[tuple[str, str]] = []
    if grouped is not None:
        for tile in gradient_group.proposed(grouped, target, description.tile):
            status = gradient_group.fits(grouped, tile, target)
            if status:
                found.append((gradient_group_cost.cycles(grouped, tile, rows, target), tile))
            else:
                refused.append((str(tile), status.reason))
    return sorted(found, key=lambda item: item[0]), [*refused, *rejected]


def _steps(
    description: KSparseGradientDescription, tile: _Tile, target: Target
) -> tuple[Step, ...]:
    ends = end_steps(description, target)
    if isinstance(tile, GradientTile):
        return _sum_step(description, _sums(description), tile, target), *ends
    work = gradient_group.sums_of(description, target)
    assert work is not None  # The tile was made for it.
    moves = gradient_group_step.move_steps(description, work, target)
    return *moves, gradient_group_step.sum_step(description, work, tile, target), *ends


def _sums(description: KSparseGradientDescription) -> Sums:
    _, b, c, d = description.pattern
    by_rows = is_contiguous(description.X, description.batch_last)
    is_long = d >= min(_LONG_RUN, _LONG_RUN_BYTES // description.X.element.bytes)
    along_sums = by_rows or (description.tied and is_long)
    if along_sums:
        lanes = 1
    elif description.tied:
        lanes = d
    else:
        lanes = max(size for size in range(1, _MOST_APART + 1) if d % size == 0)
    return Sums(
        p=b,
        q=c,
        lanes=lanes,
        apart=not description.tied,
        along_sums=along_sums,
        vector=_vector(description, by_rows, along_sums, lanes),
        math=description.math,
    )


def _vector(
    description: KSparseGradientDescription, by_rows: bool, along_sums: bool, lanes: int
) -> int:
    """Elements of one copy: what both operands promise, as far as it divides what is contiguous."""
    _, b, c, d = description.pattern
    if by_rows != is_contiguous(description.G, description.batch_last):
        return 1
    promise = min(
        description.X.alignment,
        description.G.alignment,
        operands.vector_of(description.X.element),
    )
    if by_rows:
        return promise
    if along_sums:
        return math.gcd(promise, d)
    return math.gcd(promise, *((b * d, c * d) if lanes == d else (lanes,)))


def _sum_step(
    description: KSparseGradientDescription, work: Sums, tile: GradientTile, target: Target
) -> Step:
    a, b, c, d = description.pattern
    order = "along" if work.along_sums else f"lanes{work.lanes}"
    kind = "apart" if work.apart else "tied"
    element = work.element
    columns = a * (b + c) * d
    lead = description.products or 1
    return Step(
        entry=f"ksparse_gradient_{element.short}_{b}x{c}_{order}_{kind}_{target.arch}",
        bytes_per_row=columns * element.bytes,
        operations_per_row=2 * a * b * c * d,
        note=f"sums over rows of {columns} elements, tiles of {tile}",
        design=Flat(
            header="kronop/ksparse_gradient.cuh",
            template="kronop::ksparse_gradient",
            parameters="kronop::KSparseGradientParameters",
            types=operands.element_types(description.math, element, description.Y.element, None),
            constants=_constants(work, tile, target),
            signature=_sum_signature(),
            epilogue=None,
            threads=tile.threads,
            shared_bytes=gradient_tile.shared_bytes(tile, work),
            launch=(
                ("pattern", (a, b, c, d)),
                ("by_rows", is_contiguous(description.X, description.batch_last)),
                ("tied", description.tied),
                ("products", lead * (1 if description.tied else a * d // work.lanes)),
                ("lead", lead),
            ),
        ),
    )


def _constants(work: Sums, tile: GradientTile, target: Target) -> tuple[tuple[str, Constant], ...]:
    bytes_p, bytes_q = gradient_tile.stage_bytes(tile, work)
    return (
        ("kThreads", tile.threads),
        ("kBlocks", gradient_tile.resident(tile, work, target)),
        ("kStages", tile.stages),
        ("kP", work.p),
        ("kQ", work.q),
        ("kTileP", tile.p),
        ("kTileQ", tile.q),
        ("kHalvesP", tile.halves_p),
        ("kHalvesQ", tile.halves_q),
        ("kWarpsP", tile.warps_p),
        ("kWarpsQ", tile.warps_q),
        ("kWarpsK", tile.warps_k),
        ("kAlongSums", work.along_sums),
        ("kLanes", work.lanes),
        ("kMatrices", work.matrices),
        ("kVector", work.vector),
        ("kPositions", tile.k // work.vector if work.along_sums else tile.k),
        ("kAcross", gradient_tile.across(tile, work)),
        ("kBites", tile.k // work.bite),
        ("kSteps", work.steps),
        ("kPitchP", gradient_tile.pitch(tile.p, work)),
        ("kPitchQ", gradient_tile.pitch(tile.q, work)),
        ("kBytesP", bytes_p),
        ("kBytesQ", bytes_q),
        ("kSplit", work.split),
    )


def _sum_signature() -> KernelSignature:
    whole = Scalar.INT64
    return KernelSignature(
        "KSparseGradientParameters",
        (
            *(Field(name, Scalar.POINTER) for name in ("x", "g", "partial")),
            *(Field(name, whole) for name in ("shares", "tiles")),
            *(Field(name, whole, _AXES) for name in ("extent", "x_sum", "g_sum")),
            Field("run", whole),
            *(Field(name, whole, _AXES) for name in ("pass_step", "tile_step")),
            *(Field(name, whole) for name in ("x_own", "g_own", "x_lane", "g_lane")),
            *(Field(name, whole, _AXES) for name in ("matrix", "x_matrix", "g_matrix")),
        ),
    )


def _positions(step: Step, rows: int) -> tuple[int, tuple[int, int, int]]:
    """(elements along the last axis of k, extents of the axes of k in positions)."""
    a, _, _, d = operands.integers(step, "pattern")
    tied, vector = step.constant("tied"), operands.integer(step, "kVector")
    if step.constant("by_rows"):
        outer = (a, d) if tied else (1, 1)
        return rows, (*outer, operands.cover(rows, vector))
    if not tied:
        return 1, (1, 1, rows)
    if step.constant("kAlongSums"):
        return d, (rows, a, d // vector)
    return 1, (1, rows, a)


def _counts(step: Step, target: Target, rows: int) -> tuple[int, int, int]:
    """Shares of k, tiles of k, and blocks of a launch."""
    _, extents = _positions(step, rows)
    tiles = operands.cover(math.prod(extents), operands.integer(step, "kPositions"))
    blocks = operands.integer(step, "products") * math.prod(
        operands.cover(operands.integer(step, f"k{side}"), operands.integer(step, f"kTile{side}"))
        for side in "PQ"
    )
    at_once = operands.integer(step, "kBlocks") * target.cores
    shares = min(tiles, max(1, at_once // blocks))
    return shares, tiles, blocks * shares


def _digits(position: int, extents: tuple[int, int, int]) -> tuple[int, int, int]:
    """A number of positions as digits, the last one fastest, the first one without an end."""
    rest, last = divmod(position, extents[2])
    first, middle = divmod(rest, extents[1])
    return first, middle, last


def _sum_launch(
    step: Step, problem: KSparseGradientProblem, shares: int, tiles: int, blocks: int
) -> Launch:
    run, extents = _positions(step, problem.rows)
    positions, width = operands.integer(step, "kPositions"), operands.integer(step, "kAcross")
    values: dict[str, int | tuple[int, ...]] = {
        "partial": problem.workspace,
        "shares": shares,
        "tiles": tiles,
        "extent": extents,
        "run": run,
        "pass_step": _digits(step.threads // width, extents),
        "tile_step": _digits(positions * shares, extents),
        "matrix": _matrices(step),
    }
    _, b, c, _ = operands.integers(step, "pattern")
    values |= _operand(step, "x", problem.x, c) | _operand(step, "g", problem.g, b)
    return operands.make_launch(0, step, blocks, values)


def _matrices(step: Step) -> tuple[int, int, int]:
    """How many products there are: in front, for i, and for the blocks of lanes."""
    a, _, _, d = operands.integers(step, "pattern")
    lead = operands.integer(step, "lead")
    return (
        (lead, 1, 1) if step.constant("tied") else (lead, a, d // operands.integer(step, "kLanes"))
    )


def _operand(
    step: Step, name: str, item: StridedMatrix, size: int
) -> dict[str, int | tuple[int, ...]]:
    """Strides of X or G, whose column (i, own, l) is of `size` indices `own`."""
    _, _, _, d = operands.integers(step, "pattern")
    column, group, vector = item.column, size * d * item.column, operands.integer(step, "kVector")
    if step.constant("by_rows"):
        axes = (
            (group, column, vector * item.row)
            if step.constant("tied")
            else (0, 0, vector * item.row)
        )
    elif not step.constant("tied"):
        axes = (0, 0, item.row)
    elif step.constant("kAlongSums"):
        axes = (item.row, group, vector * column)
    else:
        axes = (0, item.row, group)
    lead = item.batch[0] if item.batch else 0
    return {
        name: item.pointer,
        f"{name}_sum": axes,
        f"{name}_own": d * column,
        f"{name}_lane": column,
        f"{name}_matrix": (lead, group, operands.integer(step, "kLanes") * column),
    }
