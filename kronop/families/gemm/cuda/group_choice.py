"""Products by warp groups: the tiles that are candidates, and their steps."""

from __future__ import annotations

from collections.abc import Iterator

from kronop.artifacts import Status
from kronop.descriptions.datatype import ColumnMajor, RowMajor, float32, tfloat32
from kronop.descriptions.math_instruction import MathInstruction, MathOperation, OpClass
from kronop.descriptions.tensor import TensorDescription
from kronop.emit.plan import Step
from kronop.families.gemm.cuda.group_design import GRANULE, LINE_BYTES, TEAMS, GemmGroup
from kronop.families.gemm.description import GemmDescription
from kronop.families.gemm.least import LeastOfGemm
from kronop.target import Target

# (rows, columns, whether teams take tiles in turn) of a tile.
_TILES = ((128, 256, False), (128, 128, True), (64, 256, True), (128, 128, False), (64, 128, True))
_CLUSTERS = (2, 1)
_MOST_STAGES = 8
_BLOCK_BYTES = 64 * LINE_BYTES
_WARPS = (4 * TEAMS, 1, 1)


def status(what: GemmDescription, target: Target) -> Status:
    """Whether warp groups can read what was promised of the operands."""
    if target.arch != "sm_90a":
        return Status.reject(f"{target} has no warp-group products")
    if not _multiplies(what.math):
        return Status.reject(f"warp groups do not multiply by {what.math}")
    for name, item in (("A", what.A), ("B", what.B)):
        if item.alignment * item.element.bytes < GRANULE:
            return Status.reject(
                f"tensor maps take addresses and strides in multiples of {GRANULE} bytes, and {name}"
                f" promises {item.alignment} elements"
            )
    return Status.accept()


def _multiplies(math: MathInstruction) -> bool:
    if math.opcode_class is not OpClass.TensorOp:
        return False
    if math.element_a in (float32, tfloat32):
        return math.math_operation is MathOperation.multiply_add
    plain = math.math_operation in (
        MathOperation.multiply_add,
        MathOperation.multiply_add_saturate,
    )
    return plain and math.element_accumulator.bytes == 4


def designs(what: GemmDescription, target: Target) -> Iterator[GemmGroup]:
    """The ways to compute what is described by warp groups, if there are any."""
    if not status(what, target):
        return
    swapped = what.Y.layout is ColumnMajor
    # Of the transposed product, the left operand is B.
    left, right = (what.B, what.A) if swapped else (what.A, what.B)
    turned_a = left.layout is (RowMajor if swapped else ColumnMajor)
    turned_b = right.layout is (ColumnMajor if swapped else RowMajor)
    for m, n, alternate in _TILES:
        lines = _lines(what.Y, n)
        for cluster in _CLUSTERS:
            room = target.shared_bytes - TEAMS * lines * _BLOCK_BYTES - 1024
            stages = min(_MOST_STAGES, room // ((m + n) * LINE_BYTES))
            design = GemmGroup(
                math=what.math,
                source=what.A.element,
                output=what.Y.element,
                epilogue=what.epilogue,
                m=m,
                n=n,
                stages=stages,
                lines=lines,
                cluster=cluster,
                alternate=alternate,
                turned_a=turned_a,
                turned_b=turned_b,
                swapped=swapped,
            )
            if what.tile is None or _is_asked(what, design):
                yield design


def _lines(result: TensorDescription, columns: int) -> int:
    """Lines of results that a team stores at once: a row's, of at most 128 columns."""
    return max(1, min(columns, 128) * result.element.bytes // LINE_BYTES)


def _is_asked(what: GemmDescription, design: GemmGroup) -> bool:
    tile = what.tile
    assert tile is not None
    asked = (tile.threadblock_shape, tile.stages, tile.warp_count)
    return asked == ((design.m, design.n, design.slab), design.stages, _WARPS)


def steps(what: GemmDescription, target: Target, design: GemmGroup) -> tuple[Step, ...]:
    """The step of a plan."""
    name = f"gemm_group_{what.A.element.short}_{what.epilogue.name}_{design.m}x{design.n}"
    return (
        Step(
            entry=f"{name}_{target.arch}",
            design=design,
            bytes_per_row=what.Y.element.bytes,
            operations_per_row=2,
            note=f"a matrix product by {design}",
            least=LeastOfGemm(
                element=what.A.element,
                output=what.Y.element,
                sums=what.math.element_accumulator,
                multiplied=what.math.element_a,
            ),
        ),
    )
