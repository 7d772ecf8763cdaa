"""The host as a device: threads and workspaces."""

from __future__ import annotations

import functools
import math
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from kronop.cpus import cpu_count
from kronop.errors import OutOfMemoryError

_CACHE_LINE = 64
_LARGE = 1 << 20


@functools.cache
def thread_count() -> int:
    """The number of threads that a host kernel may use; read once, as OpenMP does.

    It is the number in OMP_NUM_THREADS (the first one of a list), else the number of CPUs that
    this process may use.
    """
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if first.isdecimal() and int(first) > 0:
        return int(first)
    return cpu_count()


def empty_array(shape: tuple[int, ...], dtype: Any) -> Any:
    """As np.empty, but large arrays begin on a cache line, so that kernels write whole lines.

    NOTE: large arrays of np.empty begin 16 bytes after the start of a page.
    """
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    if size < _LARGE:
        return np.empty(shape, dtype)
    memory = np.empty(size + _CACHE_LINE, np.uint8)
    start = -memory.__array_interface__["data"][0] % _CACHE_LINE
    return memory[start : start + size].view(dtype).reshape(shape)


def array_maker(shape: tuple[int, ...], dtype: Any) -> Callable[[], Any]:
    """A function that makes arrays as `empty_array` does."""
    is_large = math.prod(shape) * np.dtype(dtype).itemsize >= _LARGE
    return functools.partial(empty_array if is_large else np.empty, shape, dtype)


class HostBuffer:
    """Host memory on a cache line boundary; freed with the object.

    Raises:
        OutOfMemoryError: there is no memory for it.
    """

    __slots__ = ("_memory", "nbytes", "pointer")

    def __init__(self, nbytes: int) -> None:
        try:
            self._memory: Any = np.empty(nbytes + _CACHE_LINE, np.uint8)
        except (MemoryError, ValueError) as error:  # ValueError if nbytes exceeds any address.
            raise OutOfMemoryError(
                "host memory",
                expected=f"{nbytes} bytes",
                got=str(error),
                hint="take smaller tensors",
            ) from error
        address = self._memory.__array_interface__["data"][0]
        self.pointer: int = -(-address // _CACHE_LINE) * _CACHE_LINE
        self.nbytes = nbytes


# Each thread keeps one buffer between its runs. New memory would cost page faults in every run;
# the kept pages also lie near the cores of the OpenMP threads that first used them.
_idle = threading.local()
_MOST_IDLE_BYTES = 4 << 20


def borrow(nbytes: int) -> HostBuffer:
    """Scratch memory of at least `nbytes` bytes for one run, to be given back after it.

    Raises:
        OutOfMemoryError: there is no memory for it.
    """
    # The kept buffer is removed while it is borrowed: a signal handler may run a product in the
    # middle of this thread's run, and must not get the same memory.
    buffer: HostBuffer | None = _idle.__dict__.pop("buffer", None)
    return buffer if buffer is not None and buffer.nbytes >= nbytes else HostBuffer(nbytes)


def give_back(buffer: HostBuffer) -> None:
    """Keeps the buffer for the next run of this thread, unless it is large."""
    if buffer.nbytes <= _MOST_IDLE_BYTES:
        _idle.buffer = buffer


def host_threads(framework: str) -> int:
    """The number of threads of a host run whose first tensor is of `framework`: torch's own number
    for torch tensors, else `thread_count`."""
    torch = sys.modules.get("torch") if framework == "torch" else None
    return thread_count() if torch is None else int(torch.get_num_threads())


def thread_counter(framework: str) -> Callable[[], int]:
    """The function that counts these threads."""
    torch = sys.modules.get("torch") if framework == "torch" else None
    return thread_count if torch is None else torch.get_num_threads


def most_threads() -> int:
    """The largest number of threads of any host run: the larger of `thread_count` and, if torch is
    imported, torch's number."""
    return max(host_threads("torch"), thread_count())
