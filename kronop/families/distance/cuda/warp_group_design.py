"""Distances as products on the tensor cores of sm_90a: a packing step, and the products.

    sum over k of (x1[m, k] - x2[n, k])^2 = |x1[m]|^2 + |x2[n]|^2 - 2 x1[m] x2[n]

Elements of 16 bits are multiplied as they are. A float32 element is the sum of two float16 numbers;
three of their four products are computed. For squared distances alone the points are centred. See
distance_pack.cuh and distance_warp_group.cuh.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

from kronop.artifacts import Field, KernelSignature, Launch, Scalar, Status
from kronop.descriptions.datatype import DataType, bfloat16, float16, float32
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS, padded
from kronop.emit.cuda import operands
from kronop.emit.design import Design, Instantiation, InWorkspace, named, package_folder
from kronop.families.distance import parts
from kronop.families.distance.description import DistanceProblem
from kronop.families.distance.form import Form, TermKind
from kronop.frozen import dataclass
from kronop.machine import Feature
from kronop.target import Target

Ints = tuple[int, ...]
_SOURCES = (float32, float16, bfloat16)
_PRODUCTS = (TermKind.Dot, TermKind.NormA, TermKind.NormB)
# Constants of the form that a kernel without powers and vectors reads.
_READ = ("kTerm", "kValues", "kRegularized")
# Rows of a tile; points of a granule, and bytes of each in an image.
ROWS, _GRANULE, ROW_BYTES = 128, 64, 128
# Bytes of a point's scale and norm.
_FACTS_BYTES = 8
_ALIGNMENT = 256
# Threads of a block: two multiplying warp groups and a copying one; registers of each.
_THREADS, _PRODUCT_REGISTERS, _COPY_REGISTERS = 384, 232, 40
_BARRIER_BYTES = 8
# Buffers of facts in shared memory.
_BUFFERS = 2
_PACK_THREADS, _PACK_ROWS, _PACK_BLOCKS = 256, 32, 3
_PACK_SHARED = 4 * (1024 + 8 * _PACK_ROWS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedProblem:
    """Pairs of points with the workspace addresses of their packed data.

    Attributes:
        places: addresses of images and of facts, of X1 and then of X2 unless it is X1.
        batches: the extents over which X1 and X2 are packed: 1 where they are broadcast.
    """

    problem: DistanceProblem
    places: tuple[int, ...]
    batches: tuple[Ints, Ints]

    @property
    def values(self) -> dict[str, Any]:
        """The members of the parameter struct of both steps."""
        places = (*self.places[:2], *self.places[-2:])
        return {
            **parts.values_of(self.problem, 0),
            **dict(zip(("images1", "facts1", "images2", "facts2"), places, strict=True)),
            "packed1": padded(self.batches[0], 1),
            "packed2": padded(self.batches[1], 1),
        }


@dataclass(frozen=True, kw_only=True)
class DistanceWarpGroup(Design):
    """Products of packed points, and results from these products.

    Attributes:
        source, output: types of the points and of the result.
        symmetric: X1 and X2 are the same points.
        expanded: errors of squared distances may be relative to norms.
        n: columns of a tile.
        stages: stages of the ring in shared memory.
    """

    styles: ClassVar[tuple[str, ...]] = ("split", "whole", "all pairs", "half of the pairs")
    ends = ("Y along rows", "Y along columns")
    threads = _THREADS

    math: MathInstruction
    source: DataType
    output: DataType
    epilogue: Epilogue
    form: Form
    symmetric: bool
    expanded: bool
    n: int
    stages: int

    def __str__(self) -> str:
        kind = "symmetric " * self.symmetric + "split " * self.split
        return f"{kind}products of tensor cores in tiles of {ROWS} by {self.n} by {self.slab}"

    @property
    def split(self) -> bool:
        return self.source is float32

    @property
    def element(self) -> DataType:
        """The type of the multiplied elements."""
        return float16 if self.split else self.source

    @property
    def centred(self) -> bool:
        """Whether all points may be shifted: only their differences count."""
        return self.split and all(term.kind is TermKind.Two for term in self.form.terms)

    @property
    def slab(self) -> int:
        """Features of an image."""
        return ROW_BYTES // self.element.bytes // (2 if self.split else 1)

    @property
    def shared_bytes(self) -> int:
        points = ROWS + self.n
        stage = points * ROW_BYTES + 2 * _BARRIER_BYTES
        return self.stages * stage + _BUFFERS * (points * _FACTS_BYTES + 2 * _BARRIER_BYTES)

    @property
    def signature(self) -> KernelSignature:
        places = (f"{of}{index}" for of in ("images", "facts") for index in (1, 2))
        return KernelSignature(
            "DistanceWarpGroupParameters",
            (
                *parts.signature(self.form, operands.scalar_fields(self.epilogue)).fields,
                *(Field(name, Scalar.POINTER) for name in places),
                *(Field(f"packed{index}", Scalar.INT64, MOST_BATCH_DIMENSIONS) for index in (1, 2)),
            ),
        )

    @property
    def parameters(self) -> str:
        """The C++ name of the parameter struct."""
        plain = parts.parameters_of(self.form, operands.scalar_fields(self.epilogue))
        return plain.replace("::DistanceParameters", "::DistanceWarpGroupParameters")

    def style(self, target: Target) -> Iterator[str]:
        yield "split" if self.split else "whole"
        yield "half of the pairs" if self.symmetric else "all pairs"

    def status(self, target: Target) -> Status:
        """Whether this design can run on the target."""
        if not target.has(Feature.warp_groups):
            return Status.reject(f"its products are those of sm_90a, not of {target.arch}")
        if self.source not in _SOURCES:
            return Status.reject(f"the tensor cores have no accurate products of {self.source}")
        kinds = {term.kind for term in self.form.terms}
        if self.form.vectors or not kinds & {TermKind.Two, TermKind.Dot}:
            return Status.reject("its sums are no products of points")
        if others := kinds - {TermKind.Two, *_PRODUCTS}:
            names = ", ".join(sorted(kind.name for kind in others))
            return Status.reject(f"sums of {names} do not follow from products")
        if TermKind.Two in kinds and not self.expanded:
            return Status.reject("errors of its squared distances are relative to norms")
        if self.symmetric and not parts.is_symmetric(self.form):
            return Status.reject("the kernel changes where its points are exchanged")
        if self.shared_bytes > target.shared_bytes:
            return Status.reject(f"{self.shared_bytes} bytes of shared memory are too many")
        return Status.accept()

    def instantiation(self, target: Target) -> Instantiation:
        return Instantiation(
            header="distance_warp_group.cuh",
            parameters=self.parameters,
            types=self.types,
            constants=(
                ("kThreads", _THREADS),
                ("kBlocks", 1),
                ("kTileM", ROWS),
                ("kTileN", self.n),
                *named(self, "stages shared_bytes"),
                ("kProductRegisters", _PRODUCT_REGISTERS),
                ("kCopyRegisters", _COPY_REGISTERS),
                *named(self, "split symmetric"),
                *(item for item in parts.constants_of(self.form) if item[0] in _READ),
            ),
            folders=(package_folder(__package__),),
            functors=parts.functors_of(self.form, self.math.element_accumulator),
        )

    @property
    def types(self) -> tuple[tuple[str, str], ...]:
        return (
            ("Input", self.source.cxx),
            ("Factor", self.element.cxx),
            ("Output", self.output.cxx),
            ("Accumulator", self.math.element_accumulator.cxx),
        )

    def operand_bytes(self, points: int, features: int, problems: int) -> tuple[int, int]:
        """Bytes of an operand's images, and of its facts."""
        points = operands.round_up(points, _GRANULE) * problems
        images = points * operands.cover(features, self.slab) * ROW_BYTES
        return operands.round_up(images, _ALIGNMENT), points * _FACTS_BYTES

    def launches(self, problem: PackedProblem, target: Target) -> tuple[Launch, ...]:
        p = problem.problem
        tiles = operands.cover(p.m, ROWS) * operands.cover(p.n, self.n) * math.prod(p.batch)
        launch = operands.make_launch(self, min(tiles, target.cores), problem.values)
        return (replace(launch, overlaps=True),)


