"""Products that read and write tensors as exchanges leave and take them, differentiable once.

An exchange takes what goes to a rank as one piece of memory, so columns come first there and rows
of X last. Kernels write that order, and read it; no pass over memory only moves numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kronop.families.kron.api import gekmm, gemkm
from kronop.families.kron.torch.gradient import gradients


def columns_first(x: Any, factors: Sequence[Any], alpha: float) -> Any:
    """alpha x (F1 x ... x Fn), with columns first.

    Args:
        x: (m, K, t); of each row, the t tensors x[m, :, j] are multiplied.
        factors: of which K is the product of the rows.

    Returns:
        (Q, t, m), contiguous.
    """
    return _ColumnsFirst.apply(x, alpha, *factors)


class _ColumnsFirst(torch.autograd.Function):  # type: ignore[misc]  # torch is Any to mypy.
    @staticmethod
    def forward(ctx: Any, x: Any, alpha: float, *factors: Any) -> Any:
        ctx.alpha = alpha
        ctx.save_for_backward(x, *factors)
        m, _, behind = x.shape
        columns = _product([item.shape[-1] for item in factors])
        found = x.new_empty((columns, behind, m), dtype=_result_type(x))
        if behind == 1:
            gemkm(x[..., 0], factors, alpha=alpha, out=found[:, 0].mT)
        else:
            turned = [item.mT for item in factors]
            gekmm(turned, x, alpha=alpha, out=found.permute(2, 0, 1))
        return found

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Any) -> Any:
        x, *factors = ctx.saved_tensors
        needs = [ctx.needs_input_grad[0], *ctx.needs_input_grad[2:]]
        if x.shape[-1] == 1:
            found = iter(gradients(gradient[:, 0].mT, x[..., 0], factors, ctx.alpha, False, needs))
        else:
            turned = [item.mT for item in factors]
            grad = gradient.permute(2, 0, 1)
            found = iter(gradients(grad, x, turned, ctx.alpha, True, needs))
        of_x = next(found).view(x.shape) if needs[0] else None
        of_factors = [(_upright(next(found), x.shape[-1]) if need else None) for need in needs[1:]]
        return of_x, None, *of_factors


def _upright(gradient: Any, behind: int) -> Any:
    """That of a factor, where that of its transpose was found."""
    return gradient if behind == 1 else gradient.mT


def ordered(received: Any, factor: Any, into: Any, alpha: float, beta: float, z: Any) -> Any:
    """Brings columns into the standard order, and multiplies the last digit if there is a factor.

    Args:
        received: (ranks, a, c, m), contiguous: columns are a, then ranks, then c.
        factor: (P, Q) for the last digit of c, or None.
        into: (m, a ranks c') where to write the result, with c' as many columns as c becomes.
        alpha: a factor of the result, 1 if there is no `factor`.
        beta, z: beta z is added; z is like `into`, or None.

    Returns:
        `into`.
    """
    return _Ordered.apply(received, factor, z, into, alpha, beta)


class _Ordered(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        ctx: Any, received: Any, factor: Any, z: Any, into: Any, alpha: float, beta: float
    ) -> Any:
        into = into.data  # Other parts are written into the same memory, each once.
        ctx.scalars, ctx.shape = (alpha, beta), received.shape
        ctx.has_factor = factor is not None
        if factor is None:
            _as_sent(into, received.shape).copy_(received)
            if z is not None:
                into.add_(z, alpha=beta)
        else:
            ctx.save_for_backward(received, factor)
            places = None if z is None else _by_last(z, received.shape, factor.shape[-1])
            gemkm(
                _last_digit(received, factor.shape[0]).mT,
                [factor],
                alpha=alpha,
                beta=None if z is None else beta,
                z=places,
                out=_by_last(into, received.shape, factor.shape[-1]),
            )
        return into

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Any) -> Any:
        alpha, beta = ctx.scalars
        of_z = gradient * beta if ctx.needs_input_grad[2] else None
        if not ctx.has_factor:
            return _as_sent(gradient, ctx.shape).contiguous(), None, of_z, None, None, None
        received, factor = ctx.saved_tensors
        grad = _by_last(gradient, ctx.shape, factor.shape[-1])
        of_received = of_factor = None
        if ctx.needs_input_grad[0]:
            of_received = torch.empty_like(received)
            out = _last_digit(of_received, factor.shape[0]).mT
            gemkm(grad, [factor.mT], alpha=alpha, out=out)
        if ctx.needs_input_grad[1]:
            x = _last_digit(received, factor.shape[0]).mT
            (of_factor,) = gradients(grad, x, [factor], alpha, False, [False, True])
        return of_received, of_factor, of_z, None, None, None


def _as_sent(item: Any, shape: Sequence[int]) -> Any:
    """(m, a ranks c) as (ranks, a, c, m)."""
    ranks, rows, columns, _ = shape
    return item.unflatten(1, (rows, ranks, columns)).permute(2, 1, 3, 0)


def _last_digit(received: Any, extent: int) -> Any:
    """(ranks, a, c, m) as (ranks, a, c / extent, extent, m)."""
    return received.unflatten(2, (-1, extent))


def _by_last(item: Any, shape: Sequence[int], extent: int) -> Any:
    """(m, a ranks c') as (ranks, a, c' / extent, m, extent)."""
    ranks, rows = shape[:2]
    return item.unflatten(1, (rows, ranks, -1, extent)).permute(2, 1, 3, 0, 4)


def written(x: Any, factors: Sequence[Any], into: Any, beta: float, z: Any) -> Any:
    """x (F1 x ... x Fn) + beta z, of x (m, K), written to `into` (m, Q), which is returned."""
    return _Written.apply(x, z, into, beta, *factors)


class _Written(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Any, z: Any, into: Any, beta: float, *factors: Any) -> Any:
        into = into.data
        ctx.beta = beta
        ctx.save_for_backward(x, *factors)
        gemkm(x, factors, beta=None if z is None else beta, z=z, out=into)
        return into

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Any) -> Any:
        x, *factors = ctx.saved_tensors
        needs = [ctx.needs_input_grad[0], *ctx.needs_input_grad[4:]]
        found = iter(gradients(gradient, x, factors, 1.0, False, needs))
        of_x, *of_factors = [next(found) if need else None for need in needs]
        of_z = gradient * ctx.beta if ctx.needs_input_grad[1] else None
        return of_x, of_z, None, None, *of_factors


def joined(whole: Any, parts: Sequence[Any], dim: int) -> Any:
    """`whole`, of whose memory along `dim` the parts are views, one after the other."""
    return _Joined.apply(whole, dim, *parts)


class _Joined(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, whole: Any, dim: int, *parts: Any) -> Any:
        ctx.dim, ctx.sizes = dim, [item.shape[dim] for item in parts]
        return whole.data

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return None, None, *gradient.split(ctx.sizes, ctx.dim)


def split(whole: Any, rows: Sequence[int], outer: int) -> list[list[Any]]:
    """(m, outer K) as one (m', K, 1) for each part of so many rows, and in it for each of `outer`.
    The gradient is written into one tensor."""
    found = _Split.apply(whole, tuple(rows), outer)
    return [list(found[at * outer : (at + 1) * outer]) for at in range(len(rows))]


class _Split(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, whole: Any, rows: tuple[int, ...], outer: int) -> Any:
        ctx.rows, ctx.outer, ctx.shape = rows, outer, whole.shape
        return tuple(_places(whole, rows, outer))

    @staticmethod
    def backward(ctx: Any, *parts: Any) -> Any:
        given = next(item for item in parts if item is not None)
        whole = given.new_empty(ctx.shape)
        for place, part in zip(_places(whole, ctx.rows, ctx.outer), parts, strict=True):
            place.zero_() if part is None else place.copy_(part)
        return whole, None, None


def _places(whole: Any, rows: Sequence[int], outer: int) -> list[Any]:
    by_outer = whole.unflatten(1, (outer, -1))
    return [part[:, at] for part in by_outer.split(list(rows)) for at in range(outer)]


def _result_type(x: Any) -> Any:
    return torch.int32 if x.dtype is torch.int8 else x.dtype


def _product(sizes: Sequence[int]) -> int:
    found = 1
    for size in sizes:
        found *= size
    return found
