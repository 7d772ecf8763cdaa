"""The floors of convolutions: from their multiply-adds, and the tensors that they read and write.

On a CPU they are those of one core.
"""

from __future__ import annotations

import functools
from typing import Any

from kronop.emit.design import Design
from kronop.emit.floor import Floor
from kronop.emit.plan import Step
from kronop.families.conv2d.description import Conv2dDescription
from kronop.families.conv2d.size import USUAL
from kronop.families.conv2d.vocabulary import Operator
from kronop.families.gemm.floors import LeastOfGemm, floor_of, product_step
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
        moved = self.kind.moved(size, self.element, self.output)
        return floor_of(self, target, size.products * self.products, moved, size)


def convolution_step(
    entry: str,
    what: Conv2dDescription,
    design: Design,
    *,
    note: str = "a convolution by",
    **how: Any,
) -> Step:
    """The step of a design, as `product_step` makes it."""
    least = functools.partial(LeastOfConv2d, kind=what.conv_kind)
    return product_step(entry, what, design, note=note, least=least, **how)
