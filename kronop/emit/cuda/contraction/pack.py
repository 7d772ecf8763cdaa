"""Steps that pack weights into the order in which `contract_warp_group` reads them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import ClassVar

from kronop.artifacts import Field, KernelSignature, Launch, Scalar
from kronop.descriptions.datatype import DataType
from kronop.emit.cuda import operands
from kronop.emit.cuda.contraction.warp_group import WarpGroupContract, packed_depth, weight_lanes
from kronop.emit.cuda.contraction.work import Contraction
from kronop.emit.cuda.operands import View
from kronop.emit.design import Constant, Instantiation, InWorkspace, named
from kronop.emit.plan import Step
from kronop.frozen import dataclass
from kronop.target import Target

_THREADS = 128
# Most lanes of weights that a thread has registers for.
_MOST_LANES = 8
_SIGNATURE = KernelSignature(
    "PackParameters",
    (
        Field("w", Scalar.POINTER, 1),
        Field("packed", Scalar.POINTER, 1),
        *(
            Field(name, Scalar.INT64, 1)
            for name in (
                *("lanes", "sections", "reading"),
                *("contracted_w", "produced_w", "lane_w", "section_w"),
            )
        ),
    ),
)

Extents = Mapping[str, Sequence[int]]


class Reading(IntEnum):
    """How the kernel may read the weights, as in pack_weights.cuh."""

    Singly, Vectors, Turned, Joined = range(4)


@dataclass(frozen=True, slots=True)
class Packed:
    """The layout of packed weights: sizes including padding, and strides, in elements."""

    contracted: int
    produced: int
    lanes: int
    strides: dict[str, int]
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PackProblem:
    """Weights with their extents, and the address to which they are packed."""

    weights: View
    extents: Extents
    address: int


@dataclass(frozen=True, kw_only=True)
class Pack(InWorkspace):
    """A step that packs weights.

    Attributes:
        product: the design that reads the packed weights.
    """

    threads = _THREADS
    shared_bytes = 0
    signature = _SIGNATURE
    template: ClassVar[str]

    product: WarpGroupContract

    @property
    def work(self) -> Contraction:
        return self.product.work

    @property
    def lanes(self) -> int:
        """Lanes of weights that a thread packs at once: all of them if they are few, so that loads
        are contiguous."""
        work = self.work
        return work.lanes if work.lanes <= _MOST_LANES else weight_lanes(work)

    @property
    @abstractmethod
    def own_constants(self) -> tuple[tuple[str, Constant], ...]:
        """The constants that describe the packed order."""

    @abstractmethod
    def packed(self, sections: int) -> Packed:
        """The layout of the packed weights of `sections` sections."""

    def instantiation(self, target: Target) -> Instantiation:
        work = self.work
        return Instantiation(
            header=f"kronop/{self.template}.cuh",
            template=f"kronop::{self.template}",
            parameters="kronop::PackParameters",
            types=operands.element_types(work.math, work.source, work.source, None),
            constants=(
                ("kThreads", _THREADS),
                ("kBlocks", 1),
                ("kLanes", self.lanes),
                ("kPlanes", work.terms),
                *self.own_constants,
                *named(work, "contracted produced"),
            ),
        )

    def packed_bytes(self, sections: int) -> int:
        """Bytes of the workspace for the packed weights."""
        return operands.round_up(self.packed(sections).size * self.work.math.element_b.bytes, 256)

    def launches(self, problem: PackProblem, target: Target) -> tuple[Launch, ...]:
        view, extents = problem.weights, problem.extents
        lanes, sections = extents["lane"][0], extents["section"][0]
        element = self.work.math.element_b
        reading = _reading(view, extents, self.lanes, element)
        values = view.field("w") | {
            "packed": problem.address,
            "lanes": lanes,
            "sections": sections,
            "reading": reading,
        }
        flat = {name: item[0] if isinstance(item, tuple) else item for name, item in values.items()}
        there, piece = self.packed(sections), operands.vector_of(element)
        outputs = operands.cover(there.produced, piece if reading is Reading.Turned else 1)
        across = sections * operands.cover(there.lanes, self.lanes)
        threads = across * outputs * there.contracted // piece
        return (operands.make_launch(self, operands.cover(threads, _THREADS), flat),)

    def packed_view(self, problem: PackProblem) -> View:
        """The packed weights."""
        there = self.packed(problem.extents["section"][0])
        strides = {name: (there.strides[name],) for name in ("contracted", "produced", "lane")}
        section = (there.strides["section"], 0, 0, 0)
        return View(pointer=problem.address, strides={**strides, "section": section})

    def is_needed(self, view: View, extents: Extents) -> bool:
        """Whether a call has to pack its weights because the kernel can't read them in place."""
        return not is_direct(view, extents, self.work.math.element_b)


