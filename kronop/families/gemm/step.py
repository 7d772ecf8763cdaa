"""The step of a plan that computes products, of both targets."""

from __future__ import annotations

from kronop.descriptions.datatype import DataType
from kronop.emit.design import Design
from kronop.emit.plan import Step
from kronop.families.gemm.description import GemmDescription
from kronop.families.gemm.floors import LeastOfGemm


def product_step(
    entry: str,
    what: GemmDescription,
    design: Design,
    *,
    multiplied: DataType | None,
    products: int = 1,
    sums: DataType | None = None,
    note: str = "a matrix product by",
) -> Step:
    """The step of a design.

    Args:
        entry: the kernel's name.
        multiplied, products, sums: as in `LeastOfGemm`; sums of None are those of the description.
        note: what stands before the design in the step's note.
    """
    least = LeastOfGemm(
        element=what.A.element,
        output=what.Y.element,
        sums=sums or what.math.element_accumulator,
        multiplied=multiplied,
        products=products,
    )
    return Step(entry=entry, design=design, note=f"{note} {design}", least=least)
