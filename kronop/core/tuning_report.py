"""The report of a tuning run: the candidates with their times, and which of them is kept."""

from __future__ import annotations

from typing import Any

from kronop.frozen import dataclass
from kronop.size import Size

# A smaller relative gain may be noise: the planner's choice is kept then.
_LEAST_GAIN = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The measurement of one candidate, or why it was skipped.

    Attributes:
        place: its rank by the planner's cost model, from 0.
        name: what its steps do.
        milliseconds: time of one run: over the rounds, the median on a GPU and the minimum on a
            CPU; None if the candidate was skipped.
        reason: why it was skipped; empty if it was measured.
    """

    place: int
    name: str
    milliseconds: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningReport:
    """The candidates with their times: what `kronop.tune` returns.

    Attributes:
        operation: the operation's repr.
        device: the name of the device that was measured.
        size: the size of the arguments: rows in all (M times the batch).
        bucket: the winner serves all sizes in the bucket of this size: from this many rows, or from
            these extents, to one less than twice as many.
        outcomes: one per candidate, in the planner's order; the first is the untuned choice. Each
            has its `place` in that order, a `name`, and `milliseconds` or the `reason` why it was
            skipped.

    Example:
        >>> from kronop.core.tuning_report import Outcome
        >>> first = Outcome(place=0, name="tiles of 64 rows", milliseconds=0.3)
        >>> second = Outcome(place=1, name="tiles of 32 rows", milliseconds=0.2)
        >>> report = kronop.TuningReport(
        ...     operation="", device="", size=4, bucket=4, outcomes=(first, second)
        ... )
        >>> report.best.place, report.untuned_rank, round(report.gain, 3)
        (1, 2, 0.5)
    """

    operation: str
    device: str
    size: Size
    bucket: Size
    outcomes: tuple[Outcome, ...]

    @property
    def rows(self) -> Any:
        """The size, under the name that fits operations whose size is a number of rows."""
        return self.size

    @property
    def ranked(self) -> tuple[Outcome, ...]:
        """The measured candidates, the fastest first."""
        measured = [item for item in self.outcomes if item.milliseconds is not None]
        return tuple(sorted(measured, key=milliseconds_of))

    @property
    def best(self) -> Outcome:
        """The fastest candidate."""
        return self.ranked[0]

    @property
    def kept(self) -> Outcome:
        """The candidate that runs from now on, which is the best unless its gain may be noise."""
        return self.best if self.gain >= _LEAST_GAIN else self.outcomes[0]

    @property
    def untuned_rank(self) -> int:
        """The rank of the planner's choice by measured time, from 1."""
        return 1 + self.ranked.index(self.outcomes[0])

    @property
    def gain(self) -> float:
        """Time of the planner's choice divided by that of the best, less 1 (0.1 is a gain of
        10 %)."""
        return milliseconds_of(self.outcomes[0]) / milliseconds_of(self.best) - 1

    def __str__(self) -> str:
        best = self.best
        lines = [
            f"{self.operation}",
            f"{self.size.told()} (kept for {self.bucket.served()}) on {self.device}",
        ]
        for item in self.outcomes:
            told = f"skipped: {item.reason}"
            if item.milliseconds is not None:
                share = item.milliseconds / milliseconds_of(best)
                told = f"{item.milliseconds:10.4f} ms  {share:6.2f}" + " *" * (item is self.kept)
            lines.append(f"{item.place:3}  {told:24}  {item.name}")
        lines.append(
            f"the planner's choice ranks {self.untuned_rank} of {len(self.ranked)};"
            f" {self._gained} (* runs from now on)"
        )
        return "\n".join(lines)

    @property
    def _gained(self) -> str:
        if self.kept is not self.outcomes[0]:
            return f"tuning gained {self.gain:.1%}"
        if self.best is self.kept:
            return "it stays"
        return f"it stays: the best gains {self.gain:.1%}, too little to be told from noise"


def milliseconds_of(item: Outcome) -> float:
    assert item.milliseconds is not None
    return item.milliseconds
