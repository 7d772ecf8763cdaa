"""A training step with nothing kept of it, for `kronop.warmup`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree


def step(work: Callable[..., Any], examples: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Calls `work` and, where its results require gradients, goes through their backward.

    All of it runs in this thread, also the backward of GPU tensors.
    """
    with _undone(work), torch.autograd.set_multithreading_enabled(False):
        found = work(*examples, **named)
        results = [
            item
            for item in _pytree.tree_leaves(found)
            if isinstance(item, torch.Tensor) and item.requires_grad
        ]
        leaves = _leaves(results)
        if leaves:
            grads = [torch.ones_like(item) for item in results]
            torch.autograd.grad(results, leaves, grads, allow_unused=True)


@contextlib.contextmanager
def _undone(work: Any) -> Iterator[None]:
    """Restores the buffers of a module, and the state of random numbers, afterwards."""
    buffers = [*work.buffers()] if isinstance(work, torch.nn.Module) else []
    kept = [item.detach().clone() for item in buffers]
    with torch.random.fork_rng():
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, before in zip(buffers, kept, strict=True):
                    buffer.copy_(before)


def _leaves(results: Sequence[Any]) -> list[Any]:
    """The tensors without a history that the results' gradients flow to.

    They are found by way of the graph, so that gradients can be asked for without being added to
    anybody's `grad`.
    """
    found = [item for item in results if item.grad_fn is None]
    ahead = [item.grad_fn for item in results if item.grad_fn is not None]
    seen = set(ahead)
    while ahead:
        node = ahead.pop()
        if hasattr(node, "variable"):  # The node that adds to a leaf's `grad`.
            found.append(node.variable)
        for other, _ in node.next_functions:
            if other is not None and other not in seen:
                seen.add(other)
                ahead.append(other)
    return found
