"""Memory of backwards, and the types and places of their sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kronop.args.signature import torch_maker


def kind_of(item: Any) -> Any:
    """The type that sums are taken in."""
    return torch.float32 if item.element_size() == 2 else item.dtype


def on_gpu(item: Any) -> bool:
    """Whether kernels of kronop's own sum up; on CPUs torch's matrix products do."""
    return bool(item.is_cuda)


def settled(grad: Any) -> Any:
    """In memory of its own where many elements share one, as the gradient of a sum: a kernel for
    that alone would be compiled."""
    return grad if grad.is_contiguous() or 0 not in grad.stride() else grad.contiguous()


def maker_of(item: Any) -> Callable[[Any], Any]:
    """What makes, like a tensor on a device, another one of the contiguous `item`'s kind there."""
    return torch_maker(item.shape, item.dtype)


def make_bytes(like: Any, nbytes: int) -> Any:
    """Scratch memory on the device of `like`, in the order of its current stream."""
    return like.new_empty(nbytes, dtype=torch.uint8)


class Buffers:
    """Memory for what is between two products, taken again by later ones: fresh pages cost more
    than the products.

    Attributes:
        every: all that was allocated.
    """

    def __init__(self) -> None:
        self.every: list[Any] = []
        self._free: list[Any] = []
        self._lent: dict[int, Any] = {}

    def take(self, shape: Sequence[int], like: Any) -> Any:
        size = math.prod(shape)
        fitting = [at for at, item in enumerate(self._free) if item.numel() >= size]
        if fitting:
            memory = self._free.pop(fitting[0])
        else:
            memory = like.new_empty(size)
            self.every.append(memory)
        self._lent[memory.data_ptr()] = memory
        return memory[:size].view(shape)

    def give(self, item: Any) -> None:
        """Takes a tensor back; others than those that were taken here are left alone."""
        memory = self._lent.pop(item.data_ptr(), None)
        if memory is not None:
            self._free.append(memory)
