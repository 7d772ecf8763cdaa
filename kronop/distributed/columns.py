"""Products whose columns are spread over the ranks of a group: see `steps`."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

from kronop.distributed import exchange, pieces
from kronop.distributed.steps import Choice, Way
from kronop.frozen import dataclass
from kronop.torch import gekmm, gemkm


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What every rank of a group computes.

    Attributes:
        choice: how.
        group: the ranks that share rows.
        alpha, beta: alpha x (F1 x ... x FN) + beta z.
        ordered: the result's columns are in the standard order.
    """

    choice: Choice
    group: Any
    alpha: float
    beta: float
    ordered: bool

    @property
    def ranks(self) -> int:
        return int(dist.get_world_size(self.group))


def product(work: Work, x: Any, factors: Sequence[Any], z: Any) -> Any:
    """This rank's share of alpha x (F1 x ... x FN) + beta z.

    Args:
        work: how it is computed.
        x: (m, K / ranks), rank r's neighbours from r K / ranks on.
        factors: the same on all ranks.
        z: like an ordered result, or None.

    Returns:
        (m, Q / ranks); or (m, Q1 ... Qs, Q(s+1) ... QN / ranks) where it is not ordered and has
        been exchanged once.
    """
    if work.choice.way is Way.AllToAll:
        return _AllToAll(work, x, factors, z).result()
    if work.choice.way is Way.ReduceScatter:
        return _reduce_scattered(work, x, factors, z)
    return _all_gathered(work, x, factors, z)


def product_of_split(work: Work, x: Any, factors: Sequence[Any], z: Any) -> Any:
    """The same, (m, Q / ranks) in order, of an x that a product left split along inner digits:
    (m, P1 ... Ps, P(s+1) ... PN / ranks), with one exchange.

    Outer digits are multiplied first. Of each of the `share` numbers that a rank keeps of their
    results, all inner columns are received, and multiplied while the next ones are on their way.
    """
    outer, inner = factors[: work.choice.outer], factors[work.choice.outer :]
    m, _, columns = x.shape
    share = math.prod(item.shape[1] for item in outer) // work.ranks
    turned = [item.mT for item in _with_results_first(outer, work.ranks, share)]
    found = gekmm(turned, x.permute(1, 2, 0).flatten(1), alpha=work.alpha)
    under_way = []
    for sent in found.view(share, work.ranks, columns, m).unbind():
        one = exchange.Exchange(work.group)
        under_way.append((exchange.begin(sent, torch.empty_like(sent), one), one))
    into = found.new_empty((m, share, math.prod(item.shape[1] for item in inner)))
    parts = [None] * share if z is None else z.unflatten(1, (share, -1)).unbind(1)
    inner = [item.to(found.dtype) for item in inner]
    results = []
    for at, (item, part) in enumerate(zip(under_way, parts, strict=True)):
        received = exchange.end(*item).flatten(0, 1).mT
        done = pieces.written(received, inner, into[:, at], work.beta, part)
        results.append(done.unsqueeze(1))
    return pieces.joined(into, results, 1).flatten(1)


