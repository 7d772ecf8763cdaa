"""Steps and launches of `contract_group`: weights are packed first, where it must be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from kronop.artifacts import Field, KernelSignature, Launch, Scalar
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.cuda import contract_group, operands
from kronop.emit.cuda.contract import Contraction
from kronop.emit.plan import Step
from kronop.target import Target

_PACK_THREADS = 128


def pack_step(
    math: MathInstruction, work: Contraction, splits: bool, target: Target, entry: str
) -> Step:
    """The step that brings weights in order."""
    lanes = contract_group.weight_lanes(work)
    planes, pitch = contract_group.planes(splits), contract_group.packed_depth(work)
    bytes_of_weights = work.lanes * work.produced * work.contracted * work.source.bytes
    names = ("lanes", "groups", "w_vector", "contracted_w", "produced_w", "lane_w", "group_w")
    return Step(
        entry=f"pack_{entry}",
        header="kronop/pack_weights.cuh",
        template="kronop::pack_weights",
        parameters="kronop::PackParameters",
        types=operands.element_types(math, work.source, work.source, None),
        constants=(
            ("kThreads", _PACK_THREADS),
            ("kBlocks", 1),
            ("kLanes", lanes),
            ("kPlanes", planes),
            ("kPitch", pitch),
            ("kContracted", work.contracted),
            ("kProduced", work.produced),
        ),
        signature=KernelSignature(
            "PackParameters",
            (
                Field("w", Scalar.POINTER, 1),
                Field("packed", Scalar.POINTER, 1),
                *(Field(name, Scalar.INT64, 1) for name in names),
            ),
        ),
        epilogue=None,
        threads=_PACK_THREADS,
        shared_bytes=0,
        bytes_per_row=0,
        operations_per_row=0,
        note=f"weights in the order of products, {bytes_of_weights} bytes for each group",
    )


def packed_bytes(step: Step, lanes: int, groups: int) -> int:
    """Workspace of the weights of a pack step."""
    planes, pitch, produced = (
        operands.integer(step, name) for name in ("kPlanes", "kPitch", "kProduced")
    )
    element = operands.element_of(step, "Factor").bytes
    return operands.round_up(groups * lanes * planes * produced * pitch * element, 256)


def is_direct(view: operands.View, extents: Mapping[str, Sequence[int]], element: DataType) -> bool:
    """Whether products read weights where they are: of 16 bits, contracted index contiguous."""
    piece = operands.vector_of(element)
    return (
        element.bytes == 2
        and extents["contracted"][0] % piece == 0
        and bool(operands.allows_vectors(view, extents, "contracted", piece, element))
    )


def pack_launch(
    index: int, step: Step, view: operands.View, extents: Mapping[str, Sequence[int]], packed: int
) -> tuple[Launch, operands.View]:
    """The launch, and the weights that it leaves at address `packed`."""
    lanes, groups = extents["lane"][0], extents["group"][0]
    planes, pitch, produced, at_once = (
        operands.integer(step, name) for name in ("kPlanes", "kPitch", "kProduced", "kLanes")
    )
    element = operands.element_of(step, "Factor")
    values = view.field("w") | {
        "packed": packed,
        "lanes": lanes,
        "groups": groups,
        "w_vector": operands.allows_vectors(view, extents, "lane", at_once, element),
    }
    flat = {name: item[0] if isinstance(item, tuple) else item for name, item in values.items()}
    pieces = pitch * element.bytes // operands.VECTOR_BYTES
    threads = groups * operands.cover(lanes, at_once) * produced * pieces
    launch = operands.make_launch(index, step, operands.cover(threads, _PACK_THREADS), flat)
    lane = planes * produced * pitch
    strides = {"contracted": (1,), "produced": (pitch,), "lane": (lane,)}
    return launch, operands.View(
        pointer=packed, strides={**strides, "group": (lanes * lane, 0, 0, 0)}
    )


def grid(step: Step, extents: Mapping[str, Sequence[int]]) -> int:
    """Blocks of a launch."""
    outputs = operands.cover(extents["produced"][0], operands.integer(step, "kTileN"))
    rows = operands.cover(prod(extents["row"]), operands.integer(step, "kTileM"))
    lanes = operands.cover(extents["lane"][0], operands.integer(step, "kLanes"))
    parts = outputs * lanes * prod(extents["group"])
    cores = operands.integer(step, "cores")
    return contract_group.blocks(parts, rows, bool(step.constant("kResident")), cores)
