"""Before and after the tiles of a product: packing of operands, and sums of shares."""

from __future__ import annotations

import math

from kronop.artifacts import Field, KernelSignature, Launch, Scalar
from kronop.descriptions.datatype import DataType
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS, padded
from kronop.emit.cuda import operands
from kronop.emit.design import (
    Design,
    Instantiation,
    InWorkspace,
    members,
    package_folder,
    strided_values,
)
from kronop.families.distance.cuda.product_places import PlacedProduct, packed_batch
from kronop.families.distance.description import Value
from kronop.frozen import dataclass
from kronop.target import Target

_THREADS, _PIECE, _OPERANDS = 256, 32, 3


@dataclass(frozen=True, kw_only=True)
class ProductPack(InWorkspace):
    """Packs operands, converted and in the order in which tiles read them.

    Attributes:
        source: the type of the operands.
    """

    threads = _THREADS
    shared_bytes = 0

    math: MathInstruction
    source: DataType

    @property
    def signature(self) -> KernelSignature:
        whole, batch = Scalar.INT64, _OPERANDS * MOST_BATCH_DIMENSIONS
        first = ("rows", "columns", "depth", "tile", "tiles", "blocks", "row", "column")
        return KernelSignature(
            "ProductPackParameters",
            (
                *(Field(name, Scalar.POINTER, _OPERANDS) for name in ("from", "to")),
                *(Field(name, whole, _OPERANDS) for name in first),
                *(Field(name, whole, batch) for name in ("extent", "stride")),
                Field("zeros", whole, _OPERANDS),
            ),
        )

    def instantiation(self, target: Target) -> Instantiation:
        accumulator = self.math.element_accumulator.cxx
        return Instantiation(
            header="product_pack.cuh",
            parameters="kronop::ProductPackParameters",
            types=(("Input", self.source.cxx), ("Accumulator", accumulator)),
            constants=(("kThreads", _THREADS), ("kBlocks", 1), ("kPiece", _PIECE)),
            folders=(package_folder(__package__),),
        )

    def launches(self, problem: PlacedProduct, target: Target) -> tuple[Launch, ...]:
        sources, layouts = problem.sources, problem.layouts
        own = [packed_batch(problem.problem.batch, item) for item in sources]
        blocks = [
            math.prod(extents) * layout.tiles * operands.cover(layout.depth, _PIECE)
            for (extents, _), layout in zip(own, layouts, strict=True)
        ]
        values = {
            "from": tuple(item.pointer for item in sources),
            "to": problem.packed,
            **{
                name: tuple(getattr(layout, name) for layout in layouts)
                for name in ("rows", "columns", "depth", "tile", "tiles")
            },
            "blocks": tuple(blocks),
            "row": tuple(item.row for item in sources),
            "column": tuple(item.column for item in sources),
            "extent": tuple(extent for extents, _ in own for extent in extents),
            "stride": tuple(step for item in sources for step in padded(item.batch)),
            "zeros": tuple(int(layout.zeros) for layout in layouts),
        }
        operands.check_blocks(sum(blocks))
        return (operands.make_launch(self, sum(blocks), values),)


@dataclass(frozen=True, kw_only=True)
class ProductSum(Design):
    """Adds up all shares and applies the epilogue.

    Attributes:
        source, output: types of V and of the result.
        regularized: V times the regularization is added.
    """

    threads = _THREADS
    shared_bytes = 0
    ends = ("Y along rows", "Y along columns")

    math: MathInstruction
    source: DataType
    output: DataType
    epilogue: Epilogue
    regularized: bool

    @property
    def signature(self) -> KernelSignature:
        whole = Scalar.INT64
        pointers = ("partial", "y", "z", "v", "regularization")
        batches = ("batch", "y_batch", "z_batch", "v_batch", "regularization_batch")
        strides = ("y_row", "y_column", "z_row", "z_column", "v_row", "v_column")
        return KernelSignature(
            "ProductSumParameters",
            (
                *(Field(name, Scalar.POINTER) for name in pointers),
                *(Field(name, whole) for name in ("shares", "problems", "m", "n", "c")),
                *(Field(name, whole, MOST_BATCH_DIMENSIONS) for name in batches),
                *(Field(name, whole) for name in strides),
                Field("number", Scalar.FLOAT64),
                operands.scalar_fields(self.epilogue),
            ),
        )

    def instantiation(self, target: Target) -> Instantiation:
        scalar = operands.scalar_kind(self.epilogue).cxx
        return Instantiation(
            header="product_sum.cuh",
            parameters=f"kronop::ProductSumParameters<{scalar}>",
            types=operands.element_types(self.math, self.source, self.output, self.epilogue),
            constants=(("kThreads", _THREADS), ("kBlocks", 1), ("kRegularized", self.regularized)),
            folders=(package_folder(__package__),),
        )

    def launches(self, problem: PlacedProduct, target: Target) -> tuple[Launch, ...]:
        p = problem.problem
        held = p.values[-1] if self.regularized else Value()
        values = {
            "partial": problem.partial,
            **strided_values(p, ("y", "z", "v")),
            "regularization": held.memory.pointer,
            "regularization_batch": padded(held.memory.batch),
            "number": held.number,
            "shares": problem.shares,
            "problems": math.prod(p.batch),
            **members(p, "m n c scalars"),
            "batch": padded(p.batch, 1),
        }
        blocks = operands.cover(math.prod(p.batch) * p.m * p.c, _THREADS)
        return (operands.make_launch(self, blocks, values),)
