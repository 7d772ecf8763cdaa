"""Visitor trees of products whose kernels do not take them: sums, then a pass over the sums.

Warp groups multiply faster than the kernels that take trees, by more than the pass costs where sums
are long.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

from kronop.artifacts import Launch, Status
from kronop.descriptions.datatype import ColumnMajor, Layout, RowMajor
from kronop.descriptions.strided import StridedMatrix
from kronop.descriptions.summed import (
    UNCHANGED,
    VisitProblem,
    bytes_beside,
    summed,
    sums_alignment,
    sums_bytes,
)
from kronop.emit.cuda import operands
from kronop.emit.cuda.visit_sums import VisitSums
from kronop.emit.plan import Plan
from kronop.emit.visiting import design_of, of_family, visited
from kronop.families.gemm.cuda import group_choice
from kronop.families.gemm.cuda.group_design import GemmGroup
from kronop.families.gemm.description import GemmDescription, GemmProblem
from kronop.families.gemm.size import GemmSize
from kronop.frozen import dataclass
from kronop.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class TreePass:
    """A candidate: warp groups compute the sums.

    Attributes:
        tree: what is described.
        sums: the same without its tree.
        design: computes the sums.
    """

    tree: GemmDescription
    sums: GemmDescription
    design: GemmGroup

    def __str__(self) -> str:
        return f"{self.design}, then a pass over the sums"

    def status(self, target: Target) -> Status:
        return self._visit(target).status(target) and self.design.status(target)

    def seconds(self, size: GemmSize, target: Target) -> float:
        """Modelled time of all launches."""
        moved = self._visit(target).seconds(size.m * size.n * size.batch, target)
        return self.design.seconds(size, target) + moved

    def _visit(self, target: Target) -> VisitSums:
        return cast(VisitSums, design_of(self.tree, target))

    def plan(self, target: Target) -> Plan:
        steps = group_choice.steps(self.sums, target, self.design)
        return visited(Plan(target=target, steps=steps), self.tree)


def candidates(what: GemmDescription, target: Target) -> Iterator[TreePass]:
    """Those of a description with a visitor tree."""
    if not what.visitor or what.interleaved:
        return
    sums = summed(what, visitor=False)
    for design in group_choice.designs(sums, target):
        yield TreePass(tree=what, sums=sums, design=design)


def visit_of(plan: Plan) -> VisitSums | None:
    """The pass with which a plan ends, if it does."""
    last = plan.steps[-1].design
    return last if isinstance(last, VisitSums) else None


def workspace_bytes(visit: VisitSums, size: GemmSize) -> int:
    """Bytes for sums and parts of reductions."""
    return _beside(visit, (size.batch, size.m, size.n))


def summed_problem(plan: Plan, visit: VisitSums, problem: GemmProblem) -> tuple[Plan, GemmProblem]:
    """The plan without its pass, and the problem whose result are the sums."""
    beside = _beside(visit, (math.prod(problem.batch), problem.m, problem.n))
    return of_family(plan), replace(
        problem,
        y=_sums(visit, problem),
        z=None,
        bias=None,
        visited=(),
        scalars=UNCHANGED,
        workspace=problem.workspace + beside,
    )


def launches(plan: Plan, visit: VisitSums, problem: GemmProblem) -> tuple[Launch, ...]:
    """Those of the pass."""
    count = len(visit.epilogue.tree.tensors)
    shape = (math.prod(problem.batch), problem.m, problem.n)
    beside = sums_bytes(visit.sums, _layout(visit), shape)
    return visit.launches(
        len(plan.steps) - 1,
        VisitProblem(
            m=problem.m,
            n=problem.n,
            batch=problem.batch,
            sums=_sums(visit, problem),
            operands=problem.visited[:count],
            results=(problem.y, *problem.visited[count:]),
            scalars=problem.scalars,
            workspace=problem.workspace + beside,
            threads=problem.threads,
        ),
    )


def _layout(visit: VisitSums) -> Layout:
    return RowMajor if visit.along_rows else ColumnMajor


def _beside(visit: VisitSums, shape: tuple[int, int, int]) -> int:
    return bytes_beside(visit.epilogue, _layout(visit), shape)


def _sums(visit: VisitSums, problem: GemmProblem) -> StridedMatrix:
    """Where the sums lie: at the beginning of the workspace, one matrix after the other."""
    line, lines = (problem.n, problem.m) if visit.along_rows else (problem.m, problem.n)
    pitch = operands.round_up(line, sums_alignment(visit.sums))
    batch, apart = [], pitch * lines
    for extent in reversed(problem.batch):
        batch.append(apart)
        apart *= extent
    row, column = (pitch, 1) if visit.along_rows else (1, pitch)
    return StridedMatrix(
        pointer=problem.workspace, row=row, column=column, batch=tuple(reversed(batch))
    )
