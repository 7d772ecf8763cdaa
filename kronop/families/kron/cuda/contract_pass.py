"""A Kronecker pass over one large factor as a contraction: what it computes, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass

from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.cuda import operands
from kronop.emit.cuda.contraction.cost import cycles
from kronop.emit.cuda.contraction.design import ContractDesign
from kronop.emit.cuda.contraction.simt import SimtContract
from kronop.emit.cuda.contraction.work import Contraction, Order
from kronop.emit.design import Constant, Design, Instantiation
from kronop.families.kron.cuda import few_rows
from kronop.families.kron.cuda.shapes import Ends, PassShape
from kronop.target import Target

_TYPICAL_ROWS = 1024
# NOTE: measured over modelled cycles of one row, 128^2 to 1024 on one H200: 1 to 2.
_ALONE = 1.5


def all_rows(shape: PassShape, rows: int | None) -> int:
    """All free indices, for so many rows or for many."""
    return (rows or _TYPICAL_ROWS) * shape.left * shape.right


def contraction(
    math: MathInstruction, by_columns: bool, factor_alignment: int, shape: PassShape, ends: Ends
) -> Contraction:
    """One digit as a contraction whose rows are all free indices; sums are stored as they are."""
    ((contracted, produced),) = shape.group
    inside = Order.Rows if shape.right > 1 else Order.Own
    return Contraction(
        contracted=contracted,
        produced=produced,
        lanes=1,
        math=math,
        epilogue=None,
        source=ends.source,
        output=ends.output,
        x_alignment=ends.source_alignment,
        w_alignment=factor_alignment,
        y_alignment=ends.output_alignment,
        x_order=Order.Rows if ends.source_by_rows else inside,
        w_order=Order.Rows if by_columns else Order.Own,
        y_order=Order.Rows if ends.output_by_rows else inside,
        run=None if ends.source_by_rows or ends.output_by_rows else shape.right,
    )


def cost(
    shape: PassShape,
    candidate: ContractDesign,
    target: Target,
    rows: int | None,
) -> float:
    """Of many rows in bytes per element of X, of `rows` rows in cycles."""
    every_row = all_rows(shape, rows)
    of_element = candidate.cost(every_row, target)
    if rows is None:
        return of_element
    if isinstance(candidate, SimtContract):
        return _simt_cycles(shape, candidate, of_element, target, rows)
    return few_rows.CYCLES_OF_CALL + _ALONE * cycles(candidate.work, every_row, of_element, target)


def _simt_cycles(
    shape: PassShape, candidate: SimtContract, of_element: float, target: Target, rows: int
) -> float:
    ((contracted, produced),) = shape.group
    across = operands.cover(produced, candidate.n)
    steady = of_element * few_rows.CYCLES_OF_A_BYTE * candidate.m * contracted / across / 128
    count = operands.cover(rows * shape.left * shape.right, candidate.m) * across
    times = few_rows.TileTimes(start=0.0, alone=2 * steady, steady=steady)
    return few_rows.cycles(count, times, target)


@dataclass(frozen=True, kw_only=True)
class TempPass(Design):
    """TEMPORARY."""

    product: ContractDesign
    own: tuple[tuple[str, Constant], ...]

    epilogue = property(lambda self: self.product.epilogue)
    threads = property(lambda self: self.product.threads)
    shared_bytes = property(lambda self: self.product.shared_bytes)
    signature = property(lambda self: self.product.signature)
    template = ""

    @property
    def types(self) -> tuple[tuple[str, str], ...]:
        work = self.product.work
        return operands.element_types(work.math, work.source, work.output, work.epilogue)

    def constant(self, name: str) -> Constant:
        return dict(self.own)[name]

    def instantiation(self, target: Target) -> Instantiation:
        return self.product.instantiation(target)