@dataclass(frozen=True, kw_only=True)
class PackWeights(Pack):
    """Packs weights with the contracted index contiguous, as the copies of a stage need them."""

    template: ClassVar[str] = "pack_weights"

    @property
    def own_constants(self) -> tuple[tuple[str, Constant], ...]:
        return (("kPitch", packed_depth(self.work)),)

    def packed(self, sections: int) -> Packed:
        work, pitch = self.work, packed_depth(self.work)
        lane = work.terms * work.produced * pitch
        strides = {"contracted": 1, "produced": pitch, "lane": lane, "section": work.lanes * lane}
        return Packed(pitch, work.produced, work.lanes, strides, sections * work.lanes * lane)


@dataclass(frozen=True, kw_only=True)
class PackImages(Pack):
    """Packs weights into images: byte for byte what a stage has in shared memory, so that one bulk
    copy loads it."""

    template: ClassVar[str] = "pack_images"

    @property
    def own_constants(self) -> tuple[tuple[str, Constant], ...]:
        product = self.product
        return (("kTileLanes", product.lanes), ("kTileN", product.n), ("kTileK", product.k))

    def packed(self, sections: int) -> Packed:
        work, product = self.work, self.product
        of_lanes, n, planes = product.lanes, product.n, work.terms
        depth, outputs, width = (
            operands.round_up(size, part)
            for size, part in (
                (work.contracted, product.k),
                (work.produced, n),
                (work.lanes, of_lanes),
            )
        )
        # Strides between images; within an image, elements are swizzled.
        strides = {
            "contracted": planes * of_lanes * n,
            "produced": planes * of_lanes * depth,
            "lane": planes * outputs * depth,
            "section": planes * width * outputs * depth,
        }
        return Packed(depth, outputs, width, strides, sections * strides["section"])

    def is_needed(self, view: View, extents: Extents) -> bool:
        return True


def packing(product: WarpGroupContract) -> Pack:
    """The design that packs the weights of `product`."""
    return PackImages(product=product) if product.images else PackWeights(product=product)


def pack_step(product: WarpGroupContract, entry: str) -> Step:
    """The step that packs the weights of `product`."""
    work = product.work
    bytes_of_weights = work.lanes * work.produced * work.contracted * work.source.bytes
    return Step(
        entry=f"pack_{entry}",
        design=packing(product),
        note=f"weights in the order of products, {bytes_of_weights} bytes for each section",
    )


def is_direct(view: View, extents: Extents, element: DataType) -> bool:
    """Whether products can read the weights in place: 16 bits, contracted index contiguous."""
    piece = operands.vector_of(element)
    return (
        element.bytes == 2
        and extents["contracted"][0] % piece == 0
        and bool(operands.allows_vectors(view, extents, "contracted", piece, element))
    )


def _reading(view: View, extents: Extents, at_once: int, element: DataType) -> Reading:
    """How a thread that packs `at_once` lanes together may load them."""
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


def _is_joined(view: View, extents: Extents, element: DataType) -> bool:
    """Whether the lanes of all contracted indices are one contiguous run that splits into whole
    vectors."""
    steps, lanes = extents["contracted"][0], extents["lane"][0]
    if view.strides["lane"][0] != 1 or view.strides["contracted"][0] != lanes:
        return False
    runs = replace(view, strides={**view.strides, "lane": (0,), "contracted": (1,)})
    one = {**extents, "lane": (1,), "contracted": (steps * lanes,)}
    return bool(
        operands.allows_vectors(runs, one, "contracted", operands.vector_of(element), element)
    )
