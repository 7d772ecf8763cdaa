"""The cheapest of many candidates, found with a lower bound ("floor") that is faster than the cost.

Of thousands of tiles, costs are computed only for those whose floor is below the best cost so far.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

# Floors are multiplied by this, because rounding may make a sum of the same terms in another order
# slightly larger than the cost that it bounds.
ROUNDED = 1 - 1e-9


def cheapest(
    offered: Sequence[T],
    floor: Callable[[T], float],
    judge: Callable[[T], float | None],
    *,
    most: int = 1,
    slack: float = 1.0,
    limit: float = math.inf,
) -> list[tuple[float, T]]:
    """The cheapest candidates with their costs; of equal ones, those that are offered first.

    Args:
        floor: a lower bound of a candidate's cost.
        judge: the cost of a candidate; None if it is not possible.
        most: how many candidates to return.
        slack: also return candidates that cost up to so many times as much as the last of them.
        limit: candidates that cost more are left out.
    """
    floors = sorted((floor(item), place) for place, item in enumerate(offered))
    found: list[tuple[float, int]] = []
    for least, place in floors:
        if least > (limit if len(found) < most else slack * found[most - 1][0]):
            break
        cost = judge(offered[place])
        if cost is not None:
            bisect.insort(found, (cost, place))
    return [(cost, offered[place]) for cost, place in found]
