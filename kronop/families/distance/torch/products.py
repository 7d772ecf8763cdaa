"""The torch operator of products of kernel matrices: kronop::kernel_matmul.

For u = K v and its gradient g, the gradient in v is K' g. The gradient in the points goes through
F, the matrix of the derivative of the kernel in a sum s_i: with W = (g v') F element by element,

    s = sum of squares:    2 sum over n of W[m, n] (x1[m] - x2[n])
                         = 2 sum over c of g[m, c] (x1[m] (F v_c)[m] - (F (v_c x2))[m])

so it consists of products with F, and nothing of size M N is in memory. Only powers other than 2
need rows of W.
"""

from __future__ import annotations

from typing import Any

import torch

from kronop.errors import ArgumentError, mismatch
from kronop.families.distance import product_api
from kronop.families.distance.form import Form, TermKind, sum_of, value_of
from kronop.families.distance.torch import sums
from kronop.families.distance.torch.operators import (
    Values,
    derived,
    first_dimension,
    refuse_power,
    slope_of,
    times,
)
from kronop.torch.declaration import Named, Operator
from kronop.torch.registration import register

# Bytes of columns times features, or of rows of W, that are in memory at once.
_MOST_BYTES = 1 << 28
_SMOOTH = (TermKind.Two, TermKind.Dot, TermKind.NormA, TermKind.NormB)


def _compute(x1: Any, x2: Any, v: Any, values: Any, numbers: str, form: str) -> Any:
    bound = Values(values, numbers).bound(Form.from_text(form))
    return product_api.product_of(x1, x2, v, bound)


def _fake(x1: Any, x2: Any, v: Any, values: Any, numbers: str, form: str) -> Any:
    shapes = [item.shape[:-2] for item in (x1, x2, v)]
    lead = torch.broadcast_shapes(*shapes, *(item.shape for item in values))
    return x1.new_empty((*lead, x1.shape[-2], v.shape[-1]))


def _backward(given: Named, needs: Named, grad: Any) -> dict[str, Any]:
    form, values = Form.from_text(given.form), Values(list(given.values), given.numbers)
    x1, x2, v = given.x1, given.x2, given.v
    grad = grad.to(x1.dtype)
    wide = torch.promote_types(x1.dtype, torch.float32)
    found: dict[str, Any] = {}
    if needs.v:
        found["v"] = product(x2, x1, grad, *values.arguments, form.turned().text())
    needed = list(needs.values)
    of_values: list[Any] = [None] * len(needed)

    def add(place: int, more: Any) -> None:
        more = more.to(values.tensors[place].dtype)
        of_values[place] = more if of_values[place] is None else of_values[place] + more

    slots = values.slots
    for index, term in enumerate(form.terms):
        is_power = term.kind is TermKind.General and term.value in slots
        of_power = is_power and needed[slots.index(term.value)]
        slope = slope_of(values, form, sum_of(index))
        if slope is None or not (needs.x1 or needs.x2 or of_power):
            continue
        if term.kind in _SMOOTH:
            sides = _smooth(term.kind, slope, x1, x2, v, grad, needs)
        else:
            p = values.value(term.value) if term.value >= 0 else None
            sides, of_p = _rows(term.kind, index, form, values, p, given, grad, needs, of_power)
            if of_power:
                add(slots.index(term.value), of_p)
        for name, more in sides.items():
            found[name] = found[name] + more if name in found else more
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
    return found | {"values": of_values}


def _times_columns(slope: Any, x1: Any, x2: Any, v: Any) -> Any:
    """The product of a derivative's matrix, or of a constant one, with columns."""
    if isinstance(slope, float):
        return slope * v.sum(-2, keepdim=True).expand(*v.shape[:-2], x1.shape[-2], v.shape[-1])
    form, values = slope
    return product(x1, x2, v, *values.arguments, form.text())


def _smooth(
    kind: TermKind, slope: Any, x1: Any, x2: Any, v: Any, grad: Any, needs: Named
) -> dict[str, Any]:
    """The gradients in both points of a sum of squares or products."""
    found = {}
    if needs.x1 and kind is not TermKind.NormB:
        found["x1"] = _one_sided(kind, slope, x1, x2, v, grad)
    if needs.x2 and kind is not TermKind.NormA:
        other = TermKind.NormA if kind is TermKind.NormB else kind
        turned = slope if isinstance(slope, float) else (slope[0].turned(), slope[1])
        found["x2"] = _one_sided(other, turned, x2, x1, grad, v)
    return found


