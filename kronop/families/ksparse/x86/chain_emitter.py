"""Chains of Kronecker-sparse factors on CPUs: one kernel, or one product after the other."""

from __future__ import annotations

from kronop.artifacts import Launch
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.emitter import Searching
from kronop.emit.plan import Plan
from kronop.families.ksparse import chains
from kronop.families.ksparse.chain_description import KSparseChainProblem
from kronop.families.ksparse.x86.emitter import X86KSparseEmitter
from kronop.families.ksparse.x86.ksparse_chain import KSparseChain
from kronop.families.ksparse.x86.ksparse_design import KSparseDesign
from kronop.target import Target

_SINGLE = X86KSparseEmitter()


class X86KSparseChainEmitter(Searching):
    """Plans chains for x86 targets: one step, or one for each factor with workspace in between."""

    search = "kronop.families.ksparse.x86.ksparse_fused"

    def instruction(self, element: DataType, target: Target) -> MathInstruction:
        return MathInstruction.simt(element)

    def workspace_bytes(self, plan: Plan, rows: int, threads: int) -> int:
        """Room for the results between factors, and for the scratch memory of the piece that needs
        most."""
        pieces = chains.pieces(plan)
        scratch = max(_design(own).workspace_bytes(rows, threads) for _, own in pieces)
        return sum(chains.buffers([piece for piece, _ in pieces], rows)) + scratch

    def launches(self, plan: Plan, problem: KSparseChainProblem) -> tuple[Launch, ...]:
        """One call for each step; none if the batch is 0."""
        return chains.launches(plan, problem, _launches) if problem.rows else ()


def _design(piece: Plan) -> KSparseChain | KSparseDesign:
    design = piece.steps[0].design
    assert isinstance(design, KSparseChain | KSparseDesign)
    return design


def _launches(piece: Plan, problem: KSparseChainProblem) -> tuple[Launch, ...]:
    design = _design(piece)
    if isinstance(design, KSparseChain):
        return (design.launch(0, problem),)
    return (design.launch(0, chains.single(problem)),)
