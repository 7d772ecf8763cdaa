"""Arguments on a real GPU: torch, CuPy, DLPack, streams, staging, memory; the kernel is a copy."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

from kronop.args import device, memory, stream
from kronop.args.memory import DeviceBuffer, get_allocated_size, get_memory_pool
from kronop.args.tensor import describe, empty, view
from kronop.args.view import Device
from kronop.descriptions.datatype import bfloat16, float32, float64
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import ArgumentError, OutOfMemoryError
from kronop.families.kron.arguments import KronMatmulArguments
from kronop.families.ksparse.arguments import KSparseArguments
from tests.unit.args_double import OperationDouble, kron, ksparse

pytestmark = pytest.mark.cuda
FACTORS = ((2, 2), (3, 3))


def _torch() -> Any:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA")
    return torch


def _target() -> str:
    return device.target_of_device(device.default_device())


def test_names_are_text() -> None:
    assert device.name_of_device(0).isprintable()


class CopyOperation(OperationDouble):
    """Its kernel copies contiguous X to Y on its stream: enough to see order and places."""

    def bind(self, launch: Any, index: int) -> Any:
        problem = self.problems[-1]
        driver = device.cuda_driver()
        columns = self.description.input_columns
        nbytes = problem.rows * columns * self.description.X.element.bytes

        def launcher(handle: int) -> None:
            self.streams.append(handle)
            with device.current(index):
                device.check(
                    driver.cuMemcpyDtoDAsync(problem.y.pointer, problem.x.pointer, nbytes, handle),
                    "copying",
                )

        return launcher


def _operation(workspace: int = 0) -> CopyOperation:
    return CopyOperation(kron(FACTORS), _target(), workspace)


def test_host_tensors_go_to_the_gpu_and_come_back() -> None:
    before = get_allocated_size()
    operation = _operation(workspace=1000)
    x = np.random.default_rng(0).standard_normal((5, 12))[::2]
    y = np.full((6, 3), np.nan).reshape(3, 6)
    arguments = KronMatmulArguments(
        operation=operation, X=x[:, ::2], factors=[np.eye(2), np.eye(3)], Y=y
    )
    for shift in (0.0, 1.0):
        x[...] += shift
        arguments.run(operation)
        arguments.sync()
        np.testing.assert_array_equal(y, x[:, ::2])
    assert get_allocated_size() > before + 1000
    del arguments, operation
    gc.collect()
    assert get_allocated_size() == before


def test_host_torch_tensors_too() -> None:
    torch = _torch()
    operation = _operation()
    x = torch.randn(4, 6, dtype=torch.float64)
    factors = [torch.eye(2, dtype=torch.float64), torch.eye(3, dtype=torch.float64)]
    arguments = KronMatmulArguments(operation=operation, X=x, factors=factors)
    arguments.run(operation)
    arguments.sync()
    assert arguments.Y.device.type == "cpu"
    assert torch.equal(arguments.Y, x)


def test_torch_tensors_stay_and_its_current_stream_is_used() -> None:
    torch = _torch()
    operation = _operation(workspace=256)
    x = torch.randn(4, 6, dtype=torch.float64, device="cuda")
    factors = [
        torch.eye(2, dtype=torch.float64, device="cuda"),
        torch.eye(3, dtype=torch.float64, device="cuda"),
    ]
    arguments = KronMatmulArguments(operation=operation, X=x, factors=factors)
    arguments.run(operation)
    assert operation.problems[0].x.pointer == x.data_ptr()
    assert operation.problems[0].y.pointer == arguments.Y.data_ptr()
    assert operation.streams == [torch.cuda.current_stream().cuda_stream]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        arguments.run(operation)
    arguments.run(operation, stream=side)
    arguments.run(operation, stream=side.cuda_stream)
    assert operation.streams[1:] == [side.cuda_stream] * 3
    arguments.sync()
    assert torch.equal(arguments.Y, x)
    del arguments, operation
    gc.collect()


def test_scratch_on_two_streams_is_used_in_turn() -> None:
    torch = _torch()
    operation = _operation(workspace=1000)
    x = torch.randn(4, 6, dtype=torch.float64, device="cuda")
    eyes = [torch.eye(size, dtype=torch.float64, device="cuda") for size in (2, 3)]
    arguments = KronMatmulArguments(operation=operation, X=x, factors=eyes)
    slow, quick = torch.cuda.Stream(), torch.cuda.Stream()
    arguments.run(operation, stream=slow)  # The first one imports what manages memory.
    torch.cuda.synchronize()
    with torch.cuda.stream(slow):
        torch.cuda._sleep(100_000_000)
    arguments.run(operation, stream=slow)
    arguments.run(operation, stream=quick)
    assert not slow.query()
    quick.synchronize()
    assert slow.query()
    assert torch.equal(arguments.Y, x)


def test_the_work_of_an_exporter_is_waited_for() -> None:
    cupy = pytest.importorskip("cupy")
    torch = _torch()
    producer = torch.cuda.Stream()
    array = cupy.ones((2, 6))
    exported = OnlyInterface(array)
    torch.cuda.synchronize()
    with torch.cuda.stream(producer):
        torch.cuda._sleep(1_000_000_000)
    exported.__cuda_array_interface__ |= {"stream": producer.cuda_stream, "version": 3}
    assert not producer.query()
    assert view(exported, "X").pointer == array.data.ptr
    assert producer.query()


def test_torch_views_on_the_gpu() -> None:
    torch = _torch()
    tensor = torch.zeros(8, 16, dtype=torch.bfloat16, device="cuda").T
    item = view(tensor, "X")
    assert (item.pointer, item.strides, item.element) == (tensor.data_ptr(), (1, 16), bfloat16)
    assert (item.device, item.framework) == (Device("cuda", tensor.get_device()), "torch")
    assert describe(item, "X").alignment == 8
    assert device.target_of(item) == _target()
    new = empty(item, (3, 5), float32)
    assert (new.device, new.dtype, tuple(new.shape)) == (tensor.device, torch.float32, (3, 5))


def test_a_batch_that_no_stride_walks_is_copied_on_the_gpu() -> None:
    torch = _torch()
    operation = CopyOperation(ksparse((1, 6, 6, 1)), _target())
    x = torch.randn(3, 2, 6, dtype=torch.float64, device="cuda").transpose(0, 1)
    y = torch.full((3, 2, 6), torch.nan, dtype=torch.float64, device="cuda").transpose(0, 1)
    weights = torch.zeros(1, 6, 6, 1, dtype=torch.float64, device="cuda")
    arguments = KSparseArguments(operation=operation, X=x, W=weights, Y=y)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    arguments.run(operation, stream=side)
    arguments.sync()
    assert torch.equal(y, x)


def test_many_batch_dimensions_are_copied_on_the_gpu() -> None:
    torch = _torch()
    operation = CopyOperation(kron(FACTORS), _target())
    x = torch.randn(*(2, 4) * 3, 4, 6, dtype=torch.float64, device="cuda")[:, ::2, :, ::2, :, ::2]
    factors = [
        torch.ones(1, 2, 1, 2, 1, 2, 2, 2, dtype=torch.float64, device="cuda"),
        torch.ones(3, 3, dtype=torch.float64, device="cuda"),
    ]
    arguments = KronMatmulArguments(
        operation=operation, X=x[:, :, :, :, :, :, ::2], factors=factors
    )
    arguments.bind(operation)
    problem = operation.problems[0]
    assert problem.batch == (64,)
    assert (problem.rows, problem.x.batch, problem.x.row) == (2, (12,), 6)


def test_copies_on_the_gpu_are_in_the_order_of_the_default_stream() -> None:
    torch = _torch()
    operation = CopyOperation(ksparse((1, 6, 6, 1)), _target())
    x = torch.zeros(3, 2, 6, dtype=torch.float64, device="cuda").transpose(0, 1)
    y = torch.full((3, 2, 6), torch.nan, dtype=torch.float64, device="cuda").transpose(0, 1)
    weights = torch.zeros(1, 6, 6, 1, dtype=torch.float64, device="cuda")
    arguments = KSparseArguments(operation=operation, X=x, W=weights, Y=y)
    for value in range(1, 4):
        torch.cuda._sleep(20_000_000)  # Some 10 ms: what does not wait for it comes too early.
        x.fill_(value)
        arguments.run(operation)
        assert bool((y == value).all())


def test_mixed_devices_are_refused_by_name() -> None:
    torch = _torch()
    x = torch.zeros(4, 6, dtype=torch.float64, device="cuda")
    with pytest.raises(ArgumentError, match=r"X on cuda:\d, factors\[0\] on cpu"):
        KronMatmulArguments(operation=_operation(), X=x, factors=[np.eye(2), np.eye(3)])
    with pytest.raises(ArgumentError, match="all on cpu"):
        KronMatmulArguments(
            operation=OperationDouble(kron(FACTORS)), X=x, factors=[np.eye(2), np.eye(3)]
        )


def test_cupy_tensors_and_their_stream() -> None:
    cupy = pytest.importorskip("cupy")
    operation = _operation(workspace=64)
    x = cupy.random.standard_normal((4, 6))
    side = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.get_current_stream().synchronize()
    arguments = KronMatmulArguments(operation=operation, X=x, factors=[cupy.eye(2), cupy.eye(3)])
    item = view(x[::-1], "X")
    assert (item.pointer, item.strides, item.framework) == (x[::-1].data.ptr, (-6, 1), "cupy")
    assert isinstance(arguments.Y, cupy.ndarray)
    with side:
        arguments.run(operation)
    arguments.run(operation, stream=side)
    assert operation.streams == [side.ptr] * 2
    arguments.sync()
    assert bool((x == arguments.Y).all())


def test_cupy_copies_on_the_gpu() -> None:
    cupy = pytest.importorskip("cupy")
    operation = CopyOperation(ksparse((1, 6, 6, 1)), _target())
    x = cupy.random.standard_normal((3, 2, 6)).transpose(1, 0, 2)[::-1]
    arguments = KSparseArguments(operation=operation, X=x, W=cupy.zeros((1, 6, 6, 1)))
    arguments.run(operation)
    arguments.sync()
    assert bool((x == arguments.Y).all())


class OnlyDLPack:
    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __dlpack__(self, **options: Any) -> Any:
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()


class OnlyInterface:
    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self.__cuda_array_interface__ = tensor.__cuda_array_interface__


@pytest.mark.parametrize("wrap", [OnlyDLPack, OnlyInterface])
def test_tensors_of_unknown_frameworks(wrap: Any) -> None:
    torch = _torch()
    tensor = torch.randn(5, 6, dtype=torch.float64, device="cuda")
    item = view(wrap(tensor.T), "X")
    assert (item.pointer, item.shape, item.strides) == (tensor.data_ptr(), (6, 5), (1, 6))
    assert (item.device, item.framework, item.element) == (
        Device("cuda", tensor.get_device()),
        "dlpack",
        float64,
    )
    operation = _operation()
    eyes = [wrap(torch.eye(size, dtype=torch.float64, device="cuda")) for size in (2, 3)]
    y = torch.zeros_like(tensor)
    torch.cuda.synchronize()
    arguments = KronMatmulArguments(operation=operation, X=wrap(tensor), factors=eyes, Y=wrap(y))
    arguments.run(operation)
    arguments.sync()
    assert operation.streams == [0]
    assert torch.equal(y, tensor)


def test_a_graph_captures_and_replays() -> None:
    torch = _torch()
    operation = _operation(workspace=4096)
    x = torch.randn(4, 6, dtype=torch.float64, device="cuda")
    eyes = [torch.eye(size, dtype=torch.float64, device="cuda") for size in (2, 3)]
    arguments = KronMatmulArguments(operation=operation, X=x, factors=eyes)
    arguments.run(operation)
    arguments.sync()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        arguments.run(operation)
    result = arguments.Y
    before = len(memory._captured)
    assert before >= 1
    del arguments
    gc.collect()
    x.fill_(3.0)
    graph.replay()
    torch.cuda.synchronize()
    assert bool((result == 3).all())


def test_a_pool_counts_and_runs_out_gracefully() -> None:
    resource = get_memory_pool(1 << 20, 1 << 22)
    assert resource is not None
    base = get_allocated_size()
    buffer = DeviceBuffer(1 << 20, device.default_device().index, 0)
    assert get_allocated_size() - base >= 1 << 20
    with pytest.raises(OutOfMemoryError, match=rf"{1 << 26} bytes.*free of"):
        DeviceBuffer(1 << 26, device.default_device().index, 0)
    other = DeviceBuffer(1 << 10, device.default_device().index, 0)
    buffer.close()
    other.close()
    assert get_allocated_size() == base
    with pytest.raises(OutOfMemoryError):
        get_memory_pool(1 << 50, 1 << 51)
    memory._pools.clear()  # The next test gets a pool without a limit.


def test_a_buffer_survives_streams_that_are_gone() -> None:
    core = pytest.importorskip("cuda.core")
    gpu = core.Device(device.default_device().index)
    gpu.set_current()
    base = get_allocated_size()
    buffer = DeviceBuffer(1 << 16, gpu.device_id)
    for _ in range(3):
        side = gpu.create_stream()
        handle = stream.stream_handle(side, "numpy", 0)
        buffer.ready_on(handle)
        buffer.used_on(handle)
        side.close()
    buffer.close()
    gpu.sync()
    assert get_allocated_size() == base


def test_memory_of_a_pool_that_another_thread_made() -> None:
    torch = _torch()
    errors: list[BaseException] = []

    def use() -> None:
        try:
            torch.zeros(1, device="cuda")  # Makes the device current, but not for cuda-core.
            handle = torch.cuda.current_stream().cuda_stream
            DeviceBuffer(1 << 10, device.default_device().index, handle).used_on(handle)
        except BaseException as error:
            errors.append(error)

    memory._pools.clear()
    for _ in range(2):
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
    assert not errors


def test_descriptions_promise_what_kernels_may_use() -> None:
    torch = _torch()
    tensor = torch.zeros(3, 5, 8, device="cuda")
    assert describe(view(tensor, "X"), "X") == TensorDescription(float32, alignment=4)
