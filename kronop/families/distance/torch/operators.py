"""The torch operator of kernel matrices: kronop::kernel_matrix.

Its derivative in a sum s_i of the form is the kernel matrix of another form, that of the
expression's derivative. So gradients consist of kernel matrices, and of the gradients of sums
(`sums`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kronop.descriptions.expression import variable
from kronop.descriptions.graph import Graph
from kronop.errors import ArgumentError, mismatch
from kronop.families.distance import api
from kronop.families.distance.form import (
    GENERAL_POWERS,
    Bound,
    Form,
    Term,
    TermKind,
    sum_of,
    value_of,
)
from kronop.families.distance.shape_arguments import matrix_shape
from kronop.families.distance.torch import sums
from kronop.families.distance.torch.scaled import Scaled
from kronop.families.distance.value_arguments import is_tensor, widths_in, with_bounded_powers
from kronop.torch.checks import check_kind, common_shape
from kronop.torch.declaration import Autocast, Gradients, Named, Operator
from kronop.torch.registration import register
from kronop.torch.transforms import in_front

# Stands for a tensor among the numbers.
_HELD = "t"
_LARGEST = Form(terms=(Term(kind=TermKind.Largest),), expression=Graph.of(variable(sum_of(0))))


@dataclass(frozen=True)
class Values:
    """The values and vectors of a form as an operator's arguments.

    Values are a list of tensors and a string: torch.compile loses lists of numbers that are empty.

    Attributes:
        tensors: the values that are tensors, in order.
        numbers: all values as text, "t" for tensors, with commas between them.
        vectors: of one number per feature, all tensors.
    """

    tensors: list[Tensor]
    numbers: str
    vectors: list[Tensor]

    @classmethod
    def of(cls, bound: Bound, points: Tensor) -> Values:
        """Those of a call; arrays of NumPy become tensors beside the points."""
        values = with_bounded_powers(bound, max(4, points.dtype.itemsize))
        texts = [_HELD if is_tensor(item) else repr(float(item)) for item in values]
        tensors = [_tensor(item, points) for item in values if is_tensor(item)]
        widths = widths_in(str(_kind_of_sums(points))[6:], bound.vectors)
        return cls(tensors, ",".join(texts), [_tensor(item, points) for item in widths])

    @classmethod
    def given(cls, given: Named) -> Values:
        """Those among an operator's arguments."""
        return cls(list(given.values), given.numbers, list(given.vectors))

    @property
    def arguments(self) -> tuple[list[Tensor], str, list[Tensor]]:
        return self.tensors, self.numbers, self.vectors

    @property
    def slots(self) -> list[int]:
        """The indices of the tensors among all values."""
        return [index for index, text in enumerate(self.numbers.split(",")) if text == _HELD]

    @property
    def every(self) -> list[Any]:
        """All values, as numbers and tensors."""
        tensors = iter(self.tensors)
        texts = self.numbers.split(",") if self.numbers else []
        return [next(tensors) if text == _HELD else float(text) for text in texts]

    def some(self, kept: tuple[int, ...], kept_vectors: tuple[int, ...]) -> Values:
        """Those with these indices, which become 0, 1, ..."""
        every = [self.every[index] for index in kept]
        tensors = [item for item in every if is_tensor(item)]
        texts = [_HELD if is_tensor(item) else repr(item) for item in every]
        return Values(tensors, ",".join(texts), [self.vectors[index] for index in kept_vectors])

    def value(self, index: int) -> Tensor | float:
        """A value, as a number or as a tensor that broadcasts against matrices."""
        value = self.every[index]
        return value[..., None, None] if is_tensor(value) else value

    def bound(self, form: Form) -> Bound:
        return Bound(form=form, values=tuple(self.every), vectors=tuple(self.vectors))


def _tensor(item: object, points: Tensor) -> Tensor:
    """A tensor as it is, or an array as a tensor of the type that sums have."""
    if isinstance(item, Tensor):
        return item
    return torch.as_tensor(item, dtype=_kind_of_sums(points), device=points.device)


def _kind_of_sums(points: Tensor) -> torch.dtype:
    return torch.promote_types(points.dtype, torch.float32)


