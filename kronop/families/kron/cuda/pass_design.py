"""One pass of a Kronecker matmul as a design, and what all passes over tiles of digits share."""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from kronop.artifacts import Field, KernelSignature, Launch, Scalar, Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS, NOTHING, Strided
from kronop.emit.cuda import operands
from kronop.emit.design import Constant, Design, Instantiation, package_folder
from kronop.families.kron.cuda.shapes import PassWork
from kronop.families.kron.description import KronProblem
from kronop.frozen import dataclass
from kronop.machine import BLOCK_THREADS, REGISTERS, WARP
from kronop.target import Target

Values = dict[str, int | tuple[int, ...] | tuple[float, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class KronPass(Design):
    """A way to contract digits [first, first + len(work.shape.factors)).

    While ways are compared, `first` and the epilogue are unset.
    """

    work: PassWork
    first: int = 0
    epilogue: Epilogue | None = None

    kind: ClassVar[str]

    @property
    @abstractmethod
    def how(self) -> str:
        """A description of the tile, for printed plans."""

    @abstractmethod
    def placed(self, epilogue: Epilogue | None) -> KronPass:
        """The design as it runs: with that epilogue, and with the details (padding) that are only
        computed for a chosen design."""

    @abstractmethod
    def launches(self, problem: KronProblem, target: Target) -> tuple[Launch, ...]:
        """The launch for X and Y of this pass and all factors of the product."""


class TiledPass(KronPass):
    """A pass over tiles in shared memory: rows x digits x columns."""

    __slots__ = ()

    kernel: ClassVar[str]

    if TYPE_CHECKING:
        # Fields in some designs: see `Design`.
        @property
        def rows(self) -> int: ...

        @property
        def columns(self) -> int: ...

    @property
    @abstractmethod
    def vectors(self) -> tuple[int, int]:
        """Elements of one vectorised access to X, and to Y."""

    @abstractmethod
    def status(self, target: Target) -> Status:
        """Whether the kernel can run this pass with this tile; there is no other such check."""

    @abstractmethod
    def blocks(self, target: Target) -> int:
        """Blocks that a multiprocessor holds at once (occupancy)."""

    @abstractmethod
    def constants(self, target: Target) -> tuple[tuple[str, Constant], ...]:
        """The values of the trait struct."""

    @property
    def cluster(self) -> int:
        """Blocks that share a tile."""
        return 1

    @property
    def how(self) -> str:
        return f"tiles of {self.rows} x {self.work.shape.size_in} x {self.columns} in shared memory"

    @property
    def signature(self) -> KernelSignature:
        return _signature(operands.scalar_kind(self.epilogue), len(self.work.shape.factors))

    def instantiation(self, target: Target) -> Instantiation:
        ends, scalar = self.work.ends, operands.scalar_kind(self.epilogue)
        return Instantiation(
            header=f"{self.kernel}.cuh",
            template=f"kronop::{self.kernel}",
            parameters=(
                f"kronop::KronTileParameters<{scalar.cxx}, {len(self.work.shape.factors)}>"
            ),
            types=operands.element_types(self.work.math, ends.source, ends.output, self.epilogue),
            constants=self.constants(target),
            cluster=self.cluster,
            folders=(package_folder(__package__),),
        )

    def tiles(self, rows: int) -> int:
        """Tiles that cover X of `rows` rows."""
        shape = self.work.shape
        if self.work.ends.source_by_rows:
            down, across = shape.left * shape.right, rows
        else:
            down, across = rows * shape.left, shape.right
        return operands.cover(down, self.rows) * operands.cover(across, self.columns)

    def grid(self, tiles: int, target: Target) -> int:
        """How many blocks a launch with `tiles` tiles has."""
        return tiles

    def strides_as_planned(self, digit: int, size: int, by_rows: bool) -> bool:
        """Whether vectorised accesses are possible if neighbours in a digit are `digit` elements
        apart."""
        return True

    def launches(self, problem: KronProblem, target: Target) -> tuple[Launch, ...]:
        factors = problem.factors[self.first : self.first + len(self.work.shape.factors)]
        views, extents = self._views(problem, factors)
        across = operands.cover(extents["inner"][0], self.columns)
        down = operands.cover(math.prod(extents["outer"]), self.rows)
        tiles = across * down * math.prod(extents["batch"])
        values: Values = {
            **self._flags(views, extents),
            "tiles": (across, down, tiles),
            "factor": tuple(item.pointer for item in factors),
            "factor_row": tuple(item.row for item in factors),
            "factor_column": tuple(item.column for item in factors),
            "factor_batch": tuple(stride for item in factors for stride in four(item.batch)),
            "scalars": problem.scalars,
        }
        for name, item in views.items():
            values |= item.field(name)
        values |= {f"{name}_extent": size for name, size in extents.items()}
        return (operands.make_launch(self, self.grid(tiles, target), values),)

    def _flags(
        self, views: Mapping[str, operands.View], extents: Mapping[str, tuple[int, ...]]
    ) -> Values:
        """Flags for the kernel: whether X is loaded, and Y and Z are accessed, in vectors."""
        shape, ends = self.work.shape, self.work.ends
        x_vector, y_vector = self.vectors

        def flag(name: str, size: int, width: int, element: DataType, by_rows: bool) -> int:
            view = views[name]
            if not self.strides_as_planned(view.strides["digit"][0], size, by_rows):
                return 0
            along, sizes = "digit" if self.columns == 1 else "inner", {**extents, "digit": (size,)}
            return operands.allows_vectors(view, sizes, along, width, element)

        x = flag("x", shape.size_in, x_vector, ends.source, ends.source_by_rows)
        y, z = (
            flag(name, shape.size_out, y_vector, ends.output, ends.output_by_rows) for name in "yz"
        )
        return {"x_vector": x, "y_vector": y and (views["z"].pointer == 0 or z)}

    def _views(
        self, problem: KronProblem, factors: Sequence[Strided]
    ) -> tuple[dict[str, operands.View], dict[str, tuple[int, ...]]]:
        """X, Y and Z as the kernel iterates over them, and the extents of the free indices.

        Batch axes that become rows of the tile keep an extent of 1.
        """
        shape, by_rows = self.work.shape, self.work.ends.source_by_rows
        outer = [shape.left, shape.right] if by_rows else [problem.rows, shape.left]
        inner = problem.rows if by_rows else shape.right
        absorbed = _absorbed(outer, [item.batch for item in factors], len(problem.batch))
        batch = list(problem.batch)
        for axis, source in absorbed.items():
            outer[axis], batch[source] = batch[source], 1
        cut, pieces = self._cut(inner, outer, absorbed) if by_rows else (None, 1)
        if cut is not None:
            outer[cut], inner = pieces, inner // pieces

        def view(item: Strided, size: int) -> operands.View:
            digit, left = shape.right * item.column, size * shape.right * item.column
            rows = [left, item.column] if by_rows else [item.row, left]
            for axis, source in absorbed.items():
                rows[axis] = item.batch[source] if item.batch else 0
            if cut is not None:
                rows[cut] = inner * item.row
            strides = {
                "outer": tuple(rows),
                "inner": (item.row if by_rows else item.column,),
                "digit": (digit,),
                "batch": four(item.batch),
            }
            return operands.View(pointer=item.pointer, strides=strides)

        views = {
            "x": view(problem.x, shape.size_in),
            "y": view(problem.y, shape.size_out),
            "z": view(problem.z or NOTHING, shape.size_out),
        }
        return views, {"outer": tuple(outer), "inner": (inner,), "batch": four(batch, 1)}

    def _cut(
        self, inner: int, outer: Sequence[int], absorbed: Container[int]
    ) -> tuple[int | None, int]:
        """The outer axis along which contiguous rows of X are cut into pieces, and their number: if
        all but one of the tile's rows would stay empty."""
        free = [axis for axis in (1, 0) if outer[axis] == 1 and axis not in absorbed]
        pieces = self._pieces(inner) if math.prod(outer) == 1 and free else 1
        return (free[0], pieces) if pieces > 1 else (None, 1)

    def _pieces(self, inner: int) -> int:
        """Equal pieces of contiguous rows, as many as a tile has rows, or fewer."""
        width = self.columns // 2  # Shorter pieces would leave columns empty instead.
        counts = range(min(self.rows, inner // max(width, 1)), 1, -1)
        return next((n for n in counts if inner % (n * max(self.vectors)) == 0), 1)


def four(strides: Sequence[int], filler: int = 0) -> tuple[int, ...]:
    """`strides`, followed by `filler` up to the number of batch dimensions of a launch."""
    return (*strides, *([filler] * (MOST_BATCH_DIMENSIONS - len(strides))))


def _absorbed(
    outer: Sequence[int], factors: Sequence[Sequence[int]], batches: int
) -> dict[int, int]:
    """Which batch axes become rows of the tile: outer axis -> batch axis, last ones first.

    Only an outer axis of extent 1 is replaced, if no factor depends on the batch axis. Products of
    one row would otherwise leave most of a tile empty.
    """
    result: dict[int, int] = {}
    for axis in (1, 0):
        source = batches - 1 - len(result)
        if outer[axis] == 1 and source >= 0 and all(strides[source] == 0 for strides in factors):
            result[axis] = source
    return result


@functools.cache
def _signature(scalar: Scalar, factors: int) -> KernelSignature:
    batch = MOST_BATCH_DIMENSIONS
    return operands.signature(
        "KronTileParameters",
        scalar,
        [("x", 1), ("y", 1), ("z", 1)],
        [
            ("x_vector", 1),
            ("y_vector", 1),
            ("tiles", 3),
            *((f"outer_{name}", 2) for name in ("extent", "x", "y", "z")),
            *((f"inner_{name}", 1) for name in ("extent", "x", "y", "z")),
            *((f"digit_{name}", 1) for name in ("x", "y", "z")),
            *((f"batch_{name}", batch) for name in ("extent", "x", "y", "z")),
        ],
        [
            Field("factor", Scalar.POINTER, factors),
            Field("factor_row", Scalar.INT64, factors),
            Field("factor_column", Scalar.INT64, factors),
            Field("factor_batch", Scalar.INT64, factors * batch),
        ],
    )


def reject_threads(threads: int) -> Status:
    return Status.reject(
        f"{threads} threads of a block, expected {WARP} to {BLOCK_THREADS}; change warp_count"
    )


def accept_sizes(
    tile: tuple[int, int, int], shared_bytes: int, threads: int, registers: int, target: Target
) -> Status:
    """Whether the tile's shared memory and registers are within the limits of a block."""
    if shared_bytes > target.shared_bytes:
        return Status.reject(
            f"a tile of {tile[0]} x {tile[1]} x {tile[2]} wants {shared_bytes} bytes"
            f" of shared memory, {target.shared_bytes} are there; use a smaller tile"
        )
    # The register file is divided among the threads of a block.
    most = REGISTERS // operands.round_up(registers, 8)
    if threads > most:
        return Status.reject(
            f"{threads} threads leave too few registers, at most {most // 32 * 32} fit;"
            " change warp_count"
        )
    return Status.accept()
