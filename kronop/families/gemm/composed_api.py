"""Groups of products whose calls are put together of what is known of each product.

What a product launches depends on its own tensors and on the group's plan alone. So it is kept for
each product, and a group that was not seen before, as in mixtures of experts, whose groups are
hardly ever alike, takes the long way only for products that were not.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from kronop.args.device import target_of
from kronop.args.overlap import ends
from kronop.args.signature import Maker
from kronop.args.view import Device, TensorView
from kronop.core import prepared
from kronop.core.addressed import Product, Record, Symbols, UnfitError, records_of, symbol
from kronop.core.calls import describe_output, epilogue_of, operand_of, operation_of
from kronop.core.native.calls import Span
from kronop.core.prepared import Call, maker_of
from kronop.core.served import Served
from kronop.descriptions.datatype import DataType, Layout
from kronop.descriptions.scalars import EpilogueArguments
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import KronopError
from kronop.families.gemm.api import described
from kronop.families.gemm.arguments import GemmArguments
from kronop.families.gemm.description import GemmProblem
from kronop.families.gemm.member_arguments import mean_size
from kronop.families.gemm.operation import GemmOperationGrouped, GemmOperationUniversal
from kronop.families.gemm.size import GemmSize
from kronop.frozen import dataclass
from kronop.tensors import Tensor

Lists = Sequence[Sequence[Tensor]]
"""Those of A, B, biases, C and D, of equal lengths, with None for tensors that are not given."""
Described = tuple[TensorDescription, ...]
"""A, B and D."""

# A launch of a product, the slots of the product's operands in the group, and its problem.
_Placed = tuple[Record, Sequence[int], GemmProblem]
_SLOTS = {"A": 0, "B": 1, "bias": 2, "Z": 3, "Y": 4, "": 5}
_MOST_PARTS = 1 << 12


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What is known of a product, whose operands have symbolic addresses in `_SLOTS`.

    Attributes:
        described: its operands.
        problem: without scratch memory; None if D is empty.
        read, written: the memory that kernels read, and that of a D of the caller.
        make: makes D; None if the caller gives it.
        device, framework: those of its tensors.
        lows: the low bits of the symbolic addresses.
        launched: (a plan, the launches and their scratch memory in bytes) by id of the plan.
    """

    described: Described
    problem: GemmProblem | None
    size: GemmSize
    read: tuple[Span, ...]
    written: tuple[Span, ...]
    make: Maker | None
    device: Device
    framework: str
    lows: Sequence[int]
    launched: dict[int, tuple[Served, list[Record], int]]


# Parts by what besides tensors decides about them, and by their tensors' facts; None for a product
# that must go the long way. No lock is needed, for the reason given in `prepared`.
_parts: dict[tuple[Any, ...], dict[tuple[Any, ...], Part | None]] = {}


def first_of(lists: Lists) -> TensorView:
    """The first operand, whose element type and device all have."""
    return operand_of(lists[0][0], "As[0]", GemmArguments.differentiable)


def describe(lists: Lists, index: int, first: TensorView) -> Described:
    """What one-line calls promise of a product's operands.

    Raises:
        ElementTypeError, ArgumentError: tensors that no product has.
    """
    a, b, _, c, out = (items[index] for items in lists)
    differentiable = GemmArguments.differentiable
    (_, second), found = described(a, b, (f"As[{index}]", f"Bs[{index}]"), ("As[0]", first))
    names = {"Z": f"Cs[{index}]", "Y": f"outs[{index}]"}
    result = describe_output(first.element, second.shape[-1], c, out, names, differentiable)
    return (*found, result)


def operation_for(
    first: TensorView, found: Sequence[Described], activation: str | None
) -> GemmOperationGrouped:
    """The operation that serves all products that are described so."""
    A, B, C = (_common(items) for items in zip(*found, strict=True))
    epilogue = epilogue_of(first.element, C, activation)
    fields = (target_of(first), A, B, C, epilogue)
    operation: GemmOperationGrouped = operation_of(GemmOperationGrouped, *fields)
    return operation


def _common(items: Sequence[TensorDescription]) -> TensorDescription:
    """What all tensors promise."""
    element, layouts = items[0].element, {item.layout for item in items}
    if len(layouts) > 1:
        return TensorDescription(element, Layout.RowMajor, 1)
    return TensorDescription(element, layouts.pop(), min(item.alignment for item in items))


def compose(
    lists: Lists,
    alpha: float,
    beta: float,
    activation: str | None,
    facts: Sequence[Any],
    addresses: Sequence[int],
) -> Call | None:
    """The call of a group; None if it must go the long way, which tells what is wrong with it.

    Args:
        facts, addresses: of all tensors of the lists, one list after the other: see `signature`.
    """
    around = (alpha, beta, activation, *prepared.surroundings())
    if sum(map(len, _parts.values())) > _MOST_PARTS:
        _parts.clear()
    count = len(lists[0])
    known: dict[tuple[Any, ...], Any] = _parts.setdefault(around, {})
    in_place = map(operator.eq, addresses[-2 * count : -count], addresses[-count:])
    keys = [(*facts[at::count], same) for at, same in enumerate(in_place)]
    new = {key: at for at, key in enumerate(keys) if key not in known}
    if any(known.get(key, key) is None for key in keys):
        return None
    try:
        first = first_of(lists)
        fresh = {key: describe(lists, at, first) for key, at in new.items()}
        told = [fresh[key] if key in fresh else known[key].described for key in keys]
        if any(_elements(item) != _elements(told[0]) for item in told):
            return None
        operation = operation_for(first, told, activation)
        output_op = operation.epilogue_type(alpha, beta)
        for key, at in new.items():
            tensors, where = [items[at] for items in lists], [*addresses[at::count]]
            known[key] = _part(operation.product, output_op, fresh[key], tensors, where)
        parts = [known[key] for key in keys]
        return None if None in parts else _call(operation, lists, parts, addresses)
    except KronopError:
        return None


