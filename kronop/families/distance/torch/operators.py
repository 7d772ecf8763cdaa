"""The torch operator of kernel matrices: kronop::kernel_matrix.

Its derivative in a sum s_i of the form is the kernel matrix of another form, that of the
expression's derivative. So gradients consist of kernel matrices, and of the gradients of sums
(`sums`).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from torch import Tensor

from kronop.descriptions.expression import variable
from kronop.descriptions.graph import Graph
from kronop.families.distance import api
from kronop.families.distance.form import Form, Term, TermKind, sum_of, value_of
from kronop.families.distance.shape_arguments import matrix_shape
from kronop.families.distance.torch import sums
from kronop.families.distance.torch.terms import (
    Scaled,
    Values,
    gradients,
    is_of_diagonal,
    tangent_of_values,
)
from kronop.torch.checks import check_kind, common_shape
from kronop.torch.declaration import Autocast, Gradients, Named, Operator
from kronop.torch.registration import register
from kronop.torch.scaling import added

Slope: TypeAlias = "tuple[Form, Values] | float"
_LARGEST = Form(terms=(Term(kind=TermKind.Largest),), expression=Graph.of(variable(sum_of(0))))


def slope_of(values: Values, form: Form, name: str) -> Slope | None:
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


def _compute(given: Named) -> Tensor:
    bound = Values.given(given).bound(Form.from_text(given.form))
    return api.matrix_of(given.x1, given.x2, bound, given.mode)


def _fake(given: Named) -> Tensor:
    x1, x2 = given.x1, given.x2
    bound = Values.given(given).bound(Form.from_text(given.form))
    shape = matrix_shape(tuple(x1.shape), tuple(x2.shape), bound, common_shape)
    check_kind("x2", x2, x1.dtype, "points are of one type")
    return x1.new_empty(shape)


def _backward(given: Named, needs: Named, grad: Tensor) -> Gradients:
    form, values = Form.from_text(given.form), Values.given(given)
    x1, x2 = given.x1, given.x2

    def of_term(index: int, *how: Any) -> tuple[dict[str, Tensor], Tensor | None] | None:
        return of_pairs(given, index, ..., grad, *how)

    def of_value(slot: int, held: torch.dtype) -> Tensor | None:
        if is_of_diagonal(form, slot):
            return torch.diagonal(grad, dim1=-2, dim2=-1).sum(-1, dtype=held)
        # As wide as the value's gradient: 16 bits don't reach small derivatives.
        slope = derived(x1.to(held), x2.to(held), values, form, value_of(slot))
        return None if slope is None else times(grad.to(held), slope).sum((-2, -1))

    return gradients(given, needs, of_term, of_value)


def of_pairs(
    given: Named, index: int, rows: Any, weights: Tensor, scaled: Scaled, wanted: Named, of_p: bool
) -> tuple[dict[str, Tensor], Tensor | None] | None:
    """The gradients in the scaled points and, if it is wanted, in the power of a term, by those of
    all pairs of points; None if nothing depends on the term.

    Args:
        rows: which of the points x1.
        weights: the gradients of these rows of the kernel's matrix.
    """
    form, values, points = Form.from_text(given.form), Values.given(given), scaled.x1[rows]
    term = form.terms[index]
    slope = derived(*wide_enough(term, given.x1[rows], given.x2), values, form, sum_of(index))
    if slope is None:
        return None
    p = values.value(term.value) if term.value >= 0 else None
    how = (times(weights, slope), points, scaled.x2, p, largest_of(term, points, scaled.x2))
    return sums.gradients(term.kind, wanted, *how), sums.power_gradient(*how) if of_p else None


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


def times(grad: Tensor, slope: Tensor | float) -> Tensor:
    """A product with a matrix, or with a number that is mostly 1."""
    return grad if isinstance(slope, float) and slope == 1 else grad * slope


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
            total = added(total, (change * slope).to(given.x1.dtype))

    def of_value(slot: int) -> Tensor | float | None:
        if not is_of_diagonal(form, slot):
            return derived(given.x1, given.x2, values, form, value_of(slot))
        rows, columns = given.x1.shape[-2], given.x2.shape[-2]
        return torch.eye(rows, columns, dtype=given.x1.dtype, device=given.x1.device)

    return tangent_of_values(given, tangents, of_value, total)


matrix = register(
    Operator(
        schema="kernel_matrix(Tensor x1, Tensor x2, Tensor[] values, str numbers,"
        " Tensor[] vectors, str form, str mode) -> Tensor",
        compute=_compute,
        fake=_fake,
        saved=("x1", "x2", "values", "vectors"),
        backward=_backward,
        jvp=_tangent,
        vmap={"x1": 2, "x2": 2, "values": 0, "vectors": 1},
        autocast=Autocast.Wide,
    )
)
