"""Quantized Kronecker products on CPUs: the product, and then its rows."""

from __future__ import annotations

from kronop.families.kron.x86.emitter import X86KronEmitter
from kronop.families.quantized.description import QuantizedKronDescription
from kronop.families.quantized.two_steps import TwoSteps
from kronop.families.quantized.x86.rows_design import HostRows
from kronop.target import Target


class X86Emitter(TwoSteps):
    """Plans the step of the product, and one for its rows."""

    product = X86KronEmitter()

    def rows_design(self, what: QuantizedKronDescription, target: Target) -> HostRows:
        return HostRows(element=what.X.element, columns=what.output_columns, bits=what.bits)
