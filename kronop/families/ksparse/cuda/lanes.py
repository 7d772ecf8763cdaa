"""Steps that separate interleaved lanes, and join them again (`lanes.cuh`)."""

from __future__ import annotations

from collections.abc import Iterator

from kronop.artifacts import Field, KernelSignature, Launch, Scalar
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.strided import Strided
from kronop.emit.cuda import operands
from kronop.emit.design import Instantiation, InWorkspace, named, package_folder
from kronop.emit.plan import PerRow, Step
from kronop.frozen import dataclass, derived
from kronop.target import Target

# Most lanes of an operand: a block holds all of them.
MOST_LANES = 512
_THREADS, _BLOCKS, _TILE_BYTES = 256, 5, 16384
# Pieces of 16 bytes in a line of 128 bytes.
_MOST_OCTETS = 8
# Most matrices of a block, and bytes of the two addresses of each.
_MOST_MATRICES, _START_BYTES = 128, 16
_NAMES = (
    *("rows", "sections", "vector", "row_apart", "section_apart"),
    *("row_together", "section_together", "column"),
)
_SIGNATURE = KernelSignature(
    "LanesParameters",
    (
        Field("apart", Scalar.POINTER, 1),
        Field("together", Scalar.POINTER, 1),
        *(Field(name, Scalar.INT64, 1) for name in _NAMES),
    ),
)


@dataclass(frozen=True, slots=True)
class Apart:
    """Matrices with separated lanes: their address, and strides in elements. The elements of a
    lane are contiguous."""

    pointer: int
    row: int
    section: int
    lane: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LanesProblem:
    """Rows to copy to or from separated lanes.

    Attributes:
        first, rows: the first row, and the number of rows.
        sections: matrices of a row.
        apart: the separated lanes; its first row is row `first`.
        together: the whole matrix, whose columns are (section, own, lane).
    """

    first: int
    rows: int
    sections: int
    apart: Apart
    together: Strided


@dataclass(frozen=True, kw_only=True)
class MoveLanes(InWorkspace):
    """A step that copies matrices of `own` x `lanes` elements to or from separated lanes.

    Attributes:
        math: the multiply-add of the operation.
        join: whether lanes are joined; otherwise they are separated.
    """

    threads = _THREADS
    signature = _SIGNATURE
    styles = ("together", "apart")

    math: MathInstruction
    element: DataType
    own: int
    lanes: int
    join: bool

    def style(self, target: Target) -> Iterator[str]:
        yield "together" if self.join else "apart"

    def __str__(self) -> str:
        return f"{self.lanes} lanes of {self.own} {'together' if self.join else 'apart'}"

    @property
    def piece(self) -> int:
        """Elements of an access of 16 bytes; eight such pieces are a line."""
        return operands.vector_of(self.element)

    @derived
    def octets(self) -> int:
        """How many pieces of each lane of a matrix a block has."""
        pieces = operands.cover(self.own, self.piece)
        return operands.cover(pieces, operands.cover(pieces, _MOST_OCTETS))

    @property
    def run(self) -> int:
        return next(size for size in operands.powers_of_two(1, _MOST_OCTETS) if size >= self.octets)

    @derived
    def matrices(self) -> int:
        """How many matrices a block has."""
        whole = _TILE_BYTES // (self.octets * self.lanes * operands.VECTOR_BYTES)
        return max(1, min(_MOST_MATRICES, whole))

    @property
    def pitch(self) -> int:
        """Stride in pieces of a lane's pieces in shared memory, which avoids bank conflicts. It is
        even if the number of lanes is: sectors of 32 bytes then stay whole."""
        return self.lanes + 2 if self.lanes % 4 == 0 else self.lanes

    @property
    def tile_bytes(self) -> int:
        of_matrix = self.lanes * self.run if self.join else self.octets * self.pitch
        return self.matrices * of_matrix * operands.VECTOR_BYTES

    @property
    def shared_bytes(self) -> int:
        return self.tile_bytes + self.matrices * _START_BYTES

    def instantiation(self, target: Target) -> Instantiation:
        return Instantiation(
            header="lanes.cuh",
            template="kronop::move_lanes",
            parameters="kronop::LanesParameters",
            types=operands.element_types(self.math, self.element, self.element, None),
            constants=(
                ("kThreads", _THREADS),
                ("kBlocks", _BLOCKS),
                *named(self, "join own lanes matrices octets run pitch"),
                ("kStartsAt", self.tile_bytes),
            ),
            folders=(package_folder(__package__),),
        )

    def step(self, entry: str, sections: int) -> Step:
        """The step that moves `sections` matrices of each row."""
        return Step(
            entry=entry,
            design=self,
            per_row=PerRow(
                bytes=2 * sections * self.own * self.lanes * self.element.bytes, operations=0
            ),
            note=str(self),
        )

    def launches(self, problem: LanesProblem, target: Target) -> tuple[Launch, ...]:
        rows, sections = problem.rows, problem.sections
        apart, together = problem.apart, problem.together
        pointer = together.pointer + problem.first * together.row * self.element.bytes
        vector = (
            together.column == 1
            and pointer % operands.VECTOR_BYTES == 0
            and (rows == 1 or together.row % self.piece == 0)
        )
        values = {
            "apart": apart.pointer,
            "together": pointer,
            "rows": rows,
            "sections": sections,
            "vector": int(vector),
            "row_apart": apart.row,
            "section_apart": apart.section,
            "row_together": together.row,
            "section_together": self.own * self.lanes * together.column,
            "column": together.column,
        }
        parts = operands.cover(self.own, self.octets * self.piece)
        blocks = operands.cover(rows * sections, self.matrices) * parts
        return (operands.make_launch(self, blocks, values),)
