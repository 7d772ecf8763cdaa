"""Which templates and styles of tiles plans are made of, and plans of cases that need no GPU."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from kronop.args.tensor import describe, view
from kronop.descriptions.datatype import DataType
from kronop.emit.cuda.contraction.work import Order
from kronop.emit.design import Flat
from kronop.emit.plan import Plan
from kronop.families.kron import api as functional
from kronop.families.kron.cuda.contract_pass import ContractPass
from kronop.families.kron.cuda.half import HalfStyle
from kronop.families.kron.cuda.kron_mma import KronMma
from kronop.families.kron.description import Side
from kronop.families.kron.x86.kron_parts import Kind
from kronop.families.ksparse import api as functional_ksparse
from kronop.families.ksparse import gradient_api as gradients
from kronop.target import Target
from tests import support
from tests.fuzz.arrays import array_over
from tests.fuzz.case import Call, Operand, Problem


def styles(plan: Plan) -> Iterator[str]:
    """A line for every step: the template, and how it goes about its tile."""
    for step in plan.steps:
        design = step.design
        made = design.instantiation(plan.target)
        name = made.template.removeprefix("kronop::")
        if isinstance(design, KronMma):
            told = _mma(design, plan.target)
        else:
            launch = design.launch if isinstance(design, Flat) else ()
            family = "kron" if isinstance(design, ContractPass) else "ksparse"
            told = _STYLES.get(name, _plain)(dict((*made.constants, *launch)) | {"family": family})
        yield f"{name}: {', '.join(filter(None, told)) or 'plain'}"


def _plain(of: dict[str, Any]) -> list[str]:
    return []


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


def _host_kron(of: dict[str, Any]) -> list[str]:
    return [Kind(kind).name for kind in dict.fromkeys(of.get("kPassKind", ()))]


def _orders(of: dict[str, Any]) -> list[str]:
    return [f"{name} by {Order(of[f'k{name}Order']).name.lower()}" for name in "XY"]


def _tiles(of: dict[str, Any]) -> list[str]:
    return [of["family"], *_orders(of), "lanes" if of["kLanes"] > 1 else ""]


def _contract_mma(of: dict[str, Any]) -> list[str]:
    return [
        *_tiles(of),
        "split" if of["kSplit"] else "plain",
        "along k" if of["kWarpsK"] > 1 else "",
    ]


def _contract_group(of: dict[str, Any]) -> list[str]:
    along = {"lanes": of["kGroupsLanes"], "outputs": of["kGroupsN"], "rows": of["kGroupsM"]}
    parts = of["kTeamM"] * of["kTileN"] // of["kGroupsN"] // of["kPartN"]
    return [
        *_orders(of),
        "resident" if of["kResident"] else "images" if of["kImages"] else "stages",
        f"teams along {next(name for name, count in along.items() if count > 1)}",
        "lanes" if of["kLanes"] > 1 else "",
        "halves" if of["kKept"] < parts else "",
        "packs" if of["kPacks"] else "",
        "split" if of["kSplit"] else "plain",
    ]


def _chain(of: dict[str, Any]) -> list[str]:
    return [
        "resident" if of["kResident"] else "stages",
        *_orders(of),
        "split" if of["kSplit"] else "plain",
        "lanes" if max(of["kPairLanes"]) > 1 else "",
    ]


def _gradient(of: dict[str, Any]) -> list[str]:
    return [
        "along" if of["kAlongSums"] else "lanes" if of["kLanes"] > 1 else "across",
        "tied" if of["tied"] else "apart",
        "split" if of["kSplit"] else "plain",
    ]


def _gradient_group(of: dict[str, Any]) -> list[str]:
    moved = "moved" if of["lanes"] > 1 else ""
    return [f"{of['kTeams']} teams", "along" if of["kAlongSums"] else "across", moved]


def _lanes(of: dict[str, Any]) -> list[str]:
    return ["together" if of.get("kJoin") else "apart"]


def _add(of: dict[str, Any]) -> list[str]:
    return ["slices" if of["kSlices"] > 1 else "whole"]


_STYLES = {
    "kron_matmul": _host_kron,
    "contract_tiles": _tiles,
    "contract_mma": _contract_mma,
    "contract_group": _contract_group,
    "chain_mma": _chain,
    "ksparse_gradient": _gradient,
    "gradient_group": _gradient_group,
    "move_lanes": _lanes,
    "add_shares": _add,
}


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
