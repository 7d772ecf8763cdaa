"""The torch operator of products of kernel matrices: kronop::kernel_matmul.

For u = K v and its gradient g, the gradient in v is K' g. The gradient in the points goes through
F, the matrix of the derivative of the kernel in a sum s_i: with W = (g v') F element by element,

    s = sum of squares:    2 sum over n of W[m, n] (x1[m] - x2[n])
                         = 2 sum over c of g[m, c] (x1[m] (F v_c)[m] - (F (v_c x2))[m])

so it consists of products with F, and nothing of size M N is in memory. Only powers other than 2
need rows of W.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from kronop.errors import ArgumentError, mismatch
from kronop.families.distance import product_api
from kronop.families.distance.form import GENERAL_POWERS, Form, TermKind, sum_of, value_of
from kronop.families.distance.shape_arguments import product_shape
from kronop.families.distance.torch import sums
from kronop.families.distance.torch.operators import (
    Values,
    derived,
    largest_of,
    mapped_first,
    refuse_power,
    slope_of,
    sum_of_both,
    times,
    wide_enough,
)
from kronop.families.distance.torch.scaled import Scaled
from kronop.torch.checks import check_kind, common_shape
from kronop.torch.declaration import Autocast, Gradients, Named, Operator
from kronop.torch.registration import register

# Bytes of columns times features, or of rows of W, that are in memory at once.
_MOST_BYTES = 1 << 28
_SMOOTH = (TermKind.Two, TermKind.Dot, TermKind.NormA, TermKind.NormB)


def _compute(
    x1: Tensor,
    x2: Tensor,
    v: Tensor,
    values: list[Tensor],
    numbers: str,
    vectors: list[Tensor],
    form: str,
) -> Tensor:
    bound = Values(values, numbers, vectors).bound(Form.from_text(form))
    return product_api.product_of(x1, x2, v, bound)


def _fake(
    x1: Tensor,
    x2: Tensor,
    v: Tensor,
    values: list[Tensor],
    numbers: str,
    vectors: list[Tensor],
    form: str,
) -> Tensor:
    bound = Values(values, numbers, vectors).bound(Form.from_text(form))
    of_x1, of_x2, of_v = (tuple(item.shape) for item in (x1, x2, v))
    shape = product_shape(of_x1, of_x2, of_v, bound, common_shape)
    for name, item in (("x2", x2), ("v", v)):
        check_kind(name, item, x1.dtype, "points and v are of one type")
    return x1.new_empty(shape)


def _backward(given: Named, needs: Named, grad: Tensor) -> Gradients:
    form, values = Form.from_text(given.form), Values.given(given)
    x1, x2, v = given.x1, given.x2, given.v
    grad = grad.to(x1.dtype)
    wide = torch.promote_types(x1.dtype, torch.float32)
    found: dict[str, Tensor | None] = {}
    if needs.v:
        found["v"] = product(x2, x1, grad, *values.arguments, form.turned().text())
    needed = list(needs.values)
    of_values: list[Tensor | None] = [None] * len(needed)
    of_vectors: list[Tensor | None] = [None] * len(values.vectors)

    def add(place: int, more: Tensor) -> None:
        more = more.to(values.tensors[place].dtype)
        of_values[place] = sum_of_both(of_values[place], more)

    slots = values.slots
    for index, term in enumerate(form.terms):
        if term.kind is TermKind.Largest:
            continue
        is_power = term.kind in GENERAL_POWERS and term.value in slots
        of_power = is_power and needed[slots.index(term.value)]
        of_vector = term.vector >= 0 and needs.vectors[term.vector]
        slope = slope_of(values, form, sum_of(index))
        if slope is None or not (needs.x1 or needs.x2 or of_power or of_vector):
            continue
        scaled = Scaled.of(term, x1, x2, values.vectors)
        wanted = scaled.needs(needs, of_vector)
        if term.kind in _SMOOTH:
            sides = _smooth(term.kind, slope, given, scaled, grad, wanted)
        else:
            sides, of_p = _rows(index, form, values, given, scaled, grad, wanted, of_power)
            if of_power:
                add(slots.index(term.value), of_p)
        for name, more in scaled.gradients(sides, needs).items():
            found[name] = sum_of_both(found.get(name), more)
        if of_vector:
            total = sum_of_both(of_vectors[term.vector], scaled.of_vector(sides))
            of_vectors[term.vector] = total
    for place, slot in enumerate(slots):
        if not needed[place]:
            continue
        if form.regularized and slot == form.values - 1:
            both = min(x1.shape[-2], x2.shape[-2])
            add(place, (grad[..., :both, :].to(wide) * v[..., :both, :]).sum((-2, -1)))
            continue
        of_value = slope_of(values, form, value_of(slot))
        if of_value is not None:
            add(place, (grad.to(wide) * _times_columns(of_value, x1, x2, v)).sum((-2, -1)))
    return found | {"values": of_values, "vectors": of_vectors}


def _times_columns(slope: tuple[Form, Values] | float, x1: Tensor, x2: Tensor, v: Tensor) -> Tensor:
    """The product of a derivative's matrix, or of a constant one, with columns."""
    if isinstance(slope, float):
        return slope * v.sum(-2, keepdim=True).expand(*v.shape[:-2], x1.shape[-2], v.shape[-1])
    form, values = slope
    return product(x1, x2, v, *values.arguments, form.text())


