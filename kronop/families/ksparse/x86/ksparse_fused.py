"""Plans of chains on CPUs: one kernel that applies all factors to a chunk of rows at a time, or one
product after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kronop.artifacts import Status
from kronop.descriptions.datatype import ColumnMajor, RowMajor
from kronop.emit.plan import Plan
from kronop.emit.x86.planning import common_status, kernel_name
from kronop.families.ksparse import chains
from kronop.families.ksparse.description import KSparseChainDescription, KSparseDescription
from kronop.families.ksparse.x86 import ksparse_choice
from kronop.families.ksparse.x86.ksparse_chain import KSparseChain, buffer_columns
from kronop.families.ksparse.x86.ksparse_vectors import KSparseVectors
from kronop.target import Target

# Bytes of the second-level cache for intermediates; and the fewest and most rows of a chunk. With
# fewer rows, each weight is loaded too often; more gain nothing.
_MIDDLE_BYTES = 384 * 1024
_FEWEST_ROWS, _MOST_ROWS = 32, 96
# The least ratio of the features of intermediates to those of X and Y for which one kernel pays.
# NOTE: at an eighth it lost 2 %, at a fifth it won 5 %, at twice as many as X and Y have 10 to 30 %
# (one AVX2 core, fp32).
_LEAST_SHARE = 1 / 6
# Most bytes of the packed weights of all factors, which every chunk reads again.
_WEIGHT_BYTES = 2 << 20


def fused(description: KSparseChainDescription, target: Target) -> Plan | None:
    """The plan with all factors in one step; None if that doesn't pay, or if the user gave a
    tile, which is for single products."""
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
    return Plan(target=target, steps=(step,))


def _design(singles: tuple[KSparseVectors, ...]) -> KSparseChain:
    lanes = max(single.lanes for single in singles)
    fitting = _MIDDLE_BYTES // (sum(buffer_columns(singles)) * singles[0].work.element.bytes)
    return KSparseChain(singles=singles, chunk=min(fitting, _MOST_ROWS) // lanes * lanes)


def _pays(design: KSparseChain) -> bool:
    """Whether intermediates have enough features, and the caches hold enough rows of them and all
    packed weights."""
    columns = [single.work.output_columns for single in design.singles]
    ends = design.singles[0].work.input_columns + columns[-1]
    is_much = sum(columns[:-1]) >= _LEAST_SHARE * ends
    return is_much and design.chunk >= _FEWEST_ROWS and sum(design.packed) <= _WEIGHT_BYTES


def supports(description: KSparseChainDescription, target: Target) -> Status:
    """Whether every factor has a plan on vectors, or the reason of the first that has none."""
    status = common_status(description.math, description.tile, target)
    if not status:
        return status
    statuses = (ksparse_choice.supports(item, target) for item in _products(description))
    return next((status for status in statuses if not status), Status.accept())


def plans(
    description: KSparseChainDescription, target: Target, count: int, rows: int | None
) -> tuple[Plan, ...]:
    """The plan with one step if that pays; then the cheapest product of each factor; then the next
    cheapest of one factor at a time."""
    products = _products(description)
    choices = [ksparse_choice.plans(item, target, count, rows) for item in products]
    apart = tuple(_apart(description, picked) for picked in _picks(choices, count))
    whole = fused(description, target)
    return apart if whole is None else (whole, *apart)[:count]


def _products(description: KSparseChainDescription) -> list[KSparseDescription]:
    return [chains.product(description, index) for index in range(len(description.patterns))]


def _picks(choices: Sequence[Sequence[Plan]], count: int) -> Iterator[list[Plan]]:
    """Choices of one plan for each factor: the best of each, then another one for one factor at a
    time."""
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


def _apart(description: KSparseChainDescription, picked: Sequence[Plan]) -> Plan:
    rejected = tuple(pair for plan in picked for pair in plan.rejected)
    return chains.plan(description, [(1, plan) for plan in picked], rejected)
