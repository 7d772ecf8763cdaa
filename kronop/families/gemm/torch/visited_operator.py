"""The operator kronop::matmul_visited and its derivatives.

With T = A B and G the gradient of T, which the tree's own derivatives give from those of its
results,

    dA = G B'    dB = A' G

where the products are calls of kronop::matmul. All else is torch's own operations, in float32 or
float64, so that there are derivatives of any order, in both modes. T is computed again where it is
read, and is rounded to the product's type then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from kronop.args.strides import broadcasts
from kronop.args.visited import check_reduced, misfit, own_shape
from kronop.descriptions.datatype import RESULT_TYPES, DataType
from kronop.descriptions.tree_text import from_text
from kronop.descriptions.visitor import ACCUMULATOR, Operand, Result, VisitorEpilogue, VisitorTree
from kronop.errors import ArgumentError
from kronop.families.gemm.torch.operators import (
    multiplied,
    pair_in_front,
    product,
    result_kind,
    result_shape,
)
from kronop.families.gemm.torch.tree_rules import carried, reduced, spread
from kronop.families.gemm.torch.tree_tape import Value, tape_of
from kronop.families.gemm.visited_api import epilogue_for, run_visited
from kronop.frozen import dataclass
from kronop.torch.checks import check_device, element_of, torch_type
from kronop.torch.declaration import Autocast, Gradients, Named, Operator
from kronop.torch.registration import register
from kronop.torch.scaling import added
from kronop.torch.transforms import in_front


def results_of(given: Named) -> list[Tensor]:
    """New tensors of the results' shapes and types.

    Raises:
        ArgumentError: shapes or devices that do not fit, or a reduction of nothing.
        ElementTypeError: element types that do not fit.
        DescriptionError: no kernel computes a tree with these types.
    """
    shape = result_shape(given.a, given.b)
    _check_counts(given)
    epilogue = typed(given)
    for item, tensor in zip(epilogue.tree.tensors, given.operands, strict=True):
        check_device(item.name, tensor, given.a.device)
        goal = own_shape(item.kind, shape)
        if not broadcasts(tensor.shape, goal):
            raise misfit(f"shape of {item.name}", goal, tuple(tensor.shape))
    for result in epilogue.tree.auxiliary:
        check_reduced(result, shape)
    return [
        given.a.new_empty(own_shape(item.kind, shape), dtype=torch_type(epilogue.element_of(item)))
        for item in epilogue.tree.results
    ]


def _check_counts(given: Named) -> None:
    told = from_text(given.tree)
    counts = len(given.operands), len(given.scalars or ())
    if counts != (len(told.tensors), len(told.scalars)):
        raise ArgumentError(
            "kronop::matmul_visited",
            expected=f"{len(told.tensors)} operands and {len(told.scalars)} scalars, as the"
            " tree has",
            got=f"{counts[0]} and {counts[1]}",
            hint="call kronop.torch.matmul_visited, which takes them by name",
        )


def typed(given: Named) -> VisitorEpilogue:
    """The tree with the types of a call.

    Raises:
        ElementTypeError, DescriptionError: as of `results_of`.
    """
    return epilogue_for(given.tree, multiplied(given.a), elements_of(given.operands))


def elements_of(operands: Sequence[Tensor]) -> tuple[DataType, ...]:
    """The types of operands in memory.

    Raises:
        ElementTypeError: an epilogue reads no tensors of this type.
    """
    what, hint = "an operand of a visitor tree", "convert it; it need not have the type of a and b"
    how = (f"one of {', '.join(RESULT_TYPES)}", hint, RESULT_TYPES)
    return tuple(element_of(what, item, *how) for item in operands)


def as_matrix(item: Operand, tensor: Tensor) -> Tensor:
    """An operand as what broadcasts against (..., M, N)."""
    return tensor if item.kind == "tensor" else tensor.unsqueeze(-2 if item.kind == "row" else -1)


def refuse_gradient(given: Named) -> None:
    """Raises ArgumentError for 8-bit floats, which can't hold their gradients."""
    if given.a.dtype.itemsize == 1 and (given.a.requires_grad or given.b.requires_grad):
        raise ArgumentError(
            "gradient of matmul_visited",
            expected="a and b of 16 bits or more",
            got=str(given.a.dtype),
            hint="multiply wider tensors; operands of the tree may have gradients",
        )


