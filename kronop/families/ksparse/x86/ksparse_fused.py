"""Planning chains on CPUs: all factors through one kernel, for so many rows at once, or one product
after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kronop.artifacts import Status
from kronop.descriptions.datatype import ColumnMajor, RowMajor
from kronop.emit.plan import Plan
from kronop.emit.x86.planning import common_status, kernel_name
from kronop.families.ksparse import chains
from kronop.families.ksparse.chain_description import KSparseChainDescription
from kronop.families.ksparse.description import KSparseDescription
from kronop.families.ksparse.x86 import ksparse_choice
from kronop.families.ksparse.x86.ksparse_chain import KSparseChain, buffer_columns
from kronop.families.ksparse.x86.ksparse_vectors import KSparseVectors
from kronop.target import Target

# What is between factors should take of the second-level cache, and the rows of a chunk: with
# fewer, weights are loaded too often from where they are; more gain nothing.
_MIDDLE_BYTES = 384 * 1024
_FEWEST_ROWS, _MOST_ROWS = 32, 96
# NOTE: where little is between factors, compared to what is read and written, there is nothing
# to gain: an eighth lost 2 %, a fifth won 5 %, twice as much 10 to 30 % (one AVX2 core, fp32).
_LEAST_SHARE = 1 / 6
# Packed weights of all factors, which every chunk reads.
_WEIGHT_BYTES = 2 << 20


def fused(description: KSparseChainDescription, target: Target) -> Plan | None:
    """All factors in one step; None where that does not pay, or the user's tile is to be taken."""
    count = len(description.patterns)
    if count < 2 or description.tile is not None:
        return None
    layout = RowMajor if description.batch_last else ColumnMajor
    items = [chains.product(description, index, layout) for index in range(count)]
    design = _design(tuple(ksparse_choice.cheapest_on_vectors(item, target) for item in items))
    if not _pays(design):
        return None
    sizes = "_then_".join("_".join(map(str, pattern)) for pattern in description.patterns)
    sizes += "_last" * description.batch_last
    step = design.step(
        kernel_name("ksparse_chain", description.X.element, sizes, target),
        f"{count} Kronecker-sparse factors, {design}",
    )
    return Plan(target=target, steps=chains.piece((step,), items[-1], count))


def _design(singles: tuple[KSparseVectors, ...]) -> KSparseChain:
    lanes = max(single.lanes for single in singles)
    fitting = _MIDDLE_BYTES // (sum(buffer_columns(singles)) * singles[0].work.element.bytes)
    return KSparseChain(singles=singles, chunk=min(fitting, _MOST_ROWS) // lanes * lanes)


def _pays(design: KSparseChain) -> bool:
    """Whether enough is between factors, enough rows of it fit, and all weights do."""
    columns = [single.work.output_columns for single in design.singles]
    ends = design.singles[0].work.input_columns + columns[-1]
    is_much = sum(columns[:-1]) >= _LEAST_SHARE * ends
    return is_much and design.chunk >= _FEWEST_ROWS and sum(design.packed) <= _WEIGHT_BYTES


def supports(description: KSparseChainDescription, target: Target) -> Status:
    """Whether every factor has a plan on vectors, and why not where one has none."""
    status = common_status(description.math, description.tile, target)
    if not status:
        return status
    statuses = (ksparse_choice.supports(item, target) for item in _products(description))
    return next((status for status in statuses if not status), Status.accept())


def plans(
    description: KSparseChainDescription, target: Target, count: int, rows: int | None
) -> tuple[Plan, ...]:
    """The chain in one step where that pays, the cheapest plans of all factors, the next ones of
    each in turn."""
    products = _products(description)
    choices = [ksparse_choice.plans(item, target, count, rows) for item in products]
    apart = tuple(_plan(products, picked) for picked in _picks(choices, count))
    whole = fused(description, target)
    return apart if whole is None else (whole, *apart)[:count]


def _products(description: KSparseChainDescription) -> list[KSparseDescription]:
    return [chains.product(description, index) for index in range(len(description.patterns))]


def _picks(choices: Sequence[Sequence[Plan]], count: int) -> Iterator[list[Plan]]:
    """The first of each; then one factor's others, with the first of the rest."""
    first = [plans[0] for plans in choices]
    others = (
        [*first[:index], plans[place], *first[index + 1 :]]
        for place in range(1, max(map(len, choices)))
        for index, plans in enumerate(choices)
        if place < len(plans)
    )
    yield first
    for _, pick in zip(range(count - 1), others, strict=False):
        yield pick


def _plan(products: Sequence[KSparseDescription], picked: Sequence[Plan]) -> Plan:
    return Plan(
        target=picked[0].target,
        steps=tuple(
            step
            for plan, item in zip(picked, products, strict=True)
            for step in chains.piece(plan.steps, item, 1)
        ),
        rejected=tuple(pair for plan in picked for pair in plan.rejected),
    )