@dataclass(frozen=True, kw_only=True)
class DistancePack(InWorkspace):
    """Packs points for `product`, with their scales and norms."""

    styles: ClassVar[tuple[str, ...]] = ("centred", "split", "whole", "one operand", "both")

    threads = _PACK_THREADS
    shared_bytes = _PACK_SHARED

    product: DistanceWarpGroup

    @property
    def signature(self) -> KernelSignature:
        return self.product.signature

    def style(self, target: Target) -> Iterator[str]:
        product = self.product
        yield "centred" if product.centred else "split" if product.split else "whole"
        yield "one operand" if product.symmetric else "both"

    def instantiation(self, target: Target) -> Instantiation:
        product = self.product
        return Instantiation(
            header="distance_pack.cuh",
            parameters=product.parameters,
            types=product.types,
            constants=(
                ("kThreads", _PACK_THREADS),
                ("kBlocks", _PACK_BLOCKS),
                *named(product, "split centred"),
                ("kLengths", parts.widens(product.form, product.math.element_accumulator)),
                ("kSymmetric", product.symmetric),
            ),
            folders=(package_folder(__package__),),
        )

    def launches(self, problem: PackedProblem, target: Target) -> tuple[Launch, ...]:
        p, (batch1, batch2) = problem.problem, problem.batches
        operands_of = [(p.m, batch1), (p.n, batch2)][: 1 if self.product.symmetric else 2]
        items = sum(
            math.prod(batch) * operands.round_up(count, _GRANULE) // _PACK_ROWS
            for count, batch in operands_of
        )
        return (operands.make_launch(self, items, problem.values),)
