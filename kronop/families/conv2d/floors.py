"""The floors of convolutions: from their multiply-adds, and the tensors that they read and write.

On a CPU they are those of one core.
"""

from __future__ import annotations

import math
from typing import Any

from kronop.descriptions.datatype import DataType
from kronop.emit.design import Design
from kronop.emit.floor import Floor
from kronop.emit.plan import Step
from kronop.families.conv2d.description import Conv2dDescription
from kronop.families.conv2d.size import USUAL, shapes_of
from kronop.families.conv2d.vocabulary import Operator
from kronop.families.gemm.floors import LeastOfGemm, floor_of
from kronop.frozen import dataclass
from kronop.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastOfConv2d(LeastOfGemm):
    """A step that computes a convolution, of both targets.

    Attributes:
        kind: what is computed.
    """

    kind: Operator

    def floor(self, target: Target, size: Any = None) -> Floor:
        """The floor on a target; `size` is a Conv2dSize, or None for the usual one."""
        size = size or USUAL[target.backend]
        types, shapes = (self.element, self.element, self.output), shapes_of(size)
        moved = sum(
            math.prod(shapes[name]) * item.bytes
            for name, item in zip(self.kind.tensors, types, strict=True)
        )
        return floor_of(self, target, size.products * self.products, moved, size)


def convolution_step(
    entry: str,
    what: Conv2dDescription,
    design: Design,
    *,
    multiplied: DataType | None,
    products: int = 1,
    sums: DataType | None = None,
    note: str = "a convolution by",
) -> Step:
    """The step of a design.

    Args:
        entry: the kernel's name.
        multiplied, products, sums: as in `LeastOfGemm`; sums of None are those of the description.
        note: what stands before the design in the step's note.
    """
    least = LeastOfConv2d(
        kind=what.conv_kind,
        element=what.A.element,
        output=what.Y.element,
        sums=sums or what.math.element_accumulator,
        multiplied=multiplied,
        products=products,
    )
    return Step(entry=entry, design=design, note=f"{note} {design}", least=least)
