"""Exchanges among the ranks of a group by torch.distributed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.distributed as dist
from torch.autograd.function import FunctionCtx

from kronop.errors import DeviceError

_Exchange = Callable[[torch.Tensor, dist.ProcessGroup], torch.Tensor]

# Names of torch 2.13, and of those before.
_ALL_GATHER = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_REDUCE_SCATTER = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


@contextlib.contextmanager
def telling(what: str) -> Iterator[None]:
    """Turns what torch.distributed raises into a DeviceError that says what was under way."""
    try:
        yield
    except RuntimeError as error:
        first = str(error).strip().splitlines()[:1] or [type(error).__name__]
        raise DeviceError(
            what,
            expected="an answer from every rank of the group",
            got=first[0],
            hint="a rank ended, did not call this, or had other arguments; look at what the"
            " others printed first",
        ) from error


class Pending:
    """An exchange that goes on beside what is computed next, and the memory that it needs."""

    def __init__(self, works: Sequence[dist.Work], *held: object) -> None:
        self._works, self._held = works, held

    def wait(self) -> None:
        """What is computed from here on finds everything received."""
        with telling("an all-to-all"):
            for work in self._works:
                work.wait()
        self._held = ()


def all_to_all(
    sent: Sequence[torch.Tensor], received: Sequence[torch.Tensor], group: dist.ProcessGroup
) -> Pending:
    """Begins an exchange of contiguous tensors, one for each other rank: `sent[r]` goes to rank r,
    and what comes from it becomes `received[r]`. Those of this rank itself are not looked at.
    """
    own = dist.get_rank(group)
    if sent[own].is_cuda:  # In one launch, and with half of the host's time.
        nothing = sent[own].new_empty((0,))
        given, taken = ([*item[:own], nothing, *item[own + 1 :]] for item in (sent, received))
        with telling("an all-to-all"):
            works = [dist.all_to_all(taken, given, group=group, async_op=True)]
        return Pending(works, given, taken)
    messages = []
    for rank in range(len(sent)):
        peer = dist.get_global_rank(group, rank)
        pairs = ((dist.isend, sent[rank]), (dist.irecv, received[rank])) if rank != own else ()
        messages += [dist.P2POp(do, item, peer, group) for do, item in pairs if item.numel()]
    with telling("an all-to-all"):
        works = dist.batch_isend_irecv(messages) if messages else []
    return Pending(works, sent, received)


def exchanged(item: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """Of each part (ranks, ...) of a tensor (parts, ranks, ...), an all-to-all."""
    return _Linear.apply(item, group, _exchanged, _exchanged)


def _exchanged(item: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    item = item.contiguous()
    found = torch.empty_like(item)
    with telling("an all-to-all"):
        works = [
            dist.all_to_all_single(into, part, group=group, async_op=True)
            for part, into in zip(item, found, strict=True)
        ]
    Pending(works, item).wait()
    return found


def all_gather(item: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """(ranks, *shape): the tensors of all ranks; the gradient is what all ranks have of it, added
    up."""
    return _Linear.apply(item, group, _gathered, _scattered)


def reduce_scatter(item: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """Part r of a (ranks, ...) tensor on rank r, added up over all ranks."""
    return _Linear.apply(item, group, _scattered, _gathered)


def all_reduced_gradient(item: torch.Tensor, groups: Sequence[dist.ProcessGroup]) -> torch.Tensor:
    """The same tensor, which all ranks of the groups have: gradients of all are added up."""
    return _Shared.apply(item, groups)


def _gathered(item: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    item = item.contiguous()
    ranks = dist.get_world_size(group)
    found = item.new_empty((ranks * item.numel(),))
    with telling("an all-gather"):
        _ALL_GATHER(found, item.reshape(-1), group=group)
    return found.view(ranks, *item.shape)


def _scattered(item: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    item = item.contiguous()
    found = item.new_empty(item.shape[1:])
    with telling("a reduce-scatter"):
        _REDUCE_SCATTER(found.view(-1), item.view(-1), group=group)
    return found


class _Linear(torch.autograd.Function):  # type: ignore[misc]  # mypy sees no types of torch.
    """An exchange, whose gradient is exchanged by its transpose."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        item: torch.Tensor,
        group: dist.ProcessGroup,
        exchange: _Exchange,
        transpose: _Exchange,
    ) -> torch.Tensor:
        ctx.others = group, transpose, exchange
        return exchange(item, group)

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return _Linear.apply(gradient, *ctx.others), None, None, None


class _Shared(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        ctx: FunctionCtx, item: torch.Tensor, groups: Sequence[dist.ProcessGroup]
    ) -> torch.Tensor:
        ctx.groups = groups
        return item.view_as(item)

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        found = gradient.clone(memory_format=torch.contiguous_format)
        for group in ctx.groups:
            with telling("an all-reduce of a gradient"):
                dist.all_reduce(found, group=group)
        return found, None
