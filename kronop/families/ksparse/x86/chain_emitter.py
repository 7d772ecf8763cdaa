"""Chains of Kronecker-sparse factors on CPUs: one kernel, or one product after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kronop.artifacts import Launch, Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.plan import Plan
from kronop.emit.x86.planning import common_status
from kronop.families.ksparse import chains
from kronop.families.ksparse.chain_description import KSparseChainDescription, KSparseChainProblem
from kronop.families.ksparse.description import KSparseDescription
from kronop.families.ksparse.x86 import ksparse_fused
from kronop.families.ksparse.x86.emitter import X86KSparseEmitter
from kronop.target import Target

_SINGLE = X86KSparseEmitter()


class X86KSparseChainEmitter:
    """Plans chains for x86 targets: one step, or one for each factor with workspace in between."""

    def instruction(self, element: DataType, target: Target) -> MathInstruction:
        return MathInstruction.simt(element)

    def supports(self, description: KSparseChainDescription, target: Target) -> Status:
        """Whether every factor has a plan on vectors, and why not where one has none."""
        status = common_status(description.math, description.tile, target)
        if not status:
            return status
        for item in _products(description):
            status = _SINGLE.supports(item, target)
            if not status:
                return status
        return Status.accept()

    def plan(
        self, description: KSparseChainDescription, target: Target, rows: int | None = None
    ) -> Plan:
        """All factors in one step where that pays, else the cheapest plan of each.

        Raises:
            DescriptionError: `supports` rejects the description.
        """
        return self.candidates(description, target, 1, rows)[0]

    def candidates(
        self,
        description: KSparseChainDescription,
        target: Target,
        count: int,
        rows: int | None = None,
    ) -> tuple[Plan, ...]:
        """The chain in one step, the cheapest plans of all factors, the next ones of each in turn.

        Raises:
            DescriptionError: `supports` rejects the description.
        """
        products = _products(description)
        choices = [_SINGLE.candidates(item, target, count, rows) for item in products]
        apart = tuple(_plan(products, picked) for picked in _picks(choices, count))
        whole = ksparse_fused.fused(description, target)
        return apart if whole is None else (whole, *apart)[:count]

    def workspace_bytes(self, plan: Plan, rows: int, threads: int) -> int:
        """What is between factors, and the scratch memory of the piece that wants most."""
        pieces = chains.pieces(plan)
        if _is_fused(pieces):
            return ksparse_fused.workspace_bytes(pieces[0][1].steps[0], rows, threads)
        scratch = max(_SINGLE.workspace_bytes(own, rows, threads) for _, own in pieces)
        return sum(chains.buffers([piece for piece, _ in pieces], rows)) + scratch

    def launches(self, plan: Plan, problem: KSparseChainProblem) -> tuple[Launch, ...]:
        """One call for each step; none where the batch is 0."""
        pieces = chains.pieces(plan)
        if _is_fused(pieces):
            return ksparse_fused.launches(pieces[0][1], problem)
        return chains.launches(
            plan, problem, lambda one, part: _SINGLE.launches(one, chains.single(part))
        )


def _is_fused(pieces: Sequence[tuple[chains.Piece, Plan]]) -> bool:
    return pieces[0][0].factors != 1


def _products(description: KSparseChainDescription) -> list[KSparseDescription]:
    return [chains.product(description, index) for index in range(len(description.patterns))]


def _picks(choices: Sequence[Sequence[Plan]], count: int) -> Iterator[list[Plan]]:
    """The first of each; then one factor's others, with the first of the rest."""
    first = [plans[0] for plans in choices]
    others = (
        [*first[:index], plans[place], *first[index + 1 :]]
        for place in range(1, max(map(len, choices)))
        for index, plans in enumerate(choices)
        if place < len(plans)
    )
    yield first
    for _, pick in zip(range(count - 1), others, strict=False):
        yield pick


def _plan(products: Sequence[KSparseDescription], picked: Sequence[Plan]) -> Plan:
    return Plan(
        target=picked[0].target,
        steps=tuple(
            step
            for plan, item in zip(picked, products, strict=True)
            for step in chains.piece(plan.steps, item, 1)
        ),
        rejected=tuple(pair for plan in picked for pair in plan.rejected),
    )
