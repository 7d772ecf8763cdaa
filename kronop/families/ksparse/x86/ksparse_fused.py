"""Whether all factors of a chain go through one kernel on a CPU, and how many rows at once."""

from __future__ import annotations

from kronop.descriptions.datatype import ColumnMajor, RowMajor
from kronop.emit.plan import Plan
from kronop.emit.x86.planning import kernel_name
from kronop.families.ksparse import chains
from kronop.families.ksparse.chain_description import KSparseChainDescription
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
