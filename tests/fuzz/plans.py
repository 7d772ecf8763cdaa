"""Which designs and styles plans are made of, and plans of cases that need no GPU."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

import kronop
from kronop.args.tensor import describe, view
from kronop.core import calls
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.design import Design
from kronop.emit.plan import Plan
from kronop.families.kron.description import Side
from kronop.target import Target
from tests import support
from tests.fuzz.arrays import array_over
from tests.fuzz.case import Call, Operand, Problem


def styles(plan: Plan) -> Iterator[str]:
    """A line for every step: its designs, and how each goes about its tile."""
    for step in plan.steps:
        told = words(step.design, plan.target).items()
        yield "; ".join(f"{name}: {', '.join(sorted(said))}" for name, said in told)


def reached(plan: Plan) -> set[str]:
    """What a plan has: "design: one word of its style"."""
    found: set[str] = set()
    for step in plan.steps:
        for design, said in words(step.design, plan.target).items():
            found |= {f"{design}: {word}" for word in said}
    return found


def words(design: Design, target: Target) -> dict[str, set[str]]:
    """What a design says of its style, and the one within it, by their classes."""
    found: dict[str, set[str]] = {}
    inside: Design | None = design
    while inside is not None:
        said = set(inside.style(target))
        assert said <= {*inside.styles}, f"{type(inside).__name__} does not declare all of {said}"
        if said and not found and "alone" in inside.styles:
            said.add("alone")
        if said:
            found[type(inside).__name__] = said
        inside = inside.inner
    return found


def operation_of(problem: Problem, call: Call) -> Any:
    """The operation that the function would make for such tensors; on any machine."""
    x = describe(_seen(call.x, problem.element), "X")
    if problem.is_weight_gradient:
        assert call.g is not None
        sums = MathInstruction.simt(problem.element).element_accumulator
        return calls.operation_of(
            kronop.KSparseGradientOperation,
            problem.target,
            x,
            describe(_seen(call.g, problem.element), "G"),
            calls.plain(call.output),
            kronop.LinearCombination(call.output, 1, sums, sums),
            problem.shapes[0],
            problem.tied,
            problem.batch_last,
            problem.products,
            problem.factors,
        )
    inner = _inner(problem, call)
    z, out = (None if item is None else _array(item, call.output) for item in (call.z, call.out))
    y = calls.describe_output(problem.element, inner, z, out)
    activation = None if problem.of_kron else call.activation
    ends = (x, calls.plain(x.element), y, calls.epilogue_of(x.element, y, activation))
    if problem.of_kron:
        side = Side.Left if problem.left else Side.Right
        own = (kronop.KronMatmulOperation, problem.target, *ends, problem.shapes, side)
    elif len(problem.shapes) == 1:
        own = (kronop.KSparseOperation, problem.target, *ends, *problem.shapes, problem.batch_last)
    else:
        chain = (problem.shapes, problem.batch_last)
        own = (kronop.KSparseChainOperation, problem.target, *ends, *chain)
    return calls.operation_of(*own)


def _inner(problem: Problem, call: Call) -> int:
    """Elements of a run of a new result."""
    if problem.left or problem.batch_last:
        shape = call.x.shape
        return shape[-1] if problem.left and len(shape) > 1 else math.prod(shape[1:]) or 1
    return problem.ends[1]


def rows_of(problem: Problem, call: Call) -> int:
    """Rows of X in all, as plans count them."""
    return math.prod(call.x.shape) // problem.ends[0] // (problem.products or 1)


def _array(item: Operand, element: DataType) -> Any:
    """An array of that layout, whose memory is never touched."""
    memory = np.empty(item.size * element.bytes, np.uint8)
    return array_over(item, memory, support.numpy_type(element))


def _seen(item: Operand, element: DataType) -> Any:
    return view(_array(item, element), "X")
