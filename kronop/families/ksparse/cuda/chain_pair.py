"""Two adjacent Kronecker-sparse products, and the independent parts that they consist of."""

from __future__ import annotations

import math
from dataclasses import replace

from kronop.emit.cuda import operands
from kronop.emit.cuda.contraction.work import Contraction, Order
from kronop.families.ksparse.cuda.choice import contraction
from kronop.families.ksparse.description import KSparseDescription
from kronop.frozen import dataclass, derived


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two products, divided into parts that share no feature.

    A feature of the intermediate is (i1, j1, l1) for the first product and (i2, k2, l2) for the
    second. The common divisor of both `a` makes a leading digit of all features, that of both `d` a
    trailing one. Neither product mixes features that differ in one of these digits. A part has one
    value of the leading digit and `lanes` values of the trailing one.

    Attributes:
        first, second: the products, over all features.
        lanes: how many values of the trailing digit a part has.
    """

    first: Contraction
    second: Contraction
    lanes: int

    @property
    def products(self) -> tuple[Contraction, Contraction]:
        return self.first, self.second

    @derived
    def common_lanes(self) -> int:
        """The trailing digit's extent."""
        return math.gcd(self.first.lanes, self.second.lanes)

    @derived
    def parts(self) -> int:
        """How many independent parts there are."""
        return self._common_sections * (self.common_lanes // self.lanes)

    @derived
    def sections(self) -> tuple[int, int]:
        """How many sections (index i) of each product a part has."""
        first, second = (work.sections // self._common_sections for work in self.products)
        return first, second

    @derived
    def all_lanes(self) -> tuple[int, int]:
        """How many lanes of each product a part has."""
        first, second = (work.lanes // self.common_lanes * self.lanes for work in self.products)
        return first, second

    @property
    def _common_sections(self) -> int:
        return math.gcd(self.first.sections, self.second.sections)


def pairs(first: KSparseDescription, second: KSparseDescription) -> list[Pair]:
    """The pair with all common lanes in each part, and with as many lanes as one or two vectorised
    accesses; none if there is no tensor core instruction for it."""
    one, other = contraction(first), replace(contraction(second), x_order=Order.Own)
    if one.splits is None:
        return []
    common = math.gcd(one.lanes, other.lanes)
    access = operands.vector_of(one.source)
    widths = {common, *(size for size in (access, 2 * access) if common % size == 0)}
    return [Pair(first=one, second=other, lanes=lanes) for lanes in sorted(widths)]