def _compute(given: Named) -> list[Tensor]:
    found = results_of(given)
    told = typed(given).tree
    every = dict(zip(told.scalars, given.scalars or (), strict=True))
    every |= {item.name: one for item, one in zip(told.tensors, given.operands, strict=True)}
    every |= {item.name: one for item, one in zip(told.results, found, strict=True)}
    run_visited(given.a, given.b, every, elements_of(given.operands), given.tree)
    return found


@dataclass(frozen=True, slots=True)
class _Call:
    """The arguments of a call, for its derivatives.

    Attributes:
        given: the arguments.
        tree: the tree.
        shape: (..., M, N).
        kind: the type that is computed in.
    """

    given: Named
    tree: VisitorTree
    shape: tuple[int, ...]
    kind: torch.dtype

    @classmethod
    def of(cls, given: Named) -> _Call:
        epilogue = typed(given)
        kind = torch_type(epilogue.element_epilogue)
        return cls(given, epilogue.tree, (*result_shape(given.a, given.b),), kind)

    def inputs(self, sums: Tensor | None) -> dict[str, Tensor]:
        """The inputs of the tree by name, as what broadcasts; the sums only where there are any."""
        given, found = self.given, {}
        if sums is not None:
            found[ACCUMULATOR] = sums.to(self.kind)
        like = given.a.new_empty((), dtype=self.kind)
        for name, number in zip(self.tree.scalars, given.scalars or (), strict=True):
            found[name] = torch.full_like(like, number)
        for item, tensor in zip(self.tree.tensors, given.operands, strict=True):
            found[item.name] = as_matrix(item, tensor).to(self.kind)
        return found

    def values(self, depends: Sequence[bool], results: Sequence[bool]) -> list[Value]:
        """The values that derivatives read (see `Tape.read`)."""
        tape, given = tape_of(self.given.tree), self.given
        wanted = tape.read(depends, results)
        places = zip(tape.steps, wanted, strict=True)
        needs_sums = any(step.value == ACCUMULATOR and is_it for step, is_it in places)
        sums = product(given.a, given.b, None, None, 1, 0) if needs_sums else None
        return tape.values(self.inputs(sums), wanted, given.a.new_empty((), dtype=self.kind))

    def whole(self, value: Tensor) -> Tensor:
        """A value as (..., M, N)."""
        return value.expand(self.shape)

    def compared(self, value: Tensor, item: Result) -> Tensor | None:
        """The matrix that derivatives of a reduction read: of a sum none."""
        return self.whole(value) if item.reduction == "max" else None


def _results(call: _Call, values: Sequence[Value]) -> list[Tensor]:
    """The results by torch's own operations, from the values at all places of the tape."""
    found = []
    epilogue = typed(call.given)
    for place, item in tape_of(call.given.tree).results:
        matrix = call.whole(values[place])
        made = reduced(matrix, item) if item.axis else matrix
        kind = torch_type(epilogue.element_of(item))
        if not kind.is_floating_point:
            limits = torch.iinfo(kind)
            made = made.double().round().clamp(limits.min, limits.max)
        found.append(made.to(kind, memory_format=torch.contiguous_format, copy=True))
    return found


def _decomposed(given: Named) -> list[Tensor]:
    call, kind, tape = _Call.of(given), result_kind(given.a), tape_of(given.tree)
    inputs = call.inputs(given.a.to(kind) @ given.b.to(kind))
    return _results(call, tape.values(inputs, [True] * len(tape.steps), inputs[ACCUMULATOR]))


