"""Products whose columns are spread over the ranks of a group: see `steps`."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import torch
import torch.distributed as dist

from kronop.distributed import exchange, rows
from kronop.distributed.steps import Choice, Way
from kronop.frozen import dataclass
from kronop.torch import gekmm, gemkm


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What every rank of a group computes.

    Attributes:
        choice: how.
        group: the ranks that share rows.
        alpha: alpha x (F1 x ... x FN).
        ordered: the result is split along its columns, and these are in the standard order.
    """

    choice: Choice
    group: dist.ProcessGroup
    alpha: float
    ordered: bool

    @property
    def ranks(self) -> int:
        return int(dist.get_world_size(self.group))


def product(work: Work, x: torch.Tensor, factors: Sequence[torch.Tensor]) -> torch.Tensor:
    """This rank's share of alpha x (F1 x ... x FN).

    Args:
        work: how it is computed.
        x: (m, K / ranks), rank r's neighbours from r K / ranks on; contiguous, or its transpose is.
        factors: the same on all ranks.

    Returns:
        (m, Q / ranks). If it is not ordered: of rows that were exchanged, (m / ranks, Q); of
        digits, (m, Q1 ... Qs, Q(s+1) ... QN / ranks).
    """
    outer, inner = formed(factors[: work.choice.outer]), factors[work.choice.outer :]
    if work.choice.way is Way.Rows:
        m, parts, later = x.shape[0], work.choice.parts, work.choice.later
        flow = rows.flow_of(m, work.group, parts, work.ordered, 1 + later, work.alpha)
        return rows.product(x, [outer, *inner], flow)
    if work.choice.way is Way.Digits:
        return _of_digits(work, x, outer, inner)
    if work.choice.way is Way.ReduceScatter:
        return _reduce_scattered(work, x, outer, inner)
    return _all_gathered(work, x, outer, inner)


def formed(factors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The Kronecker product of a few small factors."""
    # Of one whose rows are contiguous and one whose columns are, torch.kron raises.
    return functools.reduce(torch.kron, [item.contiguous() for item in factors])


def product_of_split(work: Work, x: torch.Tensor, factors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The same, (m, Q / ranks) in order, of an x that a product left split along inner digits:
    (m, P1 ... Ps, P(s+1) ... PN / ranks), with one exchange."""
    outer, inner = formed(factors[: work.choice.outer]), factors[work.choice.outer :]
    (m, _, columns), ranks = x.shape, work.ranks
    share = outer.shape[1] // ranks
    found = gekmm([_shares_first(outer.mT, ranks)], x, alpha=work.alpha)
    received = exchange.exchanged(found.view(m * share, ranks, columns), work.group)
    results = math.prod(item.shape[1] for item in inner)
    return _inner_product(received.flatten(1), inner).view(m, share * results)


def _of_digits(
    work: Work, x: torch.Tensor, outer: torch.Tensor, inner: Sequence[torch.Tensor]
) -> torch.Tensor:
    """Inner digits, an exchange, outer digits; in order, also an exchange back.

    Of a product from the left, whose columns are contiguous, X has one row of shares, and columns
    of X are behind its inner digits.
    """
    ranks, by_rows = work.ranks, x.is_contiguous()
    m, behind = (x.shape[0], 1) if by_rows else (1, x.shape[0])
    share, contracted = outer.shape[0] // ranks, math.prod(item.shape[0] for item in inner)
    columns = math.prod(item.shape[1] for item in inner) * behind // ranks
    if by_rows:
        found = _inner_product(x.view(m * share, contracted), inner)
    else:
        turned = [item.mT for item in inner]
        found = gekmm(turned, x.mT.view(share, contracted, behind))
    found = exchange.exchanged(found.view(m * share, ranks, columns), work.group)
    found = found.view(m, ranks * share, columns)
    turned_outer = _shares_first(outer, ranks).mT.to(found.dtype)
    if not work.ordered:
        return gekmm([turned_outer], found, alpha=work.alpha)
    found = gekmm([_shares_first(turned_outer, ranks)], found, alpha=work.alpha)
    results = outer.shape[1] // ranks
    found = exchange.exchanged(found.view(m * results, ranks, columns), work.group)
    if by_rows:
        return found.view(m, results * ranks * columns)
    return found.view(results * ranks * columns // max(behind, 1), behind).mT


def _inner_product(x: torch.Tensor, inner: Sequence[torch.Tensor]) -> torch.Tensor:
    return gemkm(x, [item.to(x.dtype) for item in inner])


def _shares_first(matrix: torch.Tensor, ranks: int) -> torch.Tensor:
    """A matrix whose row numbers are (rank, share), with rows in the order (share, rank)."""
    if matrix.shape[0] == ranks:
        return matrix
    return matrix.unflatten(0, (ranks, -1)).transpose(0, 1).flatten(0, 1)


def _reduce_scattered(
    work: Work, x: torch.Tensor, outer: torch.Tensor, inner: Sequence[torch.Tensor]
) -> torch.Tensor:
    """Of own rows of the outer factors, for each rank's columns of these."""
    share, ranks = outer.shape[0] // work.ranks, work.ranks
    own = outer.narrow(0, dist.get_rank(work.group) * share, share)
    if own.shape[1] % ranks:  # Columns of all factors are split.
        sums = gemkm(x, [own, *inner], alpha=work.alpha)
        sums = sums.view(x.shape[0], ranks, sums.shape[1] // ranks).transpose(0, 1)
        return exchange.reduce_scatter(sums, work.group)
    found = x.reshape(x.shape[0], share, x.shape[1] // share)
    if inner:
        found = _inner_product(found.flatten(0, 1), inner)
        found = found.view(x.shape[0], share, found.shape[1])
    chunks = own.to(found.dtype).mT.unflatten(0, (ranks, 1, own.shape[1] // ranks))
    sums = gekmm([chunks], found, alpha=work.alpha)
    return exchange.reduce_scatter(sums, work.group).flatten(1)


def _all_gathered(
    work: Work, x: torch.Tensor, outer: torch.Tensor, inner: Sequence[torch.Tensor]
) -> torch.Tensor:
    share, columns = outer.shape[0] // work.ranks, outer.shape[1] // work.ranks
    own = outer.narrow(1, dist.get_rank(work.group) * columns, columns)
    found = beta = None
    every = exchange.all_gather(x, work.group)
    for rank, whole in enumerate(every):
        part = [own.narrow(0, rank * share, share), *inner]
        found = gemkm(whole, part, alpha=work.alpha, beta=beta, z=found)
        beta = 1.0
    return found
