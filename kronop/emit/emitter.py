"""What an emitter of one family for one target offers. All of it is pure."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from kronop.artifacts import Launch, Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.plan import Plan
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
