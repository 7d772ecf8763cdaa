"""Memory and kernel calls of backwards, and the types in which they sum."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from kronop.args.signature import torch_maker
from kronop.core import program


def kind_of(item: Tensor) -> torch.dtype:
    """The type in which elements of this tensor are summed."""
    return torch.float32 if item.element_size() == 2 else item.dtype


def on_gpu(item: Tensor) -> bool:
    """Whether kronop's own kernels compute the sums; on CPUs torch's matrix products do."""
    return bool(item.is_cuda)


def settled(grad: Tensor) -> Tensor:
    """The gradient, copied if it has strides of 0, as the gradient of a sum has.

    Otherwise a kernel would be compiled for this layout alone.
    """
    return grad if grad.is_contiguous() or 0 not in grad.stride() else grad.contiguous()


class Buffers:
    """Memory for intermediate results, reused by later products: page faults of new memory would
    cost more than the products.

    Attributes:
        every: all tensors that were allocated.
    """

    def __init__(self) -> None:
        self.every: list[Tensor] = []
        self._free: list[Tensor] = []
        self._lent: dict[int, Tensor] = {}

    def take(self, shape: Sequence[int], like: Tensor) -> Tensor:
        size = math.prod(shape)
        fitting = [at for at, item in enumerate(self._free) if item.numel() >= size]
        if fitting:
            memory = self._free.pop(fitting[0])
        else:
            memory = like.new_empty(size)
            self.every.append(memory)
        self._lent[memory.data_ptr()] = memory
        return memory[:size].view(shape)

    def give(self, item: Tensor) -> None:
        """Takes a tensor back; does nothing for tensors that `take` did not make."""
        memory = self._lent.pop(item.data_ptr(), None)
        if memory is not None:
            self._free.append(memory)


class Calls:
    """Makes kernel calls: by public functions or, to record them, through arguments objects; the
    latter for plain tensors that are not empty."""

    def __init__(self, recording: program.Recording | None = None) -> None:
        self._recording = recording

    def __call__(self, public: Callable[[], Any], arguments: Callable[[], Any]) -> Any:
        """The result of `public`, or of the arguments, which compute the same."""
        if self._recording is None:
            return public()
        made = arguments()
        made.operation.run(made)
        self._recording.add(made)
        return made.Y


def _make_bytes(like: Tensor, nbytes: int) -> Tensor:
    return like.new_empty(nbytes, dtype=torch.uint8)  # Ordered on the current stream of `like`.


def repeated(
    form: tuple[object, ...],
    alpha: float,
    tensors: Sequence[Tensor],
    work: Callable[[Calls], tuple[list[Tensor], Sequence[Tensor]]],
) -> list[Tensor]:
    """The results of `work`, which makes its kernel calls by what it is given, and returns results
    and scratch memory. From the third time with tensors like these, it is not called.

    Args:
        form: what decides the calls besides alpha and the tensors.
    """
    results, recording = program.repeat(form, alpha, tensors)
    if results is None:
        results, scratch = work(Calls(recording))
        if recording is not None:
            makers = [(item, torch_maker(item.shape, item.dtype)) for item in results]
            recording.end(makers, scratch, _make_bytes)
    return results
