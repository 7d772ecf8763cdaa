"""Matrix products on GPUs."""

from __future__ import annotations

import math

from kronop.artifacts import Launch
from kronop.descriptions.datatype import DataType, float32
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.cuda import operands
from kronop.emit.cuda.machine import PRODUCTS_OF_SPLIT, ordinary_products, warp_products
from kronop.emit.emitter import Searching
from kronop.emit.plan import Plan
from kronop.families.gemm.cuda.blocks import GemmBlocks
from kronop.families.gemm.cuda.group_design import GemmGroup
from kronop.families.gemm.cutlass.design import CutlassGemm
from kronop.families.gemm.cutlass.hopper.design import CutlassHopper
from kronop.families.gemm.description import GemmProblem
from kronop.families.gemm.size import GemmSize
from kronop.target import Target


class CudaEmitter(Searching):
    """Plans one step for GPUs; before it one that splits operands, for three products of TF32."""

    search = "kronop.families.gemm.cuda.choice"

    def instruction(self, element: DataType, target: Target) -> MathInstruction:
        """Tensor cores, as accurate as ordinary ones, where they multiply such elements faster: on
        cards of sm_86, 89, 120 and 121 three products of TF32 take longer than one of float32."""
        split = warp_products(target, 4) / PRODUCTS_OF_SPLIT
        if element is float32 and split < ordinary_products(target, "float", 4):
            return MathInstruction.simt(element)
        return operands.fastest(element, target, halves=True)

    def workspace_bytes(self, plan: Plan, size: GemmSize, threads: int) -> int:
        """Sums of slices, operands that are split, or parts of what a visitor tree reduces."""
        if not size:
            return 0
        design = _design(plan)
        if isinstance(design, GemmBlocks | CutlassGemm | CutlassHopper):
            return design.workspace_bytes(size, plan.target)
        return design.workspace_bytes(size)

    def launches(self, plan: Plan, problem: GemmProblem) -> tuple[Launch, ...]:
        """The launches of all steps, or none if there is nothing to compute."""
        if not (problem.m and problem.n and math.prod(problem.batch)):
            return ()
        last = len(plan.steps) - 1
        return tuple(_design(plan).launches(last, plan.target, problem))


def _design(plan: Plan) -> GemmBlocks | GemmGroup | CutlassGemm | CutlassHopper:
    design = plan.steps[-1].design
    assert isinstance(design, GemmBlocks | GemmGroup | CutlassGemm | CutlassHopper)
    return design
