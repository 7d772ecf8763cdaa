"""Chains of Kronecker-sparse factors on CUDA: products one by one, or two of them in one launch."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator

from kronop.artifacts import Launch, Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.cuda.contract_group import GroupTile
from kronop.emit.cuda.operands import GAIN_OF_FEW_ROWS
from kronop.emit.plan import Plan, Step
from kronop.errors import DescriptionError
from kronop.families.ksparse import chains
from kronop.families.ksparse.chain_description import KSparseChainDescription, KSparseChainProblem
from kronop.families.ksparse.cuda.chain_cost import OF_A_LAUNCH
from kronop.families.ksparse.cuda.chain_step import (
    Fused,
    candidates,
    chain_launch,
    chain_step,
    repriced,
)
from kronop.families.ksparse.cuda.contract_parted import PartedTile
from kronop.families.ksparse.cuda.emitter import CudaKSparseEmitter, modelled
from kronop.target import Target

_SINGLE = CudaKSparseEmitter()
_FUSED = "kronop::chain_mma"
# Makes the fewest launches the cheapest. Other choices of a step that are worth measuring.
_OF_A_DEAR_LAUNCH, _MOST_PLACES = 1e15, 64
# For each step the number of its factors, and which of its choices it takes.
_Cut = tuple[tuple[int, int], ...]


@dataclasses.dataclass(frozen=True, slots=True)
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
        work = _Work(description, target, rows)
        first, *others = itertools.islice(_plans(work), count)
        return (dataclasses.replace(first, rejected=_beaten(work)), *others)

    def workspace_bytes(self, plan: Plan, rows: int, threads: int) -> int:
        """What is between pieces, and the packed weights of the one that has most."""
        pieces = chains.pieces(plan)
        packed = max(
            0 if _is_fused(one) else _SINGLE.workspace_bytes(one, rows, threads) for one in pieces
        )
        return sum(chains.buffers(pieces, rows)) + packed

    def launches(self, plan: Plan, problem: KSparseChainProblem) -> tuple[Launch, ...]:
        """Those of each piece; none for an empty batch."""
        return chains.launches(plan, problem, _launches) if problem.rows else ()


@dataclasses.dataclass(frozen=True, slots=True)
class _Work:
    """A chain that is to be cut into steps, for so many rows."""

    description: KSparseChainDescription
    target: Target
    rows: int | None

    @property
    def factors(self) -> int:
        return len(self.description.patterns)


@functools.lru_cache(maxsize=256)
def _fused(work: _Work, at: int, most: int) -> list[Fused]:
    """Tiles of factors `at` and the next one as one step, `most` of them, the first to be taken
    first."""
    if work.description.tile is not None:
        return []
    one, other = (chains.product(work.description, index) for index in (at, at + 1))
    found = candidates(one, other, work.target, work.rows, most)
    if work.rows is None or not found:
        return found
    _, pair, tile = _fused(dataclasses.replace(work, rows=None), at, 1)[0]
    usual = repriced(dataclasses.replace(pair, rows=work.rows), tile, one, work.target)
    if usual[0] > GAIN_OF_FEW_ROWS * found[0][0]:
        return found
    # Equal tiles of pairs with other lanes are other steps.
    chosen = (pair.lanes, tile)
    return [usual, *(item for item in found if (item[1].lanes, item[2]) != chosen)]


def _cost_of(work: _Work, at: int, factors: int) -> float:
    """Modelled cycles of a step; infinitely many where there is none."""
    if factors == 1:
        took, tile = modelled(chains.product(work.description, at), work.target, work.rows)
        if isinstance(tile, GroupTile | PartedTile):
            return took - OF_A_LAUNCH  # It is in there.
        return took
    fused = _fused(work, at, 1)
    return fused[0][0] if fused else math.inf


def _cost(work: _Work, cut: _Cut) -> float:
    """Modelled cycles of all steps."""
    starts = itertools.accumulate((factors for factors, _ in cut), initial=0)
    return sum(
        OF_A_LAUNCH + _cost_of(work, at, factors)
        for at, (factors, _) in zip(starts, cut, strict=False)
    )


def _cheapest(work: _Work, of_a_launch: float) -> _Cut:
    """The steps that take the least time where each costs `of_a_launch` besides its own."""
    best: list[tuple[float, _Cut]] = [(0.0, ())]
    for end in range(1, work.factors + 1):
        ways = []
        for factors in (1, 2)[:end]:
            before, cut = best[end - factors]
            took = before + of_a_launch + _cost_of(work, end - factors, factors)
            ways.append((took, (*cut, (factors, 0))))
        best.append(min(ways))
    return best[-1][1]


def _cuts(work: _Work) -> Iterator[_Cut]:
    """Ways to cut a chain into steps, the one to be taken first; then other tiles of its steps."""
    best = _cheapest(work, OF_A_LAUNCH)
    if work.rows is not None:
        usual = _cheapest(dataclasses.replace(work, rows=None), OF_A_LAUNCH)
        if _cost(work, usual) <= GAIN_OF_FEW_ROWS * _cost(work, best):
            best = usual
    apart, fewest = ((1, 0),) * work.factors, _cheapest(work, _OF_A_DEAR_LAUNCH)
    yield from dict.fromkeys((best, apart, fewest))
    for place in range(1, _MOST_PLACES):
        for index, (factors, _) in enumerate(best):
            yield (*best[:index], (factors, place), *best[index + 1 :])


def _piece(work: _Work, at: int, factors: int, place: int) -> tuple[Step, ...]:
    """Steps of choice `place` for so many factors; none where there are fewer choices."""
    one, last = (chains.product(work.description, index) for index in (at, at + factors - 1))
    if factors == 1:
        plans = _SINGLE.candidates(one, work.target, place + 1, work.rows)
        return chains.piece(plans[place].steps, last, 1) if place < len(plans) else ()
    fused = _fused(work, at, _MOST_PLACES if place else 1)
    if place >= len(fused):
        return ()
    return chains.piece((chain_step(one, last, fused[place], work.target),), last, 2)


def _plans(work: _Work) -> Iterator[Plan]:
    """The plans of all cuts for which there are steps."""
    for cut in _cuts(work):
        starts = itertools.accumulate((factors for factors, _ in cut), initial=0)
        pieces = [
            _piece(work, at, factors, place)
            for at, (factors, place) in zip(starts, cut, strict=False)
        ]
        if all(pieces):
            yield Plan(target=work.target, steps=tuple(itertools.chain(*pieces)))


def _beaten(work: _Work) -> tuple[tuple[str, str], ...]:
    """The other ways to cut a chain, with what they would take."""
    cuts = [cut for cut in itertools.islice(_cuts(work), 3) if not any(place for _, place in cut)]
    best = _cost(work, cuts[0])
    return tuple(
        (
            " + ".join("a fused pair" if factors > 1 else "a product" for factors, _ in cut),
            f"{_cost(work, cut):.0f} cycles, the best {best:.0f}",
        )
        for cut in cuts[1:]
    )


def _is_fused(piece: Plan) -> bool:
    return piece.steps[-1].template == _FUSED


def _launches(piece: Plan, problem: KSparseChainProblem) -> tuple[Launch, ...]:
    if _is_fused(piece):
        return (chain_launch(0, piece.steps[0], problem, piece.target.cores),)
    return _SINGLE.launches(piece, chains.single(problem))
