"""Distances as products on the tensor cores of sm_90a: a step that packs points, and the products.

    sum over k of (x1[m, k] - x2[n, k])^2 = |x1[m]|^2 + |x2[n]|^2 - 2 x1[m] x2[n]

Elements of 16 bits are multiplied as they are. A float32 element is the sum of two float16 numbers,
three of whose four products count. Squared distances alone are computed of points less their
centre. See distance_pack.cuh and distance_group.cuh.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from kronop.artifacts import Field, KernelSignature, Launch, Scalar, Status
from kronop.descriptions.datatype import DataType, bfloat16, float16, float32
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.cuda import operands
from kronop.emit.cuda.machine import H200, gpu_of, hertz
from kronop.emit.design import Design, Instantiation, package_folder
from kronop.families.distance import parts
from kronop.families.distance.description import DistanceProblem, varying
from kronop.families.distance.form import Form, TermKind
from kronop.families.distance.size import DistanceSize
from kronop.frozen import dataclass
from kronop.machine import Feature
from kronop.target import Target

Ints = tuple[int, ...]
_SOURCES = (float32, float16, bfloat16)
_PRODUCTS = (TermKind.Dot, TermKind.NormA, TermKind.NormB)
# What a kernel without powers and vectors reads of a form.
_READ = ("kTerm", "kValues", "kRegularized")
# Rows of a tile; points of a granule, and bytes of each in an image.
ROWS, _GRANULE, ROW_BYTES = 128, 64, 128
# Bytes of a point's scale and norm.
_FACTS_BYTES = 8
_ALIGNMENT = 256
# Threads of a block: two teams that multiply, and one of which a warp copies. Registers of each.
_THREADS, _PRODUCT_REGISTERS, _COPY_REGISTERS = 384, 232, 40
_BARRIER_BYTES = 8
# Buffers of facts in shared memory.
_BUFFERS = 2
_PACK_THREADS, _PACK_ROWS, _PACK_BLOCKS = 256, 32, 3
_PACK_SHARED = 4 * (1024 + 8 * _PACK_ROWS)
# Figures of an H200: products of 16-bit elements that a multiprocessor does in a cycle (measured:
# those of torch's product of matrices), bytes of memory in a second, the seconds of a launch, and
# those until memory answers.
_RATE, _MEMORY, _LAUNCH, _LATENCY = 1700, 4.0e12, 3e-6, 0.8e-6
# Features that a thread's loads in flight reach over, where a team of them packs a point.
_PACK_FEATURES = 128
# Cycles from the last product of a tile to the first one of the next.
_TILE_CYCLES = 3000


@dataclass(frozen=True, kw_only=True)
class DistanceGroup(Design):
    """Products of packed points, and what follows from them.

    Attributes:
        source, output: types of the points and of the result.
        symmetric: X1 and X2 are the same points.
        expanded: errors of squared distances may be relative to norms.
        n: columns of a tile.
        stages: of the ring in shared memory.
    """

    styles: ClassVar[tuple[str, ...]] = ("split", "whole", "all pairs", "half of the pairs")
    ends = ("Y along rows", "Y along columns")

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
    def threads(self) -> int:
        return _THREADS

    @property
    def split(self) -> bool:
        return self.source is float32

    @property
    def element(self) -> DataType:
        """The type of what is multiplied."""
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
    def _scalars(self) -> Field:
        return Field("scalars", operands.scalar_kind(self.epilogue), operands.SCALARS)

    @property
    def signature(self) -> KernelSignature:
        places = (f"{of}{index}" for of in ("images", "facts") for index in (1, 2))
        return KernelSignature(
            "DistanceGroupParameters",
            (
                *parts.signature(self.form, self._scalars).fields,
                *(Field(name, Scalar.POINTER) for name in places),
                *(Field(f"packed{index}", Scalar.INT64, parts.BATCH_DIMS) for index in (1, 2)),
            ),
        )

    @property
    def parameters(self) -> str:
        """The C++ name of the parameter struct."""
        plain = parts.parameters_of(self.form, self._scalars)
        return plain.replace("::DistanceParameters", "::DistanceGroupParameters")

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

    def seconds(self, size: DistanceSize, target: Target) -> float:
        """About how long both steps take."""
        slabs = operands.cover(size.k, self.slab)
        rows, columns = operands.cover(size.m, ROWS), operands.cover(size.n, self.n)
        tiles: float = rows * columns * size.batch
        results = size.m * size.n * size.batch * self.output.bytes
        if self.symmetric:
            tiles = (tiles + size.batch * max(rows, columns)) / 2
        products = slabs * self.slab * (3 if self.split else 1) * ROWS * self.n
        waves = math.ceil(tiles / target.cores)
        multiply = waves * (products / _RATE + _TILE_CYCLES) / hertz(target)
        memory = _MEMORY * (gpu_of(target).bandwidth / H200.gpu.bandwidth)
        elements = (size.m + (0 if self.symmetric else size.n)) * size.k * size.batch
        pack = elements * (2 * self.source.bytes + slabs * ROW_BYTES / max(1, size.k)) / memory
        passes = 2 if self.split else 1
        waiting = (passes * operands.cover(size.k, _PACK_FEATURES) + 1) * _LATENCY
        return 2 * _LAUNCH + max(pack, waiting) + max(multiply, results / memory)

    def instantiation(self, target: Target) -> Instantiation:
        return Instantiation(
            header="distance_group.cuh",
            template="kronop::distance_group",
            parameters=self.parameters,
            types=self.types,
            constants=(
                ("kThreads", _THREADS),
                ("kBlocks", 1),
                ("kTileM", ROWS),
                ("kTileN", self.n),
                ("kStages", self.stages),
                ("kSharedBytes", self.shared_bytes),
                ("kProductRegisters", _PRODUCT_REGISTERS),
                ("kCopyRegisters", _COPY_REGISTERS),
                ("kSplit", self.split),
                ("kSymmetric", self.symmetric),
                *(item for item in parts.constants_of(self.form) if item[0] in _READ),
            ),
            folders=(package_folder("kronop.families.distance.cuda"),),
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

    def workspace_bytes(self, size: DistanceSize) -> int:
        """Bytes of images and facts, which problems of a batch share as they share points."""
        own_x1 = size.own_points if self.centred else size.own_x1
        counts = [(size.m, own_x1), (size.n, size.own_x2)][: 1 if self.symmetric else 2]
        return sum(sum(self.operand_bytes(count, size.k, problems)) for count, problems in counts)

    def launches(self, problem: DistanceProblem, target: Target) -> tuple[Launch, ...]:
        """The launches of both steps, for at least one pair of points."""
        x1, x2 = problem.x1.batch, problem.x2.batch
        # Centred points of X1 depend on X2, whose centre is subtracted from them.
        packed1 = varying(problem.batch, x1, *([x2] if self.centred else []))
        packed2 = varying(problem.batch, x2)
        operands_of = [(problem.m, packed1)]
        if not self.symmetric:
            operands_of.append((problem.n, packed2))
        places, at = [], problem.workspace
        for count, packed in operands_of:
            for nbytes in self.operand_bytes(count, problem.k, math.prod(packed)):
                places.append(at)
                at += nbytes
        values = parts.values_of(problem, 0) | {
            "images1": places[0],
            "facts1": places[1],
            "images2": places[-2],
            "facts2": places[-1],
            "packed1": parts.padded(packed1, 1),
            "packed2": parts.padded(operands_of[-1][1], 1),
        }
        items = sum(
            math.prod(packed) * operands.round_up(count, _GRANULE) // _PACK_ROWS
            for count, packed in operands_of
        )
        rows, columns = operands.cover(problem.m, ROWS), operands.cover(problem.n, self.n)
        tiles = rows * columns * math.prod(problem.batch)
        multiply = operands.make_launch(self, min(tiles, target.cores), values)
        return (
            operands.make_launch(DistancePack(product=self), items, values),
            replace(multiply, overlaps=True),
        )


@dataclass(frozen=True, kw_only=True)
class DistancePack(Design):
    """Packs points for `product`, which it gives scales and norms as well."""

    styles: ClassVar[tuple[str, ...]] = ("centred", "split", "whole", "one operand", "both")

    product: DistanceGroup

    @property
    def epilogue(self) -> None:
        return None

    @property
    def threads(self) -> int:
        return _PACK_THREADS

    @property
    def shared_bytes(self) -> int:
        return _PACK_SHARED

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
            template="kronop::distance_pack",
            parameters=product.parameters,
            types=product.types,
            constants=(
                ("kThreads", _PACK_THREADS),
                ("kBlocks", _PACK_BLOCKS),
                ("kSplit", product.split),
                ("kCentred", product.centred),
                ("kLengths", parts.widens(product.form, product.math.element_accumulator)),
                ("kSymmetric", product.symmetric),
            ),
            folders=(package_folder("kronop.families.distance.cuda"),),
        )
