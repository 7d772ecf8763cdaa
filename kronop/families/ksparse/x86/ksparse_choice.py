"""Planning Kronecker-sparse products on CPUs: on vectors or on AMX tiles; the step of either."""

from __future__ import annotations

import dataclasses
import math

from kronop.artifacts import Field, KernelSignature, Scalar, Status
from kronop.descriptions.datatype import Layout
from kronop.descriptions.strided import StridedMatrix
from kronop.emit.design import Flat
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
    scalar_fields,
    width,
)
from kronop.errors import DescriptionError
from kronop.families.ksparse.description import KSparseDescription
from kronop.families.ksparse.x86 import ksparse_amx, ksparse_plan
from kronop.families.ksparse.x86.ksparse_plan import (
    Candidate,
    Scratch,
    Setting,
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


def supports(description: KSparseDescription, target: Target) -> Status:
    """Whether a plan exists, and which size of the tile stands in the way where not."""
    if amx.asks_for_tiles(description.math, target):
        return amx.tiles_status(description.tile)
    status = common_status(description.math, description.tile, target)
    if not status:
        return status
    setting = _setting(description, target)
    reasons = [legality(candidate, setting) for candidate in ksparse_plan.candidates(setting)]
    return Status.accept() if any(reasons) else reasons[-1]


def candidates(
    description: KSparseDescription,
    target: Target,
    count: int,
) -> tuple[Plan, ...]:
    """The `count` cheapest legal candidates, the cheapest first, with what it beat.

    Raises:
        DescriptionError: `supports` rejects the description.
    """
    status = supports(description, target)
    if not status:
        raise DescriptionError(status.reason)
    setting = _setting(description, target)
    every = [
        (candidate, legality(candidate, setting)) for candidate in ksparse_plan.candidates(setting)
    ]
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
        bytes_per_row=description.input_columns * element.bytes
        + description.output_columns * output.bytes,
        operations_per_row=2 * a * b * c * d,
        note=f"one Kronecker-sparse factor: {chosen}",
        design=Flat(
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
            launch=(
                ("work", work),
                ("passing_rows", passing_rows(a * b * d * output.bytes, target)),
                ("far_rows", far_rows(a * c * d * element.bytes)),
            ),
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
