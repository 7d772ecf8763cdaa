"""Visitor trees of operations whose own kernels do not take them: a pass over the sums.

The operation's kernels leave their sums in the workspace, and the last step of the plan takes these
through the tree. So every design of a family serves trees, with all that trees can do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from kronop.artifacts import Launch, Status
from kronop.descriptions.datatype import DataType, Layout
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.summed import Summed, moved_bytes, summed
from kronop.emit.emitter import Emitter
from kronop.emit.plan import Plan, Step
from kronop.emit.visit_design import VisitDesign
from kronop.frozen import dataclass
from kronop.late import imported
from kronop.target import Target

_DESIGNS: Mapping[str, tuple[str, str]] = {
    "cuda": ("kronop.emit.cuda.visit_sums", "VisitSums"),
    "x86": ("kronop.emit.x86.visit_sums", "HostVisitSums"),
}


@dataclass(frozen=True, slots=True)
class Visiting:
    """Plans an operation with a visitor tree as `inner` plans it without, and a pass over sums.

    Attributes:
        inner: the emitter of the family.
    """

    inner: Emitter[Any, Any]

    def instruction(self, element: DataType, target: Target) -> MathInstruction:
        return self.inner.instruction(element, target)

    def supports(self, description: Any, target: Target) -> Status:
        """Whether both can be: the family's kernels, and the pass."""
        found = design_of(description, target).status(target)
        return found and self.inner.supports(summed(description), target)

    def plan(self, description: Any, target: Target, size: Any = None) -> Plan:
        return visited(self.inner.plan(summed(description), target, size), description)

    def candidates(
        self, description: Any, target: Target, count: int, size: Any = None
    ) -> tuple[Plan, ...]:
        plans = self.inner.candidates(summed(description), target, count, size)
        return tuple(visited(plan, description) for plan in plans)

    def workspace_bytes(self, plan: Plan, size: Any, threads: int) -> int:
        """Bytes that the family's kernels need; sums and parts of reductions come besides."""
        return self.inner.workspace_bytes(of_family(plan), size, threads)

    def launches(self, plan: Plan, problem: Summed) -> tuple[Launch, ...]:
        design = plan.steps[-1].design
        assert isinstance(design, VisitDesign)
        first = self.inner.launches(of_family(plan), problem.problem)
        return (*first, *design.launches(len(plan.steps) - 1, problem.visit))


def of_family(plan: Plan) -> Plan:
    """The plan without its last step."""
    return dataclasses.replace(plan, steps=plan.steps[:-1])


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
    output = epilogue.element_output
    step = Step(
        entry=f"visit_{sums.short}_{output.short}_{plan.target.arch}",
        design=design_of(description, plan.target),
        # Of one sum: rows may have any number of columns.
        bytes_per_row=moved_bytes(epilogue),
        operations_per_row=epilogue.tree.operations,
        note="takes the sums through the visitor tree; a row stands for one sum",
    )
    return dataclasses.replace(plan, steps=(*plan.steps, step))
