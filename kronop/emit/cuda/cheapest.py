"""The cheapest of many candidates, where what one costs at least is told sooner than what it costs.

Of thousands of tiles a few are judged: those whose floor is below the cost of the best so far.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

# A sum of the same terms in another order may be so much less: floors are multiplied by this.
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
    """The cheapest candidates with their costs, among equal ones those that are offered first.

    Args:
        floor: what a candidate costs at least.
        judge: what it costs; None where it may not be.
        most: how many are wanted.
        slack: those that cost so many times as much as the last of them are wanted as well.
        limit: those that cost more are not wanted.
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
