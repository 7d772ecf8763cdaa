"""Frameworks are told which tensors kernels write.

torch counts the changes of a tensor, and refuses a backward through one that has changed since it
was saved. It counts what its own operators write; what is written by address it has to be told.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def counter(tensor: Any) -> Callable[[tuple[Any, ...]], None] | None:
    """What counts a change of tensors like this one, given in a tuple; None where none is counted.

    Tensors of torch's inference mode have no count, and are passed over: nothing saves them.

    NOTE: torch.autograd.graph.increment_version is this after a check of types, in 0.25
    microseconds instead of 0.1. Its `__call__`, because torch.compile (2.13) takes the function
    itself, and the public one, into its graph, which then does not count.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(tensor, torch.Tensor):
        return None
    count: Callable[[tuple[Any, ...]], None] = torch._C._increment_version.__call__
    return count