def _elements(found: Described) -> list[DataType]:
    return [item.element for item in found]


def _part(
    product: GemmOperationUniversal,
    output_op: EpilogueArguments,
    found: Described,
    tensors: Sequence[Tensor],
    addresses: list[int],
) -> Part | None:
    """What there is to know of a product; None if its tensors are to be copied first."""
    A, B, bias, C, D = tensors
    arguments = GemmArguments(product, A=A, B=B, C=C, D=D, output_op=output_op, bias=bias)
    views, device, make = arguments.views, arguments.device, None
    try:
        if D is None:
            addresses[_SLOTS["Y"]] = views["Y"].pointer
            make = maker_of(views["Y"], arguments.framework, arguments.D)
        symbols = Symbols(_SLOTS, addresses, device)
        problem = arguments.problem(symbols) if arguments.size else None
    except UnfitError:
        return None
    bounds = {name: ends(item) for name, item in views.items() if 0 not in item.shape}
    unread = {"Y"} if output_op.beta and not arguments.accumulates else {"Y", "Z"}
    return Part(
        described=found,
        problem=problem,
        size=arguments.size,
        read=tuple((_SLOTS[name], *item) for name, item in bounds.items() if name not in unread),
        written=((_SLOTS["Y"], *bounds["Y"]),) if D is not None and "Y" in bounds else (),
        make=make,
        device=device,
        framework=arguments.framework,
        lows=symbols.lows,
        launched={},
    )


def _call(
    operation: GemmOperationGrouped, lists: Lists, parts: Sequence[Part], addresses: Sequence[int]
) -> Call | None:
    """The call of these products; None if they have no device or framework in common."""
    count, device, framework = len(parts), parts[0].device, parts[0].framework
    if any(part.device != device or part.framework != framework for part in parts):
        return None
    if operation.description.Y.layout is not Layout.RowMajor and any(part.make for part in parts):
        return None
    sizes = [part.size for part in parts if part.size]
    served = operation.serve(operation.plan_for(mean_size(sizes), device.index))
    found: list[_Placed] = []
    read, written, makes, scratch = [], [], {}, 0
    for at, part in enumerate(parts):
        slots = (*range(at, 5 * count, count), 5 * count)
        read += [(slots[slot], below, above) for slot, below, above in part.read]
        written += [(slots[slot], below, above) for slot, below, above in part.written]
        if part.make is not None:
            makes[slots[_SLOTS["Y"]]] = part.make
        if part.problem is not None:
            records, nbytes = _launched(part, part.problem, served)
            found += [(record, slots, part.problem) for record in records]
            scratch = max(scratch, nbytes)
    product = Product.of([*_joined(found, served)], scratch, device.index)
    tensors = [item for items in lists for item in items]
    return Call(tensors, count, read, written, product, makes, device, framework)


def _launched(part: Part, problem: GemmProblem, served: Served) -> tuple[list[Record], int]:
    """(the launches of a product by the plan of one, bytes of scratch memory)."""
    kept = part.launched.get(id(served))
    if kept is None:
        runnable: Any = served.plan.runnable
        nbytes = served.workspace_bytes(part.size, problem.threads)
        workspace = symbol(_SLOTS[""], 0) if nbytes else 0
        given = replace(problem, workspace=workspace)
        launches = runnable.product.launches(given, served.plan.target)
        records = records_of(served, launches, part.lows, runnable.product.designs)
        kept = part.launched[id(served)] = served, records, nbytes
    return kept[1:]


def _joined(found: list[_Placed], served: Served) -> Iterator[Record]:
    """The launches of a group, from those of its products."""
    runnable: Any = served.plan.runnable
    if runnable.joins > 1:  # Large products come first, as in the launches of the plan.
        found.sort(key=lambda item: -item[-1].k)
    for start in range(0, len(found), runnable.joins):
        chunk = found[start : start + runnable.joins]
        launches = [record.launch for record, _, _ in chunk]
        patches = [
            (at * runnable.apart // 8 + word, slots[slot], displacement)
            for at, (record, slots, _) in enumerate(chunk)
            for word, slot, displacement in record.patches
        ]
        maps = [
            replace(item, offset=at * runnable.apart + item.offset, slot=slots[item.slot])
            for at, (record, slots, _) in enumerate(chunk)
            for item in record.maps
        ]
        launch = runnable.joined(launches, served.plan.target, chunk[0][-1].threads)
        yield Record(chunk[0][0].kernel, launch, tuple(patches), tuple(maps))
