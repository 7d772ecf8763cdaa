"""Steps and launches of `contract_group`: weights are packed first, where it must be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from kronop.artifacts import Field, KernelSignature, Launch, Scalar
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.cuda import contract_group, operands
from kronop.emit.cuda.contract import Contraction
from kronop.emit.cuda.contract_group import GroupTile
from kronop.emit.plan import Step
from kronop.target import Target

_PACK_THREADS = 128


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
    names = ("lanes", "groups", "w_vector", "contracted_w", "produced_w", "lane_w", "group_w")
    return Step(
        entry=f"pack_{entry}",
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
        bytes_per_row=0,
        operations_per_row=0,
        note=f"weights in the order of products, {bytes_of_weights} bytes for each group",
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
        "w_vector": allows_vectors(view, extents, at_once, element),
    }
    flat = {name: item[0] if isinstance(item, tuple) else item for name, item in values.items()}
    there = _packed(step, lanes, groups)
    pieces = there.contracted // operands.vector_of(element)
    threads = groups * operands.cover(there.lanes, at_once) * there.produced * pieces
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
