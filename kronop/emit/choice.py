"""The choice among designs of one step: the least modelled time, on both targets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from kronop.artifacts import Status
from kronop.emit.design import Pipeline
from kronop.emit.plan import Plan, Step
from kronop.size import Size
from kronop.target import Target

_MOST_REPORTED = 12


class Judged(Protocol):
    """A design or pipeline that can tell whether its kernels run on a target, and how long."""

    def status(self, target: Target) -> Status: ...
    def seconds(self, size: Any, target: Target) -> float: ...


AnyDesign = TypeVar("AnyDesign", bound=Judged)


def cheapest_plans(
    designs: Iterable[AnyDesign],
    steps: Callable[[AnyDesign], tuple[Step, ...]],
    *,
    target: Target,
    size: Size,
    count: int,
    scale: Callable[[AnyDesign], float] = lambda _: 1,
) -> tuple[Plan, ...]:
    """The plans of the `count` cheapest designs; the first lists those that it beat.

    Args:
        steps: the steps of a plan.
        scale: a factor of a design's modelled time for that size.
    """
    every = [(item, item.status(target)) for item in designs]
    ranked = sorted(
        (item.seconds(size, target) * scale(item), index, item)
        for index, (item, ok) in enumerate(every)
        if ok
    )
    rejected = [(str(item), status.reason) for item, status in every if not status]
    beaten = [
        (str(item), f"{took * 1e6:.1f} us for {size.told()}, the best {ranked[0][0] * 1e6:.1f}")
        for took, _, item in ranked[1:]
    ]
    return tuple(
        Plan(
            target=target,
            steps=steps(item),
            rejected=() if place else tuple([*beaten, *rejected][:_MOST_REPORTED]),
            pipeline=item if isinstance(item, Pipeline) else None,
        )
        for place, (_, _, item) in enumerate(ranked[:count])
    )
