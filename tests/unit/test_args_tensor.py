"""Views of tensors of every framework, what they may promise, and whether they overlap."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kronop.args import host
from kronop.args.checks import check_writable
from kronop.args.overlap import overlaps, overlaps_itself
from kronop.args.stream import stream_handle, torch_stream
from kronop.args.tensor import check_promise, describe, empty, view
from kronop.args.view import CPU
from kronop.descriptions.datatype import ColumnMajor, RowMajor, bfloat16, float32
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import ArgumentError, ElementTypeError, KronopError, OutOfMemoryError


class Exported:
    """An array of an unknown framework, which only speaks DLPack."""

    def __init__(self, array: Any, old: bool = False) -> None:
        self.array, self.old = array, old

    def __dlpack__(self, **options: Any) -> Any:
        if self.old:
            options.pop("max_version", None)
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_numpy_is_read_where_it_lies() -> None:
    array = np.zeros((4, 6, 8), "f4")[::2, ::-1, ::4]
    item = view(array, "X")
    assert (item.pointer, item.shape, item.strides) == (array.ctypes.data, (2, 6, 2), (96, -8, 4))
    assert (item.element, item.device, item.framework) == (float32, CPU, "numpy")
    assert item.writable
    assert item.in_place
    assert item.owner is array


def test_what_a_subclass_says_of_itself_is_not_taken_for_its_memory() -> None:
    class Liar(np.ndarray):
        shape = strides = property(lambda self: (1 << 40, 1 << 20))  # type: ignore[assignment]
        dtype = property(lambda self: np.dtype(np.int64))  # type: ignore[assignment]
        base = __array_interface__ = property(lambda self: None)  # type: ignore[assignment]
        nbytes = property(lambda self: 1 << 60)  # type: ignore[assignment]
        flags = property(lambda self: np.zeros(1).flags)  # type: ignore[assignment]

        def view(self, *types: Any) -> Any:
            return self

    plain = np.zeros((4, 6), "f4")
    plain.flags.writeable = False
    for array in (plain.view(Liar), plain[1:].view(Liar)[1:]):
        rows = np.ndarray.shape.__get__(array)[0]  # type: ignore[attr-defined]
        item = view(array, "X")
        assert (item.shape, item.strides, item.element) == ((rows, 6), (6, 1), float32)
        assert item.pointer == plain[4 - rows :].ctypes.data
        assert not item.writable
        assert item.storage is not None
        assert (item.storage.address, item.storage.nbytes) == (plain.ctypes.data, 96)


def test_torch_is_read_where_it_lies() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(4, 6, dtype=torch.bfloat16).T[1:]
    item = view(tensor, "X")
    assert (item.pointer, item.shape, item.strides) == (tensor.data_ptr(), (5, 4), (1, 6))
    assert (item.element, item.device, item.framework) == (bfloat16, CPU, "torch")


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:Accessing the data")
def test_torch_tensors_without_plain_memory_are_refused() -> None:
    torch = pytest.importorskip("torch")
    fake_tensor = pytest.importorskip("torch._subclasses.fake_tensor")
    plain = torch.ones(3, 4)
    cases = [
        (plain.to_sparse(), ArgumentError, "to_dense"),
        (torch.empty(3, 4, device="meta"), ArgumentError, "meta"),
        (torch.ones(3, 4, requires_grad=True), ArgumentError, "detach"),
        (torch.ones(3, 4, dtype=torch.complex64).conj().imag, ArgumentError, "resolve_neg"),
        (torch.ones(3, 4, dtype=torch.complex64), ElementTypeError, "complex64"),
        (torch.ones(3, 4, dtype=torch.bool), ElementTypeError, "bool"),
        (torch.ones(3, 4, dtype=torch.uint8), ElementTypeError, "uint8"),
        (torch.nested.nested_tensor([plain, plain[:2]]), ArgumentError, "to_padded_tensor"),
        (fake_tensor.FakeTensorMode().from_tensor(plain), ArgumentError, "FakeTensor"),
    ]
    for tensor, error, word in cases:
        with pytest.raises(error, match=word):
            view(tensor, "X")
    with torch.no_grad():
        assert view(torch.ones(3, 4, requires_grad=True), "X").shape == (3, 4)


def test_an_incomplete_cuda_array_interface_is_refused() -> None:
    exported = types.SimpleNamespace(__cuda_array_interface__={"shape": (2,), "version": 3})
    with pytest.raises(ArgumentError, match="without typestr, data"):
        view(exported, "X")


@pytest.mark.parametrize("old", [False, True])
def test_dlpack_is_read_without_a_copy(old: bool) -> None:
    array = np.arange(24, dtype="f4").reshape(4, 6)[:, ::2]
    item = view(Exported(array, old), "X")
    assert (item.pointer, item.shape, item.strides) == (array.ctypes.data, (4, 3), (6, 2))
    assert (item.element, item.framework) == (float32, "dlpack")
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(3, 5, dtype=torch.bfloat16).T
    item = view(Exported(tensor, old), "X")
    assert (item.pointer, item.strides, item.element) == (tensor.data_ptr(), (1, 5), bfloat16)


@pytest.mark.parametrize("error", [KeyError, OSError, AttributeError, BufferError, MemoryError])
@pytest.mark.parametrize("method", ["__dlpack__", "__dlpack_device__"])
def test_an_export_that_fails_is_an_argument_error(method: str, error: type[Exception]) -> None:
    def fail(self: Any, **options: Any) -> Any:
        raise error("no luck")

    failing = type("Failing", (Exported,), {method: fail})(np.ones(3))
    with pytest.raises(ArgumentError, match=f"W: .* got {error.__name__}: .*no luck.*copy it"):
        view(failing, "W")


def test_sizes_beyond_every_address_are_too_much_memory() -> None:
    torch = pytest.importorskip("torch")
    for tensor in (np.ones((1, 1), "f4"), torch.ones(1, 1)):
        for shape in ((1, 2**63), (2**61,), (0, 2**70), (2**31, 2**31)):
            with pytest.raises(OutOfMemoryError, match="a new tensor on cpu: expected at most"):
                empty(view(tensor, "X"), shape, float32)
    with pytest.raises(OutOfMemoryError, match="host memory"):
        host.HostBuffer(2**63)


def test_a_read_only_export_is_not_writable() -> None:
    array = np.zeros((2, 3), "f4")
    array.flags.writeable = False
    assert not view(Exported(array), "X").writable


class Copying(Exported):
    """An export that is a copy, as DLPack 1.0 tells by flag 2."""

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options, copy=True)


def test_a_copied_export_is_read_and_never_written() -> None:
    array = np.ones((2, 3), "f4")
    item = view(Copying(array), "Y")
    assert item.pointer != array.ctypes.data
    assert not item.writable
    with pytest.raises(ArgumentError, match=r"Y: expected a writable tensor.*__dlpack__"):
        check_writable(item)


def test_ml_dtypes_bfloat16() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.zeros((2, 3), ml_dtypes.bfloat16)
    item = view(array, "X")
    assert (item.element, item.strides) == (bfloat16, (3, 1))
    assert empty(item, (4,), bfloat16).dtype == array.dtype


def test_new_tensors_are_of_the_same_kind() -> None:
    torch = pytest.importorskip("torch")
    item = view(torch.zeros(2, 3), "X")
    result = empty(item, (4, 5), bfloat16)
    assert (type(result), result.dtype, tuple(result.shape)) == (
        torch.Tensor,
        torch.bfloat16,
        (4, 5),
    )
    assert isinstance(empty(view(Exported(np.zeros(3)), "X"), (4, 5), float32), np.ndarray)


@pytest.mark.parametrize(
    "value", [3, 2.5, "x", [1.0], (1.0,), None, np.float32(1), memoryview(b"1234")]
)
def test_what_is_no_tensor_is_an_element_type_error(value: Any) -> None:
    with pytest.raises(ElementTypeError, match="factors"):
        view(value, "factors[3]")


def _aligned(shape: tuple[int, ...], offset: int = 0) -> Any:
    memory = np.zeros(int(np.prod(shape)) + 64, "f4")
    start = (-memory.ctypes.data % 64) // 4 + offset
    return memory[start : start + int(np.prod(shape))].reshape(shape)


@pytest.mark.parametrize(
    ("array", "layout", "alignment"),
    [
        (_aligned((4, 8)), RowMajor, 4),
        (_aligned((4, 8), 1), RowMajor, 1),
        (_aligned((4, 8), 2), RowMajor, 2),
        (_aligned((4, 6)), RowMajor, 2),
        (_aligned((4, 7)), RowMajor, 1),
        (_aligned((1, 7)), RowMajor, 4),
        (_aligned((4, 8)).T, ColumnMajor, 4),
        (_aligned((7, 4)).T, ColumnMajor, 4),
        (_aligned((4, 7)).T, ColumnMajor, 1),
        (_aligned((8, 1)), ColumnMajor, 4),
        (_aligned((4, 8))[:, ::2], RowMajor, 1),
        (_aligned((3, 4, 8)), RowMajor, 4),
        (
            np.lib.stride_tricks.as_strided(_aligned((3, 40)), (3, 4, 8), (33 * 4, 32, 4)),
            RowMajor,
            1,
        ),
        (
            np.lib.stride_tricks.as_strided(_aligned((3, 40)), (1, 4, 8), (33 * 4, 32, 4)),
            RowMajor,
            4,
        ),
        (_aligned((8,)), RowMajor, 1),
        (np.zeros((4, 6), ">f4"), RowMajor, 4),
        (np.zeros((0, 7), "f4"), RowMajor, 4),
    ],
)
def test_the_description_is_the_strongest_that_holds(
    array: Any, layout: Any, alignment: int
) -> None:
    item = view(array, "X")
    assert describe(item, "X") == TensorDescription(float32, layout, alignment)
    check_promise(item, TensorDescription(float32, layout, alignment), "X")
    if alignment < 4:
        two = [TensorDescription(float32, other, 4) for other in (RowMajor, ColumnMajor)]
        for stronger in two if array.ndim > 1 else ():
            with pytest.raises(ArgumentError, match="memory of X"):
                check_promise(item, stronger, "X")


strided = st.tuples(
    st.integers(0, 40),
    st.lists(st.tuples(st.integers(1, 4), st.integers(-9, 9)), min_size=1, max_size=4),
)


@settings(max_examples=300, deadline=None)
@given(strided, strided)
def test_overlap_is_exact(first: Any, second: Any) -> None:
    memory = np.zeros(400, "f4")

    def build(case: Any) -> tuple[Any, list[int]]:
        start, axes = case
        shape, strides = zip(*axes, strict=True)
        base = np.lib.stride_tricks.as_strided(
            memory[150 + start :], shape, [4 * stride for stride in strides]
        )
        offsets = [
            start + sum(i * s for i, s in zip(index, strides, strict=True))
            for index in np.ndindex(shape)
        ]
        return view(base, "X"), offsets

    (one, reached), (other, others) = build(first), build(second)
    assert overlaps(one, other) == bool(set(reached) & set(others))
    assert overlaps_itself(one) == (len(set(reached)) < len(reached))


def test_threads_follow_openmp(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, expected in (("3", 3), ("5,2", 5), (" 4 ", 4)):
        monkeypatch.setenv("OMP_NUM_THREADS", text)
        host.thread_count.cache_clear()
        assert host.thread_count() == expected
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    host.thread_count.cache_clear()
    assert 1 <= host.thread_count() <= 4096
    host.thread_count.cache_clear()


def test_host_buffers_start_on_a_cache_line() -> None:
    assert all(host.HostBuffer(size).pointer % 64 == 0 for size in (0, 1, 63, 4096))
    with pytest.raises(MemoryError, match="host memory"):
        host.HostBuffer(1 << 60)


class Named:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Protocol:
    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 11


def test_the_default_stream_of_torch_is_no_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    made = {"default_stream": lambda device: "default", "ExternalStream": lambda *_, **__: "other"}
    for name, make in made.items():
        monkeypatch.setattr(torch.cuda, name, make)
    assert [torch_stream(handle, "cuda:0") for handle in (0, 1, 2, 4096)] == [
        *["default"] * 2,
        *["other"] * 2,
    ]


def test_streams_are_named_in_many_ways() -> None:
    assert stream_handle(None, "numpy", 0) == 0
    assert stream_handle(7, "torch", 0) == 7
    assert stream_handle(Protocol(), "numpy", 0) == 11
    assert [
        stream_handle(Named(**{name: 5}), "numpy", 0) for name in ("cuda_stream", "ptr", "handle")
    ] == [5] * 3
    for wrong in ("s", True, -1, object()):
        with pytest.raises(KronopError, match="stream"):
            stream_handle(wrong, "numpy", 0)
