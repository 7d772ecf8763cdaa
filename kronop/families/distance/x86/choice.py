"""Plans of kernels of pairs of points on CPUs: the candidate with the least modelled time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from kronop.artifacts import Status
from kronop.emit.choice import cheapest_plans
from kronop.emit.plan import Plan, Step
from kronop.emit.x86.planning import common_status
from kronop.families.distance.description import DistanceDescription
from kronop.families.distance.size import USUAL, DistanceSize
from kronop.families.distance.steps import fields_of, matrix_step
from kronop.families.distance.x86.design import DistanceTiles
from kronop.target import Target

_ROWS, _VECTORS = (1, 2, 3, 4, 6, 8, 12), (1, 2, 3, 4)


def supports(description: DistanceDescription, target: Target) -> Status:
    """Whether vectors can do the math and the user's tile."""
    return common_status(description.math, description.tile, target)


def plans(
    description: DistanceDescription, target: Target, count: int, size: DistanceSize | None
) -> tuple[Plan, ...]:
    """The plans of the `count` cheapest candidates: see `cheapest_plans`."""
    size = size or USUAL[target.backend]
    return cheapest_plans(
        _designs(description, target),
        lambda item: (_step(description, target, item),),
        target=target,
        size=size,
        count=count,
    )


def _designs(what: DistanceDescription, target: Target) -> Iterator[DistanceTiles]:
    expanding, symmetric = [False, True][: 1 + what.expanded], [False, True][: 1 + what.symmetric]
    for expanded, once, rows, vectors in itertools.product(expanding, symmetric, _ROWS, _VECTORS):
        yield DistanceTiles(
            **fields_of(what),
            vector_bytes=target.vector_bytes,
            rows=rows,
            vectors=vectors,
            symmetric=once,
            expanded=expanded,
        )


def _step(what: DistanceDescription, target: Target, design: DistanceTiles) -> Step:
    symmetric, expanded = design.symmetric, design.expanded
    return matrix_step(what, target, design, symmetric=symmetric, expanded=expanded)
