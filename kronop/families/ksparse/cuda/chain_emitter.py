"""Chains of Kronecker-sparse factors on CUDA."""

from __future__ import annotations

from kronop.artifacts import Launch
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.emitter import Searching
from kronop.emit.plan import Plan
from kronop.families.ksparse import chains
from kronop.families.ksparse.chain_description import KSparseChainProblem
from kronop.families.ksparse.cuda.chain_design import ChainMma
from kronop.families.ksparse.cuda.emitter import CudaKSparseEmitter
from kronop.frozen import dataclass
from kronop.target import Target

_SINGLE = CudaKSparseEmitter()


@dataclass(frozen=True, slots=True)
class CudaKSparseChainEmitter(Searching):
    """Plans chains for GPUs."""

    search = "kronop.families.ksparse.cuda.chain_cuts"

    def instruction(self, element: DataType, target: Target) -> MathInstruction:
        """The instruction of single products."""
        return _SINGLE.instruction(element, target)

    def workspace_bytes(self, plan: Plan, rows: int, threads: int) -> int:
        """Room for the intermediates between pieces, and for the scratch memory (packed weights) of
        the piece that needs most."""
        pieces = chains.pieces(plan)
        alone = (own for piece, own in pieces if not isinstance(piece.wrapped, ChainMma))
        packed = max((_SINGLE.workspace_bytes(own, rows, threads) for own in alone), default=0)
        return sum(chains.buffers([piece for piece, _ in pieces], rows)) + packed

    def launches(self, plan: Plan, problem: KSparseChainProblem) -> tuple[Launch, ...]:
        """The launches of each piece; none for an empty batch."""
        return chains.launches(plan, problem, _launches) if problem.rows else ()


def _launches(own: Plan, problem: KSparseChainProblem) -> tuple[Launch, ...]:
    design = own.steps[-1].design
    if isinstance(design, ChainMma):
        return (design.launch(0, problem, own.target),)
    return _SINGLE.launches(own, chains.single(problem))
