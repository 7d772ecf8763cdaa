"""The choice of a tile for a Kronecker-sparse product on CUDA."""

from __future__ import annotations

import functools

from kronop.artifacts import Status
from kronop.descriptions.datatype import RowMajor
from kronop.descriptions.tensor import TensorDescription
from kronop.emit.cuda import operands
from kronop.emit.cuda.contraction import cost
from kronop.emit.cuda.contraction.choice import MOST_REFUSED, even_candidates
from kronop.emit.cuda.contraction.work import Contraction, Order
from kronop.emit.cuda.machine import hertz
from kronop.emit.plan import PerRow, Plan, Step
from kronop.families.ksparse.cuda import parted_choice
from kronop.families.ksparse.cuda.product import KSparseProduct
from kronop.families.ksparse.description import KSparseDescription
from kronop.target import Target

_MOST_SLOWER = 3
# Candidates that a plan needs: the best one, those whose rejection is reported, and the best one
# for many rows, which may be put in front.
_FEWEST = 2 + _MOST_SLOWER


def supports(description: KSparseDescription, target: Target) -> Status:
    """Whether there is a plan, or the reason why there is none."""
    status = operands.accept_element(description.math.element_a, target)
    if status and contraction(description).splits is None:
        status = operands.accept_math(description.math)
    status = status and operands.accept_products(description.math, target)
    if not status:
        return status
    accepted, rejected = _candidates(description, target, None, _FEWEST)
    return Status.accept() if accepted else Status.reject(rejected[0][1])


def plans(
    description: KSparseDescription, target: Target, count: int, rows: int | None
) -> tuple[Plan, ...]:
    """The `count` cheapest plans, with steps that pack weights or move lanes where these pay."""
    accepted, rejected = _ranked(description, target, rows, max(count, _FEWEST))
    work, every_row = contraction(description), all_rows(description, rows)
    best, *others = (
        (cost.bytes_of_element(work, every_row, took, target), item) for took, item in accepted
    )
    slower = [(str(item), f"cost {took:.2f}, the best {best[0]:.2f}") for took, item in others]
    beaten = (*slower[:_MOST_SLOWER], *rejected[:MOST_REFUSED])
    return tuple(
        Plan(
            target=target,
            steps=item.steps(_step(description, item, target)),
            rejected=() if place else beaten,
            pipeline=item,
        )
        for place, (_, item) in enumerate(accepted[:count])
    )


def _order(tensor: TensorDescription, batch_last: bool, lanes: int) -> Order:
    """Which index is contiguous in X or Y."""
    if batch_last == (tensor.layout is RowMajor):
        return Order.Rows
    return Order.Own if lanes == 1 else Order.Lanes


def contraction(description: KSparseDescription) -> Contraction:
    """The contraction that computes the product."""
    a, b, c, d = description.pattern
    return Contraction(
        contracted=c,
        produced=b,
        lanes=d,
        groups=a,
        math=description.math,
        epilogue=description.epilogue,
        source=description.X.element,
        output=description.Y.element,
        x_alignment=description.X.alignment,
        w_alignment=description.W.alignment,
        y_alignment=description.Y.alignment,
        x_order=_order(description.X, description.batch_last, d),
        w_order=Order.Own if d == 1 else Order.Lanes,
        y_order=_order(description.Y, description.batch_last, d),
    )


def all_rows(description: KSparseDescription, rows: int | None) -> int:
    """Rows of all groups together, for a batch of `rows` rows or a typical one."""
    return (rows or operands.MANY_ROWS) * description.pattern[0]


@functools.lru_cache(maxsize=256)
def _candidates(
    description: KSparseDescription, target: Target, rows: int | None, most: int
) -> tuple[list[tuple[float, KSparseProduct]], list[tuple[str, str]]]:
    work, every_row, given = contraction(description), all_rows(description, rows), description.tile
    accepted, rejected = even_candidates(work, every_row, target, given, most)
    every = [(took, KSparseProduct(product=item)) for took, item in accepted]
    parted = parted_choice.proposed(work, target, given)
    every += ((item.seconds(rows or operands.MANY_ROWS, target), item) for item in parted)
    return sorted(every, key=lambda item: item[0])[:most], rejected


def _ranked(
    description: KSparseDescription, target: Target, rows: int | None, most: int = _FEWEST
) -> tuple[list[tuple[float, KSparseProduct]], list[tuple[str, str]]]:
    """(seconds, candidate) for `rows` rows, and what was rejected. The best candidate for many rows
    is first, unless another gains much."""
    accepted, rejected = _candidates(description, target, rows, most)
    if rows is None:
        return accepted, rejected
    usual = _candidates(description, target, None, _FEWEST)[0][0][1]
    took = usual.seconds(rows, target)
    if operands.gains_much(accepted[0][0], took):
        return accepted, rejected
    return [(took, usual), *(item for item in accepted if item[1] != usual)], rejected


def modelled(
    description: KSparseDescription, target: Target, rows: int | None
) -> tuple[float, KSparseProduct]:
    """The modelled cycles of the plan for `rows` rows, and what it runs."""
    took, item = _ranked(description, target, rows)[0][0]
    return took * hertz(target), item


def _step(description: KSparseDescription, chosen: KSparseProduct, target: Target) -> Step:
    """The step that multiplies."""
    a, b, c, d = description.pattern
    x, y = description.X.element, description.Y.element
    first = "batch_last" if description.batch_last else "batch_first"
    return Step(
        entry=f"ksparse_{x.short}_{a}_{b}_{c}_{d}_{first}_{y.short}_{description.epilogue.name}"
        f"_{target.arch}",
        design=chosen.product,
        per_row=PerRow(
            bytes=description.input_columns * x.bytes + description.output_columns * y.bytes,
            operations=2 * a * b * c * d,
        ),
        note=f"I_{a} x dense({b}, {c}) x I_{d}, {first}, tiles of {chosen}",
    )