def _one_sided(kind: TermKind, slope: Any, x1: Any, x2: Any, v: Any, grad: Any) -> Any:
    # As wide as the forward's sums: 16-bit ones would overflow and cancel.
    wide_type, kept = torch.promote_types(x1.dtype, torch.float32), x1.dtype
    x1, x2, v, grad = (item.to(wide_type) for item in (x1, x2, v, grad))
    if not v.shape[-1]:
        return torch.zeros_like(x1, dtype=kept)
    if kind is TermKind.NormA:
        sums_of_rows = (grad * _times_columns(slope, x1, x2, v)).sum(-1, keepdim=True)
        return (2 * x1 * sums_of_rows).to(kept)
    center = sums.center_of(x2) if kind is TermKind.Two else 0.0
    moved, features = x2 - center, x2.shape[-1]
    bytes_of_column = max(
        1,
        grad.shape[:-2].numel() * (x1.shape[-2] + x2.shape[-2]) * features * x1.element_size(),
    )
    step = max(1, _MOST_BYTES // bytes_of_column)
    total: Any = 0.0
    for first in range(0, v.shape[-1], step):
        columns, g = v[..., first : first + step], grad[..., first : first + step]
        # All products of a column and a feature, as columns of one product.
        wide = (columns.unsqueeze(-1) * moved.unsqueeze(-2)).flatten(-2)
        weighted = _times_columns(slope, x1, x2, wide).unflatten(-1, (-1, features))
        total = total + (g.unsqueeze(-1) * weighted).sum(-2)
    if kind is TermKind.Dot:
        return total.to(kept)
    sums_of_rows = (grad * _times_columns(slope, x1, x2, v)).sum(-1, keepdim=True)
    return (2 * ((x1 - center) * sums_of_rows - total)).to(kept)


def _rows(
    kind: TermKind,
    index: int,
    form: Form,
    values: Values,
    p: Any,
    given: Named,
    grad: Any,
    needs: Named,
    of_power: bool,
) -> tuple[dict[str, Any], Any]:
    """The gradients in both points, and in the power if it is wanted, of a sum of other powers:
    for some rows of x1 at a time."""
    x1, x2, v = given.x1, given.x2, given.v
    pairs = max(1, x2.shape[-2] * grad.shape[:-2].numel() * x1.element_size())
    step = max(1, _MOST_BYTES // pairs)
    of_rows: list[Any] = []
    of_x2: Any = None
    of_p: Any = 0.0
    for first in range(0, x1.shape[-2], step):
        rows = x1[..., first : first + step, :]
        weights = grad[..., first : first + step, :] @ v.transpose(-2, -1)
        weights = times(weights, derived(rows, x2, values, form, sum_of(index)))
        part = sums.gradients(kind, weights, rows, x2, p, needs)
        of_rows.append(part.get("x1"))
        if "x2" in part:
            of_x2 = part["x2"] if of_x2 is None else of_x2 + part["x2"]
        if of_power:
            of_p = of_p + sums.power_gradient(weights, rows, x2, p)
    found = {} if of_x2 is None else {"x2": of_x2}
    if of_rows and of_rows[0] is not None:
        found["x1"] = torch.cat(of_rows, -2)
    return found, of_p


def _tangent(given: Named, tangents: Named) -> Any:
    if tangents.x1 is not None or tangents.x2 is not None:
        raise ArgumentError(
            mismatch(
                "forward-mode derivatives",
                expected="directions of v and of values of the kernel",
                got="one of the points",
                hint="use reverse mode, or kernel_matrix",
            )
        )
    form, values = Form.from_text(given.form), Values(list(given.values), given.numbers)
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
        total = change if total is None else total + change
    return total


def _mapped(size: int, given: Named, dims: Named) -> tuple[Any, int]:
    operands = [(given.x1, dims.x1, 2), (given.x2, dims.x2, 2), (given.v, dims.v, 2)]
    held = [(item, dim, 0) for item, dim in zip(given.values, dims.values, strict=True)]
    lead = max(item.dim() - own - (dim is not None) for item, dim, own in operands + held)
    x1, x2, v = (first_dimension(item, dim, lead + 2) for item, dim, _ in operands)
    values = [first_dimension(item, dim, lead) for item, dim, _ in held]
    result = product.library(x1, x2, v, values, given.numbers, given.form)
    return result.expand(size, *result.shape[1:]), 0


product = register(
    Operator(
        schema="kernel_matmul(Tensor x1, Tensor x2, Tensor v, Tensor[] values, str numbers,"
        " str form) -> Tensor",
        compute=_compute,
        fake=_fake,
        saved=("x1", "x2", "v", "values"),
        backward=_backward,
        jvp=_tangent,
        vmap=_mapped,
    )
)
