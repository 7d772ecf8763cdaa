"""One step on either target; it has no choices."""

from __future__ import annotations

from kronop.artifacts import Status
from kronop.emit.plan import PerRow, Plan, Step
from kronop.size import Rows
from kronop.target import Target
from tests.families.scaled.description import ScaledDescription
from tests.families.scaled.design import ScaledDesign


def supports(what: ScaledDescription, target: Target) -> Status:
    return _design(what, target).status(target)


def plans(
    what: ScaledDescription, target: Target, count: int, size: Rows | None
) -> tuple[Plan, ...]:
    name = f"scaled_{what.X.element.short}_{what.epilogue.name}_{target.arch}".replace("-", "_")
    moved = what.columns * (2 * what.X.element.bytes + what.Y.element.bytes)
    least = PerRow(bytes=moved, operations=what.columns)
    step = Step(entry=name, design=_design(what, target), per_row=least, note="X times W")
    return (Plan(target=target, steps=(step,)),)


def _design(what: ScaledDescription, target: Target) -> ScaledDesign:
    threads = 256 if target.backend == "cuda" else 0
    return ScaledDesign(math=what.math, epilogue=what.epilogue, threads=threads)
