"""Steps that bring lanes apart and together again (`lanes.cuh`)."""

from __future__ import annotations

from collections.abc import Iterator

from kronop.artifacts import Field, KernelSignature, Launch, Scalar
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.strided import StridedMatrix
from kronop.emit.cuda import operands
from kronop.emit.design import Design, Instantiation
from kronop.frozen import dataclass, derived
from kronop.target import Target

# Lanes that a block can have at once, all of them.
MOST_LANES = 512
_THREADS, _BLOCKS, _TILE_BYTES = 256, 5, 16384
# Pieces of a run: the 128 bytes of a line.
_MOST_OCTETS = 8
# Matrices of a block, and two addresses of each.
_MOST_MATRICES, _START_BYTES = 128, 16
_NAMES = (
    *("rows", "groups", "vector", "row_apart", "group_apart"),
    *("row_together", "group_together", "column"),
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
    """Matrices whose lanes are apart: an address, and strides in elements; lanes have no gaps."""

    pointer: int
    row: int
    group: int
    lane: int


@dataclass(frozen=True, kw_only=True)
class MoveLanes(Design):
    """Matrices of `own` x `lanes` elements, to or from memory where lanes are apart.

    Attributes:
        math: of the operation.
        join: whether lanes come together.
    """

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
    def epilogue(self) -> None:
        return None

    @property
    def threads(self) -> int:
        return _THREADS

    @property
    def signature(self) -> KernelSignature:
        return _SIGNATURE

    @property
    def piece(self) -> int:
        """Elements of an access: an octet of pieces is a line."""
        return operands.vector_of(self.element)

    @derived
    def octets(self) -> int:
        """Pieces of a matrix's lane that a block has."""
        pieces = operands.cover(self.own, self.piece)
        return operands.cover(pieces, operands.cover(pieces, _MOST_OCTETS))

    @property
    def run(self) -> int:
        return next(size for size in operands.powers_of_two(1, _MOST_OCTETS) if size >= self.octets)

    @derived
    def matrices(self) -> int:
        """Of a block."""
        whole = _TILE_BYTES // (self.octets * self.lanes * operands.VECTOR_BYTES)
        return max(1, min(_MOST_MATRICES, whole))

    @property
    def pitch(self) -> int:
        """From one octet to the next: in different banks, an even number of pieces apart where
        memory has them so (of an even number of lanes): sectors of 32 bytes stay whole then."""
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
            header="kronop/lanes.cuh",
            template="kronop::move_lanes",
            parameters="kronop::LanesParameters",
            types=operands.element_types(self.math, self.element, self.element, None),
            constants=(
                ("kThreads", _THREADS),
                ("kBlocks", _BLOCKS),
                ("kJoin", self.join),
                ("kOwn", self.own),
                ("kLanes", self.lanes),
                ("kMatrices", self.matrices),
                ("kOctets", self.octets),
                ("kRun", self.run),
                ("kPitch", self.pitch),
                ("kStartsAt", self.tile_bytes),
            ),
        )

    def launch(
        self, index: int, first: int, rows: int, groups: int, apart: Apart, together: StridedMatrix
    ) -> Launch:
        """The launch for `rows` rows from `first` on; columns of `together` are (group, own,
        lane)."""
        pointer = together.pointer + first * together.row * self.element.bytes
        vector = (
            together.column == 1
            and pointer % operands.VECTOR_BYTES == 0
            and (rows == 1 or together.row % self.piece == 0)
        )
        values = {
            "apart": apart.pointer,
            "together": pointer,
            "rows": rows,
            "groups": groups,
            "vector": int(vector),
            "row_apart": apart.row,
            "group_apart": apart.group,
            "row_together": together.row,
            "group_together": self.own * self.lanes * together.column,
            "column": together.column,
        }
        parts = operands.cover(self.own, self.octets * self.piece)
        blocks = operands.cover(rows * groups, self.matrices) * parts
        return operands.make_launch(index, self, blocks, values)
