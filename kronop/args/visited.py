"""The operands and auxiliary results of visitor trees, as arguments take them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from kronop.args.checks import check_writable
from kronop.args.frameworks import DIFFERENTIABLE
from kronop.args.overlap import overlaps, same_elements
from kronop.args.strides import Shape, broadcast_strides, broadcasts, flat_stride, matrix_strides
from kronop.args.tensor import check_element, view
from kronop.args.view import TensorView
from kronop.descriptions.datatype import AnyLayout, RowMajor
from kronop.descriptions.tensor import TensorDescription
from kronop.descriptions.visitor import Result, VisitorEpilogue
from kronop.descriptions.visitor_arguments import VisitorArguments
from kronop.errors import ArgumentError
from kronop.frozen import dataclass
from kronop.tensors import Tensor

Ints = tuple[int, ...]
OVER = "mn"
"""The axes of a result, which kernels read all operands along."""
_AXES = {"tensor": OVER, "row": "n", "column": "m"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Visited:
    """An operand or an auxiliary result.

    Attributes:
        name: what the tree calls it.
        kind: "tensor", "row" or "column".
        view: its memory.
        described: its type.
        result: what it is of the tree's results; None for an operand.
        owner: the tensor.
    """

    name: str
    kind: str
    view: TensorView
    described: TensorDescription
    result: Result | None
    owner: Tensor

    @property
    def key(self) -> str:
        """Its name among operands, apart from A, B and the like."""
        return f"{self.name} of the tree"

    @property
    def axes(self) -> str:
        """Its own axes, besides leading dimensions."""
        return _AXES[self.kind]


def taken(output_op: VisitorArguments, D: Tensor, others: Mapping[str, Tensor]) -> Tensor:
    """The tensor of D, or None for a new one.

    Args:
        D: what the arguments were given as the result.
        others: tensors that they were given and that a tree may only have as its own operands.

    Raises:
        ArgumentError: D is given twice, or one of the others is no operand of the tree.
    """
    own = output_op.results.get(output_op.first)
    if own is not None and D is not None and own is not D:
        raise _twice(output_op.first, "the same tensor as epilogue_type's")
    for name, item in others.items():
        if item is not None and all(item is not other for other in output_op.tensors.values()):
            raise _twice(name, "none, because the epilogue is a visitor tree")
    return D if own is None else own


def _twice(name: str, expected: str) -> ArgumentError:
    hint = "give all operands of a tree to operation.epilogue_type"
    return ArgumentError(name, expected=expected, got="another tensor", hint=hint)


def visited(
    epilogue: VisitorEpilogue,
    output_op: VisitorArguments,
    layout: AnyLayout,
    differentiable: str = DIFFERENTIABLE,
) -> tuple[Visited, ...]:
    """The operands, then the auxiliary results, in the order of the tree.

    Args:
        layout: that of D, in which flat (M, N) tensors are read too.
        differentiable: the function with gradients, as in `view`.

    Raises:
        ElementTypeError: one is no tensor, or of another type than the tree's.
        ArgumentError: a result cannot be written.
    """
    given, found = {**output_op.tensors, **output_op.results}, []
    for item in epilogue.tree.in_memory:
        seen, element = view(given[item.name], item.name, differentiable), epilogue.element_of(item)
        check_element(seen.element, element, item.name)
        result = item if isinstance(item, Result) else None
        if result is not None:
            check_writable(seen, item.name)
        found.append(
            Visited(
                name=item.name,
                kind=item.kind,
                view=seen,
                described=TensorDescription(element, layout if item.kind == "tensor" else RowMajor),
                result=result,
                owner=given[item.name],
            )
        )
    return tuple(found)


def fitted(
    items: Sequence[Visited], shape: Ints, problem_size: tuple[int, int] | None, rows: int = 1
) -> tuple[Visited, ...]:
    """The same with the shapes that a result of `shape` wants: operands repeat over its leading
    dimensions, and tensors in one dimension are matrices without gaps.

    Args:
        rows: how many axes the rows of the result have, as `joined` of D joins them. All of them
            are reduced where each column gives a number; leading dimensions are not.

    Raises:
        ArgumentError: a shape does not fit, a reduction has nothing to reduce, or the problem size
            is another one.
    """
    extents = math.prod(shape[-1 - rows : -1]), shape[-1]
    if problem_size is not None and problem_size != extents:
        raise misfit("problem_size of epilogue_type", extents, problem_size)
    return tuple(dataclasses.replace(item, view=_fitted(item, shape, rows)) for item in items)


def joined(name: str, kind: str, view: TensorView, rows: int) -> TensorView:
    """The view of a tensor or a column with the axes of its rows as a single one.

    Raises:
        ArgumentError: no single stride reaches all rows.
    """
    if rows == 1 or kind == "row":
        return view
    end = len(view.shape) - (kind == "tensor")
    own = slice(end - rows, end)
    step = flat_stride(view.shape[own], view.strides[own]) if view.in_place else None
    if step is None:
        raise ArgumentError(
            f"strides of {name}",
            expected=f"one stride for all rows, of extents {view.shape[own]}",
            got=view.strides[own],
            hint="pass a contiguous tensor: columns of all rows are reduced",
        )

    def with_one(values: Ints, one: int) -> Ints:
        return (*values[: end - rows], one, *values[end:])

    extent = math.prod(view.shape[own])
    return view.reshaped(with_one(view.shape, extent), with_one(view.strides, step))


def _fitted(item: Visited, shape: Ints, rows: int) -> TensorView:
    goal, seen = own_shape(item.kind, shape, rows), _without_one(item, len(shape) - 1)
    if item.result is not None:
        check_reduced(item.result, shape, rows)
    is_flat = len(seen.shape) == 1 < len(goal)
    if is_flat and (
        item.result is not None or (item.kind == "tensor" and seen.shape != shape[-1:])
    ):
        if not seen.in_place:
            raise misfit(f"shape of {item.name}, which is copied", goal, seen.shape)
        if seen.size != math.prod(goal):
            raise misfit(f"shape of {item.name}", goal, seen.shape)
        steps = matrix_strides(goal, item.described.layout, 1)
        flat = seen.reshaped(goal, tuple(seen.strides[0] * step for step in steps))
        return joined(item.name, item.kind, flat, rows)
    fits = broadcasts(seen.shape, goal) if item.result is None else seen.shape == goal
    if not fits:
        raise misfit(f"shape of {item.name}", goal, seen.shape)
    whole = seen.reshaped(goal, broadcast_strides(seen.shape, seen.strides, goal))
    return joined(item.name, item.kind, whole, rows)


def _without_one(item: Visited, dimensions: int) -> TensorView:
    """The view of a row (..., 1, N) or a column (..., M, 1), as PyCUTLASS's programs have them,
    without that dimension; others as they are."""
    seen, axis = item.view, {"row": -2, "column": -1}.get(item.kind, 0)
    if not axis or len(seen.shape) <= dimensions or seen.shape[axis] != 1:
        return seen
    kept = [at for at in range(len(seen.shape)) if at != len(seen.shape) + axis]
    while len(kept) > dimensions and seen.shape[kept[0]] == 1:
        del kept[0]
    return seen.reshaped(
        tuple(seen.shape[at] for at in kept), tuple(seen.strides[at] for at in kept)
    )


def own_shape(kind: str, shape: Shape, rows: int = 1) -> Shape:
    """The shape of a tensor, a row or a column beside a result (..., M, N), whose rows have so many
    axes."""
    *lead, n = shape
    m = lead[len(lead) - rows :]
    del lead[len(lead) - rows :]
    own: dict[str, Shape] = {"tensor": (*m, n), "row": (n,), "column": (*m,)}
    return (*lead, *own[kind])


def check_reduced(result: Result, shape: Shape, rows: int = 1) -> None:
    """Raises ArgumentError if a matrix of a shape (..., M, N) has no element in what becomes one of
    the result."""
    reduced = shape[-1:] if result.axis == "row" else shape[-1 - rows : -1]
    if result.axis and 0 in reduced and 0 not in own_shape(result.kind, shape, rows):
        raise ArgumentError(
            f"the extent that {result.name} reduces",
            expected="at least 1",
            got=0,
            hint="there is nothing to reduce",
        )


def misfit(name: str, expected: object, got: object) -> ArgumentError:
    hint = "tensors of a tree have M rows and N columns, rows N and columns M numbers"
    return ArgumentError(name, expected=expected, got=got, hint=hint)


def check_overlaps(
    items: Sequence[Visited], y: TensorView, inputs: Mapping[str, TensorView]
) -> bool:
    """Whether a run reads what an earlier one wrote: a result is an operand.

    Raises:
        ArgumentError: a result overlaps what else is read or written, other than an (M, N) operand
            that has the very same elements.
    """
    results = [item for item in items if item.result]
    matrices = [("D", y), *((item.name, item.view) for item in results if item.kind == "tensor")]
    written = matrices + [(item.name, item.view) for item in results if item.kind != "tensor"]
    read = [(item.name, item.view, item.kind) for item in items if item.result is None]
    read += [(name, item, "") for name, item in inputs.items()]
    in_place = False
    for place, (name, item) in enumerate(written):
        for other, seen, kind in read:
            same = kind == "tensor" and (name, item) in matrices and same_elements(item, seen)
            in_place |= same
            if not same and overlaps(item, seen):
                raise _overlapping(name, other)
        for other, seen in written[:place]:
            if overlaps(item, seen):
                raise _overlapping(name, other)
    return in_place


def read_again(items: Sequence[Visited], written: Mapping[str, TensorView]) -> dict[str, str]:
    """Operands that are a result: the operand's key -> the key of the result. What is copied for
    kernels is then one copy, so that a run goes on from the one before."""
    return {
        item.key: name
        for item in items
        for name, view in written.items()
        if item.result is None and item.kind == "tensor" and same_elements(view, item.view)
    }


def _overlapping(name: str, other: str) -> ArgumentError:
    return ArgumentError(
        f"{name} and {other}",
        expected="separate memory",
        got="tensors that overlap",
        hint=f"pass another {name}; results may only be an (M, N) operand itself",
    )
