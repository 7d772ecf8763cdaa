"""Steps that bring lanes apart and together again (`lanes.cuh`), and their launches."""

from __future__ import annotations

from dataclasses import dataclass

from kronop.artifacts import Field, KernelSignature, Launch, Scalar
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.strided import StridedMatrix
from kronop.emit.cuda import operands
from kronop.emit.design import Flat
from kronop.emit.plan import Step

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


def step(
    math: MathInstruction,
    element: DataType,
    own: int,
    lanes: int,
    *,
    join: bool,
    entry: str,
    traffic: int,
) -> Step:
    """The step for matrices of `own` x `lanes` elements; `traffic` is in bytes per row of X."""
    piece = operands.vector_of(element)
    parts = operands.cover(operands.cover(own, piece), _MOST_OCTETS)
    octets = operands.cover(operands.cover(own, piece), parts)
    run = next(size for size in operands.powers_of_two(1, _MOST_OCTETS) if size >= octets)
    whole = _TILE_BYTES // (octets * lanes * operands.VECTOR_BYTES)
    matrices = max(1, min(_MOST_MATRICES, whole))
    # Octets start in different banks, an even number of pieces apart where memory has them so (of
    # an even number of lanes): sectors of 32 bytes stay whole then.
    pitch = lanes + 2 if lanes % 4 == 0 else lanes
    pieces = matrices * lanes * run if join else matrices * octets * pitch
    tile_bytes = pieces * operands.VECTOR_BYTES
    return Step(
        entry=entry,
        bytes_per_row=traffic,
        operations_per_row=0,
        note=f"{lanes} lanes of {own} {'together' if join else 'apart'}",
        design=Flat(
            header="kronop/lanes.cuh",
            template="kronop::move_lanes",
            parameters="kronop::LanesParameters",
            types=operands.element_types(math, element, element, None),
            constants=(
                ("kThreads", _THREADS),
                ("kBlocks", _BLOCKS),
                ("kJoin", join),
                ("kOwn", own),
                ("kLanes", lanes),
                ("kMatrices", matrices),
                ("kOctets", octets),
                ("kRun", run),
                ("kPitch", pitch),
                ("kStartsAt", tile_bytes),
            ),
            signature=KernelSignature(
                "LanesParameters",
                (
                    Field("apart", Scalar.POINTER, 1),
                    Field("together", Scalar.POINTER, 1),
                    *(Field(name, Scalar.INT64, 1) for name in _NAMES),
                ),
            ),
            epilogue=None,
            threads=_THREADS,
            shared_bytes=tile_bytes + matrices * _START_BYTES,
        ),
    )


@dataclass(frozen=True, slots=True)
class Apart:
    """Matrices whose lanes are apart: an address, and strides in elements; lanes have no gaps."""

    pointer: int
    row: int
    group: int
    lane: int


def launch(
    index: int,
    step: Step,
    first: int,
    rows: int,
    groups: int,
    apart: Apart,
    together: StridedMatrix,
) -> Launch:
    """The launch for `rows` rows from `first` on; columns of `together` are (group, own, lane)."""
    element = operands.element_of(step, "Input")
    pointer = together.pointer + first * together.row * element.bytes
    own, lanes = operands.integer(step, "kOwn"), operands.integer(step, "kLanes")
    piece = operands.vector_of(element)
    group = own * lanes * together.column
    vector = (
        together.column == 1
        and pointer % operands.VECTOR_BYTES == 0
        and (rows == 1 or together.row % piece == 0)
    )
    octets, matrices = operands.integer(step, "kOctets"), operands.integer(step, "kMatrices")
    parts = operands.cover(own, octets * piece)
    values = {
        "apart": apart.pointer,
        "together": pointer,
        "rows": rows,
        "groups": groups,
        "vector": int(vector),
        "row_apart": apart.row,
        "group_apart": apart.group,
        "row_together": together.row,
        "group_together": group,
        "column": together.column,
    }
    blocks = operands.cover(rows * groups, matrices) * parts
    return operands.make_launch(index, step, blocks, values)
