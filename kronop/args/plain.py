"""Whether tensors of a call are as plain as those of an earlier one, as fast as Python tells."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from kronop.late import imported


class Reaching(Protocol):
    """What tells whether storages are as large as they were."""

    def holds(self, tensors: Sequence[Any]) -> bool: ...


def are_read(framework: str, tensors: Sequence[Any]) -> bool:
    """Whether native code reads these tensors without Python: arrays of NumPy alone, or tensors of
    torch alone, of a version (since 2.10) that has its interface, and its compiler's guards."""
    if framework == "numpy":
        return all(type(item) is np.ndarray for item in tensors)
    torch = sys.modules.get("torch")
    if framework != "torch" or torch is None:
        return False
    guards = getattr(torch._C._dynamo, "guards", None)
    is_new = hasattr(guards, "TensorGuards") and hasattr(torch.Tensor, "__dlpack_c_exchange_api__")
    return is_new and all(isinstance(item, torch.Tensor) for item in tensors)


def recorded(tensors: Sequence[Any]) -> tuple[Any, ...]:
    """Which tensors autograd records: guards tell calls apart by this too."""
    return tuple([getattr(item, "requires_grad", None) for item in tensors])


class Arrays:
    """Whether tensors are arrays of NumPy, as many as the given ones."""

    def __init__(self, given: Sequence[Any]) -> None:
        self._types = [np.ndarray] * len(given)

    def __call__(self, given: tuple[Any, ...]) -> bool:
        return [*map(type, given)] == self._types


class Tensors:
    """Whether tensors of torch are of the recorded kinds: torch's guards compare types, shapes,
    strides and dispatch keys; tangents and storages they do not see.

    Args:
        given: the recorded tensors; none is kept.
        reach: how far they reach into their storages.
    """

    def __init__(self, given: Sequence[Any], reach: Reaching) -> None:
        torch = sys.modules["torch"]
        # Guards refuse a tensor that is given twice.
        firsts = [next(at for at, it in enumerate(given) if it is item) for item in given]
        self._repeated = [(at, first) for at, first in enumerate(firsts) if at != first]
        self._firsts = sorted({*firsts})
        made = torch._C._dynamo.guards.TensorGuards(
            *(given[at] for at in self._firsts),
            dynamic_dims_sizes=None,
            dynamic_dims_strides=None,
        )
        self._check, self._reach = made.check, reach
        self._levels = imported("torch.autograd.forward_ad")
        self._records = torch.is_grad_enabled
        self._differentiable = any(item.requires_grad for item in given)

    def __call__(self, given: tuple[Any, ...]) -> bool:
        if self._repeated:
            for at, first in self._repeated:
                if given[at] is not given[first]:
                    return False
            is_like = self._check(*[given[at] for at in self._firsts])
        else:
            is_like = self._check(*given)
        return (
            is_like
            and self._levels._current_level < 0
            and not (self._differentiable and self._records())
            and self._reach.holds(given)
        )
