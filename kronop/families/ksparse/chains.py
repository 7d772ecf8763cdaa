"""Chains of Kronecker-sparse products as steps: single products, and what lies between them.

A piece of a chain's plan is a step, or steps that prepare weights and then one, whose design is a
`Piece`: it says how many factors they take and what they leave. What is between pieces is in the
workspace, in two buffers that take turns, in the order of X's memory.
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
# alpha and beta of what stays in the workspace, for epilogues in integers as well.
_UNSCALED = (1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece(Wrapping):
    """The last step of a piece, and what it leaves to the next one.

    Attributes:
        wrapped: the way the step runs.
        factors: of the chain, that the piece takes.
        columns: features of a row of its result.
        element: of its result.
        by_rows: whether the batch is contiguous in it.
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
        """Those of the batch and of the features, such that every run begins with a whole
        access."""
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
    """Factor `index` of a chain as a product of its own; `layout`: between factors (None: X's)."""
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
    """Steps as a piece of a chain: they take so many factors, of which `last` is the last one."""
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
    """What each piece leaves, and the plan of its own, whose steps are no pieces of anything."""
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
    """Bytes of what even and odd pieces leave to the next one."""
    sizes = [piece.result_bytes(rows) for piece in each[:-1]]
    return max(sizes[::2], default=0), max(sizes[1::2], default=0)


def _problems(each: Sequence[Piece], problem: KSparseChainProblem) -> Iterator[KSparseChainProblem]:
    """Each piece's part of the problem; the workspace left to it is behind both buffers."""
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
    """A chain of one factor as a product."""
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
