"""Kronecker matmuls on CUDA: passes over digits in shared memory, contractions of large factors."""

from __future__ import annotations

from kronop.artifacts import Launch
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.cuda import operands
from kronop.emit.emitter import Searching
from kronop.emit.plan import Plan
from kronop.families.kron.cuda.kron_launch import launch_steps, workspace_bytes
from kronop.families.kron.description import KronProblem
from kronop.frozen import dataclass
from kronop.target import Target


@dataclass(frozen=True, slots=True)
class CudaKronEmitter(Searching):
    """Plans Kronecker matmuls for GPUs."""

    search = "kronop.families.kron.cuda.kron_choice"

    def instruction(self, element: DataType, target: Target) -> MathInstruction:
        """The tensor cores for floats, as accurate as SIMT, and for int8, with the same results."""
        return operands.fastest(element, target)

    def workspace_bytes(self, plan: Plan, rows: int, threads: int) -> int:
        """Two intermediates at most, in the accumulator type; `rows` is M times the batch."""
        return workspace_bytes(plan, rows)

    def launches(self, plan: Plan, problem: KronProblem) -> tuple[Launch, ...]:
        """One launch per step; none where X has no rows."""
        return launch_steps(plan, problem)
