"""Chains of Kronecker-sparse products as steps: single products, and the results between them.

A plan of a chain consists of pieces. A piece applies one or more factors by one step, perhaps after
steps that pack weights; the design of its last step is a `Piece`, which tells how many factors it
applies and how its result lies in memory. The results between pieces are in the workspace, in two
buffers that alternate, in the order of X's memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from kronop.artifacts import Launch
from kronop.descriptions.datatype import DataType, Layout, RowMajor
from kronop.descriptions.epilogue import Epilogue, LinearCombination
from kronop.descriptions.strided import StridedMatrix
from kronop.descriptions.tensor import TensorDescription
from kronop.emit.design import Design, Wrapping
from kronop.emit.plan import Plan, Step
from kronop.families.ksparse.chain_description import KSparseChainDescription, KSparseChainProblem
from kronop.families.ksparse.description import KSparseDescription, KSparseProblem
from kronop.frozen import dataclass

_ALIGNMENT, _ACCESS = 256, 16
# alpha and beta of results that stay in the workspace; integers, to suit epilogues of both kinds.
_UNSCALED = (1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece(Wrapping):
    """The design of a piece's last step, and the layout of the result that the next piece reads.

    Attributes:
        wrapped: the design that runs.
        factors: how many factors of the chain the piece applies.
        columns: features of a row of the result.
        element: element type of the result.
        by_rows: whether the batch is the contiguous axis of the result.
    """

    wrapped: Design
    factors: int
    columns: int
    element: DataType
    by_rows: bool

    @property
    def epilogue(self) -> Epilogue | None:
        return self.wrapped.epilogue

    def strides(self, rows: int) -> tuple[int, int]:
        """The result's strides of (batch, features), padded so that every contiguous run starts at
        an aligned access."""
        run = rows if self.by_rows else self.columns
        access = _ACCESS // self.element.bytes
        pitch = -(-run // access) * access
        return (1, pitch) if self.by_rows else (pitch, 1)

    def result_bytes(self, rows: int) -> int:
        """Bytes of the workspace that the result takes."""
        row, column = self.strides(rows)
        wanted = self.element.bytes * max(row * rows, column * self.columns)
        return -(-wanted // _ALIGNMENT) * _ALIGNMENT


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


def piece(steps: Sequence[Step], last: KSparseDescription, factors: int) -> tuple[Step, ...]:
    """Makes steps a piece of a chain, which applies `factors` factors; `last` is the last of
    them."""
    *before, step = steps
    design = Piece(
        wrapped=step.design,
        factors=factors,
        columns=last.output_columns,
        element=last.Y.element,
        by_rows=last.batch_last == (last.Y.layout is RowMajor),
    )
    return *before, dataclasses.replace(step, design=design)


def pieces(plan: Plan) -> list[tuple[Piece, Plan]]:
    """For each piece of a plan, its `Piece`, and a plan of its steps alone in which the last one is
    unwrapped."""
    found, begin = [], 0
    for end, step in enumerate(plan.steps, 1):
        if isinstance(piece := step.design, Piece):
            steps = *plan.steps[begin : end - 1], dataclasses.replace(step, design=piece.wrapped)
            found.append((piece, dataclasses.replace(plan, steps=steps, rejected=())))
            begin = end
    return found


def launches(
    plan: Plan,
    problem: KSparseChainProblem,
    of_piece: Callable[[Plan, KSparseChainProblem], Sequence[Launch]],
) -> tuple[Launch, ...]:
    """The launches of all pieces."""
    found: list[Launch] = []
    begin, each = 0, pieces(plan)
    parts = _problems([piece for piece, _ in each], problem)
    for (_, own), part in zip(each, parts, strict=True):
        found += [
            dataclasses.replace(launch, step=begin + launch.step) for launch in of_piece(own, part)
        ]
        begin += len(own.steps)
    return tuple(found)


def buffers(each: Sequence[Piece], rows: int) -> tuple[int, int]:
    """Bytes of the two buffers for the results of even and of odd pieces."""
    sizes = [piece.result_bytes(rows) for piece in each[:-1]]
    return max(sizes[::2], default=0), max(sizes[1::2], default=0)


def _problems(each: Sequence[Piece], problem: KSparseChainProblem) -> Iterator[KSparseChainProblem]:
    """The problem of each piece; its own workspace starts behind both buffers."""
    even, odd = buffers(each, problem.rows)
    starts = (problem.workspace, problem.workspace + even)
    x, taken = problem.x, 0
    for index, piece in enumerate(each):
        is_last = index == len(each) - 1
        row, column = piece.strides(problem.rows)
        y = StridedMatrix(pointer=starts[index % 2], row=row, column=column)
        yield dataclasses.replace(
            problem,
            x=x,
            weights=problem.weights[taken : taken + piece.factors],
            z=problem.z if is_last else None,
            bias=problem.bias if is_last else 0,
            bias_stride=problem.bias_stride if is_last else 0,
            y=problem.y if is_last else y,
            scalars=problem.scalars if is_last else _UNSCALED,
            workspace=problem.workspace + even + odd if problem.workspace else 0,
        )
        x, taken = y, taken + piece.factors


def single(problem: KSparseChainProblem) -> KSparseProblem:
    """The problem of a chain of one factor, as that of a single product."""
    (factor,) = problem.weights
    return KSparseProblem(
        rows=problem.rows,
        x=problem.x,
        weights=factor.pointer,
        weight_strides=factor.strides,
        z=problem.z,
        bias=problem.bias,
        bias_stride=problem.bias_stride,
        y=problem.y,
        scalars=problem.scalars,
        workspace=problem.workspace,
        threads=problem.threads,
    )