def slope_of(values: Values, form: Form, name: str) -> tuple[Form, Values] | float | None:
    """The derivative of a form's expression in one of its inputs, as a form and its values: a
    number where it is constant, None where it is 0."""
    found = form.expression.derivative(name)
    if found is None:
        return None
    if not found.operations and not found.inputs:
        return found.constants[0]
    other, *kept = form.with_expression(found)
    return other, values.some(*kept)


def derived(x1: Tensor, x2: Tensor, values: Values, form: Form, name: str) -> Tensor | float | None:
    """The matrix of `slope_of`."""
    slope = slope_of(values, form, name)
    if not isinstance(slope, tuple):
        return slope
    other, kept = slope
    return matrix(x1, x2, *kept.arguments, other.text(), api.DIRECT)


def _compute(
    x1: Tensor,
    x2: Tensor,
    values: list[Tensor],
    numbers: str,
    vectors: list[Tensor],
    form: str,
    mode: str,
) -> Tensor:
    bound = Values(values, numbers, vectors).bound(Form.from_text(form))
    return api.matrix_of(x1, x2, bound, mode)


def _fake(
    x1: Tensor,
    x2: Tensor,
    values: list[Tensor],
    numbers: str,
    vectors: list[Tensor],
    form: str,
    mode: str,
) -> Tensor:
    bound = Values(values, numbers, vectors).bound(Form.from_text(form))
    shape = matrix_shape(tuple(x1.shape), tuple(x2.shape), bound, common_shape)
    check_kind("x2", x2, x1.dtype, "points are of one type")
    return x1.new_empty(shape)


def _backward(given: Named, needs: Named, grad: Tensor) -> Gradients:
    form, values = Form.from_text(given.form), Values.given(given)
    x1, x2 = given.x1, given.x2
    found: dict[str, Tensor | None] = {"x1": None, "x2": None}
    of_values: list[Tensor | None] = [None] * len(values.tensors)
    of_vectors: list[Tensor | None] = [None] * len(values.vectors)
    needed = list(needs.values)
    for index, term in enumerate(form.terms):
        if term.kind is TermKind.Largest:  # What is factored out does not count.
            continue
        is_power = term.kind in GENERAL_POWERS and term.value in values.slots
        of_power = is_power and needed[values.slots.index(term.value)]
        of_vector = term.vector >= 0 and needs.vectors[term.vector]
        if not (needs.x1 or needs.x2 or of_power or of_vector):
            continue
        slope = derived(*wide_enough(term, x1, x2), values, form, sum_of(index))
        if slope is None:
            continue
        weights = times(grad, slope)
        p = values.value(term.value) if term.value >= 0 else None
        scaled = Scaled.of(term, x1, x2, values.vectors)
        wanted = scaled.needs(needs, of_vector)
        largest = largest_of(term, scaled.x1, scaled.x2)
        sides = sums.gradients(term.kind, weights, scaled.x1, scaled.x2, p, wanted, largest)
        for name, more in scaled.gradients(sides, needs).items():
            found[name] = sum_of_both(found[name], more)
        if of_vector:
            total = sum_of_both(of_vectors[term.vector], scaled.of_vector(sides))
            of_vectors[term.vector] = total
        if of_power:
            place = values.slots.index(term.value)
            more = sums.power_gradient(weights, scaled.x1, scaled.x2, p, largest)
            of_values[place] = sum_of_both(of_values[place], more)
    for place, slot in enumerate(values.slots):
        if not needed[place]:
            continue
        held = values.tensors[place].dtype
        if form.regularized and slot == form.values - 1:
            more = torch.diagonal(grad, dim1=-2, dim2=-1).sum(-1, dtype=held)
        else:
            # As wide as the value's gradient: 16 bits don't reach small derivatives.
            slope = derived(x1.to(held), x2.to(held), values, form, value_of(slot))
            more = None if slope is None else times(grad.to(held), slope).sum((-2, -1))
        if more is not None:
            more = more.to(values.tensors[place].dtype)
            of_values[place] = sum_of_both(of_values[place], more)
    of_points = {name: item for name, item in found.items() if item is not None}
    return of_points | {"values": of_values, "vectors": of_vectors}


