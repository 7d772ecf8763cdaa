"""A double of the driver and of a pool: "device" memory is host memory, calls are recorded."""

from __future__ import annotations

import ctypes
import gc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kronop.args import device, memory
from kronop.target import Target


class Status(int):
    name = "CUDA_SUCCESS"


class Failure(int):
    name = "CUDA_ERROR_UNKNOWN"


OK = Status(0)


class Driver:
    """Copies happen at once; those to the host appear only when a stream is waited for."""

    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2)
    CUpointer_attribute = SimpleNamespace(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL=9)
    CUdevice_attribute = SimpleNamespace(
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR=0,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR=1,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN=2,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT=3,
        CU_DEVICE_ATTRIBUTE_CLOCK_RATE=4,
        CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH=5,
        CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE=6,
        CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE=7,
    )

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.abilities = (9, 0, 227 * 1024)  # Compute capability, shared memory of a block.
        # Multiprocessors, clock in kHz, bits of memory and its clock in kHz, level-2 cache: those
        # of the table if None.
        self.card: tuple[int, ...] | None = None
        self.capturing: set[int] = set()
        self._pending: list[tuple[int, int, int]] = []

    def cuCtxGetCurrent(self) -> Any:
        return OK, 1

    def cuCtxGetDevice(self) -> Any:
        return OK, 0

    def cuPointerGetAttribute(self, attribute: int, pointer: int) -> Any:
        return OK, 0

    def cuDeviceGet(self, index: int) -> Any:
        return OK, index

    def cuDeviceGetAttribute(self, attribute: int, handle: int) -> Any:
        typical = Target.of_capability(*self.abilities[:2])
        gpu = typical.gpu
        bandwidth = round(gpu.bandwidth / device.COPIED_SHARE / 2e3)
        of_table = (typical.cores, round(gpu.hertz / 1e3), 8, bandwidth, gpu.level_2_bytes)
        return OK, (*self.abilities, *(self.card or of_table))[attribute]

    def cuDeviceGetName(self, length: int, handle: int) -> Any:
        return OK, b"A card\0"

    def cuMemGetInfo(self) -> Any:
        return OK, 1000, 2000

    def cuThreadExchangeStreamCaptureMode(self, mode: int) -> Any:
        return OK, 0

    def cuStreamIsCapturing(self, stream: int) -> Any:
        return OK, int(stream in self.capturing)

    def cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> Any:
        self.log.append(("wait", stream, event))
        return (OK,)

    def cuEventRecord(self, event: int, stream: int) -> Any:
        self.log.append(("record", event, stream))
        return (OK,)

    def cuMemcpyHtoDAsync(self, to: int, of: int, nbytes: int, stream: int) -> Any:
        self.log.append(("upload", nbytes, stream))
        ctypes.memmove(to, of, nbytes)
        return (OK,)

    def cuMemcpyDtoHAsync(self, to: int, of: int, nbytes: int, stream: int) -> Any:
        self.log.append(("download", nbytes, stream))
        self._pending.append((to, of, nbytes))
        return (OK,)

    def cuStreamSynchronize(self, stream: int) -> Any:
        self.log.append(("sync", stream))
        for to, of, nbytes in self._pending:
            ctypes.memmove(to, of, nbytes)
        self._pending.clear()
        return (OK,)


class Event:
    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.waited = False

    def sync(self) -> None:
        self.waited = True


class Pool:
    """Memory of the only GPU; `limit` bytes of it."""

    limit = 1 << 24

    def __init__(self, index: int, initial: int, maximum: int | None) -> None:
        self.device, self.sizes = index, (initial, maximum)
        self.stream = SimpleNamespace(handle=900, record=lambda: Event(901))
        self.resource = self
        self.blocks: dict[int, Any] = {}
        if initial > self.limit:
            raise MemoryError("std::bad_alloc: out_of_memory")

    def allocate(self, nbytes: int) -> int:
        if nbytes > self.limit:
            raise MemoryError("std::bad_alloc: out_of_memory")
        block = np.full(nbytes + 256, 0x7F, np.uint8)
        pointer = -(-block.ctypes.data // 256) * 256
        self.blocks[pointer] = (block, nbytes)
        return pointer

    def free(self, pointer: int, nbytes: int) -> None:
        assert self.blocks.pop(pointer)[1] == nbytes

    def in_use(self) -> int:
        return sum(nbytes for _, nbytes in self.blocks.values())


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    driver = Driver()
    events = iter(range(1, 1000))
    monkeypatch.setattr(device, "_probe", lambda: (driver, ""))
    monkeypatch.setattr(memory, "RmmPool", Pool)
    monkeypatch.setattr(memory, "CorePool", Pool)
    monkeypatch.setattr(memory, "_pools", {})
    monkeypatch.setattr(memory, "_all_pools", type(memory._all_pools)())
    monkeypatch.setattr(memory, "_captured", [])
    monkeypatch.setattr(memory, "_told", False)
    monkeypatch.setattr(memory, "_new_event", lambda index: Event(next(events)))
    forget_gpus()
    yield driver
    gc.collect()  # What a test leaves in cycles is freed by this driver, not by the next one.
    forget_gpus()


def forget_gpus() -> None:
    """What is known of GPUs is asked again."""
    for known in (device._served, device.card_of, device.runs_on):
        known.cache_clear()
