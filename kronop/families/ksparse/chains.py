"""Chains of Kronecker-sparse products as steps: single products, and what lies between them.

A piece of a chain's plan is a step, or steps that prepare weights and then one: which says in
`launch` how many factors it takes and what it produces. What is between pieces is in the workspace,
in two buffers that take turns, in the order of X's memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from kronop.artifacts import Launch
from kronop.descriptions.datatype import Layout, RowMajor
from kronop.descriptions.epilogue import LinearCombination
from kronop.descriptions.strided import StridedMatrix
from kronop.descriptions.tensor import TensorDescription
from kronop.emit.plan import Plan, Step
from kronop.families.ksparse.chain_description import KSparseChainDescription, KSparseChainProblem
from kronop.families.ksparse.description import KSparseDescription, KSparseProblem

_ALIGNMENT, _ACCESS = 256, 16
# alpha and beta of what stays in the workspace, for epilogues in integers as well.
_UNSCALED = (1, 0)


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
    marks = (
        ("factors", factors),
        ("columns_out", last.output_columns),
        ("bytes_out", last.Y.element.bytes),
        ("by_rows", last.batch_last == (last.Y.layout is RowMajor)),
    )
    *before, step = steps
    return *before, dataclasses.replace(
        step, design=dataclasses.replace(step.design, launch=(*step.design.launch, *marks))
    )


def pieces(plan: Plan) -> list[Plan]:
    """The plan of each piece."""
    found, begin = [], 0
    for end, step in enumerate(plan.steps, 1):
        if "factors" in dict(step.launch):
            found.append(dataclasses.replace(plan, steps=plan.steps[begin:end], rejected=()))
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
    for own, part in zip(each, _problems(each, problem), strict=True):
        found += [
            dataclasses.replace(launch, step=begin + launch.step) for launch in of_piece(own, part)
        ]
        begin += len(own.steps)
    return tuple(found)


def buffers(plans: Sequence[Plan], rows: int) -> tuple[int, int]:
    """Bytes of what even and odd pieces leave to the next one."""
    sizes = [0, 0]
    for index, item in enumerate(plans[:-1]):
        step = item.steps[-1]
        row, column = _strides(step, rows)
        wanted = _size(step, "bytes_out") * max(row * rows, column * _size(step, "columns_out"))
        sizes[index % 2] = max(sizes[index % 2], -(-wanted // _ALIGNMENT) * _ALIGNMENT)
    return sizes[0], sizes[1]


def _problems(plans: Sequence[Plan], problem: KSparseChainProblem) -> Iterator[KSparseChainProblem]:
    """Each piece's part of the problem; the workspace left to it is behind both buffers."""
    even, odd = buffers(plans, problem.rows)
    starts = (problem.workspace, problem.workspace + even)
    x, taken = problem.x, 0
    for index, item in enumerate(plans):
        step = item.steps[-1]
        is_last, count = index == len(plans) - 1, _size(step, "factors")
        row, column = _strides(step, problem.rows)
        y = StridedMatrix(pointer=starts[index % 2], row=row, column=column)
        yield dataclasses.replace(
            problem,
            x=x,
            weights=problem.weights[taken : taken + count],
            z=problem.z if is_last else None,
            bias=problem.bias if is_last else 0,
            bias_stride=problem.bias_stride if is_last else 0,
            y=problem.y if is_last else y,
            scalars=problem.scalars if is_last else _UNSCALED,
            workspace=problem.workspace + even + odd if problem.workspace else 0,
        )
        x, taken = y, taken + count


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


def _strides(step: Step, rows: int) -> tuple[int, int]:
    """Strides of the batch and of the features, such that every run begins with a whole access."""
    run = rows if step.constant("by_rows") else _size(step, "columns_out")
    access = _ACCESS // _size(step, "bytes_out")
    pitch = -(-run // access) * access
    return (1, pitch) if step.constant("by_rows") else (pitch, 1)


def _size(step: Step, name: str) -> int:
    value = step.constant(name)
    if not isinstance(value, int):
        raise TypeError(f"{step.entry}: constant {name} is no integer")
    return value
