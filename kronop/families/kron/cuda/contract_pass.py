"""A Kronecker pass over one large factor as a contraction: what it computes, and what it costs."""

from __future__ import annotations

from kronop.emit.cuda import contract_step, operands
from kronop.emit.cuda.contract import Contraction, ContractTile, Order
from kronop.families.kron.cuda import few_rows
from kronop.families.kron.cuda.shapes import Ends, PassShape
from kronop.families.kron.cuda.tiles import Key
from kronop.target import Target

_TYPICAL_ROWS = 1024
# NOTE: measured over modelled cycles of one row, 128^2 to 1024 on one H200: 1 to 2.
_ALONE = 1.5


def contraction(
    by_columns: bool, factor_alignment: int, shape: PassShape, ends: Ends, rows: int | None = None
) -> Contraction:
    """One digit as a contraction whose rows are all free indices."""
    ((contracted, produced),) = shape.group
    inside = Order.Rows if shape.right > 1 else Order.Own
    return Contraction(
        contracted=contracted,
        produced=produced,
        lanes=1,
        rows=(rows or _TYPICAL_ROWS) * shape.left * shape.right,
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
    key: Key,
    shape: PassShape,
    ends: Ends,
    candidate: contract_step.Tile,
    target: Target,
    rows: int | None,
) -> float:
    """Of many rows in bytes per element of X, of `rows` rows in cycles."""
    work = contraction(key.by_columns, key.factor_alignment, shape, ends, rows)
    of_element = contract_step.cost(work, key.math, candidate, target)
    if rows is None:
        return of_element
    if isinstance(candidate, ContractTile):
        return _simt_cycles(shape, candidate, of_element, target, rows)
    return few_rows.CYCLES_OF_CALL + _ALONE * contract_step.cycles(work, of_element, target)


def _simt_cycles(
    shape: PassShape, candidate: ContractTile, of_element: float, target: Target, rows: int
) -> float:
    ((contracted, produced),) = shape.group
    across = operands.cover(produced, candidate.n)
    steady = of_element * few_rows.CYCLES_OF_A_BYTE * candidate.m * contracted / across / 128
    count = operands.cover(rows * shape.left * shape.right, candidate.m) * across
    times = few_rows.TileTimes(start=0.0, alone=2 * steady, steady=steady)
    return few_rows.cycles(count, times, target)
