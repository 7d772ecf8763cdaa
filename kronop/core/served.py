"""Plans with their kernels."""

from __future__ import annotations

from typing import Any

from kronop import compiler
from kronop.artifacts import Launch
from kronop.emit.plan import Plan
from kronop.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Served:
    """A plan with its loaded kernels; arguments are bound to one of these."""

    plan: Plan
    kernels: tuple[compiler.Kernel, ...]

    def workspace_bytes(self, size: Any, threads: int, /) -> int:
        return self.plan.workspace_bytes(size, threads)

    def launches(self, problem: Any) -> tuple[Launch, ...]:
        return self.plan.launches(problem)
