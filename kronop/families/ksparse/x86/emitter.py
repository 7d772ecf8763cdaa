"""The Kronecker-sparse family on CPUs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from kronop.artifacts import Field, KernelSignature, Launch, Scalar, Status
from kronop.descriptions.datatype import DataType, Layout, bfloat16, int8
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.strided import StridedMatrix
from kronop.emit.plan import Plan, Step
from kronop.emit.x86 import amx
from kronop.emit.x86.planning import (
    common_status,
    element_types,
    far_rows,
    keeps_sums,
    kernel_name,
    parameter_arguments,
    passing_rows,
    reaches,
    scalar_fields,
    shares,
    width,
)
from kronop.errors import DescriptionError
from kronop.families.ksparse.description import KSparseDescription, KSparseProblem
from kronop.families.ksparse.x86 import ksparse_amx
from kronop.families.ksparse.x86.ksparse_plan import (
    Candidate,
    Scratch,
    Setting,
    candidates,
    cost,
    legality,
    scratch_of,
    streams,
)
from kronop.target import Target

_MOST_REPORTED = 12
# NOTE: of tiles that fill the registers, 6 x 2 on AVX2, GCC 12 spills sums of an unrolled loop.
_UNROLL = 1
_NO_MATRIX = StridedMatrix(pointer=0, row=0, column=0)


class X86KSparseEmitter:
    """Plans Kronecker-sparse products for x86 targets; see ksparse.hpp for what a plan means.

    With the tile instruction, patterns that tiles do not make faster still go through vectors.
    """

    def instruction(self, element: DataType, target: Target) -> MathInstruction:
        on_tiles = target.arch == "amx" and element in (bfloat16, int8)
        return MathInstruction.amx(element) if on_tiles else MathInstruction.simt(element)

    def supports(self, description: KSparseDescription, target: Target) -> Status:
        """Whether a plan exists, and which size of the tile stands in the way where not."""
        if amx.asks_for_tiles(description.math, target):
            return amx.tiles_status(description.tile)
        status = common_status(description.math, description.tile, target)
        if not status:
            return status
        setting = _setting(description, target)
        reasons = [legality(candidate, setting) for candidate in candidates(setting)]
        return Status.accept() if any(reasons) else reasons[-1]

    def plan(
        self, description: KSparseDescription, target: Target, rows: int | None = None
    ) -> Plan:
        """The cheapest legal candidate.

        Raises:
            DescriptionError: `supports` rejects the description.
        """
        return self.candidates(description, target, 1)[0]

    def candidates(
        self,
        description: KSparseDescription,
        target: Target,
        count: int,
        rows: int | None = None,
    ) -> tuple[Plan, ...]:
        """The `count` cheapest legal candidates, the cheapest first, with what it beat.

        Raises:
            DescriptionError: `supports` rejects the description.
        """
        status = self.supports(description, target)
        if not status:
            raise DescriptionError(status.reason)
        setting = _setting(description, target)
        every = [(candidate, legality(candidate, setting)) for candidate in candidates(setting)]
        ranked = sorted(
            (cost(item, setting), index, item) for index, (item, ok) in enumerate(every) if ok
        )
        best, beaten = ranked[0][0], ranked[1:]
        rejected = [(str(item), status.reason) for item, status in every if not status]
        steps = [_step(description, target, setting, item) for _, _, item in ranked[:count]]
        if amx.asks_for_tiles(description.math, target):
            tiles = _tiles(description, setting)
            reason = ksparse_amx.reason_against(tiles, setting, best)
            if reason:
                rejected.insert(0, (str(tiles), reason))
            else:
                best, beaten = tiles.cycles, ranked
                steps.insert(0, _tile_step(description, target, tiles))
        rejected += [
            (str(item), f"{cycles:.0f} cycles per row and i, the best takes {best:.0f}")
            for cycles, _, item in beaten
        ]
        return tuple(
            Plan(
                target=target,
                steps=(step,),
                rejected=() if place else tuple(rejected[:_MOST_REPORTED]),
            )
            for place, step in enumerate(steps[:count])
        )

    def workspace_bytes(self, plan: Plan, rows: int, threads: int) -> int:
        """One slice of scratch per thread that has work; `rows` is the batch."""
        step = plan.steps[0]
        return step.shared_bytes * _threads(step, rows, threads) if rows else 0

    def launches(self, plan: Plan, problem: KSparseProblem) -> tuple[Launch, ...]:
        """One call, or none where the batch is 0."""
        if problem.rows == 0:
            return ()
        step = plan.steps[0]
        return (Launch(step=0, parameters=step.signature.pack(_values(step, problem))),)


def _setting(description: KSparseDescription, target: Target) -> Setting:
    straight = Layout.ColumnMajor if description.batch_last else Layout.RowMajor
    accumulator = description.math.element_accumulator
    return Setting(
        pattern=description.pattern,
        target=target,
        width=width(target, accumulator),
        bytes=accumulator.bytes,
        x_by_rows=description.X.layout is not straight,
        y_by_rows=description.Y.layout is not straight,
        converts=description.X.element != accumulator,
        direct=keeps_sums(description.epilogue),
        shape=None if description.tile is None else description.tile.threadblock_shape,
    )


def _tiles(description: KSparseDescription, setting: Setting) -> ksparse_amx.TilePlan:
    epilogue = description.epilogue
    own = dataclasses.replace(setting, direct=ksparse_amx.is_direct(epilogue))
    return ksparse_amx.plan(own, description.X.element, epilogue.element_compute.bytes)


def _step(
    description: KSparseDescription, target: Target, setting: Setting, chosen: Candidate
) -> Step:
    return _kernel(
        description,
        target,
        header="ksparse.hpp",
        template=f"ksparse_along_{chosen.way.value}",
        direct=setting.direct,
        streams=streams(chosen, setting),
        work=math.prod(description.pattern),
        cut=chosen,
        scratch=scratch_of(chosen, setting, description.epilogue.element_compute.bytes),
        chosen=str(chosen),
    )


def _tile_step(
    description: KSparseDescription, target: Target, tiles: ksparse_amx.TilePlan
) -> Step:
    return _kernel(
        description,
        target,
        header="ksparse_amx.hpp",
        template=f"ksparse_tiles_along_{tiles.cut.way.value}",
        direct=ksparse_amx.is_direct(description.epilogue),
        streams=False,
        work=description.pattern[0] * tiles.vector_work,
        cut=tiles.cut,
        scratch=tiles.scratch,
        chosen=str(tiles),
    )


def _kernel(
    description: KSparseDescription,
    target: Target,
    *,
    header: str,
    template: str,
    direct: bool,
    streams: bool,
    work: int,
    cut: Candidate,
    scratch: Scratch,
    chosen: str,
) -> Step:
    """What steps on vectors and on tiles have in common.

    Args:
        direct, streams: whether results may go to Y without an epilogue, and past the caches.
        work: of a row, in multiply-adds of vectors.
    """
    a, b, c, d = description.pattern
    element, output = description.X.element, description.Y.element
    order = "_last" if description.batch_last else ""
    return Step(
        entry=kernel_name("ksparse", element, f"{a}_{b}_{c}_{d}{order}", target),
        header=f"kronop_x86/{header}",
        template=f"kronop::{template}",
        parameters=f"kronop::KSparseParameters<{parameter_arguments(description.epilogue)}>",
        types=element_types(element, output, description.math.element_accumulator),
        constants=(
            ("kWidth", width(target, description.math.element_accumulator)),
            ("kVectors", cut.vectors),
            ("kUnroll", _UNROLL),
            ("kSaturate", description.epilogue.saturates),
            ("kDirect", direct),
            ("kStreams", streams),
            ("kA", a),
            ("kB", b),
            ("kC", c),
            ("kD", d),
            ("kRowTile", cut.row_tile),
            ("kBlocks", cut.blocks),
            ("kSlices", cut.slices),
            ("kOutputs", cut.outputs),
            ("kDepth", cut.depth),
            ("kTile", cut.tile),
            ("kPitch", scratch.pitch),
            ("kBiasAt", scratch.bias),
            ("kInputAt", scratch.input),
            ("kResultsAt", scratch.results),
        ),
        signature=_signature(description),
        epilogue=description.epilogue,
        threads=0,
        shared_bytes=scratch.size,
        bytes_per_row=description.input_columns * element.bytes
        + description.output_columns * output.bytes,
        operations_per_row=2 * a * b * c * d,
        note=f"one Kronecker-sparse factor: {chosen}",
        launch=(
            ("work", work),
            ("passing_rows", passing_rows(a * b * d * output.bytes, target)),
            ("far_rows", far_rows(a * c * d * element.bytes)),
        ),
    )


def _signature(description: KSparseDescription) -> KernelSignature:
    whole = Scalar.INT64
    return KernelSignature(
        "KSparseParameters",
        (
            *(
                Field(name, Scalar.POINTER)
                for name in ("x", "weights", "z", "bias", "y", "workspace")
            ),
            *(Field(name, whole) for name in ("rows", "row_tile", "threads", "stream", "ahead")),
            *(Field(f"{name}_strides", whole, 2) for name in "xzy"),
            Field("weight_strides", whole, 4),
            Field("bias_stride", whole),
            Field("slice", whole),
            scalar_fields(description.epilogue),
        ),
    )


def _values(
    step: Step, problem: KSparseProblem
) -> dict[str, int | Sequence[int] | Sequence[float]]:
    """Values of every field of the signature."""
    z = problem.z or _NO_MATRIX
    row_tile, threads = _split(step, problem)
    values: dict[str, int | Sequence[int] | Sequence[float]] = {
        "x": problem.x.pointer,
        "weights": problem.weights,
        "z": z.pointer,
        "bias": problem.bias,
        "y": problem.y.pointer,
        "workspace": problem.workspace,
        "rows": problem.rows,
        "row_tile": row_tile,
        "threads": threads,
        "stream": reaches(step, "passing_rows", problem.rows),
        "ahead": reaches(step, "far_rows", problem.rows),
        "weight_strides": problem.weight_strides,
        "bias_stride": problem.bias_stride,
        "slice": step.shared_bytes,
        "scalars": problem.scalars,
    }
    for name, matrix in (("x", problem.x), ("z", z), ("y", problem.y)):
        values[f"{name}_strides"] = (matrix.row, matrix.column)
    return values


def _sizes(step: Step) -> dict[str, int]:
    return {name: int(value) for name, value in step.constants if isinstance(value, int)}


def patches(step: Step) -> int:
    """Parts of the result's columns that are computed apart, each with weights of its own."""
    size = _sizes(step)
    return (
        -(-size["kA"] // size["kBlocks"])
        * (size["kD"] // size["kSlices"])
        * -(-size["kB"] // size["kOutputs"])
    )


def _threads(step: Step, rows: int, threads: int) -> int:
    """Threads that a run takes of those that it may."""
    work = step.constant("work")
    assert isinstance(work, int)
    return shares(work * rows, rows * patches(step), threads)


def _split(step: Step, problem: KSparseProblem) -> tuple[int, int]:
    """Rows of an item and threads, so that every thread gets as many items."""
    size = _sizes(step)
    count = patches(step)
    threads = _threads(step, problem.rows, problem.threads)
    lanes = size["kWidth"] * size["kVectors"]
    tiles = -(-problem.rows // size["kRowTile"])
    if count % threads and tiles % threads:
        tiles += threads - tiles % threads
    row_tile = -(-problem.rows // tiles)
    row_tile = min(size["kRowTile"], -(-row_tile // lanes) * lanes)
    return row_tile, min(threads, count * -(-problem.rows // row_tile))
