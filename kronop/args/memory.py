"""kronop's own device memory: a pool for each GPU, and buffers that several streams may use.

Workspaces and staged copies come from these pools; results come from the caller's framework.
kronop never installs itself as the allocator of torch or CuPy.
"""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Iterator
from typing import Any, Protocol

from kronop.args.device import check, cuda_driver, current, default_device
from kronop.cuda_line import cuda_extra
from kronop.errors import (
    ArgumentError,
    DeviceError,
    ElementTypeError,
    KronopError,
    OutOfMemoryError,
    warn,
)
from kronop.late import imported, module_lock

_GRANULE = 256  # RMM requires the sizes of a pool to be multiples of 256 bytes.
_PER_THREAD_STREAM = 2  # CU_STREAM_PER_THREAD: this handle means another stream in each thread.
_log = logging.getLogger("kronop")


class Pool(Protocol):
    """Memory of one GPU, ordered on one stream that lives as long as the pool."""

    device: int
    stream: Any
    resource: Any

    def allocate(self, nbytes: int) -> int: ...

    def free(self, pointer: int, nbytes: int) -> None: ...

    def in_use(self) -> int: ...


class RmmPool:
    """RMM's pool over cudaMalloc, with RMM's statistics."""

    def __init__(self, device: int, initial: int, maximum: int | None) -> None:
        mr = imported("rmm.mr")

        self.device = device
        self.stream = _new_stream(imported("cuda.core").Device(device))
        self._stream = imported("rmm.pylibrmm.stream").Stream(self.stream)
        pool = mr.PoolMemoryResource(mr.CudaMemoryResource(), initial, maximum)
        self.resource = mr.StatisticsResourceAdaptor(pool)

    def allocate(self, nbytes: int) -> int:
        return int(self.resource.allocate(nbytes, self._stream))

    def free(self, pointer: int, nbytes: int) -> None:
        self.resource.deallocate(pointer, nbytes, self._stream)

    def in_use(self) -> int:
        return int(self.resource.allocation_counts.current_bytes)


class CorePool:
    """The driver's stream-ordered pool through cuda-core; the bytes in use are counted here."""

    def __init__(self, device: int, initial: int, maximum: int | None) -> None:
        core = imported("cuda.core")

        self.device = device
        self.stream = _new_stream(core.Device(device))
        options = None if maximum is None else core.DeviceMemoryResourceOptions(max_size=maximum)
        self.resource = core.DeviceMemoryResource(device, options)
        self._buffers: dict[int, Any] = {}
        if initial:
            self.free(self.allocate(initial), initial)  # The pool keeps freed memory for later.

    def allocate(self, nbytes: int) -> int:
        buffer = self.resource.allocate(nbytes, stream=self.stream)
        pointer = int(buffer.handle)
        self._buffers[pointer] = buffer
        return pointer

    def free(self, pointer: int, nbytes: int) -> None:
        self._buffers.pop(pointer).close(self.stream)

    def in_use(self) -> int:
        return sum(int(buffer.size) for buffer in list(self._buffers.values()))


def _new_stream(device: Any) -> Any:
    # cuda-core requires its own `set_current` in each thread, even for a device that is current.
    device.set_current()
    return device.create_stream()


_pools: dict[int, Pool] = {}
_all_pools: weakref.WeakSet[Any] = weakref.WeakSet()
# Buffers that a CUDA graph has captured: never freed, since the graph may be replayed at any time.
_captured: list[DeviceBuffer] = []
# Reentrant, because garbage collection may free a buffer while this thread holds the lock.
_lock = module_lock()
_told = False


