"""Products one after the other, each by the plan of one.

Remembered plans hold it, so it stands apart from the planner, which they do not import.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from kronop.artifacts import Launch
from kronop.emit.design import Pipeline, Runnable
from kronop.families.gemm.description import GemmGroupedProblem
from kronop.families.gemm.size import GemmSize
from kronop.frozen import dataclass
from kronop.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Each(Pipeline):
    """Computes products one after the other, in the scratch memory of one.

    Attributes:
        product: what computes one.
    """

    product: Runnable

    joins: ClassVar[int] = 1  # How many launches of products one launch here takes.
    apart: ClassVar[int] = 0  # Bytes from one's parameters to the next one's.

    @property
    def parts(self) -> tuple[Runnable, ...]:
        return (self.product,)

    def workspace(self, size: GemmSize, target: Target, threads: int) -> int:
        """Bytes for the largest product."""
        return self.product.workspace(size, target, threads)

    def joined(self, launches: Sequence[Launch], target: Target, threads: int) -> Launch:
        """One launch for those of `joins` products at most, on so many threads of a host."""
        (launch,) = launches
        return launch

    def launches(self, problem: GemmGroupedProblem, target: Target) -> tuple[Launch, ...]:
        return tuple(
            launch for item in problem.problems for launch in self.launches_of(0, item, target)
        )
