"""Plans of quantized Kronecker products on CPUs: the product, and then its rows."""

from __future__ import annotations

from kronop.artifacts import Status
from kronop.emit.plan import Plan
from kronop.families.kron.x86 import kron_choice
from kronop.families.quantized.description import QuantizedKronDescription
from kronop.families.quantized.two_steps import rounded
from kronop.families.quantized.x86.rows_design import HostRows
from kronop.target import Target


def supports(description: QuantizedKronDescription, target: Target) -> Status:
    return kron_choice.supports(description.product, target)


def plans(
    description: QuantizedKronDescription, target: Target, count: int, size: int | None
) -> tuple[Plan, ...]:
    what = description
    rows = HostRows(element=what.X.element, columns=what.output_columns, bits=what.bits)
    return rounded(kron_choice.plans(what.product, target, count, size), what, rows)