def _gradients(given: Named, needs: Named, grads: Sequence[Tensor | None]) -> Gradients:
    """The gradients of a, b and the operands, from those of the results, which may be None."""
    call, tape = _Call.of(given), tape_of(given.tree)
    wanted = {
        item.name for item, is_it in zip(call.tree.tensors, needs.operands, strict=True) if is_it
    }
    wanted |= {ACCUMULATOR} if needs.a or needs.b else set()
    depends = tape.depending(frozenset(wanted))
    values = call.values(depends, [item is not None for item in grads])
    totals: list[Any] = [None] * len(tape.steps)
    for (place, item), grad in zip(tape.results, grads, strict=True):
        if grad is None or not depends[place]:
            continue
        part = grad.to(call.kind)
        if item.axis:
            part = call.whole(spread(part, call.compared(values[place], item), item))
        totals[place] = added(totals[place], part)
    found = tape.pulled(values, depends, totals)
    return _of_factors(given, needs, found.get(ACCUMULATOR)) | {
        "operands": _of_operands(call, found)
    }


def _of_factors(given: Named, needs: Named, grad: Tensor | None) -> dict[str, Tensor]:
    """The gradients of a and b, from that of the sums."""
    found: dict[str, Tensor] = {}
    if grad is None:
        return found
    a, b, grad = given.a, given.b, grad.to(given.a.dtype)
    if needs.a:
        found["a"] = product(grad, b.mT, None, None, 1, 0)
    if needs.b:
        if b.dim() == 2:  # All rows of a batch are one tall product, whose sum is over all of them.
            a, grad = a.flatten(0, -2), grad.flatten(0, -2)
        found["b"] = product(a.mT, grad, None, None, 1, 0)
    return found


def _of_operands(call: _Call, found: Mapping[str, Tensor]) -> list[Tensor | None]:
    """The gradients of the operands in their shapes and types."""
    every = []
    for item, tensor in zip(call.tree.tensors, call.given.operands, strict=True):
        grad = found.get(item.name)
        if grad is not None:
            own = as_matrix(item, tensor).shape
            grad = grad.sum_to_size(own).reshape(tensor.shape).to(tensor.dtype)
        every.append(grad)
    return every


def _tangents(given: Named, tangents: Named) -> list[Tensor | None]:
    """The tangents of the results; None for those that have none."""
    call, tape = _Call.of(given), tape_of(given.tree)
    known = {
        item.name: as_matrix(item, tangent).to(call.kind)
        for item, tangent in zip(call.tree.tensors, tangents.operands, strict=True)
        if tangent is not None
    }
    of_sums = None
    for a, b in ((tangents.a, given.b), (given.a, tangents.b)):
        if a is not None and b is not None:
            of_sums = product(a, b, of_sums, None, 1, 0 if of_sums is None else 1)
    if of_sums is not None:
        known[ACCUMULATOR] = of_sums.to(call.kind)
    depends = tape.depending(frozenset(known))
    values = call.values(depends, [True] * len(tape.results))
    pushed = tape.pushed(values, depends, known)
    found = []
    epilogue = typed(given)
    for place, item in tape.results:
        tangent = pushed[place]
        if tangent is not None:
            tangent = call.whole(tangent)
            if item.axis:
                tangent = carried(tangent, call.compared(values[place], item), item)
            tangent = tangent.to(torch_type(epilogue.element_of(item)))
        found.append(tangent)
    return found


def _mapped(size: int, given: Named, dims: Named) -> tuple[list[Tensor], list[int]]:
    """torch.vmap: the mapped dimension becomes the first of the leading dimensions."""
    a, b, rank = pair_in_front(size, given, dims)
    told = typed(given).tree
    operands = [
        in_front(one, dim, rank - (item.kind != "tensor"))
        for item, one, dim in zip(told.tensors, given.operands, dims.operands, strict=True)
    ]
    found = visited.library(a, b, operands, given.scalars, given.tree)
    return found, [0] * len(found)


visited = register(
    Operator(
        # NOTE: torch 2.13 loses lists of numbers that are empty, so that they are None.
        schema="matmul_visited(Tensor a, Tensor b, Tensor[] operands, float[]? scalars, str tree)"
        " -> Tensor[]",
        compute=_compute,
        fake=results_of,
        saved=("a", "b", "operands"),
        backward=_gradients,
        jvp=_tangents,
        vmap=_mapped,
        record=refuse_gradient,
        autocast=Autocast.Narrow,
        decomposed=_decomposed,
    )
)
