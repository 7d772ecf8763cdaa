"""Plans with their kernels."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from kronop import compiler
from kronop.artifacts import Launch
from kronop.emit.emitter import Emitter
from kronop.emit.plan import Plan
from kronop.frozen import dataclass

AnyProblem = TypeVar("AnyProblem")


@dataclass(frozen=True, slots=True)
class Served(Generic[AnyProblem]):
    """A plan with its loaded kernels; arguments are bound to one of these."""

    plan: Plan
    emitter: Emitter[Any, AnyProblem]
    kernels: tuple[compiler.Kernel, ...]

    def workspace_bytes(self, size: Any, threads: int, /) -> int:
        return self.emitter.workspace_bytes(self.plan, size, threads)

    def launches(self, problem: AnyProblem) -> tuple[Launch, ...]:
        return self.emitter.launches(self.plan, problem)
