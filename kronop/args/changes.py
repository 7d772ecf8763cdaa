"""Tells torch which tensors kernels write.

torch counts the changes of each tensor, and refuses a backward through a saved tensor that has
changed since. It counts only writes of its own operators; kernels that write by address must
report theirs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from kronop.tensors import Tensor


def counted(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Those of the tensors whose changes torch counts."""
    torch = sys.modules.get("torch")
    return () if torch is None else tuple(it for it in tensors if isinstance(it, torch.Tensor))


def counter(tensor: Tensor) -> Callable[[tuple[Tensor, ...]], None] | None:
    """The function that counts a change of tensors like this one, which it takes in a tuple; None
    for tensors of other frameworks, which count no changes.

    The function ignores tensors of torch's inference mode: they have no count, and autograd never
    saves them.

    NOTE: the public torch.autograd.graph.increment_version checks types and then calls this
    function, in 0.25 microseconds instead of 0.1. The function's `__call__` is returned because
    torch.compile (2.13) traces both functions into its graph, which then does not count.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(tensor, torch.Tensor):
        return None
    count: Callable[[tuple[Tensor, ...]], None] = torch._C._increment_version.__call__
    return count
