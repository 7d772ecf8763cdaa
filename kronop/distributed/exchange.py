"""Exchanges among the ranks of a group by torch.distributed, differentiable.

An all-to-all is in two halves, `begin` and `end`, so that it goes on beside the products that are
issued between them. Autograd runs derivatives in the opposite order, so exchanges of gradients go
on beside products too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from kronop.errors import DeviceError, mismatch

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
            mismatch(
                what,
                expected="an answer from every rank of the group",
                got=first[0],
                hint="a rank ended, or did not call this; look at what the others printed first",
            )
        ) from error


class Exchange:
    """One all-to-all of a contiguous (ranks, ...) tensor, and that of its gradient: part r goes to
    rank r, and what comes from rank r takes its place."""

    def __init__(self, group: Any) -> None:
        self._group = group
        self._works: list[Any] = []

    def start(self, sent: Any, received: Any) -> None:
        with telling("an all-to-all"):
            work = dist.all_to_all_single(received, sent, group=self._group, async_op=True)
        # Both tensors have to live until then.
        self._works.append((work, sent, received))

    def wait(self) -> None:
        work, _, _ = self._works.pop()
        with telling("an all-to-all"):
            work.wait()


def begin(sent: Any, received: Any, exchange: Exchange) -> Any:
    """`received`, which may be read after `end`."""
    return _Begun.apply(sent, received, exchange)


def end(received: Any, exchange: Exchange) -> Any:
    """The same tensor, received."""
    return _Ended.apply(received, exchange)


class _Begun(torch.autograd.Function):  # type: ignore[misc]  # torch is Any to mypy.
    @staticmethod
    def forward(ctx: Any, sent: Any, received: Any, exchange: Exchange) -> Any:
        ctx.exchange = exchange
        exchange.start(sent, received)
        return (
            received.data
        )  # What other parts of the same memory receive is no change of this one.

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        ctx.exchange.wait()
        return gradient, None, None


class _Ended(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, received: Any, exchange: Exchange) -> Any:
        ctx.exchange = exchange
        exchange.wait()
        return received.data

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        sent = gradient.contiguous()
        received = torch.empty_like(sent)
        ctx.exchange.start(sent, received)
        return received, None


def all_gather(item: Any, group: Any) -> Any:
    """(ranks, *shape): the tensors of all ranks; the gradient is what all ranks have of it, added
    up."""
    return _Gathered.apply(item, group)


def reduce_scatter(item: Any, group: Any) -> Any:
    """Part r of a (ranks, ...) tensor on rank r, added up over all ranks."""
    return _Scattered.apply(item, group)


def all_reduced_gradient(item: Any, groups: Any) -> Any:
    """The same tensor, which all ranks of the groups have: gradients of all are added up."""
    return _Shared.apply(item, groups)


def _gathered(item: Any, group: Any) -> Any:
    item = item.contiguous()
    ranks = dist.get_world_size(group)
    found = item.new_empty((ranks * item.numel(),))
    with telling("an all-gather"):
        _ALL_GATHER(found, item.reshape(-1), group=group)
    return found.view(ranks, *item.shape)


def _scattered(item: Any, group: Any) -> Any:
    item = item.contiguous()
    found = item.new_empty(item.shape[1:])
    with telling("a reduce-scatter"):
        _REDUCE_SCATTER(found.view(-1), item.view(-1), group=group)
    return found


class _Gathered(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, item: Any, group: Any) -> Any:
        ctx.group = group
        return _gathered(item, group)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return _Scattered.apply(gradient, ctx.group), None


class _Scattered(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, item: Any, group: Any) -> Any:
        ctx.group = group
        return _scattered(item, group)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return _Gathered.apply(gradient, ctx.group), None


class _Shared(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, item: Any, groups: Any) -> Any:
        ctx.groups = groups
        return item.view_as(item)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        found = gradient.clone()
        for group in ctx.groups:
            with telling("an all-reduce of a gradient"):
                dist.all_reduce(found, group=group)
        return found, None
