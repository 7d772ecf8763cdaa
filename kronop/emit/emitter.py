"""What an emitter of one family for one target offers. All of it is pure."""

from __future__ import annotations

import importlib
from typing import Any, ClassVar, Protocol, TypeVar

from kronop.artifacts import Launch, Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.plan import Plan
from kronop.errors import DescriptionError
from kronop.target import Target

Description = TypeVar("Description", contravariant=True)
Problem = TypeVar("Problem", contravariant=True)


class Emitter(Protocol[Description, Problem]):
    """Plans a family's descriptions and computes the launches of its problems."""

    def __hash__(self) -> int: ...

    def instruction(self, element: DataType, target: Target) -> MathInstruction:
        """The multiply-add for tensors of `element` on `target` where the user
        names none."""
        ...

    def supports(self, description: Description, target: Target) -> Status:
        """Whether `plan` will succeed, and the reason where not."""
        ...

    def plan(self, description: Description, target: Target, size: Any = None, /) -> Plan:
        """The steps for a description that `supports` accepted.

        Args:
            size: about that of the problems, of the family's class; None for large ones. Where
                other steps gain nothing to speak of, they are those for large ones.
        """
        ...

    def candidates(
        self, description: Description, target: Target, count: int, size: Any = None, /
    ) -> tuple[Plan, ...]:
        """Up to `count` plans for the tuner to measure, at least 1; the first is that of `plan`."""
        ...

    def workspace_bytes(self, plan: Plan, size: Any, threads: int, /) -> int:
        """Bytes that a problem of that size wants besides its tensors."""
        ...

    def launches(self, plan: Plan, problem: Problem) -> tuple[Launch, ...]:
        """The kernel calls, in order; none where there is nothing to do."""
        ...


class Search(Protocol):
    """What a module has that chooses among plans."""

    def supports(self, description: Any, target: Target, /) -> Status:
        """Whether there is a plan, and the reason where not."""
        ...

    def plans(self, description: Any, target: Target, count: int, size: Any, /) -> tuple[Plan, ...]:
        """Up to `count` of a description that is supported, the best first."""
        ...


class Searching:
    """The half of an emitter that plans: a process that remembers its plans imports no search.

    Attributes:
        search: name of the module that is a `Search`.
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
        found: Any = importlib.import_module(self.search)
        return found  # type: ignore[no-any-return]
