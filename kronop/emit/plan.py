"""Plan and Step: the kernels to launch, decided before any source is written."""

from __future__ import annotations

from typing import Any

from kronop.artifacts import Decision, Launch
from kronop.emit.design import Design, Pipeline, Runnable
from kronop.emit.floor import LeastWork
from kronop.frozen import dataclass
from kronop.size import Size
from kronop.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class PerRow(Decision):
    """What a step can't avoid to do for each row of X.

    Attributes:
        bytes: memory traffic.
        operations: multiplications and additions.
    """

    bytes: int
    operations: int

    def __str__(self) -> str:
        intensity = self.operations / max(self.bytes, 1)
        return (
            f"{self.bytes} bytes and {self.operations} operations per row"
            f" ({intensity:.1f} per byte)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One kernel of a plan.

    Attributes:
        entry: name of the kernel, short and readable in a profiler.
        design: how the kernel runs.
        note: what this step does, for `print(plan)`.
        per_row: the least work of a row, if it is the same for each row of X.
        least: the least work of other steps, from which their floor follows. A step has neither if
            all rows share what it does, such as packing weights.
    """

    entry: str
    design: Design
    note: str
    per_row: PerRow | None = None
    least: LeastWork | None = None

    @property
    def computes(self) -> bool:
        """Whether it computes results, and does not only arrange what other steps read."""
        if self.least is not None:
            return self.least.computes
        return self.per_row is not None and self.per_row.operations > 0

    def describe(self, target: Target, size: Any = None) -> str:
        """The step as `print(plan)` shows it, for a problem of that size if it is known."""
        decided = self.design.instantiation(target).constants
        constants = ", ".join(f"{name}={value}" for name, value in decided)
        work = self.per_row if self.least is None else self.least.floor(target, size)
        return (
            f"{self.entry}: {self.note}\n"
            f"    {self.design.threads or 'host'} threads,"
            f" {self.design.shared_bytes} bytes on chip{f', {work}' if work else ''}\n"
            f"    {constants}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The steps of one operation on one target, in launch order.

    Attributes:
        target: the target that it is for.
        steps: at least one.
        rejected: (candidate, reason) of candidates that were not chosen.
        pipeline: launches the steps, whose designs are its own; None for the only step's design.
    """

    target: Target
    steps: tuple[Step, ...]
    rejected: tuple[tuple[str, str], ...] = ()
    pipeline: Pipeline | None = None

    def __post_init__(self) -> None:
        if self.runnable.designs != tuple(step.design for step in self.steps):
            raise ValueError(f"the kernels of {self.runnable} are not those of the steps")

    @property
    def runnable(self) -> Runnable:
        """The pipeline, or the design of the only step."""
        return self.pipeline or self.steps[0].design

    def workspace_bytes(self, size: Size, threads: int) -> int:
        """Bytes of scratch memory for a problem of that size."""
        needed = bool(size) or self.runnable.writes_sums_of_nothing
        return self.runnable.workspace(size, self.target, threads) if needed else 0

    def launches(self, problem: Any) -> tuple[Launch, ...]:
        """The launches in order, for a problem with non-empty results."""
        return self.runnable.launches(problem, self.target)

    def __str__(self) -> str:
        return self.describe()

    def explain(self, size: Any = None) -> str:
        """The plan, and the rejected candidates, each with the reason.

        Args:
            size: floors are for a problem of that size; None for the size that plans assume if none
                is given.
        """
        rejected = [f"  rejected {name}: {reason}" for name, reason in self.rejected]
        return "\n".join([self.describe(size), *rejected])

    def describe(self, size: Any = None) -> str:
        """The plan alone; `size` as of `explain`."""
        steps = [f"  {step.describe(self.target, size)}" for step in self.steps]
        count = f"{len(steps)} step{'s' * (len(steps) > 1)}"
        return "\n".join([f"plan for {self.target}: {count}", *steps])
