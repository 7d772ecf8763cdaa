"""Products of rows that ranks hand each other, differentiable once: see `steps`.

X needs no packing: rows that go to a rank are neighbours in memory, and so are the results that go
back. Only the outer number of the rows that arrive lies in pieces, one from each rank. The kernel
that multiplies inner digits reads them so, and the one that multiplies outer digits writes them so.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch.autograd.function import FunctionCtx

from kronop.distributed import exchange
from kronop.errors import ArgumentError
from kronop.families.kron.api import gekmm, gemkm
from kronop.families.kron.torch.gradient import gradients
from kronop.frozen import dataclass
from kronop.torch.declaration import Named


def product(x: torch.Tensor, factors: Sequence[torch.Tensor], flow: Flow) -> torch.Tensor:
    """alpha x (F1 x ... x FN).

    Args:
        x: (m, K / ranks), contiguous.
        factors: at least two. Ranks divide the rows of the first one, and its columns if results
            are handed back.
        flow: what goes where.

    Returns:
        (m, Q / ranks) if results are handed back, else this rank's rows, (m / ranks, Q).
    """
    keeps = torch.is_grad_enabled() and any(item.requires_grad for item in factors)
    return _Product.apply(flow, keeps, x, *factors)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Rows of which each rank multiplies some.

    Attributes:
        blocks: (first, count) for each rank, in the rows that all ranks have.
        own: (first, count) of this rank, in its share of these.
    """

    blocks: tuple[tuple[int, int], ...]
    own: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Which rows are handed to whom, and back.

    Attributes:
        group: the ranks.
        parts: one is exchanged while another one is multiplied.
        back: whether results are handed back; else rows stay split.
        outer: how many factors are multiplied after the others, for whole rows.
        alpha: a factor of the result.
    """

    group: dist.ProcessGroup
    parts: tuple[Part, ...]
    back: bool
    outer: int
    alpha: float

    @property
    def ranks(self) -> int:
        return int(dist.get_world_size(self.group))


def flow_of(
    m: int, group: dist.ProcessGroup, parts: int, back: bool, outer: int, alpha: float
) -> Flow:
    """Of m rows in so many parts. If rows stay split, as a DTensor's are, the ranks of a group have
    all as many, or there is one part."""
    ranks, rank = dist.get_world_size(group), dist.get_rank(group)
    found, done = [], 0
    for start, count in (share for share in _shares(m, parts) if share[1]):
        blocks = tuple(_shares(count, ranks))
        own = (done, blocks[rank][1])
        if back or parts == 1:
            blocks = tuple((start + first, rows) for first, rows in blocks)
        else:
            blocks = tuple((at * (m // ranks) + done, rows) for at, (_, rows) in enumerate(blocks))
        done += own[1]
        found.append(Part(blocks=blocks, own=own))
    return Flow(group=group, parts=tuple(found), back=back, outer=outer, alpha=alpha)


def _shares(rows: int, parts: int) -> list[tuple[int, int]]:
    """(first, count) of each, as `torch.chunk` has them; the last ones may be empty."""
    most = -(-rows // parts)
    starts = [min(at * most, rows) for at in range(parts + 1)]
    return [(start, end - start) for start, end in itertools.pairwise(starts)]


class _Product(torch.autograd.Function):  # type: ignore[misc]  # mypy sees no types of torch.
    @staticmethod
    def forward(
        ctx: FunctionCtx, flow: Flow, keeps: bool, x: torch.Tensor, *factors: torch.Tensor
    ) -> torch.Tensor:
        ctx.flow, ctx.shape = flow, x.shape
        kept: list[torch.Tensor] = []

        def multiply(rows: Sequence[torch.Tensor], places: Sequence[torch.Tensor]) -> None:
            kept.extend(rows if keeps else ())
            _multiply(rows, places, factors, flow.outer, flow.alpha)

        columns = math.prod(item.shape[1] for item in factors)
        shape = (x.shape[0], columns // flow.ranks) if flow.back else (_own_rows(flow), columns)
        into = x.new_empty(shape, dtype=torch.int32 if x.dtype is torch.int8 else x.dtype)
        _run(flow, x, into, multiply, in_=True, out=flow.back)
        ctx.save_for_backward(*factors, *kept)
        ctx.count = len(factors)
        return into

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        if torch.is_grad_enabled():
            expected = "gradients that are not differentiated, create_graph=False"
            hint = "products over ranks are differentiable once"
            raise ArgumentError("create_graph", expected=expected, got="True", hint=hint)
        flow, needs = ctx.flow, ctx.needs_input_grad[2:]
        factors, kept = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
        turned = [item.mT for item in factors]
        into = gradient.new_empty(ctx.shape) if needs[0] else None
        sums: list[torch.Tensor | None] = [None] * len(factors)
        parts = iter(range(len(flow.parts)))

        def derive(rows: Sequence[torch.Tensor], places: Sequence[torch.Tensor]) -> None:
            at = next(parts) * flow.ranks
            if not any(needs[1:]):
                outer = flow.outer if flow.back else len(turned)
                _multiply(rows, places, turned, outer, flow.alpha)
                return
            x, given = _whole(kept[at : at + flow.ranks]), _whole(rows)
            of = Named(grad=given, x=x, factors=factors, alpha=flow.alpha, left=False, needs=needs)
            found = iter(gradients(of))
            if needs[0]:
                for place, piece in zip(places, next(found).chunk(flow.ranks, 1), strict=True):
                    place.copy_(piece)
            for index in (index for index, need in enumerate(needs[1:]) if need):
                item = next(found)
                sums[index] = item if (known := sums[index]) is None else known.add_(item)

        _run(flow, gradient.contiguous(), into, derive, in_=flow.back, out=True)
        return None, None, into, *sums


def _own_rows(flow: Flow) -> int:
    return sum(part.own[1] for part in flow.parts)


def _whole(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    """Whole rows, of pieces that each rank had."""
    return rows[0] if len(rows) == 1 else torch.cat(list(rows), 1)


def _run(
    flow: Flow,
    source: torch.Tensor,
    into: torch.Tensor | None,
    multiply: Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor]], None],
    *,
    in_: bool,
    out: bool,
) -> None:
    """Calls `multiply(rows, places)` for each part.

    Args:
        flow: which rows go where.
        source: rows of all ranks, which are exchanged if `in_`, or this rank's own ones.
        into: likewise with `out`; None if nothing is wanted.
        multiply: takes whole rows, or the pieces of them that each rank had, and writes results to
            a place for whole rows, or to one for each rank.
    """
    rank = dist.get_rank(flow.group)
    arriving: list[tuple[list[torch.Tensor], exchange.Pending | None]] = []
    for part in flow.parts:
        if in_:
            rows = _blocks(source, part)
            found = _beside(rows, rank, part, source.shape[1])
            arriving.append((found, exchange.all_to_all(rows, found, flow.group)))
        else:
            arriving.append(([source.narrow(0, *part.own)], None))
    leaving = []
    for part, (rows, pending) in zip(flow.parts, arriving, strict=True):
        if pending is not None:
            pending.wait()
        if into is None:
            multiply(rows, [])
            continue
        ends = _blocks(into, part) if out else [into.narrow(0, *part.own)]
        places = _beside(ends, rank, part, into.shape[1]) if out else ends
        multiply(rows, places)
        if out:
            leaving.append(exchange.all_to_all(places, ends, flow.group))
    for pending in leaving:
        pending.wait()


def _blocks(item: torch.Tensor, part: Part) -> list[torch.Tensor]:
    return [item.narrow(0, *block) for block in part.blocks]


def _beside(
    blocks: Sequence[torch.Tensor], rank: int, part: Part, columns: int
) -> list[torch.Tensor]:
    """Memory for this rank's rows of other ranks' columns; its own stay where they are."""
    found = blocks[0].new_empty((len(blocks), part.own[1], columns))
    return [blocks[at] if at == rank else item for at, item in enumerate(found)]


def _multiply(
    rows: Sequence[torch.Tensor],
    places: Sequence[torch.Tensor],
    factors: Sequence[torch.Tensor],
    outer: int,
    alpha: float,
) -> None:
    """alpha x (F1 x ... x FN) of rows x that are in pieces, each of neighbouring columns, written
    to places for neighbouring columns of the result.

    Args:
        rows, places: (m, columns), at least one.
        factors: their columns.
        outer: how many of them are multiplied together, after the others; all of them if `rows` is
            one.
        alpha: a factor of the result.
    """
    kind, m = places[0].dtype, places[0].shape[0]
    first, *middle = [item.to(kind) for item in factors[:outer]]
    inner, last = factors[outer:], math.prod(item.shape[1] for item in factors[outer:])
    found = rows[0]
    if len(rows) > 1:
        numbers = math.prod(item.shape[0] for item in factors[:outer])
        found = places[0].new_empty((m, numbers, last))
        for x, out in zip(rows, found.chunk(len(rows), 1), strict=True):
            share = x.view(m, out.shape[1], x.shape[1] // out.shape[1])
            gemkm(share.transpose(0, 1), inner, out=out.transpose(0, 1))
    for chunk, place in zip(first.chunk(len(places), 1), places, strict=True):
        if len(rows) == 1:
            gemkm(found, [chunk, *middle], alpha=alpha, out=place)
        else:
            turned = [item.mT for item in (chunk, *middle)]
            out = place.view(m, place.shape[1] // last, last)
            gekmm(turned, found, alpha=alpha, out=out)
