"""Register tiles of kernels of pairs of points; see distance.hpp."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import ClassVar

from kronop.artifacts import Field, KernelSignature, Launch, Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.design import Design, Instantiation, named, package_folder
from kronop.emit.x86 import planning
from kronop.families.distance import parts
from kronop.families.distance.description import DistanceProblem
from kronop.families.distance.form import GENERAL_POWERS, Form, TermKind
from kronop.families.distance.size import DistanceSize
from kronop.frozen import dataclass
from kronop.target import Target

# Bytes of the features of a packed row; with blocks of about so many rows and columns, a thread's
# packed columns take 256 KB, and sums in float32 192 KB, which the second-level cache holds.
_SLAB_BYTES = 1024
_BLOCK_ROWS, _BLOCK_COLUMNS = 192, 256
# Vector instructions of a term, besides those of its difference, by its kind.
_INSTRUCTIONS = {
    TermKind.Zero: 3,
    TermKind.Half: 6,
    TermKind.One: 2,
    TermKind.ThreeHalves: 6,
    TermKind.Two: 1,
    TermKind.FiveHalves: 7,
    TermKind.Three: 3,
    TermKind.Four: 2,
    TermKind.General: 45,
    TermKind.Infinity: 2,
    TermKind.Dot: 1,
    TermKind.NormA: 0,
    TermKind.NormB: 0,
    TermKind.Largest: 2,
    TermKind.Relative: 49,  # The difference is computed twice.
}
PRODUCTS = (TermKind.Dot, TermKind.NormA, TermKind.NormB)
# Vector registers of a term, besides sums and operands.
_POWER_REGISTERS, _REGISTERS = 20, 2
# Cycles to pack an element, to finish a vector of results, and to store one number transposed.
_PACK, _FINISH, _MIRROR = 0.7, 8.0, 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterTiles(Design):
    """A register tile: sums of pairs stay in registers during the loop over what is summed.

    Attributes:
        source, output: types of the operands and of the result.
        vector_bytes: bytes of the target's vectors.
        rows: rows of a tile.
        vectors: vectors of columns of a tile, which are their lanes.
    """

    math: MathInstruction
    source: DataType
    output: DataType
    epilogue: Epilogue
    vector_bytes: int
    rows: int
    vectors: int

    threads = 0
    shared_bytes = 0

    @property
    def _scalars(self) -> Field:
        return planning.scalar_fields(self.epilogue)

    @property
    def width(self) -> int:
        """Sums in a vector."""
        return self.vector_bytes // self.math.element_accumulator.bytes

    @property
    def types(self) -> tuple[tuple[str, str], ...]:
        return (
            ("Input", self.source.cxx),
            ("Output", self.output.cxx),
            ("Accumulator", self.math.element_accumulator.cxx),
        )

    @property
    def lanes(self) -> tuple[str, str]:
        """The type in which the kernel's function is computed."""
        numbers = f"kronop::Vector<{self.math.element_accumulator.cxx}, {self.width}>"
        return "Numbers", f"kronop::Numbers<{numbers}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class DistanceTiles(RegisterTiles):
    """Rows of a tile are points of X1, and columns points of X2.

    Attributes:
        symmetric: each pair is computed once, and stored twice.
        expanded: squared distances are computed from products and norms.
    """

    styles: ClassVar[tuple[str, ...]] = (
        *(kind.name for kind in TermKind),
        "scaled by a vector",
        "regularized",
        "symmetric",
        "expanded",
    )
    ends = ("Y along rows", "Y along columns")

    form: Form
    symmetric: bool
    expanded: bool

    def __str__(self) -> str:
        kinds = ["symmetric"] * self.symmetric + ["expanded"] * self.expanded
        return " ".join([*kinds, f"tiles of {self.rows} by {self.panel}"])

    @property
    def panel(self) -> int:
        """Rows of X2 in a tile."""
        return self.width * self.vectors

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns of a thread's block of results, in whole tiles."""
        return (
            max(1, _BLOCK_ROWS // len(self.form.terms) // self.rows) * self.rows,
            max(1, _BLOCK_COLUMNS // self.panel) * self.panel,
        )

    @property
    def signature(self) -> KernelSignature:
        return parts.signature(self.form, self._scalars)

    def style(self, target: Target) -> Iterator[str]:
        if self.expanded:
            yield "expanded"
        else:
            yield from {term.kind.name for term in self.form.terms}
        if self.form.vectors:
            yield "scaled by a vector"
        if self.form.regularized:
            yield "regularized"
        if self.symmetric:
            yield "symmetric"

    def status(self, target: Target) -> Status:
        """Whether the form can be expanded, and the tile's sums fit in registers."""
        kinds = [term.kind for term in self.form.terms]
        if self.expanded and kinds != [TermKind.Two]:
            return Status.reject("only squared distances alone are computed from products")
        if self.symmetric and not parts.is_symmetric(self.form):
            return Status.reject("the kernel changes where its points are exchanged")
        sums = len(kinds) * self.rows * self.vectors
        scratch = 0 if self.expanded or {*kinds} <= {*PRODUCTS} else _REGISTERS
        scratch += _POWER_REGISTERS * any(kind in GENERAL_POWERS for kind in kinds)
        needed = sums + self.vectors + 1 + scratch
        if needed > target.registers and self.rows * self.vectors > 2:
            return Status.reject(f"takes {needed} vector registers of {target.registers}")
        return Status.accept()

    def seconds(self, size: DistanceSize, target: Target) -> float:
        """Modelled time of one thread for a problem of that size."""
        panels = -(-size.n // self.panel)
        high, low = divmod(size.m, self.rows)
        across = high * self._cycles(self.rows, target) + low * self._cycles(1, target)
        across *= size.k * panels
        rows, columns = self.block
        packed = size.m * -(-size.n // columns) + panels * self.panel * -(-size.m // rows)
        finished = panels * self.vectors * size.m * (_FINISH + self.expanded * _FINISH / 2)
        packing = size.k * packed * _PACK * (1 + self.expanded)
        if self.symmetric:
            across, finished = across / 2, finished / 2 + _MIRROR * size.m * size.n / 2
        return size.batch * (across + finished + packing) / planning.core_of(target).hertz

    def _cycles(self, rows: int, target: Target) -> float:
        """Cycles of a tile of so many rows for one feature."""
        kinds = [term.kind for term in self.form.terms]
        each = sum(_INSTRUCTIONS[kind] + (kind not in PRODUCTS) for kind in kinds)
        each = 1 if self.expanded else each + self.form.vectors
        loads = rows + self.vectors
        return planning.cycles_of_tile(rows * self.vectors * each, loads, target)

    def instantiation(self, target: Target) -> Instantiation:
        accumulator = self.math.element_accumulator
        rows, columns = self.block
        return Instantiation(
            header="distance.hpp",
            parameters=parts.parameters_of(self.form, self._scalars),
            types=(*self.types, self.lanes),
            constants=(
                *parts.constants_of(self.form),
                ("kWidth", self.width),
                ("kTileVectors", self.vectors),
                ("kRows", self.rows),
                ("kDepth", _SLAB_BYTES // accumulator.bytes),
                ("kBlockRows", rows),
                ("kBlockColumns", columns),
                *named(self, "symmetric expanded"),
            ),
            folders=(package_folder(__package__),),
            functors=parts.functors_of(self.form, accumulator, "Numbers"),
        )

    def launches(self, problem: DistanceProblem, target: Target) -> tuple[Launch, ...]:
        if problem.y.row == 1 and problem.y.column != 1 and parts.is_symmetric(self.form):
            problem = _turned(problem)
        each = sum(1 + _INSTRUCTIONS[term.kind] for term in self.form.terms)
        pairs = problem.m * problem.n * math.prod(problem.batch)
        threads = planning.shares(pairs * (problem.k * each + 1), pairs, problem.threads)
        return (Launch(parameters=self.signature.pack(parts.values_of(problem, threads))),)


def _turned(problem: DistanceProblem) -> DistanceProblem:
    """The problem of the transposed result, which is contiguous where it is contiguous along
    columns."""
    z, y = problem.z, problem.y
    return dataclasses.replace(
        problem,
        m=problem.n,
        n=problem.m,
        x1=problem.x2,
        x2=problem.x1,
        z=z and z.transposed,
        y=y.transposed,
        diagonal=-problem.diagonal,
    )
