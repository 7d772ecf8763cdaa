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

from kronop.descriptions.visitor import ACCUMULATOR, VisitorTree
from kronop.families.gemm.torch import visited_shapes
from kronop.families.gemm.torch.operators import product
from kronop.families.gemm.torch.shapes import result_kind, result_shape
from kronop.families.gemm.torch.tree_rules import carried, reduced, spread
from kronop.families.gemm.torch.tree_tape import Value, tape_of
from kronop.families.gemm.visited_api import run_visited
from kronop.frozen import dataclass
from kronop.torch.declaration import Autocast, Gradients, Named, Operator
from kronop.torch.registration import register
from kronop.torch.transforms import in_front


def _compute(
    a: Tensor, b: Tensor, operands: Sequence[Tensor], scalars: Sequence[float] | None, tree: str
) -> list[Tensor]:
    found = visited_shapes.results(a, b, operands, scalars, tree)
    told = visited_shapes.typed(a, operands, tree).tree
    given = dict(zip(told.scalars, scalars or (), strict=True))
    given |= {item.name: one for item, one in zip(told.tensors, operands, strict=True)}
    given |= {item.name: one for item, one in zip(told.results, found, strict=True)}
    run_visited(a, b, given, visited_shapes.elements_of(operands), tree)
    return found


def _fake(
    a: Tensor, b: Tensor, operands: Sequence[Tensor], scalars: Sequence[float] | None, tree: str
) -> list[Tensor]:
    return visited_shapes.results(a, b, operands, scalars, tree)


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
        epilogue = visited_shapes.typed(given.a, given.operands, given.tree)
        kind = visited_shapes.kind_of(epilogue.element_epilogue)
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
            found[item.name] = visited_shapes.as_matrix(item, tensor).to(self.kind)
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


def _results(call: _Call, values: Sequence[Value]) -> list[Tensor]:
    """The results by torch's own operations, from the values at all places of the tape."""
    found = []
    epilogue = visited_shapes.typed(call.given.a, call.given.operands, call.given.tree)
    for place, item in tape_of(call.given.tree).results:
        matrix = call.whole(values[place])
        made = reduced(matrix, item.reduction, item.axis) if item.axis else matrix
        kind = visited_shapes.kind_of(epilogue.element_of(item))
        if not kind.is_floating_point:
            limits = torch.iinfo(kind)
            made = made.double().round().clamp(limits.min, limits.max)
        found.append(made.to(kind, memory_format=torch.contiguous_format, copy=True))
    return found


def _decomposed(
    a: Tensor, b: Tensor, operands: Sequence[Tensor], scalars: Sequence[float] | None, tree: str
) -> list[Tensor]:
    call = _Call.of(Named(a=a, b=b, operands=operands, scalars=scalars, tree=tree))
    kind, tape = result_kind(a.dtype), tape_of(tree)
    inputs = call.inputs(a.to(kind) @ b.to(kind))
    return _results(call, tape.values(inputs, tape.every(), inputs[ACCUMULATOR]))


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
            matrix = call.whole(values[place]) if item.reduction == "max" else None
            part = call.whole(spread(part, matrix, item.reduction, item.axis))
        totals[place] = part if totals[place] is None else totals[place] + part
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
            own = visited_shapes.as_matrix(item, tensor).shape
            grad = grad.sum_to_size(own).reshape(tensor.shape).to(tensor.dtype)
        every.append(grad)
    return every


def _tangents(given: Named, tangents: Named) -> list[Tensor | None]:
    """The tangents of the results; None for those that have none."""
    call, tape = _Call.of(given), tape_of(given.tree)
    known = {
        item.name: visited_shapes.as_matrix(item, tangent).to(call.kind)
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
    epilogue = visited_shapes.typed(given.a, given.operands, given.tree)
    for place, item in tape.results:
        tangent = pushed[place]
        if tangent is not None:
            tangent = call.whole(tangent)
            if item.axis:
                matrix = call.whole(values[place]) if item.reduction == "max" else None
                tangent = carried(tangent, matrix, item.reduction, item.axis)
            tangent = tangent.to(visited_shapes.kind_of(epilogue.element_of(item)))
        found.append(tangent)
    return found


def _mapped(size: int, given: Named, dims: Named) -> tuple[list[Tensor], list[int]]:
    """torch.vmap: the mapped dimension becomes the first of the leading dimensions."""
    pairs = ((given.a, dims.a), (given.b, dims.b))
    rank = max(item.dim() - (dim is not None) for item, dim in pairs)
    a, b = (in_front(item, dim, rank) for item, dim in pairs)
    if dims.a is None and dims.b is None:
        a = a.expand(size, *a.shape[1:])
    told = visited_shapes.typed(given.a, given.operands, given.tree).tree
    operands = [
        one if dim is None else in_front(one, dim, rank - (item.kind != "tensor"))
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
        fake=_fake,
        saved=("a", "b", "operands"),
        backward=_gradients,
        jvp=_tangents,
        vmap=_mapped,
        record=visited_shapes.refuse_gradient,
        autocast=Autocast.Narrow,
        decomposed=_decomposed,
    )
)
