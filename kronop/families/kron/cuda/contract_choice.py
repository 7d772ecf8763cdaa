"""Contractions as designs of a Kronecker pass over one large factor, and their costs."""

from __future__ import annotations

from collections.abc import Iterator

from kronop.artifacts import Status
from kronop.descriptions.tile import TileDescription
from kronop.emit.cuda import operands
from kronop.emit.cuda.contraction import choice
from kronop.emit.cuda.contraction.cost import bytes_of_element
from kronop.emit.cuda.contraction.design import ContractDesign
from kronop.emit.cuda.contraction.simt import SimtContract
from kronop.emit.cuda.contraction.work import Contraction, Order
from kronop.emit.cuda.machine import hertz
from kronop.families.kron.cuda import few_rows
from kronop.families.kron.cuda.contract_pass import ContractPass
from kronop.families.kron.cuda.shapes import PassShape, PassWork
from kronop.target import Target

_TYPICAL_ROWS = 1024
# NOTE: for one row of 128^2 to 1024 on one H200, measured cycles were 1 to 2 times the modelled
# ones.
_ALONE = 1.5


def offered(
    work: PassWork, given: TileDescription | None, target: Target, rows: int | None, most: int
) -> Iterator[tuple[ContractPass | None, Status]]:
    """The `most` cheapest contractions that can run the pass, or the reason why there is none."""
    accepted, rejected = choice.candidates(
        _contraction(work), _all_rows(work.shape, rows), target, given, most
    )
    for _, product in accepted:
        yield ContractPass(work=work, wrapped=product), Status.accept()
    if rejected and not accepted:
        yield None, Status.reject(rejected[0][1])


def of_element(design: ContractPass, target: Target) -> float:
    """The time for many rows, in bytes that memory could move meanwhile for each element of X."""
    return _of_element(design.wrapped, _all_rows(design.work.shape, None), target)


def cycles(design: ContractPass, rows: int, target: Target) -> float:
    """Cycles of the pass for `rows` rows."""
    every_row, product = _all_rows(design.work.shape, rows), design.wrapped
    if isinstance(product, SimtContract):
        return _simt_cycles(product, every_row, target)
    took = product.seconds(every_row, target) * hertz(target)
    return few_rows.CYCLES_OF_CALL + _ALONE * took


def _of_element(product: ContractDesign, rows: int, target: Target) -> float:
    if isinstance(product, SimtContract):
        return product.bytes_of_element(target)
    return bytes_of_element(product.work, rows, product.seconds(rows, target), target)


def _simt_cycles(product: SimtContract, rows: int, target: Target) -> float:
    each = product.bytes_of_element(target)
    across = operands.cover(product.work.produced, product.n)
    elements = product.m * product.work.contracted
    steady = each * few_rows.cycles_of_a_byte(target) * elements / across / 128
    times = few_rows.TileTimes(start=0.0, alone=2 * steady, steady=steady)
    return few_rows.cycles(operands.cover(rows, product.m) * across, times, target)


def _all_rows(shape: PassShape, rows: int | None) -> int:
    """The contraction's rows (all free indices) for `rows` rows of X, or for many."""
    return (rows or _TYPICAL_ROWS) * shape.left * shape.right


def _contraction(work: PassWork) -> Contraction:
    """The pass over one digit as a contraction without an epilogue; its rows are all free
    indices."""
    shape, ends = work.shape, work.ends
    ((contracted, produced),) = shape.factors
    inside = Order.Rows if shape.right > 1 else Order.Own
    return Contraction(
        contracted=contracted,
        produced=produced,
        lanes=1,
        math=work.math,
        epilogue=None,
        source=ends.source,
        output=ends.output,
        x_alignment=ends.source_alignment,
        w_alignment=work.factor_alignment,
        y_alignment=ends.output_alignment,
        x_order=Order.Rows if ends.source_by_rows else inside,
        w_order=Order.Rows if work.by_columns else Order.Own,
        y_order=Order.Rows if ends.output_by_rows else inside,
        run=None if ends.source_by_rows or ends.output_by_rows else shape.right,
    )