def largest_of(term: Term, x1: Tensor, x2: Tensor) -> Tensor | None:
    """The largest differences, in the type of sums, if the term is relative to them; else None.

    It is derived as if they were constants: a norm is the same whatever is factored out.
    """
    if term.kind is not TermKind.Relative:
        return None
    points = wide_enough(term, x1.detach(), x2.detach())
    return matrix(*points, [], "", [], _LARGEST.text(), api.DIRECT)


def wide_enough(term: Term, x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor]:
    """The points, as wide as sums if the derivative in a term may be beyond 16 bits: in a relative
    one it is divided by p, by which the term's own derivative is multiplied."""
    kind = torch.float32 if term.kind is TermKind.Relative else x1.dtype
    return x1.to(torch.promote_types(x1.dtype, kind)), x2.to(torch.promote_types(x2.dtype, kind))


def sum_of_both(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """The sum of two gradients or tangents, each of which may be None."""
    if first is None or second is None:
        return second if first is None else first
    return first + second


def times(grad: Tensor, slope: Tensor | float) -> Tensor:
    """A product with a matrix, or with a number that is mostly 1."""
    return grad if isinstance(slope, float) and slope == 1 else grad * slope


def refuse_power(form: Form, slot: int) -> None:
    """Refuses a direction of a power: the sums depend on it too, and have no tangent here."""
    if any(term.value == slot for term in form.terms):
        raise ArgumentError(
            mismatch(
                "forward-mode derivatives",
                expected="directions of points and of other values",
                got="one of a power p",
                hint="use reverse mode for p",
            )
        )


def _tangent(given: Named, tangents: Named) -> Tensor | None:
    form, values = Form.from_text(given.form), Values.given(given)
    total = None
    for index, term in enumerate(form.terms):
        if term.kind is TermKind.Largest:
            continue
        scaled = Scaled.of(term, given.x1, given.x2, values.vectors)
        of_vector = tangents.vectors[term.vector] if term.vector >= 0 else None
        directions = scaled.tangents(tangents.x1, tangents.x2, of_vector)
        change = sums.tangent(term.kind, scaled.x1, scaled.x2, *directions)
        slope = None if change is None else derived(given.x1, given.x2, values, form, sum_of(index))
        if slope is not None:
            total = sum_of_both(total, (change * slope).to(given.x1.dtype))
    for place, slot in enumerate(values.slots):
        direction = tangents.values[place]
        if direction is None:
            continue
        refuse_power(form, slot)
        if form.regularized and slot == form.values - 1:
            rows, columns = given.x1.shape[-2], given.x2.shape[-2]
            slope = torch.eye(rows, columns, dtype=given.x1.dtype, device=given.x1.device)
        else:
            slope = derived(given.x1, given.x2, values, form, value_of(slot))
        if slope is not None:
            change = (direction[..., None, None] * slope).to(given.x1.dtype)
            total = sum_of_both(total, change)
    return total


def _mapped(size: int, given: Named, dims: Named) -> tuple[Tensor, int]:
    points, values, vectors = mapped_first(given, dims, ("x1", "x2"))
    result = matrix.library(*points, values, given.numbers, vectors, given.form, given.mode)
    return result.expand(size, *result.shape[1:]), 0


def mapped_first(given: Named, dims: Named, names: Sequence[str]) -> list[list[Tensor]]:
    """The matrices with these names, the values and the vectors, with the mapped dimension before
    all leading ones."""
    lists = (
        [(getattr(given, name), getattr(dims, name), 2) for name in names],
        [(item, dim, 0) for item, dim in zip(given.values, dims.values, strict=True)],
        [(item, dim, 1) for item, dim in zip(given.vectors, dims.vectors, strict=True)],
    )
    every = [one for each in lists for one in each]
    lead = max(item.dim() - own - (dim is not None) for item, dim, own in every)
    return [[in_front(item, dim, lead + own) for item, dim, own in each] for each in lists]


matrix = register(
    Operator(
        schema="kernel_matrix(Tensor x1, Tensor x2, Tensor[] values, str numbers,"
        " Tensor[] vectors, str form, str mode) -> Tensor",
        compute=_compute,
        fake=_fake,
        saved=("x1", "x2", "values", "vectors"),
        backward=_backward,
        jvp=_tangent,
        vmap=_mapped,
        autocast=Autocast.Wide,
    )
)