def _smooth(
    kind: TermKind,
    slope: tuple[Form, Values] | float,
    given: Named,
    scaled: Scaled,
    grad: Tensor,
    needs: Named,
) -> dict[str, Tensor]:
    """The gradients in both scaled points of a sum of squares or products."""
    # As wide as the forward's sums: 16-bit ones would overflow and cancel.
    wide, kept = torch.promote_types(given.x1.dtype, torch.float32), scaled.x1.dtype
    x1, x2, v, grad = (item.to(wide) for item in (given.x1, given.x2, given.v, grad))
    of_x1, of_x2 = scaled.x1.to(wide), scaled.x2.to(wide)
    found = {}
    if needs.x1 and kind is not TermKind.NormB:
        weigh = functools.partial(_times_columns, slope, x1, x2)
        found["x1"] = _one_sided(kind, weigh, of_x1, of_x2, v, grad).to(kept)
    if needs.x2 and kind is not TermKind.NormA:
        other = TermKind.NormA if kind is TermKind.NormB else kind
        turned = slope if isinstance(slope, float) else (slope[0].turned(), slope[1])
        weigh = functools.partial(_times_columns, turned, x2, x1)
        found["x2"] = _one_sided(other, weigh, of_x2, of_x1, grad, v).to(kept)
    return found


