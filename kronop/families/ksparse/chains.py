"""Chains of Kronecker-sparse products in pieces, and the results between them.

A piece applies one or more factors: as a single product, or by a kernel of its own for several. The
results between pieces are in the workspace, in two buffers that alternate, in the order of X's
memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

from kronop.artifacts import Decision, Launch
from kronop.descriptions.datatype import DataType, Layout, RowMajor
from kronop.descriptions.epilogue import LinearCombination
from kronop.descriptions.strided import NOTHING, Strided
from kronop.descriptions.tensor import TensorDescription
from kronop.emit.design import Pipeline, Runnable
from kronop.emit.plan import Plan
from kronop.families.ksparse.description import (
    Ends,
    KSparseChainDescription,
    KSparseChainProblem,
    KSparseDescription,
    KSparseProblem,
)
from kronop.frozen import dataclass
from kronop.target import Target

_ALIGNMENT, _ACCESS = 256, 16
# alpha and beta of results that stay in the workspace; integers, to suit epilogues of both kinds.
_UNSCALED = (1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece(Decision):
    """Some adjacent factors of a chain.

    Attributes:
        runs: what applies them: a single product, where there is one factor.
        factors: how many there are.
        columns: features of a row of their result.
    """

    runs: Runnable
    factors: int
    columns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain(Pipeline):
    """One piece after the other.

    Attributes:
        element: element type of the results between pieces.
        by_rows: whether the batch is their contiguous axis.
    """

    pieces: tuple[Piece, ...]
    element: DataType
    by_rows: bool

    @property
    def parts(self) -> tuple[Runnable, ...]:
        return tuple(piece.runs for piece in self.pieces)

    def workspace(self, size: int, target: Target, threads: int) -> int:
        """Room for the results between pieces, and for the scratch memory of the piece that needs
        most."""
        scratch = (piece.runs.workspace(size, target, threads) for piece in self.pieces)
        return sum(self.buffers(size)) + max(scratch)

    def launches(self, problem: KSparseChainProblem, target: Target) -> tuple[Launch, ...]:
        found: list[Launch] = []
        for place, own in enumerate(self._problems(problem)):
            found += self.launches_of(place, own, target)
        return tuple(found)

    def buffers(self, rows: int) -> tuple[int, int]:
        """Bytes of the two buffers for the results of even and of odd pieces."""
        sizes = [self._result_bytes(rows, piece.columns) for piece in self.pieces[:-1]]
        return max(sizes[::2], default=0), max(sizes[1::2], default=0)

    def _result_bytes(self, rows: int, columns: int) -> int:
        row, column = self._strides(rows, columns)
        wanted = self.element.bytes * max(row * rows, column * columns)
        return -(-wanted // _ALIGNMENT) * _ALIGNMENT

    def _strides(self, rows: int, columns: int) -> tuple[int, int]:
        """The strides of (batch, features) of a result, padded so that every contiguous run starts
        at an aligned access."""
        run = rows if self.by_rows else columns
        access = _ACCESS // self.element.bytes
        pitch = -(-run // access) * access
        return (1, pitch) if self.by_rows else (pitch, 1)

    def _problems(
        self, problem: KSparseChainProblem
    ) -> Iterator[KSparseProblem | KSparseChainProblem]:
        """The problem of each piece; its own workspace starts behind both buffers."""
        even, odd = self.buffers(problem.rows)
        starts = itertools.cycle((problem.workspace, problem.workspace + even))
        scratch = problem.workspace + even + odd if problem.workspace else 0
        x, taken = problem.x, 0
        for piece, start in zip(self.pieces, starts, strict=False):
            end = taken + piece.factors
            row, column = self._strides(problem.rows, piece.columns)
            y = Strided(pointer=start, strides=(row, column))
            own = replace(problem, x=x, weights=problem.weights[taken:end], workspace=scratch)
            if end < len(problem.weights):
                own = replace(own, z=None, bias=NOTHING, y=y, scalars=_UNSCALED)
            yield _single(own) if piece.factors == 1 else own
            x, taken = y, end


def plan(
    description: KSparseChainDescription,
    each: Sequence[tuple[int, Plan]],
    rejected: tuple[tuple[str, str], ...] = (),
) -> Plan:
    """The plan of a chain from those of its pieces, each with the number of factors it applies."""
    ends = itertools.accumulate(factors for factors, _ in each)
    pieces = tuple(
        Piece(runs=own.runnable, factors=factors, columns=a * b * d)
        for (factors, own), (a, b, _, d) in zip(
            each, (description.patterns[end - 1] for end in ends), strict=True
        )
    )
    by_rows = description.batch_last == (description.X.layout is RowMajor)
    return Plan(
        target=each[0][1].target,
        steps=tuple(step for _, own in each for step in own.steps),
        rejected=rejected,
        pipeline=Chain(pieces=pieces, element=description.X.element, by_rows=by_rows),
    )


def product(
    description: KSparseChainDescription, index: int, layout: Layout | None = None
) -> KSparseDescription:
    """Factor `index` of a chain as a single product; `layout` is that of the results between
    factors (None: that of X)."""
    between = TensorDescription(
        description.X.element,
        layout or description.X.layout,
        _ACCESS // description.X.element.bytes,
    )
    is_last = index == len(description.patterns) - 1
    sums = description.math.element_accumulator
    return KSparseDescription(
        math=description.math,
        tile=description.tile,
        X=between if index else description.X,
        W=description.W,
        Y=description.Y if is_last else between,
        epilogue=description.epilogue
        if is_last
        else LinearCombination(between.element, between.alignment, sums, sums),
        pattern=description.patterns[index],
        batch_last=description.batch_last,
    )


def _single(problem: KSparseChainProblem) -> KSparseProblem:
    """The problem of a chain of one factor, as that of a single product."""
    (factor,) = problem.weights
    ends: dict[str, Any] = {item.name: getattr(problem, item.name) for item in fields(Ends)}
    return KSparseProblem(weights=factor, **ends)
