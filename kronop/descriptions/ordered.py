"""The order in which graphs of nodes are walked: of expressions, of kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def in_order(roots: Sequence[T], below: Callable[[T], Sequence[T]]) -> list[T]:
    """All nodes of a graph, each once and after those below it, which come in their order.

    Nodes are told apart by identity, so that shared ones cost nothing, and nothing recurses, so
    that a graph may be of any depth.
    """
    order: list[T] = []
    is_done: dict[int, bool] = {}  # Of the nodes that were seen, by their identity.
    left = list(reversed(roots))
    while left:
        node = left[-1]
        known = is_done.get(id(node))
        if known is None:
            is_done[id(node)] = False
            left.extend(reversed(below(node)))
            continue
        left.pop()
        if not known:
            is_done[id(node)] = True
            order.append(node)
    return order