def _one_sided(
    kind: TermKind,
    weigh: Callable[[Tensor], Tensor],
    x1: Tensor,
    x2: Tensor,
    v: Tensor,
    grad: Tensor,
) -> Tensor:
    """The gradient in x1; `weigh` is the product of the derivative's matrix with columns."""
    if not v.shape[-1] or not x2.shape[-1]:
        return torch.zeros_like(x1)
    if kind is TermKind.NormA:
        return 2 * x1 * (grad * weigh(v)).sum(-1, keepdim=True)
    if kind is TermKind.Two:
        x1, x2 = sums.moved(x1, x2)
    features = x2.shape[-1]
    bytes_of_column = max(
        1, grad.shape[:-2].numel() * (x1.shape[-2] + x2.shape[-2]) * features * x1.element_size()
    )
    step = max(1, _MOST_BYTES // bytes_of_column)
    total: Tensor | float = 0.0
    for first in range(0, v.shape[-1], step):
        columns, g = v[..., first : first + step], grad[..., first : first + step]
        # All products of a column and a feature, as columns of one product.
        wide = (columns.unsqueeze(-1) * x2.unsqueeze(-2)).flatten(-2)
        weighted = weigh(wide).unflatten(-1, (-1, features))
        total = total + (g.unsqueeze(-1) * weighted).sum(-2)
    if kind is TermKind.Dot:
        return total
    sums_of_rows = (grad * weigh(v)).sum(-1, keepdim=True)
    return 2 * (x1 * sums_of_rows - total)


def _rows(
    index: int,
    form: Form,
    values: Values,
    given: Named,
    scaled: Scaled,
    grad: Tensor,
    needs: Named,
    of_power: bool,
) -> tuple[dict[str, Tensor], Tensor]:
    """The gradients in both scaled points, and in the power if it is wanted, of a sum of other
    powers: for some rows of x1 at a time."""
    x1, x2, v, term = given.x1, given.x2, given.v, form.terms[index]
    p = values.value(term.value) if term.value >= 0 else None
    pairs = max(1, x2.shape[-2] * grad.shape[:-2].numel() * x1.element_size())
    step = max(1, _MOST_BYTES // pairs)
    of_rows: list[Tensor | None] = []
    of_x2: Tensor | None = None
    of_p: Tensor | float = 0.0
    for first in range(0, x1.shape[-2], step):
        chosen = (..., slice(first, first + step), slice(None))
        weights = grad[chosen] @ v.transpose(-2, -1)
        points = wide_enough(term, x1[chosen], x2)
        weights = times(weights, derived(*points, values, form, sum_of(index)))
        rows = scaled.x1[chosen]
        largest = largest_of(term, rows, scaled.x2)
        part = sums.gradients(term.kind, weights, rows, scaled.x2, p, needs, largest)
        of_rows.append(part.get("x1"))
        if "x2" in part:
            of_x2 = part["x2"] if of_x2 is None else of_x2 + part["x2"]
        if of_power:
            of_p = of_p + sums.power_gradient(weights, rows, scaled.x2, p, largest)
    found = {} if of_x2 is None else {"x2": of_x2}
    if of_rows and of_rows[0] is not None:
        found["x1"] = torch.cat(of_rows, -2)
    return found, of_p


def _tangent(given: Named, tangents: Named) -> Tensor | None:
    if any(item is not None for item in (tangents.x1, tangents.x2, *tangents.vectors)):
        raise ArgumentError(
            mismatch(
                "forward-mode derivatives",
                expected="directions of v and of values of the kernel",
                got="one of the points, or of bandwidths per feature",
                hint="use reverse mode, or kernel_matrix",
            )
        )
    form, values = Form.from_text(given.form), Values.given(given)
    x1, x2 = given.x1, given.x2
    total = None
    if tangents.v is not None:
        total = product(x1, x2, tangents.v, *values.arguments, given.form)
    for place, slot in enumerate(values.slots):
        direction = tangents.values[place]
        if direction is None:
            continue
        refuse_power(form, slot)
        if form.regularized and slot == form.values - 1:
            both = min(x1.shape[-2], x2.shape[-2])
            change = torch.nn.functional.pad(given.v[..., :both, :], (0, 0, 0, x1.shape[-2] - both))
        else:
            slope = slope_of(values, form, value_of(slot))
            if slope is None:
                continue
            change = _times_columns(slope, x1, x2, given.v)
        change = (direction[..., None, None] * change).to(x1.dtype)
        total = sum_of_both(total, change)
    return total


def _mapped(size: int, given: Named, dims: Named) -> tuple[Tensor, int]:
    operands, values, vectors = mapped_first(given, dims, ("x1", "x2", "v"))
    result = product.library(*operands, values, given.numbers, vectors, given.form)
    return result.expand(size, *result.shape[1:]), 0


product = register(
    Operator(
        schema="kernel_matmul(Tensor x1, Tensor x2, Tensor v, Tensor[] values, str numbers,"
        " Tensor[] vectors, str form) -> Tensor",
        compute=_compute,
        fake=_fake,
        saved=("x1", "x2", "v", "values", "vectors"),
        backward=_backward,
        jvp=_tangent,
        vmap=_mapped,
        autocast=Autocast.Wide,
    )
)
