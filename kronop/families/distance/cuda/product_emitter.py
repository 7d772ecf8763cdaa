"""Plans products of kernel matrices on GPUs."""

from __future__ import annotations

from kronop.artifacts import Launch
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.emitter import Searching
from kronop.emit.plan import Plan
from kronop.families.distance.cuda.product_launch import launches, workspace_bytes
from kronop.families.distance.product_description import KernelMatmulProblem
from kronop.families.distance.product_size import KernelMatmulSize
from kronop.target import Target


class CudaProductEmitter(Searching):
    """Three steps: operands are packed, shares of the columns computed, and their sums added up."""

    search = "kronop.families.distance.cuda.product_choice"

    def instruction(self, element: DataType, target: Target) -> MathInstruction:
        return MathInstruction.simt(element)

    def workspace_bytes(self, plan: Plan, size: KernelMatmulSize, threads: int) -> int:
        return workspace_bytes(plan, size)

    def launches(self, plan: Plan, problem: KernelMatmulProblem) -> tuple[Launch, ...]:
        return launches(plan, problem)
