"""Kronecker matmuls on CUDA: passes over digits in shared memory, contractions of large factors."""

from __future__ import annotations

from kronop.artifacts import Launch, Status
from kronop.descriptions.datatype import DataType, int32, int64
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.plan import Plan
from kronop.families.kron.cuda.kron_launch import launch_steps, workspace_bytes
from kronop.families.kron.description import KronMatmulDescription, KronProblem
from kronop.frozen import dataclass
from kronop.target import Target


@dataclass(frozen=True, slots=True)
class CudaKronEmitter:
    """Plans Kronecker matmuls for sm_80 and sm_90a."""

    def instruction(self, element: DataType, target: Target) -> MathInstruction:
        """The tensor cores for floats, as accurate as SIMT, and for int8, with the same results."""
        if element in (int32, int64):
            return MathInstruction.simt(element)
        return MathInstruction.tensor_op(element)

    def supports(self, description: KronMatmulDescription, target: Target) -> Status:
        """Whether `plan` will succeed, and the reason where not."""
        from kronop.families.kron.cuda import kron_choice  # Plans that are remembered do without.

        return kron_choice.supports(description, target)

    def plan(
        self, description: KronMatmulDescription, target: Target, rows: int | None = None
    ) -> Plan:
        """The passes as steps.

        Raises:
            DescriptionError: `supports` says no.
        """
        from kronop.families.kron.cuda import kron_choice

        return kron_choice.plan(description, target, rows)

    def candidates(
        self,
        description: KronMatmulDescription,
        target: Target,
        count: int,
        rows: int | None = None,
    ) -> tuple[Plan, ...]:
        """The plan, then other tiles of its passes and other passes, the cheapest first.

        Raises:
            DescriptionError: `supports` says no.
        """
        from kronop.families.kron.cuda import kron_choice

        return kron_choice.candidates(description, target, count, rows)

    def workspace_bytes(self, plan: Plan, rows: int, threads: int) -> int:
        """Two intermediates at most, in the accumulator type; `rows` is M times the batch."""
        return workspace_bytes(plan, rows)

    def launches(self, plan: Plan, problem: KronProblem) -> tuple[Launch, ...]:
        """One launch per step; none where X has no rows."""
        return launch_steps(plan, problem)
