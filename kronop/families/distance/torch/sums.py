"""Gradients of sums over features: of s[m, n] = sum over k of term(x1[m, k], x2[n, k]), weighted.

For weights W, of shape (..., M, N), the gradient of sum W s in x1[m, k] is the sum over n of W[m,
n] times the term's derivative. Those of squares and products are matrix products. For other powers
of d = x1[m, k] - x2[n, k] it is p sum over n of W sgn(d) |d|^(p - 1), which `cdist_grad` computes
without anything of size M N K.
"""

from __future__ import annotations

import math
from typing import Any, NoReturn

import torch
from torch import Tensor

from kronop.errors import ArgumentError
from kronop.families.distance.form import GENERAL_POWERS, POWERS, TermKind
from kronop.families.distance.shape_arguments import gradient_shape
from kronop.late import imported
from kronop.torch.checks import common_shape
from kronop.torch.declaration import Named, Operator
from kronop.torch.registration import register
from kronop.torch.scaling import added

# Points of which the centre is found.
_CENTRAL = 8
# Bytes of the differences that are in memory at once, where they can't be avoided.
_MOST_BYTES = 1 << 26
_SMOOTH = (TermKind.Two, TermKind.Dot, TermKind.NormA, TermKind.NormB)


def gradients(
    kind: TermKind,
    needs: Named,
    weights: Tensor,
    x1: Tensor,
    x2: Tensor,
    p: Tensor | float | None,
    largest: Tensor | None,
) -> dict[str, Tensor]:
    """The gradients in x1 and x2, as far as they are needed, of their broadcast shapes.

    Args:
        p: the power, if `kind` is General or Relative: a number, or a tensor that broadcasts
            against matrices.
        largest: the largest differences, if it is Relative.
    """
    # Sums are as wide as those of the forward: 16-bit ones overflow, and differ by rounding alone.
    kept, wide = x1.dtype, torch.promote_types(x1.dtype, torch.float32)
    weights, x1, x2 = weights.to(wide), x1.to(wide), x2.to(wide)
    if largest is not None:
        weights = weights / _divisor(largest)
    turned = weights.transpose(-2, -1)
    found = {}
    if needs.x1 and kind is not TermKind.NormB:
        found["x1"] = _one_sided(kind, weights, x1, x2, p, largest)
    if needs.x2 and kind is not TermKind.NormA:
        other = TermKind.NormA if kind is TermKind.NormB else kind
        largest = None if largest is None else largest.transpose(-2, -1)
        found["x2"] = _one_sided(other, turned, x2, x1, p, largest)
    return {name: item.to(kept) for name, item in found.items() if item is not None}


def _divisor(largest: Tensor) -> Tensor:
    """The largest differences; where they are 0, a number that differences of 0 are divided by."""
    return largest.clamp_min(torch.finfo(largest.dtype).tiny)


def _one_sided(
    kind: TermKind, weights: Tensor, x1: Tensor, x2: Tensor, p: Any, largest: Tensor | None
) -> Tensor | None:
    if kind is TermKind.Zero:
        return None
    if kind is TermKind.Dot:
        return weights @ x2
    if kind is TermKind.NormA:
        return 2 * x1 * weights.sum(-1, keepdim=True)
    if kind is TermKind.Two:
        # The same for points moved together, with less to cancel.
        x1, x2 = moved(x1, x2)
        return 2 * (x1 * weights.sum(-1, keepdim=True) - weights @ x2)
    if kind is TermKind.Infinity:
        return _of_largest(weights, x1, x2)
    power = p if kind in GENERAL_POWERS else next(q for q, it in POWERS.items() if it is kind)
    if not isinstance(power, Tensor):
        return signed_powers(weights, x1, x2, power, largest) * power
    return (signed_powers(weights, x1, x2, power[..., 0, 0], largest) * power).to(x1.dtype)


def center_of(points: Tensor) -> Tensor | float:
    """A point among others, (..., 1, K); 0 of none. Each feature is that of the first points which
    is nearest to 0: a mean would follow a point that is far from all others."""
    if not points.shape[-2]:
        return 0.0
    some = points.detach()[..., :_CENTRAL, :]
    return some.gather(-2, some.abs().argmin(-2, keepdim=True))


def moved(*points: Tensor) -> tuple[Tensor, ...]:
    """Points less the centre of the last ones. What has no finite square is made finite: weights of
    0 must not meet infinity."""
    center, most = center_of(points[-1]), math.sqrt(torch.finfo(points[-1].dtype).max)
    return tuple([(item - center).clamp(-most, most) for item in points])


