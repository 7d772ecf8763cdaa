"""Which templates and styles of tiles plans are made of, and plans of cases that need no GPU."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from kronop.args.tensor import describe, view
from kronop.descriptions.datatype import DataType
from kronop.emit.cuda.contraction.design import ContractDesign
from kronop.emit.cuda.contraction.group import GroupContract
from kronop.emit.cuda.contraction.mma import MmaContract
from kronop.emit.cuda.contraction.work import Contraction
from kronop.emit.design import Design
from kronop.emit.plan import Plan
from kronop.families.kron import api as functional
from kronop.families.kron.cuda.contract_pass import ContractPass
from kronop.families.kron.cuda.half import HalfStyle
from kronop.families.kron.cuda.kron_mma import KronMma
from kronop.families.kron.description import Side
from kronop.families.kron.x86.kron_vectors import KronVectors
from kronop.families.ksparse import api as functional_ksparse
from kronop.families.ksparse import gradient_api as gradients
from kronop.families.ksparse.chains import Piece
from kronop.families.ksparse.cuda.chain_design import ChainMma
from kronop.families.ksparse.cuda.gradient_ends import AddShares
from kronop.families.ksparse.cuda.gradient_group import GradientGroup
from kronop.families.ksparse.cuda.gradient_tile import GradientTile
from kronop.families.ksparse.cuda.lanes import MoveLanes
from kronop.target import Target
from tests import support
from tests.fuzz.arrays import array_over
from tests.fuzz.case import Call, Operand, Problem


def styles(plan: Plan) -> Iterator[str]:
    """A line for every step: the template, and how it goes about its tile."""
    for step in plan.steps:
        design = step.design.design if isinstance(step.design, Piece) else step.design
        name = design.instantiation(plan.target).template.removeprefix("kronop::")
        told = _told(design, plan.target)
        yield f"{name}: {', '.join(filter(None, told)) or 'plain'}"


@functools.singledispatch
def _told(design: Design, target: Target) -> list[str]:
    """How a design goes about its tile."""
    return []


@_told.register
def _pass(design: ContractPass, target: Target) -> list[str]:
    return ["kron" if item == "ksparse" else item for item in _told(design.product, target)]


@_told.register
def _mma(design: KronMma, target: Target) -> list[str]:
    style = design.tile.style
    staged = {(1, 1): "staged", (0, 0): "in memory", (1, 0): "staged in", (0, 1): "staged out"}
    kind = "half" if isinstance(style, HalfStyle) else "split" if style.splits else "plain"
    return [
        kind,
        staged[style.staged_in, style.staged_out],
        "pairs" if style.pairs else "single",
        "grouped" if any(phase.grouped for phase in design.tile.phases) else "",
        "cluster" if style.cluster > 1 else "",
        "buffers" if style.buffers > 1 else "",
        "merged" if max(design.runs) > 1 else "",
        "exchanged" if design.exchanged(target) else "",
    ]


def _orders(x: Contraction, y: Contraction) -> list[str]:
    return [f"X by {x.x_order.name.lower()}", f"Y by {y.y_order.name.lower()}"]


@_told.register
def _contract(design: ContractDesign, target: Target) -> list[str]:
    """Of a sparse product; Kronecker passes hold one."""
    return ["ksparse", *_orders(design.work, design.work), "lanes" if design.lanes > 1 else ""]


@_told.register
def _contract_mma(design: MmaContract, target: Target) -> list[str]:
    return [
        *_contract(design, target),
        "split" if design.work.splits else "plain",
        "along k" if design.warps[3] > 1 else "",
    ]


@_told.register
def _contract_group(design: GroupContract, target: Target) -> list[str]:
    along = {
        "lanes": design.along_lanes,
        "outputs": design.along_outputs,
        "rows": design.along_rows,
    }
    return [
        *_orders(design.work, design.work),
        "resident" if design.resident else "images" if design.images else "stages",
        f"teams along {next(name for name, count in along.items() if count > 1)}",
        "lanes" if design.lanes > 1 else "",
        "halves" if design.halves else "",
        "packs" if design.packs else "",
        "split" if design.work.splits else "plain",
    ]


@_told.register
def _host_kron(design: KronVectors, target: Target) -> list[str]:
    return [kind.name for kind in dict.fromkeys(item.kind for item in design.passes)]


@_told.register
def _chain(design: ChainMma, target: Target) -> list[str]:
    first, second = design.first, design.second
    return [
        "resident" if design.resident else "stages",
        *_orders(first.work, second.work),
        "split" if first.work.splits else "plain",
        "lanes" if max(first.tile.lanes, second.tile.lanes) > 1 else "",
    ]


@_told.register
def _gradient(design: GradientTile, target: Target) -> list[str]:
    work = design.work
    return [
        "along" if work.along_sums else "lanes" if work.lanes > 1 else "across",
        "tied" if work.tied else "apart",
        "split" if work.split else "plain",
    ]


@_told.register
def _gradient_group(design: GradientGroup, target: Target) -> list[str]:
    moved = "moved" if design.lanes > 1 else ""
    return [f"{design.teams} teams", "along" if design.work.by_rows else "across", moved]


@_told.register
def _add(design: AddShares, target: Target) -> list[str]:
    return ["slices" if design.slices > 1 else "whole"]


@_told.register
def _lanes(design: MoveLanes, target: Target) -> list[str]:
    return ["together" if design.join else "apart"]


def operation_of(problem: Problem, call: Call) -> Any:
    """The operation that the function would make for such tensors; on any machine."""
    x = describe(_seen(call.x, problem.element), "X")
    if problem.is_weight_gradient:
        assert call.g is not None
        return gradients._operation(
            problem.target,
            x,
            describe(_seen(call.g, problem.element), "G"),
            call.output,
            problem.shapes[0],
            problem.tied,
            problem.batch_last,
            problem.products,
            problem.factors,
        )
    inner = _inner(problem, call)
    z, out = (None if item is None else _array(item, call.output) for item in (call.z, call.out))
    y = functional.describe_output(problem.element, inner, z, out)
    if problem.of_kron:
        side = Side.Left if problem.left else Side.Right
        return functional._kron_operation(problem.target, x, y, problem.shapes, side)
    options = (problem.batch_last, call.activation)
    if len(problem.shapes) == 1:
        return functional_ksparse._ksparse_operation(
            problem.target, x, y, problem.shapes[0], *options
        )
    return functional_ksparse._chain_operation(problem.target, x, y, problem.shapes, *options)


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
