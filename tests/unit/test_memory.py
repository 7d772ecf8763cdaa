"""The pool's sizes and errors, and buffers that several streams use; on a double of the driver."""

from __future__ import annotations

import gc
import logging
from typing import Any

import pytest

from kronop import compiler
from kronop.args import memory
from kronop.args.device import device_cc
from kronop.args.memory import DeviceBuffer, get_allocated_size, get_memory_pool
from kronop.errors import (
    ArgumentError,
    DeviceError,
    ElementTypeError,
    KronopError,
    OutOfMemoryError,
)
from tests.unit.gpu_double import Driver, Pool, gpu

__all__ = ["gpu"]


@pytest.mark.parametrize(
    ("sizes", "error"),
    [
        ((-1, 10), ArgumentError),
        ((10, 5), ArgumentError),
        ((0, 0), ArgumentError),
        ((1.0, 2), ElementTypeError),
        ((0, "1"), ElementTypeError),
        ((True, 2), ElementTypeError),
    ],
)
def test_wrong_sizes_are_refused_even_without_a_gpu(sizes: Any, error: type[KronopError]) -> None:
    with pytest.raises(error):
        get_memory_pool(*sizes)


def test_without_a_gpu_a_pool_is_a_warning() -> None:
    if compiler.cuda_devices():
        pytest.skip("this machine has a GPU")
    with pytest.warns(RuntimeWarning, match=r"no pool .*NVIDIA.* x86 need no pool"):
        assert get_memory_pool(0, 1 << 20) is None
    with pytest.raises(DeviceError, match="NVIDIA"):
        DeviceBuffer(16, 0)
    with pytest.raises(DeviceError, match="NVIDIA"):
        device_cc()
    assert get_allocated_size() == 0


def test_a_gpu_tells_its_compute_capability(gpu: Driver) -> None:
    assert device_cc() == 90


def test_sizes_are_rounded_and_counted(gpu: Driver) -> None:
    pool = get_memory_pool(1000, 5000)
    assert pool.sizes == (1024, 5120)
    buffer = DeviceBuffer(100, 0, 0)
    other = DeviceBuffer(50, 0)
    assert get_allocated_size() == 150
    replaced = get_memory_pool(0, 4096)
    third = DeviceBuffer(7, 0)
    assert (replaced.in_use(), get_allocated_size()) == (7, 157)
    buffer.close()
    buffer.close()
    del other, third
    gc.collect()
    assert (get_allocated_size(), pool.in_use()) == (0, 0)


def test_a_missing_rmm_is_told_once(gpu: Driver, caplog: pytest.LogCaptureFixture) -> None:
    try:
        import rmm  # noqa: F401
    except ImportError:
        pass
    else:
        pytest.skip("RMM is installed")
    with caplog.at_level(logging.WARNING, "kronop"):
        get_memory_pool(0, 4096)
        get_memory_pool(0, 4096)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "RMM" in caplog.text


def test_running_out_names_the_sizes_and_leaves_the_library_usable(gpu: Driver) -> None:
    kept = DeviceBuffer(300, 0)
    with pytest.raises(
        OutOfMemoryError, match=rf"{Pool.limit + 1} bytes, got 1000 bytes free of 2000, 300 in use"
    ):
        DeviceBuffer(Pool.limit + 1, 0)
    with pytest.raises(OutOfMemoryError, match="cuda:0"):
        get_memory_pool(Pool.limit + 1, Pool.limit * 4)
    assert isinstance(OutOfMemoryError(), MemoryError)
    assert DeviceBuffer(64, 0).pointer % 256 == 0
    assert kept.nbytes == 300


def test_other_failures_are_device_errors(gpu: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any, nbytes: int) -> int:
        raise RuntimeError("CUDA_ERROR_INVALID_VALUE")

    monkeypatch.setattr(Pool, "allocate", fail)
    with pytest.raises(DeviceError, match="CUDA_ERROR_INVALID_VALUE"):
        DeviceBuffer(16, 0)


def _use(buffer: DeviceBuffer, *streams: int) -> None:
    for stream in streams:
        buffer.ready_on(stream)
        buffer.used_on(stream)


def test_the_first_use_waits_for_the_allocation_and_others_for_the_last_on_another_stream(
    gpu: Driver,
) -> None:
    buffer = DeviceBuffer(16, 0, 5)
    _use(buffer, 5, 5, 6, 6, 7, 5)
    assert [entry for entry in gpu.log if entry[0] == "wait"] == [
        ("wait", 5, 901),
        ("wait", 6, 1),
        ("wait", 7, 2),
        ("wait", 5, 3),
    ]


def test_the_stream_of_each_thread_is_never_taken_for_the_same(gpu: Driver) -> None:
    buffer = DeviceBuffer(16, 0)
    _use(buffer, 2, 2)
    waits = [entry for entry in gpu.log if entry[0] == "wait"]
    assert waits == [("wait", 2, 901), ("wait", 2, 1)]


def test_a_use_that_failed_to_start_orders_nothing_later(gpu: Driver) -> None:
    buffer = DeviceBuffer(16, 0)
    _use(buffer, 5)
    buffer.ready_on(6)  # Nothing was launched after all.
    _use(buffer, 5, 6)
    waits = [entry for entry in gpu.log if entry[0] == "wait"]
    assert waits == [("wait", 5, 901), ("wait", 6, 1), ("wait", 5, 1), ("wait", 6, 1)]


def test_a_capture_waits_for_earlier_uses_by_itself(gpu: Driver) -> None:
    buffer = DeviceBuffer(16, 0)
    _use(buffer, 5)
    gpu.log.clear()
    gpu.capturing = {7}
    _use(buffer, 7)
    assert gpu.log == []
    assert buffer._latest.waited
    _use(buffer, 5)
    assert gpu.log == [("wait", 5, 1), ("record", 1, 5)]


def test_memory_is_given_back_after_the_last_use_of_every_stream(gpu: Driver) -> None:
    buffer = DeviceBuffer(16, 0, 5)
    _use(buffer, 5, 6, 5)
    records = [entry for entry in gpu.log if entry[0] == "record"]
    assert records == [("record", 1, 5), ("record", 2, 6), ("record", 1, 5)]
    gpu.log.clear()
    del buffer
    gc.collect()
    assert gpu.log == [("wait", 900, 1), ("wait", 900, 2)]
    assert get_allocated_size() == 0


def test_captured_memory_outlives_its_arguments(gpu: Driver) -> None:
    gpu.capturing = {7}
    buffer = DeviceBuffer(16, 0, 7)
    assert gpu.log == []  # A captured stream may not wait for another one.
    buffer.used_on(7)
    buffer.used_on(7)
    del buffer
    gc.collect()
    assert len(memory._captured) == 1
    assert get_allocated_size() == 16


def test_a_refusing_driver_is_told_to_callers_and_logged_by_finalizers(
    gpu: Driver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: Any, pointer: int, nbytes: int) -> None:
        raise DeviceError("the context is gone")

    closed, lost = DeviceBuffer(16, 0), DeviceBuffer(48, 0)
    monkeypatch.setattr(Pool, "free", fail)
    with pytest.raises(DeviceError, match="the context is gone"):
        closed.close()
    with caplog.at_level(logging.WARNING, "kronop"):
        del lost, closed
        gc.collect()
    messages = [record.getMessage() for record in caplog.records]
    assert [text for text in messages if "given back" in text] == [
        "48 bytes of cuda:0 were not given back: the context is gone"
    ]
