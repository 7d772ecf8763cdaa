"""Lanes: streams of kronop's own with handles of cuSOLVER and cuBLAS that are bound to them.

A handle has scratch memory, so that two streams must not use it at once, nor two threads. Here each
handle works on one stream for ever, and one thread at a time has it: the stream then puts all uses
in order. Work forks from the caller's stream and joins it by events. Nothing waits on the host.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from kronop.args.device import check, cuda_driver
from kronop.args.host import HostBuffer
from kronop.late import module_lock
from kronop.linalg.library import Library

_READY = 0  # CUDA_SUCCESS


class Lane:
    """One stream of a GPU and its handles. Its GPU has to be current.

    Attributes:
        stream: the handle of the stream.
        solver, parameters: cuSOLVER's handle, and the options that its 64-bit functions take.
        blas: cuBLAS's handle.
    """

    def __init__(self, library: Library) -> None:
        driver = cuda_driver()
        doing = "making a stream for linear algebra"
        self.stream = int(check(driver.cuStreamCreate(_NON_BLOCKING), doing))
        self._start, self._done = (
            check(driver.cuEventCreate(_WITHOUT_TIME), doing) for _ in range(2)
        )
        self._held: list[HostBuffer] = []
        with library.errors("making handles of cuSOLVER and cuBLAS"):
            self.solver: int = library.solver.create()
            self.parameters: int = library.solver.create_params()
            self.blas: int = library.blas.create()
            library.solver.set_stream(self.solver, self.stream)
            library.blas.set_stream(self.blas, self.stream)

    def fork(self, stream: int) -> None:
        """Lets the lane's work wait for what the caller's stream has been given so far."""
        driver, doing = cuda_driver(), "forking from the caller's stream"
        check(driver.cuEventRecord(self._start, stream), doing)
        check(driver.cuStreamWaitEvent(self.stream, self._start, 0), doing)

    def join(self, stream: int) -> None:
        """Lets the caller's stream wait for the lane's work."""
        driver, doing = cuda_driver(), "joining the caller's stream"
        check(driver.cuEventRecord(self._done, self.stream), doing)
        check(driver.cuStreamWaitEvent(stream, self._done, 0), doing)

    def host_memory(self, nbytes: int) -> int:
        """The address of new host memory, which stays until the lane's work has ended."""
        if not nbytes:
            return 0
        buffer = HostBuffer(nbytes)
        self._held.append(buffer)
        return buffer.pointer

    def release_host_memory(self) -> None:
        """Gives up host memory if the work given so far has ended; asks, but does not wait."""
        if self._held and int(cuda_driver().cuEventQuery(self._done)[0]) == _READY:
            self._held.clear()


_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: it does not wait for the legacy default stream.
_WITHOUT_TIME = 2  # CU_EVENT_DISABLE_TIMING
_idle: dict[int, list[Lane]] = {}
_lock = module_lock()


@contextlib.contextmanager
def borrowed(library: Library, device: int, count: int) -> Iterator[list[Lane]]:
    """`count` lanes that no other thread has meanwhile. They are kept while the process lives."""
    with _lock:
        idle = _idle.setdefault(device, [])
        lanes = [idle.pop() for _ in range(min(count, len(idle)))]
    try:
        while len(lanes) < count:
            lanes.append(Lane(library))
        for lane in lanes:
            lane.release_host_memory()
        yield lanes
    finally:
        with _lock:
            _idle[device].extend(lanes)


@contextlib.contextmanager
def forked(lanes: list[Lane], stream: int) -> Iterator[None]:
    """Lanes that work between the caller's work before and after this block.

    They join even if a call fails: what was launched before it may still use the tensors.
    """
    for lane in lanes:
        lane.fork(stream)
    try:
        yield
    finally:
        for lane in lanes:
            lane.join(stream)
