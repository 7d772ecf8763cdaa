"""What comes before and after the tiles of a product: packing of operands, and sums of shares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from kronop.artifacts import Decision, Field, KernelSignature, Launch, Scalar
from kronop.descriptions.datatype import DataType
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.cuda import operands
from kronop.emit.design import Design, Instantiation, InWorkspace, package_folder
from kronop.families.distance import parts
from kronop.families.distance.description import Strided, Value, varying
from kronop.families.distance.parts import BATCH_DIMS
from kronop.families.distance.product_description import KernelMatmulProblem
from kronop.frozen import dataclass
from kronop.target import Target

_THREADS, _PIECE, _OPERANDS = 256, 32, 3
_FOLDER = "kronop.families.distance.cuda"
_ALIGNED = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Room(Decision):
    """How an operand is packed: [problem][row / tile][depth][row % tile].

    Attributes:
        rows, columns: of the operand.
        depth: columns with padding.
        zeros: rows are padded with zeros, and not with the last row.
    """

    rows: int
    columns: int
    tile: int
    depth: int
    zeros: bool = False

    @property
    def tiles(self) -> int:
        return operands.cover(self.rows, self.tile)

    @property
    def numbers(self) -> int:
        """Numbers of one problem."""
        return self.tiles * self.tile * self.depth


def packed_batch(
    extents: tuple[int, ...], *read: Strided
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(extents of the batch of what is packed from these operands, its strides in problems): 1 and
    0 where they repeat over the batch."""
    kept = varying(extents, *(item.batch for item in read))
    strides = tuple(
        math.prod(kept[index + 1 :]) if extent > 1 else 0 for index, extent in enumerate(kept)
    )
    return parts.padded(kept, 1), parts.padded(strides)


def aligned(size: int) -> int:
    """Bytes up to where the next array of the workspace may start."""
    return operands.round_up(size, _ALIGNED)


@dataclass(frozen=True, kw_only=True)
class ProductPack(InWorkspace):
    """Operands, converted and in the order in which tiles are read.

    Attributes:
        source: the type of the operands.
    """

    styles: ClassVar[tuple[str, ...]] = ("plain",)

    math: MathInstruction
    source: DataType

    @property
    def threads(self) -> int:
        return _THREADS

    @property
    def shared_bytes(self) -> int:
        return 0

    @property
    def signature(self) -> KernelSignature:
        whole, batch = Scalar.INT64, _OPERANDS * BATCH_DIMS
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
            template="kronop::product_pack",
            parameters="kronop::ProductPackParameters",
            types=(("Input", self.source.cxx), ("Accumulator", accumulator)),
            constants=(("kThreads", _THREADS), ("kBlocks", 1), ("kPiece", _PIECE)),
            folders=(package_folder(_FOLDER),),
        )

    def launch(
        self,
        index: int,
        batch: tuple[int, ...],
        sources: Sequence[Strided],
        rooms: Sequence[Room],
        to: Sequence[int],
    ) -> Launch:
        """The launch for operands of the same batch, which go to the addresses `to`."""
        own = [packed_batch(batch, item) for item in sources]
        blocks = [
            math.prod(extents) * room.tiles * operands.cover(room.depth, _PIECE)
            for (extents, _), room in zip(own, rooms, strict=True)
        ]
        values = {
            "from": tuple(item.pointer for item in sources),
            "to": tuple(to),
            **{
                name: tuple(getattr(room, name) for room in rooms)
                for name in ("rows", "columns", "depth", "tile", "tiles")
            },
            "blocks": tuple(blocks),
            "row": tuple(item.row for item in sources),
            "column": tuple(item.column for item in sources),
            "extent": tuple(extent for extents, _ in own for extent in extents),
            "stride": tuple(step for item in sources for step in parts.padded(item.batch)),
            "zeros": tuple(int(room.zeros) for room in rooms),
        }
        operands.check_blocks(sum(blocks))
        return operands.make_launch(self, sum(blocks), values)


@dataclass(frozen=True, kw_only=True)
class ProductSum(Design):
    """The sums of all shares, through the epilogue.

    Attributes:
        source, output: types of V and of the result.
        regularized: V times the regularization is added.
    """

    styles: ClassVar[tuple[str, ...]] = ("plain",)
    ends = ("Y along rows", "Y along columns")

    math: MathInstruction
    source: DataType
    output: DataType
    epilogue: Epilogue
    regularized: bool

    @property
    def threads(self) -> int:
        return _THREADS

    @property
    def shared_bytes(self) -> int:
        return 0

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
                *(Field(name, whole, BATCH_DIMS) for name in batches),
                *(Field(name, whole) for name in strides),
                Field("number", Scalar.FLOAT64),
                Field("scalars", operands.scalar_kind(self.epilogue), operands.SCALARS),
            ),
        )

    def instantiation(self, target: Target) -> Instantiation:
        scalar = operands.scalar_kind(self.epilogue).cxx
        return Instantiation(
            header="product_sum.cuh",
            template="kronop::product_sum",
            parameters=f"kronop::ProductSumParameters<{scalar}>",
            types=operands.element_types(self.math, self.source, self.output, self.epilogue),
            constants=(
                ("kThreads", _THREADS),
                ("kBlocks", 1),
                ("kRegularized", self.regularized),
            ),
            folders=(package_folder(_FOLDER),),
        )

    def launch(self, index: int, problem: KernelMatmulProblem, partial: int, shares: int) -> Launch:
        p, nothing = problem, Strided(0, ())
        held = p.values[-1] if self.regularized else Value(0.0)
        used = {"y": p.y, "z": p.z or nothing, "v": p.v}
        values = {
            "partial": partial,
            **{name: item.pointer for name, item in used.items()},
            **{f"{name}_batch": parts.padded(item.batch) for name, item in used.items()},
            **{f"{name}_row": item.row for name, item in used.items()},
            **{f"{name}_column": item.column for name, item in used.items()},
            "regularization": held.pointer,
            "regularization_batch": parts.padded(held.batch),
            "number": held.number,
            "shares": shares,
            "problems": math.prod(p.batch),
            **{name: getattr(p, name) for name in ("m", "n", "c", "scalars")},
            "batch": parts.padded(p.batch, 1),
        }
        blocks = operands.cover(math.prod(p.batch) * p.m * p.c, _THREADS)
        return operands.make_launch(self, blocks, values)
