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

from kronop.errors import ArgumentError
from kronop.families.distance import api
from kronop.families.distance.form import Form, TermKind, sum_of, value_of
from kronop.families.distance.shape_arguments import product_shape
from kronop.families.distance.torch import sums
from kronop.families.distance.torch.operators import Slope, of_pairs, slope_of
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

# Bytes of columns times features, or of rows of W, that are in memory at once.
_MOST_BYTES = 1 << 28
_SMOOTH = (TermKind.Two, TermKind.Dot, TermKind.NormA, TermKind.NormB)


def _compute(given: Named) -> Tensor:
    bound = Values.given(given).bound(Form.from_text(given.form))
    return api.product_of(given.x1, given.x2, given.v, bound)


def _fake(given: Named) -> Tensor:
    x1, x2, v = given.x1, given.x2, given.v
    bound = Values.given(given).bound(Form.from_text(given.form))
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

    def of_term(
        index: int, scaled: Scaled, wanted: Named, of_power: bool
    ) -> tuple[dict[str, Tensor], Tensor | None] | None:
        kind, slope = form.terms[index].kind, slope_of(values, form, sum_of(index))
        if slope is not None and kind in _SMOOTH:
            return _smooth(kind, slope, given, scaled, grad, wanted), None
        return None if slope is None else _rows(given, index, grad, scaled, wanted, of_power)

    def of_value(slot: int, held: torch.dtype) -> Tensor | None:
        if is_of_diagonal(form, slot):
            both = min(x1.shape[-2], x2.shape[-2])
            return (grad[..., :both, :].to(wide) * v[..., :both, :]).sum((-2, -1))
        slope = slope_of(values, form, value_of(slot))
        if slope is None:
            return None
        return (grad.to(wide) * _times_columns(slope, x1, x2, v)).sum((-2, -1))

    found = gradients(given, needs, of_term, of_value)
    if needs.v:
        found["v"] = product(x2, x1, grad, *values.arguments, form.turned().text())
    return found


def _times_columns(slope: Slope, x1: Tensor, x2: Tensor, v: Tensor) -> Tensor:
    """The product of a derivative's matrix, or of a constant one, with columns."""
    if isinstance(slope, float):
        return slope * v.sum(-2, keepdim=True).expand(*v.shape[:-2], x1.shape[-2], v.shape[-1])
    form, values = slope
    return product(x1, x2, v, *values.arguments, form.text())


def _smooth(
    kind: TermKind, slope: Slope, given: Named, scaled: Scaled, grad: Tensor, needs: Named
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
    kind: TermKind, weigh: Callable[..., Tensor], x1: Tensor, x2: Tensor, v: Tensor, grad: Tensor
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
    given: Named, index: int, grad: Tensor, scaled: Scaled, wanted: Named, of_power: bool
) -> tuple[dict[str, Tensor], Tensor]:
    """The gradients in both scaled points, and in the power if it is wanted, of a sum of other
    powers: for some rows of x1 at a time."""
    x1, x2, v = given.x1, given.x2, given.v
    pairs = max(1, x2.shape[-2] * grad.shape[:-2].numel() * x1.element_size())
    step = max(1, _MOST_BYTES // pairs)
    of_rows: list[Tensor | None] = []
    of_x2: Tensor | None = None
    of_p: Tensor | float = 0.0
    for first in range(0, x1.shape[-2], step):
        chosen = (..., slice(first, first + step), slice(None))
        weights = grad[chosen] @ v.transpose(-2, -1)
        part, more = of_pairs(given, index, chosen, weights, scaled, wanted, of_power) or ({}, None)
        of_rows.append(part.get("x1"))
        of_x2 = added(of_x2, part.get("x2"))
        of_p = of_p if more is None else of_p + more
    found = {} if of_x2 is None else {"x2": of_x2}
    if of_rows and of_rows[0] is not None:
        found["x1"] = torch.cat(of_rows, -2)
    return found, of_p


def _tangent(given: Named, tangents: Named) -> Tensor | None:
    if any(item is not None for item in (tangents.x1, tangents.x2, *tangents.vectors)):
        raise ArgumentError(
            "forward-mode derivatives",
            expected="directions of v and of values of the kernel",
            got="one of the points, or of bandwidths per feature",
            hint="use reverse mode, or kernel_matrix",
        )
    form, values = Form.from_text(given.form), Values.given(given)
    x1, x2 = given.x1, given.x2
    total = None
    if tangents.v is not None:
        total = product(x1, x2, tangents.v, *values.arguments, given.form)

    def of_value(slot: int) -> Tensor | None:
        if is_of_diagonal(form, slot):
            both = min(x1.shape[-2], x2.shape[-2])
            behind = (0, 0, 0, x1.shape[-2] - both)
            return torch.nn.functional.pad(given.v[..., :both, :], behind)
        slope = slope_of(values, form, value_of(slot))
        return None if slope is None else _times_columns(slope, x1, x2, given.v)

    return tangent_of_values(given, tangents, of_value, total)


product = register(
    Operator(
        schema="kernel_matmul(Tensor x1, Tensor x2, Tensor v, Tensor[] values, str numbers,"
        " Tensor[] vectors, str form) -> Tensor",
        compute=_compute,
        fake=_fake,
        saved=("x1", "x2", "v", "values", "vectors"),
        backward=_backward,
        jvp=_tangent,
        vmap={"x1": 2, "x2": 2, "v": 2, "values": 0, "vectors": 1},
        autocast=Autocast.Wide,
    )
)
