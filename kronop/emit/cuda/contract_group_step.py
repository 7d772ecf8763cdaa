"""Steps and launches of `contract_group`: weights are packed first, where it must be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from math import prod

from kronop.artifacts import Field, KernelSignature, Launch, Scalar
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.cuda import contract_group, operands
from kronop.emit.cuda.contract import Contraction
from kronop.emit.cuda.contract_group import GroupTile
from kronop.emit.design import Flat
from kronop.emit.plan import Step
from kronop.target import Target

_PACK_THREADS = 128


class Reading(IntEnum):
    """How weights may be read: as in pack_weights.cuh."""

    Singly, Vectors, Turned, Joined = range(4)


def pack_step(
    math: MathInstruction,
    work: Contraction,
    tile: GroupTile,
    splits: bool,
    target: Target,
    entry: str,
) -> Step:
    """The step that brings weights in order, or makes images of them."""
    template = "pack_images" if tile.images else "pack_weights"
    bytes_of_weights = work.lanes * work.produced * work.contracted * work.source.bytes
    names = ("lanes", "groups", "reading", "contracted_w", "produced_w", "lane_w", "group_w")
    return Step(
        entry=f"pack_{entry}",
        bytes_per_row=0,
        operations_per_row=0,
        note=f"weights in the order of products, {bytes_of_weights} bytes for each group",
        design=Flat(
            header=f"kronop/{template}.cuh",
            template=f"kronop::{template}",
            parameters="kronop::PackParameters",
            types=operands.element_types(math, work.source, work.source, None),
            constants=(
                ("kThreads", _PACK_THREADS),
                ("kBlocks", 1),
                *contract_group.pack_constants(work, tile, splits),
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
        ),
    )


def packs(step: Step) -> bool:
    """Whether this is such a step."""
    return step.template in ("kronop::pack_images", "kronop::pack_weights")


@dataclass(frozen=True, slots=True)
class _Packed:
    """Packed weights: sizes with what is padded, and strides, in elements."""

    contracted: int
    produced: int
    lanes: int
    strides: dict[str, int]
    size: int


def _packed(step: Step, lanes: int, groups: int) -> _Packed:
    planes = operands.integer(step, "kPlanes")
    produced, contracted = (operands.integer(step, name) for name in ("kProduced", "kContracted"))
    if step.template == "kronop::pack_weights":
        pitch = operands.integer(step, "kPitch")
        lane = planes * produced * pitch
        strides = {"contracted": 1, "produced": pitch, "lane": lane, "group": lanes * lane}
        return _Packed(pitch, produced, lanes, strides, groups * lanes * lane)
    of_lanes, n, k = (operands.integer(step, name) for name in ("kTileLanes", "kTileN", "kTileK"))
    depth, outputs, width = (
        operands.round_up(size, part)
        for size, part in ((contracted, k), (produced, n), (lanes, of_lanes))
    )
    # Of the first step, output and lane of an image; within it they are swizzled.
    strides = {
        "contracted": planes * of_lanes * n,
        "produced": planes * of_lanes * depth,
        "lane": planes * outputs * depth,
        "group": planes * width * outputs * depth,
    }
    return _Packed(depth, outputs, width, strides, groups * strides["group"])


def packed_bytes(step: Step, lanes: int, groups: int) -> int:
    """Workspace of the weights of a pack step."""
    element = operands.element_of(step, "Factor").bytes
    return operands.round_up(_packed(step, lanes, groups).size * element, 256)


def is_direct(view: operands.View, extents: Mapping[str, Sequence[int]], element: DataType) -> bool:
    """Whether products read weights where they are: of 16 bits, contracted index contiguous."""
    piece = operands.vector_of(element)
    return (
        element.bytes == 2
        and extents["contracted"][0] % piece == 0
        and bool(operands.allows_vectors(view, extents, "contracted", piece, element))
    )


def allows_vectors(
    view: operands.View, extents: Mapping[str, Sequence[int]], at_once: int, element: DataType
) -> int:
    """1 where who packs so many lanes at once may read them, or a piece of one, in one access."""
    along, width = ("lane", at_once) if at_once > 1 else ("contracted", operands.vector_of(element))
    return operands.allows_vectors(view, extents, along, width, element)


def _reading(
    view: operands.View, extents: Mapping[str, Sequence[int]], at_once: int, element: DataType
) -> Reading:
    """How who packs so many lanes at once may read them."""
    piece = operands.vector_of(element)
    if at_once == 1:
        for along, reading in (("contracted", Reading.Vectors), ("produced", Reading.Turned)):
            if operands.allows_vectors(view, extents, along, piece, element):
                return reading
        return Reading.Singly
    if at_once == extents["lane"][0] and _is_joined(view, extents, element):
        return Reading.Joined
    width = operands.widest_divisor(piece, [at_once])
    allowed = width > 1 and operands.allows_vectors(view, extents, "lane", width, element)
    return Reading.Vectors if allowed else Reading.Singly


def _is_joined(
    view: operands.View, extents: Mapping[str, Sequence[int]], element: DataType
) -> bool:
    """Whether all lanes of all steps are one run, and every piece of steps is whole accesses."""
    steps, lanes = extents["contracted"][0], extents["lane"][0]
    if view.strides["lane"][0] != 1 or view.strides["contracted"][0] != lanes:
        return False
    runs = replace(view, strides={**view.strides, "lane": (0,), "contracted": (1,)})
    one = {**extents, "lane": (1,), "contracted": (steps * lanes,)}
    return bool(
        operands.allows_vectors(runs, one, "contracted", operands.vector_of(element), element)
    )


def pack_launch(
    index: int, step: Step, view: operands.View, extents: Mapping[str, Sequence[int]], packed: int
) -> tuple[Launch, operands.View]:
    """The launch, and the weights that it leaves at address `packed`."""
    lanes, groups = extents["lane"][0], extents["group"][0]
    at_once = operands.integer(step, "kLanes")
    element = operands.element_of(step, "Factor")
    values = view.field("w") | {
        "packed": packed,
        "lanes": lanes,
        "groups": groups,
        "reading": (reading := _reading(view, extents, at_once, element)),
    }
    flat = {name: item[0] if isinstance(item, tuple) else item for name, item in values.items()}
    there, piece = _packed(step, lanes, groups), operands.vector_of(element)
    outputs = operands.cover(there.produced, piece if reading is Reading.Turned else 1)
    threads = groups * operands.cover(there.lanes, at_once) * outputs * there.contracted // piece
    launch = operands.make_launch(index, step, operands.cover(threads, _PACK_THREADS), flat)
    strides = {name: (there.strides[name],) for name in ("contracted", "produced", "lane")}
    group = (there.strides["group"], 0, 0, 0)
    return launch, operands.View(pointer=packed, strides={**strides, "group": group})


def grid(step: Step, extents: Mapping[str, Sequence[int]]) -> int:
    """Blocks of a launch."""
    outputs = operands.cover(extents["produced"][0], operands.integer(step, "kTileN"))
    rows = operands.cover(prod(extents["row"]), operands.integer(step, "kTileM"))
    lanes = operands.cover(extents["lane"][0], operands.integer(step, "kLanes"))
    parts = outputs * lanes * prod(extents["group"])
    cores = operands.integer(step, "cores")
    return contract_group.blocks(parts, rows, bool(step.constant("kResident")), cores)
