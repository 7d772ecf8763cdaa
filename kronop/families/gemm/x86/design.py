"""Register tiles of matrix products; see gemm.hpp."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from kronop.artifacts import Field, KernelSignature, Launch, Scalar, Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS, padded
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.emit.design import Design, Instantiation, members, named, package_folder, strided_values
from kronop.emit.visit_design import visited_values
from kronop.emit.x86 import planning
from kronop.families.gemm.description import GemmProblem
from kronop.families.gemm.size import GemmSize
from kronop.families.gemm.x86 import gathering, visitor
from kronop.families.gemm.x86.cutting import Blocking, Cut, cut
from kronop.frozen import dataclass
from kronop.target import Target

_OPERANDS = ("a", "b", "y", "z", "bias")
# Cycles to pack an element, and to finish a vector of results.
_PACK, _FINISH = 0.7, 8.0
# A problem is transposed if its result has fewer columns than this fraction of a tile's.
_FEW = 0.5


@functools.cache
def _signature(epilogue: Epilogue) -> KernelSignature:
    """That of strided operands."""
    if isinstance(epilogue, VisitorEpilogue):
        return visitor.signature(epilogue)
    whole, batch = Scalar.INT64, MOST_BATCH_DIMENSIONS
    return KernelSignature(
        "GemmParameters",
        (
            *(Field(name, Scalar.POINTER) for name in (*_OPERANDS, "workspace")),
            *(Field(name, whole) for name in "mnk"),
            Field("batch", whole, batch),
            *(Field(f"{name}_batch", whole, batch) for name in _OPERANDS),
            *(Field(f"{name}_{way}", whole) for name in _OPERANDS for way in ("row", "column")),
            *(Field(name, whole) for name in visitor.CUTS.split()),
            planning.scalar_fields(epilogue),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HostGemm(Design):
    """A product whose tiles of sums are computed from packed panels.

    Attributes:
        source, output: types of the operands and of the result.
        vector_bytes: bytes of the target's vectors.
        block_rows: rows that are packed at once.
        most_rows, most_columns: the most rows and columns of a work item.
        depth: the most elements of k that are packed at once.
        gathered: whether A and B are `Gathered`.
    """

    threads = 0
    shared_bytes = 0
    ends: ClassVar[tuple[str, ...]] = ("Y along rows", "Y along columns")
    template: ClassVar[str]
    # Multiply-adds that take as long as packing an element, and as long as one on vectors.
    packing: ClassVar[int] = 24
    speed: ClassVar[int] = 1

    source: DataType
    output: DataType
    accumulator: DataType
    epilogue: Epilogue
    vector_bytes: int
    block_rows: int
    most_rows: int
    most_columns: int
    depth: int
    gathered: bool = False

    @property
    @abstractmethod
    def tile(self) -> tuple[int, int]:
        """Rows and columns of a tile."""

    @property
    def multiplied(self) -> DataType | None:
        """The element type that AMX tiles multiply; None on vectors."""
        return None

    @property
    @abstractmethod
    def unit(self) -> int:
        """Elements of k that are multiplied at once."""

    @property
    @abstractmethod
    def packed_bytes(self) -> int:
        """Bytes of an element of a packed operand."""

    @abstractmethod
    def status(self, target: Target) -> Status:
        """Whether the kernel can run on a target, and why not."""

    @abstractmethod
    def seconds(self, size: GemmSize, target: Target) -> float:
        """Modelled time of one thread for a problem of that size."""

    @property
    def width(self) -> int:
        """Sums in a vector."""
        return self.vector_bytes // self.accumulator.bytes

    @property
    def signature(self) -> KernelSignature:
        return gathering.signature(self._plain) if self.gathered else self._plain

    @property
    def _plain(self) -> KernelSignature:
        """The signature for operands that are strided."""
        return _signature(self.epilogue)

    @property
    def blocking(self) -> Blocking:
        rows, columns = self.tile
        return Blocking(
            rows=rows,
            columns=columns,
            block_rows=self.block_rows,
            most_rows=self.most_rows,
            most_columns=self.most_columns,
            depth=self.depth,
            unit=self.unit,
            packed_bytes=self.packed_bytes,
            sum_bytes=self.accumulator.bytes,
            packing=self.packing,
            speed=self.speed,
            staged_bytes=max(rows, columns) * self.source.bytes if self.gathered else 0,
        )

    def instantiation(self, target: Target) -> Instantiation:
        return Instantiation(
            header=f"{self.template}.hpp",
            parameters=self._parameters,
            types=(
                ("Input", self.source.cxx),
                ("Output", self.output.cxx),
                ("Accumulator", self.accumulator.cxx),
            ),
            constants=(*named(self, "block_rows width"), *self._constants),
            folders=(package_folder(__package__),),
        )

    @property
    def _parameters(self) -> str:
        if isinstance(self.epilogue, VisitorEpilogue):
            plain = f"kronop::GemmVisitorParameters<{visitor.arguments(self.epilogue)}>"
        else:
            plain = f"kronop::GemmParameters<{planning.parameter_arguments(self.epilogue)}>"
        return f"kronop::GatheredParameters<{plain}>" if self.gathered else plain

    @property
    def _constants(self) -> tuple[tuple[str, int], ...]:
        """Constants of the trait struct that other designs don't have."""
        return ()

    def cut(self, m: int, n: int, k: int, problems: int, threads: int) -> Cut:
        return cut(self.blocking, m, n, k, problems, threads)

    def workspace(self, size: GemmSize, target: Target, threads: int) -> int:
        """Bytes of packed operands and sums of every thread, and of the sums of slices: enough for
        a problem whether or not it is transposed."""
        bytes_of = []
        for turned, (m, n) in enumerate(self.ways(size)):
            found = self.cut(m, n, size.k, size.batch, threads)
            bytes_of.append(self._folds(found, m, n, size.batch, turned=bool(turned))[1])
        return max(bytes_of)

    def _folds(
        self, found: Cut, m: int, n: int, problems: int, *, turned: bool
    ) -> tuple[tuple[int, ...], int]:
        """Where partial results of a tree's reductions begin in the workspace, and their end."""
        if not isinstance(self.epilogue, VisitorEpilogue):
            return (), found.workspace_bytes
        panel = self.tile[1]
        return visitor.folds(self.epilogue, found, m, n, problems, panel, turned=turned)

    def launches(self, problem: GemmProblem, target: Target) -> tuple[Launch, ...]:
        turned = self._is_better_turned(problem)
        p = problem.transposed if turned else problem
        found = self.cut(p.m, p.n, p.k, p.problems, p.threads)
        values = self._values(p, found)
        if isinstance(self.epilogue, VisitorEpilogue):
            values |= visited_values(p.in_memory(self.epilogue))
            values["turned"] = int(turned)
            values["folds"] = self._folds(found, p.m, p.n, p.problems, turned=turned)[0]
        if self.gathered:
            values = gathering.values(p, found, self._plain.pack(values))
        return (Launch(parameters=self.signature.pack(values)),)

    def _values(self, p: GemmProblem, found: Cut) -> dict[str, Any]:
        """The members of the parameter struct, without those of trees only."""
        is_tree = isinstance(self.epilogue, VisitorEpilogue)
        names = _OPERANDS[:2] if is_tree else _OPERANDS
        where = gathering.in_memory(p) if self.gathered else p
        return {
            **strided_values(where, names),
            **members(p, "m n k workspace scalars"),
            **found.values,
            "batch": padded(p.batch, 1),
        }

    def _is_better_turned(self, problem: GemmProblem) -> bool:
        """Whether the transposed result is computed: if it is contiguous along its columns, or if
        most columns of a tile would not exist."""
        y = problem.y
        few = [self._has_few_columns(*extents) for extents in self.ways(problem)]
        return few[0] if any(few) else y.row == 1 and y.column != 1

    def _has_few_columns(self, m: int, n: int) -> bool:
        """Whether a result has so few columns that its transpose is computed."""
        return n < m and n <= _FEW * self.tile[1]

    @staticmethod
    def ways(size: GemmSize | GemmProblem) -> tuple[tuple[int, int], tuple[int, int]]:
        """The extents of a result, and of its transpose."""
        return (size.m, size.n), (size.n, size.m)


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorGemm(HostGemm):
    """Register tiles: the sums of a tile stay in vector registers.

    Attributes:
        rows: rows of a tile.
        vectors: vectors of columns of a tile.
    """

    unit = 1
    styles: ClassVar[tuple[str, ...]] = (
        "operands as they are",
        "operands converted",
        "a visitor tree",
    )
    template: ClassVar[str] = "gemm_vectors"

    rows: int
    vectors: int

    def __str__(self) -> str:
        blocks = f"{self.most_rows} by {self.most_columns} by {self.depth}"
        return f"tiles of {self.rows} by {self.tile[1]} in blocks of {blocks}"

    @property
    def tile(self) -> tuple[int, int]:
        return self.rows, self.width * self.vectors

    @property
    def packed_bytes(self) -> int:
        return self.accumulator.bytes

    def style(self, target: Target) -> Iterator[str]:
        is_same = self.source == self.accumulator
        yield "operands as they are" if is_same else "operands converted"
        if isinstance(self.epilogue, VisitorEpilogue):
            yield "a visitor tree"

    def status(self, target: Target) -> Status:
        """Whether sums fit in registers, and blocks consist of whole tiles."""
        needed = self.rows * self.vectors + self.vectors + 1 + self._needs_products
        if needed > target.registers:
            return Status.reject(f"takes {needed} vector registers of {target.registers}")
        panel = self.tile[1] * self.depth * self.packed_bytes
        near = planning.core_of(target).level_1_bytes
        if panel > near:
            return Status.reject(
                f"Tile_K is {self.depth}: panels of {panel} bytes, more than a near cache of {near}"
            )
        return self.blocking.status()

    def seconds(self, size: GemmSize, target: Target) -> float:
        """Modelled time of one thread for a problem of that size."""
        m, n = (size.n, size.m) if self._has_few_columns(size.m, size.n) else (size.m, size.n)
        panels = -(-n // self.tile[1])
        high, low = divmod(m, self.rows)
        across = high * self._cycles(self.rows, target) + bool(low) * self._cycles(low, target)
        across *= size.k * panels
        rows, columns = self.most_rows, self.most_columns
        packed = m * -(-n // columns) + n * -(-m // rows)
        finished = panels * self.vectors * m * _FINISH
        slabs = -(-size.k // self.depth)
        joined = panels * self.vectors * m * max(0, slabs - 1)
        cycles = across + joined + finished + size.k * packed * _PACK
        return size.batch * cycles / planning.core_of(target).hertz

    @property
    def _needs_products(self) -> bool:
        """Whether products need registers, as there are no multiply-adds (an ARM has them, and
        registers to spare)."""
        return self.vector_bytes == planning.LEAST_VECTOR

    def _cycles(self, rows: int, target: Target) -> float:
        """Cycles of a tile of so many rows for one element of k."""
        return planning.cycles_of_tile(rows * self.vectors, rows + self.vectors, target)

    @property
    def _constants(self) -> tuple[tuple[str, int], ...]:
        return (
            ("kRows", self.rows),
            ("kLeastRows", 1),
            ("kVectors", self.vectors),
            ("kUnroll", planning.DEFAULT_UNROLL),
        )
