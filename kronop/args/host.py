"""The host as a device: threads and workspaces."""

from __future__ import annotations

import functools
import math
import os
import sys
import threading
from typing import Any

import numpy as np

from kronop.cpus import cpu_count
from kronop.errors import OutOfMemoryError, mismatch

_CACHE_LINE = 64
_LARGE = 1 << 20


@functools.cache
def thread_count() -> int:
    """Threads that a host kernel may use; asked once, as OpenMP does.

    OMP_NUM_THREADS where it holds a number (of a list, the first), else the CPUs that this
    process may use.
    """
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if first.isdecimal() and int(first) > 0:
        return int(first)
    return cpu_count()


def empty_array(shape: tuple[int, ...], dtype: Any) -> Any:
    """As np.empty; large ones begin on a cache line, which kernels then write as a whole.

    NOTE: NumPy's own begin 16 bytes after a page.
    """
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    if size < _LARGE:
        return np.empty(shape, dtype)
    memory = np.empty(size + _CACHE_LINE, np.uint8)
    start = -memory.__array_interface__["data"][0] % _CACHE_LINE
    return memory[start : start + size].view(dtype).reshape(shape)


class HostBuffer:
    """Host memory on a cache line boundary; freed with the object.

    Raises:
        OutOfMemoryError: no memory for it.
    """

    __slots__ = ("_memory", "nbytes", "pointer")

    def __init__(self, nbytes: int) -> None:
        try:
            self._memory: Any = np.empty(nbytes + _CACHE_LINE, np.uint8)
        except (MemoryError, ValueError) as error:  # The second one beyond every address.
            raise OutOfMemoryError(
                mismatch(
                    "host memory",
                    expected=f"{nbytes} bytes",
                    got=str(error),
                    hint="take smaller tensors",
                )
            ) from error
        address = self._memory.__array_interface__["data"][0]
        self.pointer: int = -(-address // _CACHE_LINE) * _CACHE_LINE
        self.nbytes = nbytes


# The buffer of each thread, where no run of its uses it. Fresh memory costs its pages anew in every
# run; what a thread keeps, the same OpenMP threads use again, near whose cores its pages lie.
_idle = threading.local()
_MOST_IDLE_BYTES = 4 << 20


def borrow(nbytes: int) -> HostBuffer:
    """Scratch memory of at least `nbytes` bytes for one run, to be given back after it.

    Raises:
        OutOfMemoryError: no memory for it.
    """
    # Taken out meanwhile: a signal's handler may run a product in the middle of another.
    buffer: HostBuffer | None = _idle.__dict__.pop("buffer", None)
    return buffer if buffer is not None and buffer.nbytes >= nbytes else HostBuffer(nbytes)


def give_back(buffer: HostBuffer) -> None:
    """Keeps the buffer for the next run of this thread, unless it is large."""
    if buffer.nbytes <= _MOST_IDLE_BYTES:
        _idle.buffer = buffer


def host_threads(framework: str) -> int:
    """Threads of a host run whose leading tensor is of `framework`: as many as torch takes for its
    own work, else as many as OpenMP."""
    torch = sys.modules.get("torch") if framework == "torch" else None
    return thread_count() if torch is None else int(torch.get_num_threads())


def most_threads() -> int:
    """Threads of a host run at most, whatever the tensors: the larger of torch's (where it is
    imported) and OpenMP's."""
    return max(host_threads("torch"), thread_count())