def _parts(x1: Tensor, x2: Tensor) -> list[slice]:
    """Slices of rows whose differences to all of x2 take few bytes."""
    rows, pairs = x1.shape[-2], math.prod(x2.shape) * math.prod(x1.shape[:-2])
    step = max(1, _MOST_BYTES // max(1, pairs * x1.element_size()))
    return [slice(first, first + step) for first in range(0, rows, step)]


def _of_largest(weights: Tensor, x1: Tensor, x2: Tensor) -> Tensor | None:
    """Of the maximum of |d|: the sign of d where |d| is a pair's largest, as in torch.cdist."""
    parts = []
    if not x1.shape[-1] or not x2.shape[-2]:
        return None
    for rows in _parts(x1, x2):
        d = x1[..., rows, None, :] - x2[..., None, :, :]
        size = d.abs()
        chosen = d.sign() * (size == size.amax(-1, keepdim=True))
        chosen = torch.where(d == d, chosen, d)  # torch's sign of NaN is 0.
        parts.append((weights[..., rows, :, None] * chosen).sum(-2))
    return torch.cat(parts, -2) if parts else torch.zeros_like(x1)


def power_gradient(
    weights: Tensor, x1: Tensor, x2: Tensor, p: Tensor, largest: Tensor | None
) -> Tensor:
    """The gradient in the power: the sum of W |d|^p log|d|, 0 where d is 0; of p's own shape.
    Differences are divided by the largest ones first, if these are given."""
    total = 0
    for rows in _parts(x1, x2):
        d = (x1[..., rows, None, :] - x2[..., None, :, :]).abs().to(p.dtype)
        if largest is not None:
            d = d / _divisor(largest[..., rows, :, None])
        sums = torch.special.xlogy(d ** p[..., None], d).sum(-1)
        total = total + (weights[..., rows, :] * sums).sum((-2, -1))
    return total


def tangent(kind: TermKind, x1: Tensor, x2: Tensor, t1: Tensor | None, t2: Tensor | None) -> Any:
    """The tangent of a sum; None where both tangents are None.

    Raises:
        ArgumentError: no forward derivative of this kind is there.
    """
    if t1 is None and t2 is None:
        return None
    if kind not in _SMOOTH:
        raise ArgumentError(
            "forward-mode derivatives",
            expected="p = 2, or a kernel of squared distances and inner products",
            got=kind.name,
            hint="use reverse mode for other powers",
        )
    if kind is TermKind.Two:
        x1, x2 = moved(x1, x2)
    total = None
    sides = ((t1, x1, TermKind.NormB), (t2, x2, TermKind.NormA))
    for at, (direction, points, other) in enumerate(sides):
        if direction is None or kind is other:
            continue
        own = (points * direction).sum(-1, keepdim=True)
        own = own.transpose(-2, -1) if at else own
        turned = (direction if at else x2).transpose(-2, -1)
        with_other = x1 @ turned if at else direction @ turned
        twice = 2 * (own - with_other if kind is TermKind.Two else own)
        total = added(total, with_other if kind is TermKind.Dot else twice)
    return total


def signed_powers(
    weights: Tensor, x1: Tensor, x2: Tensor, p: Tensor | float, largest: Tensor | None = None
) -> Tensor:
    """Sums of signed powers, for a number p, or a tensor of the leading dimensions' shape.

        out[m, k] = sum over n of W[m, n] sgn(d) |d|^(p - 1), d = x1[m, k] - x2[n, k]

    If `largest` is given, |d| is divided by largest[m, n] first. It is `kronop.cdist_grad` with the
    points of both sides as rows, and a torch operator: kronop::signed_powers.
    """
    is_tensor = isinstance(p, Tensor)
    power = (p, 0.0) if is_tensor else (None, float(p))
    return _operator(weights, x1, x2, largest, *power)


def _compute(given: Named) -> Tensor:
    imported("kronop.families.distance.gradient_api")
    from kronop.families.distance.gradient_api import sums_of_slopes

    a, b, d = (item.transpose(-2, -1) for item in (given.weights, given.x2, given.x1))
    largest = None if given.largest is None else given.largest.transpose(-2, -1)
    p = given.power if given.powers is None else given.powers
    return sums_of_slopes([a, b, None, d], p, largest).transpose(-2, -1).contiguous()


def _fake(given: Named) -> Tensor:
    operands = {"A": given.weights, "B": given.x2, "D": given.x1, "L": given.largest}
    turned = {name: tuple(item.mT.shape) for name, item in operands.items() if item is not None}
    power_shape = {} if given.powers is None else {"p": tuple(given.powers.shape)}
    *lead, columns, rows = gradient_shape(turned | power_shape, common_shape)
    return given.x1.new_empty((*lead, rows, columns))


def _refuse(*_: object) -> NoReturn:
    """Called for derivatives. Not when a call is recorded: torch.func records all calls."""
    raise ArgumentError(
        "gradients of gradients",
        expected="p = 2, or a kernel of squared distances and inner products",
        got="another power",
        hint="other powers have first derivatives only",
    )


_operator = register(
    Operator(
        schema="signed_powers(Tensor weights, Tensor x1, Tensor x2, Tensor? largest,"
        " Tensor? powers, float power) -> Tensor",
        compute=_compute,
        fake=_fake,
        saved=(),
        backward=_refuse,
        jvp=_refuse,
        vmap={"weights": 2, "x1": 2, "x2": 2, "largest": 2, "powers": 0},
    )
)
