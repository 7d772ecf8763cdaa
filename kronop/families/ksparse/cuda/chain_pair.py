"""Two adjacent Kronecker-sparse products as one piece of work: its independent parts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from kronop.emit.cuda import operands
from kronop.emit.cuda.contraction.work import Contraction, Order
from kronop.families.ksparse.cuda.emitter import contraction
from kronop.families.ksparse.description import KSparseDescription


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two products and how they fall into parts that share no feature.

    The middle's features are (i1, j1, l1) of the first product and (i2, k2, l2) of the second. What
    both a have in common is a leading digit of both, what both d have in common a trailing one:
    features with other digits there never meet. A part has one of the leading digits and `lanes` of
    the trailing ones.

    Attributes:
        first, second: the products, over all features.
        rows: of the batch, for which tiles are chosen.
        parts: how many there are.
        common_lanes: the trailing digit's extent.
        lanes: how many of them a part has.
        groups, all_lanes: of both products in a part.
    """

    first: Contraction
    second: Contraction
    rows: int
    parts: int
    common_lanes: int
    lanes: int
    groups: tuple[int, int]
    all_lanes: tuple[int, int]

    @property
    def products(self) -> tuple[Contraction, Contraction]:
        return self.first, self.second

    @property
    def middle(self) -> int:
        """Features of a part between the products."""
        return self.groups[0] * self.first.produced * self.all_lanes[0]

    def weights(self, index: int) -> int:
        """Elements of a part's weights."""
        work = self.products[index]
        return self.groups[index] * self.all_lanes[index] * work.contracted * work.produced


def pairs(first: KSparseDescription, second: KSparseDescription, rows: int | None) -> list[Pair]:
    """The pair with all common lanes in a part, and with as many as whole accesses bring."""
    (a1, _, _, d1), (a2, _, _, d2) = first.pattern, second.pattern
    common = math.gcd(d1, d2)
    access = operands.vector_of(first.X.element)
    widths = {common, *(size for size in (access, 2 * access) if common % size == 0)}
    groups = math.gcd(a1, a2)
    works = [contraction(first, rows), replace(contraction(second, rows), x_order=Order.Own)]
    return [
        Pair(
            first=works[0],
            second=works[1],
            rows=works[0].rows // a1,
            parts=groups * (common // lanes),
            common_lanes=common,
            lanes=lanes,
            groups=(a1 // groups, a2 // groups),
            all_lanes=(d1 // common * lanes, d2 // common * lanes),
        )
        for lanes in sorted(widths)
    ]
