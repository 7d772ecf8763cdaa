"""Gradients of weights on CUDA: blocks sum up shares of the rows, and further kernels add these."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from kronop.artifacts import Launch
from kronop.descriptions.strided import Strided
from kronop.emit.design import Pipeline, Runnable
from kronop.emit.plan import Step
from kronop.families.ksparse.cuda.gradient_ends import AddProblem, AddShares, FactorGradients
from kronop.families.ksparse.cuda.gradient_sums import GradientSums
from kronop.families.ksparse.gradient_description import KSparseGradientProblem
from kronop.frozen import dataclass
from kronop.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient(Pipeline):
    """Sums, then what adds their shares up and writes the gradient, be there rows or none.

    Attributes:
        factors: what turns the gradient of a Kronecker product into those of its factors; empty
            where it is the product's that is wanted.
    """

    writes_sums_of_nothing: ClassVar[bool] = True

    sums: GradientSums
    add: AddShares
    factors: tuple[FactorGradients, ...]

    @property
    def parts(self) -> tuple[Runnable, ...]:
        return *self.sums.movers, self.sums, self.add, *self.factors

    def steps(self, target: Target) -> tuple[Step, ...]:
        ends = (end.step(target) for end in (self.add, *self.factors))
        return *self.sums.steps(target), *ends

    def workspace(self, size: int, target: Target, threads: int) -> int:
        """Room for the sums of all shares, and for operands whose lanes are separated."""
        return self.sums.workspace(size, target, threads)

    def launches(self, problem: KSparseGradientProblem, target: Target) -> tuple[Launch, ...]:
        """The sums (none for an empty batch), and the launches that add their shares up."""
        problems = self.sums.problems(problem, target) if problem.rows else ()
        sums = [
            launch for place, own in problems for launch in self.launches_of(place, own, target)
        ]
        ends = enumerate(self._ends(problem, target), len(self.sums.movers) + 1)
        (added,), *others = (self.launches_of(place, own, target) for place, own in ends)
        added = replace(added, overlaps=self.sums.lets_next_begin and bool(sums))
        return *sums, added, *(launch for each in others for launch in each)

    def _ends(
        self, problem: KSparseGradientProblem, target: Target
    ) -> Iterator[AddProblem | KSparseGradientProblem]:
        """The problems of the kernels after the sums."""
        add = AddProblem(
            partial=problem.workspace,
            shares=self.sums.shares(problem.rows, target),
            y=problem.y,
            z=problem.z,
            scalars=problem.scalars,
        )
        if not self.factors:
            yield add
            return
        # Each sum overwrites its own first share, which no other thread reads.
        strides = (0, 0, 0, self.add.extents[-1], 1)
        y = Strided(pointer=problem.workspace, strides=strides)
        yield replace(add, y=y, z=None, scalars=(1.0, 0.0))
        yield problem
