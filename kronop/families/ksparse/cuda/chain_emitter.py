"""Chains of Kronecker-sparse factors on CUDA."""

from __future__ import annotations

import itertools
from dataclasses import replace

from kronop.artifacts import Launch, Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.plan import Plan
from kronop.errors import DescriptionError
from kronop.families.ksparse import chains
from kronop.families.ksparse.chain_description import KSparseChainDescription, KSparseChainProblem
from kronop.families.ksparse.cuda.chain_design import ChainMma
from kronop.families.ksparse.cuda.emitter import CudaKSparseEmitter
from kronop.frozen import dataclass
from kronop.target import Target

_SINGLE = CudaKSparseEmitter()


@dataclass(frozen=True, slots=True)
class CudaKSparseChainEmitter:
    """Plans chains for sm_80 and sm_90a."""

    def instruction(self, element: DataType, target: Target) -> MathInstruction:
        """That of single products."""
        return _SINGLE.instruction(element, target)

    def supports(self, description: KSparseChainDescription, target: Target) -> Status:
        """Whether every factor has a plan of its own, and why not where one has none."""
        for index in range(len(description.patterns)):
            status = _SINGLE.supports(chains.product(description, index), target)
            if not status:
                return status
        return Status.accept()

    def plan(
        self, description: KSparseChainDescription, target: Target, rows: int | None = None
    ) -> Plan:
        """The steps that are expected to take the least time in all.

        Raises:
            DescriptionError: `supports` says no.
        """
        return self.candidates(description, target, 1, rows)[0]

    def candidates(
        self,
        description: KSparseChainDescription,
        target: Target,
        count: int,
        rows: int | None = None,
    ) -> tuple[Plan, ...]:
        """That of `plan`, then other ways to cut the chain into steps, then other tiles.

        Raises:
            DescriptionError: `supports` says no.
        """
        status = self.supports(description, target)
        if not status:
            raise DescriptionError(status.reason)
        # Plans that are remembered do without.
        from kronop.families.ksparse.cuda import chain_cuts

        work = chain_cuts.Work(description, target, rows)
        first, *others = itertools.islice(chain_cuts.plans(work), count)
        return (replace(first, rejected=chain_cuts.beaten(work)), *others)

    def workspace_bytes(self, plan: Plan, rows: int, threads: int) -> int:
        """What is between pieces, and the packed weights of the one that has most."""
        pieces = chains.pieces(plan)
        packed = max(
            0 if isinstance(piece.design, ChainMma) else _SINGLE.workspace_bytes(own, rows, threads)
            for piece, own in pieces
        )
        return sum(chains.buffers([piece for piece, _ in pieces], rows)) + packed

    def launches(self, plan: Plan, problem: KSparseChainProblem) -> tuple[Launch, ...]:
        """Those of each piece; none for an empty batch."""
        return chains.launches(plan, problem, _launches) if problem.rows else ()


def _launches(own: Plan, problem: KSparseChainProblem) -> tuple[Launch, ...]:
    design = own.steps[-1].design
    if isinstance(design, ChainMma):
        return (design.launch(0, problem, own.target),)
    return _SINGLE.launches(own, chains.single(problem))
