"""The interface of emitters: each plans one family for one backend, without side effects."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol, TypeVar

from kronop.artifacts import Launch, Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.plan import Plan
from kronop.errors import DescriptionError
from kronop.late import imported
from kronop.target import Target

Description = TypeVar("Description", contravariant=True)
Problem = TypeVar("Problem", contravariant=True)


class Emitter(Protocol[Description, Problem]):
    """Plans a family's descriptions and computes the launches of its problems."""

    def __hash__(self) -> int: ...

    def instruction(self, element: DataType, target: Target) -> MathInstruction:
        """The default multiply-add for tensors of `element` on `target`."""
        ...

    def supports(self, description: Description, target: Target) -> Status:
        """Whether `plan` will succeed, or the reason why it won't."""
        ...

    def plan(self, description: Description, target: Target, size: Any = None, /) -> Plan:
        """The steps for a description that `supports` accepted.

        Args:
            size: about the size of the problems, of the family's class; None for large ones. The
                steps are those for large problems, unless others are much faster.
        """
        ...

    def candidates(
        self, description: Description, target: Target, count: int, size: Any = None, /
    ) -> tuple[Plan, ...]:
        """1 to `count` plans for the tuner to measure; the first is the one that `plan` gives."""
        ...

    def workspace_bytes(self, plan: Plan, size: Any, threads: int, /) -> int:
        """Bytes of scratch memory that a problem of that size needs besides its tensors."""
        ...

    def launches(self, plan: Plan, problem: Problem) -> tuple[Launch, ...]:
        """The kernel calls in order; none if there is nothing to do."""
        ...


class Search(Protocol):
    """The functions of a module that searches for plans."""

    def supports(self, description: Any, target: Target, /) -> Status:
        """Whether there is a plan, or the reason why there is none."""
        ...

    def plans(self, description: Any, target: Target, count: int, size: Any, /) -> tuple[Plan, ...]:
        """Up to `count` plans of a supported description, the best first."""
        ...


class Choiceless(ABC):
    """The planning half of an emitter that has one plan for each description and size."""

    __slots__ = ()

    @abstractmethod
    def plan(self, description: Any, target: Target, size: Any = None) -> Plan:
        """The plan."""

    def candidates(
        self, description: Any, target: Target, count: int, size: Any = None
    ) -> tuple[Plan, ...]:
        return (self.plan(description, target, size),)


class Searching:
    """The planning half of an emitter. It imports the search module only when it plans, because a
    process whose plans are all cached needs none.

    Attributes:
        search: the name of a module with the functions of `Search`.
    """

    __slots__ = ()

    search: ClassVar[str]

    def supports(self, description: Any, target: Target) -> Status:
        """Whether `plan` will succeed, and the reason where not."""
        return self._search().supports(description, target)

    def plan(self, description: Any, target: Target, size: Any = None) -> Plan:
        """The first of `candidates`.

        Raises:
            DescriptionError: `supports` says no.
        """
        return self.candidates(description, target, 1, size)[0]

    def candidates(
        self, description: Any, target: Target, count: int, size: Any = None
    ) -> tuple[Plan, ...]:
        """Up to `count` plans, the best first.

        Raises:
            DescriptionError: `supports` says no.
        """
        status = self.supports(description, target)
        if not status:
            raise DescriptionError(status.reason)
        return self._search().plans(description, target, count, size)

    def _search(self) -> Search:
        found: Any = imported(self.search)
        return found  # type: ignore[no-any-return]
