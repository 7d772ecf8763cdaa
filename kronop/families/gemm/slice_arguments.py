"""Arguments whose slices of a sum a `ReductionArguments` may add up."""

from __future__ import annotations

import abc
from typing import Any, Self

from kronop.args.visiting import VisitingArguments
from kronop.descriptions.scalars import EpilogueArguments


class Slices(VisitingArguments):
    """Arguments of an operation that cuts its sums in slices, and can leave the end of its work, as
    PyCUTLASS's do, to a `ReductionArguments`."""

    @property
    def ptr_D(self) -> Self:
        """What PyCUTLASS's programs pass to `ReductionArguments` as `workspace`: these arguments,
        which keep the sums of their slices to themselves."""
        return self

    @abc.abstractmethod
    def _parallel(self) -> tuple[int, int, int] | None:
        """M, N and the number of slices, if their mode is that of parallel slices."""

    @abc.abstractmethod
    def _ended(self, operation: Any, C: Any, D: Any, output_op: EpilogueArguments | None) -> Slices:
        """Arguments of the same operands for an operation with another epilogue."""

    def _leave(self) -> None:
        """Runs nothing from now on, since a `ReductionArguments` runs the product."""
        self.launchers = self._steps = ()
        self._placement, self._kept, self._count_change = None, (), None
