"""The emitter: it plans one kind of operation for one backend, without side effects."""

from __future__ import annotations

from typing import Any, Protocol

from kronop.artifacts import Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.plan import Plan
from kronop.errors import DescriptionError
from kronop.frozen import dataclass
from kronop.late import Later, imported
from kronop.target import Target


class Search(Protocol):
    """The functions of a module that searches for plans."""

    def supports(self, description: Any, target: Target, /) -> Status:
        """Whether there is a plan, or the reason why there is none."""
        ...

    def plans(self, description: Any, target: Target, count: int, size: Any, /) -> tuple[Plan, ...]:
        """Up to `count` plans of a supported description, the best first.

        Args:
            size: the approximate size of the problems, of the kind's class; None for large ones.
                Plans are those for large problems, unless others are much faster.
        """
        ...


@dataclass(frozen=True, slots=True)
class Emitter:
    """Plans the descriptions of one kind for one backend. A process whose plans are all cached
    imports no module that searches for them.

    Attributes:
        search: the name of a module with the functions of `Search`.
        default: a function (element type, target) -> the default multiply-add.
    """

    search: str
    default: Later

    @property
    def package(self) -> str:
        """The package with the planning modules."""
        return self.search.partition(".")[0]

    def instruction(self, element: DataType, target: Target) -> MathInstruction:
        """The default multiply-add for tensors of `element` on `target`."""
        found: MathInstruction = self.default.get()(element, target)
        return found

    def supports(self, description: Any, target: Target) -> Status:
        """Whether `plan` will succeed, or the reason why not."""
        return self._search.supports(description, target)

    def plan(self, description: Any, target: Target, size: Any = None) -> Plan:
        """The first of `candidates`.

        Raises:
            DescriptionError: `supports` says no.
        """
        return self.candidates(description, target, 1, size)[0]

    def candidates(
        self, description: Any, target: Target, count: int, size: Any = None
    ) -> tuple[Plan, ...]:
        """1 to `count` plans for the tuner to measure, the best first.

        Raises:
            DescriptionError: `supports` says no.
        """
        status = self.supports(description, target)
        if not status:
            raise DescriptionError(status.reason)
        return self._plans(description, target, count, size)

    def _plans(self, description: Any, target: Target, count: int, size: Any) -> tuple[Plan, ...]:
        return self._search.plans(description, target, count, size)

    @property
    def _search(self) -> Search:
        found: Search = imported(self.search)
        return found