def get_memory_pool(init_pool_size: int = 0, max_pool_size: int = 2**34) -> Any:
    """Gives the current GPU a new pool and returns its memory resource.

    Without a GPU it warns and returns None: PyCUTLASS's programs call it first, and then run on a
    CPU as well.

    With RMM it is a StatisticsResourceAdaptor over a PoolMemoryResource over CudaMemoryResource;
    without RMM it is cuda-core's DeviceMemoryResource. Buffers of an earlier pool stay valid.

    Args:
        init_pool_size: bytes that the pool allocates at once.
        max_pool_size: the most bytes that it may hold. Both sizes are rounded up to a multiple of
            256.

    Returns:
        The memory resource, of RMM or of cuda-core; None without a GPU.

    Raises:
        ElementTypeError: a size is not an integer.
        ArgumentError: a size is negative, `max_pool_size` is 0, or `init_pool_size` exceeds it.
        OutOfMemoryError: the GPU has less than `init_pool_size` free.

    Example:
        >>> # The second call is refused everywhere.
        >>> resource = kronop.get_memory_pool(2**28, 2**32)  # doctest: +SKIP
        >>> kronop.get_memory_pool(2**32, 2**28)
        Traceback (most recent call last):
            ...
        kronop.errors.ArgumentError: pool sizes: expected 0 <= init_pool_size <= max_pool_size, ...
    """
    for name, value in (("init_pool_size", init_pool_size), ("max_pool_size", max_pool_size)):
        if not isinstance(value, int) or isinstance(value, bool):
            raise ElementTypeError(
                name, expected="bytes as int", got=repr(value), hint="pass an integer"
            )
    if not 0 <= init_pool_size <= max_pool_size or not max_pool_size:
        raise ArgumentError(
            "pool sizes",
            expected="0 <= init_pool_size <= max_pool_size, max_pool_size > 0",
            got=f"{init_pool_size} and {max_pool_size}",
            hint="give sizes in bytes",
        )
    sizes = [-(-size // _GRANULE) * _GRANULE for size in (init_pool_size, max_pool_size)]
    try:
        cuda_driver("operations for x86 need no pool")
    except DeviceError as error:
        warn(f"no pool of device memory: {error}")
        return None
    index = default_device().index
    with _lock, _out_of_memory(index, sizes[0], None):
        _pools[index] = _make_pool(index, sizes[0], sizes[1])
        return _pools[index].resource


def get_allocated_size() -> int:
    """Bytes of device memory in use from kronop's pools, over all GPUs; 0 where there is none.

    Example:
        >>> before = kronop.get_allocated_size()
        >>> y = kronop.gemkm(np.ones((4, 64), np.float32), [np.eye(8, dtype=np.float32)] * 2)
        >>> kronop.get_allocated_size() == before  # NumPy arrays take no memory of a GPU
        True
    """
    with _lock:
        return sum(pool.in_use() for pool in _all_pools)


def _make_pool(index: int, initial: int, maximum: int | None) -> Pool:
    global _told
    kind: type[RmmPool] | type[CorePool] = RmmPool
    try:
        imported("rmm.mr")
    except ImportError:
        kind = CorePool
        if not _told:
            _log.warning(
                "RMM is not installed: device memory comes from cuda-core"
                f" (pip install rmm-{cuda_extra().replace('cuda', 'cu')})"
            )
            _told = True
    with current(index):
        pool = kind(index, initial, maximum)
    _all_pools.add(pool)
    return pool


def _pool(index: int) -> Pool:
    with _lock:
        if index not in _pools:
            _pools[index] = _make_pool(index, 0, None)
        return _pools[index]


@contextlib.contextmanager
def _out_of_memory(index: int, nbytes: int, pool: Pool | None) -> Iterator[None]:
    """Turns the libraries' various out-of-memory errors into OutOfMemoryError with the sizes, and
    their other exceptions into DeviceError."""
    try:
        yield
    except KronopError:
        raise
    except Exception as error:
        if not isinstance(error, MemoryError) and "OUT_OF_MEMORY" not in str(error):
            raise DeviceError(
                f"memory of cuda:{index}",
                expected=f"{nbytes} bytes",
                got=str(error),
                hint="check the sizes of the pool and the state of the GPU",
            ) from error
        with current(index):
            free, total = check(cuda_driver().cuMemGetInfo(), "asking for free memory", many=True)
        used = pool.in_use() if pool else get_allocated_size()
        raise OutOfMemoryError(
            f"memory of cuda:{index}",
            expected=f"room for {nbytes} bytes",
            got=f"{free} bytes free of {total}, {used} in use through kronop",
            hint="free tensors, raise max_pool_size, or take smaller problems",
        ) from error


@contextlib.contextmanager
def _relaxed_capture() -> Iterator[None]:
    """Allows allocation while another stream of this thread is being captured into a graph."""
    driver = cuda_driver()
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    doing = "exchanging the capture mode"
    before = check(driver.cuThreadExchangeStreamCaptureMode(relaxed), doing)
    try:
        yield
    finally:
        check(driver.cuThreadExchangeStreamCaptureMode(before), doing)


def _is_capturing(stream: int) -> bool:
    found = cuda_driver().cuStreamIsCapturing(stream)
    return bool(int(check(found, "asking whether a stream is captured")))


class DeviceBuffer:
    """Stream-ordered device memory, freed with the object.

    The memory is allocated and freed in the order of the pool's own stream, which outlives every
    stream of a caller. The first use waits for the allocation, a use on another stream waits for
    the use before it, and the memory is given back only after all uses that `used_on` recorded.
    Callers call `ready_on` before a use and `used_on` after it, and see to it that two threads
    never use the memory at once.

    Args:
        nbytes: size in bytes; at least 1 byte is allocated.
        device: index of the GPU.
        stream: handle of the stream that will use it first; None if it is not known yet.

    Raises:
        DeviceError: there is no GPU.
        OutOfMemoryError: there is no room; the message gives the bytes asked for, free and in use.
    """

    def __init__(self, nbytes: int, device: int, stream: int | None = None) -> None:
        self.nbytes = max(nbytes, 1)
        self.device = device
        cuda_driver()
        pool = _pool(device)
        with current(device), _relaxed_capture():
            with _out_of_memory(device, self.nbytes, pool):
                self.pointer: int = pool.allocate(self.nbytes)
            self._uses: dict[int, Any] = {}
            self._free = weakref.finalize(
                self, _release_unseen, pool, self.pointer, self.nbytes, self._uses
            )
            self._free.atexit = False  # The driver frees everything when the process ends.
            self._latest = pool.stream.record()  # Event after the latest use or the allocation.
        self._ordered: int | None = None  # A stream that already waits for that event.
        if stream is not None:
            self.ready_on(stream)

    def ready_on(self, stream: int) -> None:
        """Makes `stream` wait for the latest use on another stream; costs nothing on the same one.

        A stream that is being captured cannot wait for work outside its graph. This thread waits
        for that work instead, and the caller has to order the replays of the graph.
        """
        # NOTE: a new stream may get the handle of a destroyed one. The driver frees a stream only
        # when its work is done (cuStreamDestroy), so the work under the old handle has ended.
        if stream == self._ordered and stream != _PER_THREAD_STREAM:
            return
        driver = cuda_driver()
        with current(self.device):
            if _is_capturing(stream):
                with _relaxed_capture():
                    self._latest.sync()
            else:
                doing = "waiting for device memory"
                check(driver.cuStreamWaitEvent(stream, int(self._latest.handle), 0), doing)
        self._ordered = stream

    def used_on(self, stream: int) -> None:
        """Records that the work given to `stream` so far may use the memory.

        If the stream is being captured, the memory is kept until the process ends instead, because
        the graph may be replayed at any time.
        """
        driver = cuda_driver()
        with current(self.device):
            if _is_capturing(stream):
                if self not in _captured:
                    _captured.append(self)
                return
            event = self._uses.get(stream)
            if event is None:
                event = self._uses[stream] = _new_event(self.device)
            recorded = driver.cuEventRecord(int(event.handle), stream)
            check(recorded, "recording the use of device memory")
        self._latest, self._ordered = event, stream

    def close(self) -> None:
        """Gives the memory back now, to be reused after its recorded uses have ended.

        Raises:
            DeviceError: the driver refuses, for example after a failed kernel.
        """
        detached = self._free.detach()
        if detached is not None:
            _release(*detached[2])


def _new_event(index: int) -> Any:
    device = imported("cuda.core").Device(index)
    driver = cuda_driver()
    before = check(driver.cuCtxGetCurrent(), "asking for the current context")
    device.set_current()  # As in `_new_stream`: cuda-core requires it in each thread.
    try:
        return device.create_event()
    finally:
        check(driver.cuCtxSetCurrent(before), "restoring the current context")


def _release_unseen(pool: Pool, pointer: int, nbytes: int, uses: dict[int, Any]) -> None:
    # Nobody can catch an exception of a finalizer. After a failed kernel every driver call fails;
    # a synchronisation reports that failure, and the memory is freed when the process ends.
    try:
        _release(pool, pointer, nbytes, uses)
    except Exception as error:
        _log.warning("%d bytes of cuda:%d were not given back: %s", nbytes, pool.device, error)


def _release(pool: Pool, pointer: int, nbytes: int, uses: dict[int, Any]) -> None:
    driver = cuda_driver()
    with current(pool.device), _relaxed_capture():
        for event in uses.values():
            waits = driver.cuStreamWaitEvent(int(pool.stream.handle), int(event.handle), 0)
            check(waits, "freeing device memory")
        pool.free(pointer, nbytes)
