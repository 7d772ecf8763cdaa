"""The kernel that applies a visitor tree to sums on CPUs; see visit_sums.hpp."""

from __future__ import annotations

import dataclasses

from kronop.artifacts import KernelSignature, Launch, Status
from kronop.descriptions.strided import Strided
from kronop.descriptions.summed import LEAST_PART, VisitProblem, parts_of
from kronop.emit.design import Instantiation
from kronop.emit.visit_design import VisitDesign
from kronop.emit.x86 import planning
from kronop.frozen import dataclass
from kronop.target import Target

_PANEL = 32
_OWN = ("rows", "threads", "turned")
# Fewest elements of a work item, and most work items along a matrix. Neither depends on the number
# of threads, so that reductions do not either.
_ELEMENTS, _MOST_ITEMS = 1 << 14, 512
# Multiply-adds that take as long as an element of this kernel.
_WORK = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class HostVisitSums(VisitDesign):
    """Applies the tree row by row; a work item is some rows of the result."""

    threads = 0
    shared_bytes = 0

    def status(self, target: Target) -> Status:
        """Every tree is supported."""
        return Status.accept()

    @property
    def signature(self) -> KernelSignature:
        return self.signature_with("workspace", _OWN, planning.scalar_fields(self.epilogue))

    def instantiation(self, target: Target) -> Instantiation:
        visited, results = self.visited
        scalars = planning.parameter_arguments(self.epilogue)
        return Instantiation(
            header="kronop_x86/visit_sums.hpp",
            parameters=f"kronop::VisitSumsParameters<{scalars}, {visited}, {results}>",
            types=(("Accumulator", self.sums.cxx),),
            constants=(("kPanel", _PANEL),),
        )

    def launches(self, problem: VisitProblem, target: Target) -> tuple[Launch, ...]:
        work = _WORK * problem.m * problem.n * problem.problems
        threads = planning.shares(work, problem.threads, problem.threads)
        of = problem if self.along_rows else _turned(problem)
        rows = max(LEAST_PART, -(-_ELEMENTS // max(of.n, 1)), -(-of.m // _MOST_ITEMS))
        tile = (rows, _PANEL) if self.along_rows else (_PANEL, rows)
        folds, _ = parts_of(self.epilogue, problem.m, problem.n, problem.problems, tile)
        own = dict(zip(_OWN, (rows, threads, int(not self.along_rows)), strict=True))
        values = self.values_with("workspace", own, of, folds)
        return (Launch(parameters=self.signature.pack(values)),)


def _turned(problem: VisitProblem) -> VisitProblem:
    """The problem of the transposed result."""

    def across(item: Strided) -> Strided:
        return item.transposed

    return dataclasses.replace(
        problem,
        m=problem.n,
        n=problem.m,
        sums=across(problem.sums),
        operands=tuple(map(across, problem.operands)),
        results=tuple(map(across, problem.results)),
    )
