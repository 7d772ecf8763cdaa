"""Two adjacent Kronecker-sparse products as one piece of work: its independent parts."""

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
    """Two products and how they fall into parts that share no feature.

    The middle's features are (i1, j1, l1) of the first product and (i2, k2, l2) of the second. What
    both a have in common is a leading digit of both, what both d have in common a trailing one:
    features with other digits there never meet. A part has one of the leading digits and `lanes` of
    the trailing ones.

    Attributes:
        first, second: the products, over all features.
        lanes: how many of the trailing digit's values a part has.
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
        """How many there are."""
        return self._common_groups * (self.common_lanes // self.lanes)

    @derived
    def groups(self) -> tuple[int, int]:
        """Those of both products in a part."""
        first, second = (work.groups // self._common_groups for work in self.products)
        return first, second

    @derived
    def all_lanes(self) -> tuple[int, int]:
        """Those of both products in a part."""
        first, second = (work.lanes // self.common_lanes * self.lanes for work in self.products)
        return first, second

    @property
    def _common_groups(self) -> int:
        return math.gcd(self.first.groups, self.second.groups)


def pairs(first: KSparseDescription, second: KSparseDescription) -> list[Pair]:
    """The pair with all common lanes in a part, and with as many as whole accesses bring; none
    where no tensor core multiplies so."""
    one, other = contraction(first), replace(contraction(second), x_order=Order.Own)
    if one.splits is None:
        return []
    common = math.gcd(one.lanes, other.lanes)
    access = operands.vector_of(one.source)
    widths = {common, *(size for size in (access, 2 * access) if common % size == 0)}
    return [Pair(first=one, second=other, lanes=lanes) for lanes in sorted(widths)]
