"""Visitor trees of operations whose own kernels do not take them: a pass over the sums.

The operation's kernels leave their sums in the workspace, and the last step of the plan takes these
through the tree. So every design of a family serves trees, with all that trees can do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from kronop.artifacts import Launch, Status
from kronop.descriptions.datatype import Layout
from kronop.descriptions.summed import Summed, moved_bytes, summed
from kronop.emit.design import Pipeline, Runnable
from kronop.emit.emitter import Emitter
from kronop.emit.plan import PerRow, Plan, Step
from kronop.emit.visit_design import VisitDesign
from kronop.frozen import dataclass
from kronop.late import imported
from kronop.target import Target

_DESIGNS: Mapping[str, tuple[str, str]] = {
    "cuda": ("kronop.emit.cuda.visit_sums", "VisitSums"),
    "x86": ("kronop.emit.x86.visit_sums", "HostVisitSums"),
}


@dataclass(frozen=True, slots=True)
class Visiting(Emitter):
    """Plans an operation with a visitor tree as the family's emitter plans it without, and a pass
    over sums."""

    @classmethod
    def of(cls, family: Emitter) -> Visiting:
        return cls(family.search, family.default)

    def supports(self, description: Any, target: Target) -> Status:
        """Whether both can be: the family's kernels, and the pass."""
        found = design_of(description, target).status(target)
        return found and Emitter.supports(self, summed(description), target)

    def _plans(self, description: Any, target: Target, count: int, size: Any) -> tuple[Plan, ...]:
        plans = Emitter._plans(self, summed(description), target, count, size)
        return tuple(visited(plan, description) for plan in plans)


@dataclass(frozen=True, slots=True, kw_only=True)
class Visited(Pipeline):
    """The family's kernels, and the pass over their sums."""

    family: Runnable
    visit: VisitDesign

    @property
    def parts(self) -> tuple[Runnable, ...]:
        return self.family, self.visit

    def workspace(self, size: Any, target: Target, threads: int) -> int:
        """Bytes that the family's kernels need; sums and parts of reductions come besides."""
        return self.family.workspace(size, target, threads)

    def launches(self, problem: Summed, target: Target) -> tuple[Launch, ...]:
        first = self.launches_of(0, problem.problem, target)
        return (*first, *self.launches_of(1, problem.visit, target))


def design_of(description: Any, target: Target) -> VisitDesign:
    """The pass over the sums of what is described."""
    module, name = _DESIGNS[target.backend]
    made: VisitDesign = getattr(imported(module), name)(
        sums=description.math.element_accumulator,
        along_rows=description.Y.layout is Layout.RowMajor,
        epilogue=description.epilogue,
    )
    return made


def visited(plan: Plan, description: Any) -> Plan:
    """The plan with the pass as its last step."""
    epilogue, sums = description.epilogue, description.math.element_accumulator
    output, design = epilogue.element_output, design_of(description, plan.target)
    step = Step(
        entry=f"visit_{sums.short}_{output.short}_{plan.target.arch}",
        design=design,
        # Of one sum: rows may have any number of columns.
        per_row=PerRow(bytes=moved_bytes(epilogue), operations=epilogue.tree.operations),
        note="takes the sums through the visitor tree; a row stands for one sum",
    )
    pipeline = Visited(family=plan.runnable, visit=design)
    return dataclasses.replace(plan, steps=(*plan.steps, step), pipeline=pipeline)