class _AllToAll:
    """Inner digits, an exchange, outer digits; in order, another exchange, and the last digit.

    A rank has `share` numbers of the `ranks` x `share` that the outer digits are together. Of each
    of them, inner products of some rows are exchanged as soon as they are there.
    """

    def __init__(self, work: Work, x: Any, factors: Sequence[Any], z: Any) -> None:
        choice, count = work.choice, len(factors)
        outer = factors[: choice.outer]
        self._work, self._x, self._z = work, x, z
        self._inner = factors[choice.outer : count - choice.last]
        self._last = factors[count - 1] if choice.last else None
        self._behind = 1 if self._last is None else self._last.shape[0]
        rest = math.prod(item.shape[0] for item in factors[choice.outer :])
        self._share = x.shape[1] // rest
        self._outer = _with_shares_first(outer, work.ranks, self._share)
        self._columns = math.prod(item.shape[1] for item in self._inner) * self._behind
        self._results = math.prod(item.shape[1] for item in outer)

    def result(self) -> Any:
        rows = _parts(self._x.shape[0], self._work.choice.parts if self._work.ordered else 1)
        pieces_of_x = pieces.split(self._x, rows, self._share)
        if not self._work.ordered:
            (found,) = _interleaved([self._once(pieces_of_x[0])])
            return found.permute(2, 0, 1)
        into = self._empty_result()
        runs = zip(
            pieces_of_x,
            into.split(rows),
            [None] * len(rows) if self._z is None else self._z.split(rows),
            strict=True,
        )
        found = _interleaved([self._twice(*run) for run in runs])
        return pieces.joined(into, found, 0)

    def _empty_result(self) -> Any:
        last = 1 if self._last is None else self._last.shape[1]
        columns = self._results * (self._columns // self._behind) * last // self._work.ranks
        kind = torch.int32 if self._x.dtype is torch.int8 else self._x.dtype
        return self._x.new_empty((self._x.shape[0], columns), dtype=kind)

    def _once(self, parts: Sequence[Any]) -> Iterator[Any]:
        """(results of the outer digits, this rank's columns, m); pauses while it is exchanged."""
        ranks, m = self._work.ranks, parts[0].shape[0]
        columns, kind = self._columns // ranks, self._outer[0].dtype
        if parts[0].dtype is torch.int8:
            kind = torch.int32
        whole = parts[0].new_empty((self._share, ranks, columns, m), dtype=kind)
        under_way = []
        for part, into in zip(parts, whole, strict=True):
            alpha = 1.0 if self._last is not None else self._work.alpha
            x = part.unflatten(1, (-1, self._behind))
            sent = pieces.columns_first(x, self._inner, alpha).view(ranks, columns, m)
            one = exchange.Exchange(self._work.group)
            under_way.append((exchange.begin(sent, into, one), one))
        yield None
        received = [exchange.end(*item).unsqueeze(0) for item in under_way]
        gathered = pieces.joined(whole, received, 0)
        outer = [item.mT.to(gathered.dtype) for item in self._outer]
        found = gekmm(outer, gathered.view(self._share * ranks, columns * m))
        yield found.view(self._results, columns, m)

    def _twice(self, parts: Sequence[Any], into: Any, z: Any) -> Iterator[Any]:
        """`into`, in order; pauses while it is exchanged."""
        first = self._once(parts)
        yield next(first)
        found = next(first)
        work = self._work
        sent = found.view(work.ranks, -1, *found.shape[1:])
        one = exchange.Exchange(work.group)
        received = exchange.begin(sent, torch.empty_like(sent), one)
        yield None
        received = exchange.end(received, one)
        last = self._last if self._last is None else self._last.to(received.dtype)
        alpha = work.alpha if last is not None else 1.0
        yield pieces.ordered(received, last, into, alpha, work.beta, z)


def _interleaved(runs: Sequence[Iterator[Any]]) -> list[Any]:
    """What each run gives at last. One is begun before those before it go on, so that an exchange
    which they wait for has that long."""
    found: list[Any] = [None] * len(runs)
    active: list[int] = []
    for at in range(len(runs)):
        next(runs[at])
        _advance(runs, active, found)
        active.append(at)
    while active:
        _advance(runs, active, found)
    return found


def _advance(runs: Sequence[Iterator[Any]], active: list[int], found: list[Any]) -> None:
    """The next step of each; those that gave something are done."""
    for at in [*active]:
        found[at] = next(runs[at])
        if found[at] is not None:
            active.remove(at)


def _parts(rows: int, parts: int) -> list[int]:
    """So many rows in each part."""
    each, rest = divmod(rows, parts)
    return [each + (at < rest) for at in range(min(parts, max(rows, 1)))]


def _with_shares_first(outer: Sequence[Any], ranks: int, share: int) -> list[Any]:
    """Factors of the outer digits, of which a row's number is taken apart into rank and share, for
    operands in which shares come first: they are received one by one."""
    if share == 1:
        return list(outer)
    matrix = formed(outer)
    return [matrix.unflatten(0, (ranks, share)).transpose(0, 1).flatten(0, 1)]


def _with_results_first(outer: Sequence[Any], ranks: int, share: int) -> list[Any]:
    """As above, of results: those that ranks keep are taken apart into rank and share."""
    if share == 1:
        return list(outer)
    matrix = formed(outer)
    return [matrix.unflatten(1, (ranks, share)).transpose(1, 2).flatten(1, 2)]


def formed(factors: Sequence[Any]) -> Any:
    """The Kronecker product of a few small factors."""
    return functools.reduce(torch.kron, factors)


def _own_rows(work: Work, x: Any, factors: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
    """The outer factors' product, and the inner factors; rank r has its rows from r `share` on."""
    outer = formed(factors[: work.choice.outer])
    return outer, factors[work.choice.outer :]


def _reduce_scattered(work: Work, x: Any, factors: Sequence[Any], z: Any) -> Any:
    outer, inner = _own_rows(work, x, factors)
    share = outer.shape[0] // work.ranks
    own = outer.narrow(0, dist.get_rank(work.group) * share, share)
    sums = pieces.columns_first(x.unsqueeze(-1), [own, *inner], work.alpha)
    found = exchange.reduce_scatter(sums.view(work.ranks, -1, x.shape[0]), work.group)
    into = found.new_empty((found.shape[1], found.shape[0]))
    return pieces.ordered(found[None, None], None, into, 1.0, work.beta, z)


def _all_gathered(work: Work, x: Any, factors: Sequence[Any], z: Any) -> Any:
    outer, inner = _own_rows(work, x, factors)
    share, columns = outer.shape[0] // work.ranks, outer.shape[1] // work.ranks
    own = outer.narrow(1, dist.get_rank(work.group) * columns, columns)
    found, beta = z, work.beta if z is not None else None
    every = exchange.all_gather(x, work.group)
    for rank, rows in enumerate(every):
        part = [own.narrow(0, rank * share, share), *inner]
        found = gemkm(rows, part, alpha=work.alpha, beta=beta, z=found)
        beta = 1.0
    return found
