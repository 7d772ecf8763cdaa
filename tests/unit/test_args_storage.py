"""Memory that is freed, cut or moved under built arguments is refused by the next run."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kronop.args.storage import check_kept, of_array
from kronop.args.tensor import view
from kronop.errors import ArgumentError
from kronop.families.kron.arguments import KronMatmulArguments
from kronop.families.ksparse.arguments import KSparseArguments
from tests.unit.args_double import OperationDouble, kron, ksparse
from tests.unit.gpu_double import Driver, gpu

__all__ = ["gpu"]

FACTORS = ((2, 3), (3, 1), (1, 2))
_SHAPES = {"X": (4, 6), "factors[1]": (3, 1), "Z": (4, 6), "Y": (4, 6)}


def _arrays() -> dict[str, Any]:
    rest = {"factors[0]": FACTORS[0], "factors[2]": FACTORS[2]}
    return {name: np.ones(shape) for name, shape in (_SHAPES | rest).items()}


def _built(tensors: dict[str, Any], beta: float = 2.0, target: str = "x86") -> Any:
    operation = OperationDouble(kron(FACTORS), target)
    return KronMatmulArguments(
        operation=operation,
        X=tensors["X"],
        factors=[tensors[f"factors[{index}]"] for index in range(3)],
        Z=tensors["Z"],
        Y=tensors["Y"],
        output_op=operation.epilogue_type(1.0, beta),
    )


def _run(arguments: Any) -> None:
    arguments.run(arguments.operation)


def _free(tensor: Any) -> None:
    tensor.untyped_storage().resize_(0)


def _move(tensor: Any) -> None:
    tensor.untyped_storage().resize_(1 << 20)


def _cut(array: Any) -> None:
    array.resize(1, refcheck=False)


@pytest.mark.parametrize("has_run", [False, True])
@pytest.mark.parametrize("change", [_free, _move, _cut])
@pytest.mark.parametrize("name", _SHAPES)
def test_memory_that_went_away_is_refused(
    name: str, change: Callable[[Any], None], has_run: bool
) -> None:
    tensors = _arrays()
    if change in (_free, _move):
        torch = pytest.importorskip("torch")
        tensors = {key: torch.tensor(item) for key, item in tensors.items()}
    arguments = _built(tensors)
    if has_run:
        _run(arguments)
    change(tensors[name])
    words = rf"memory of {name.replace('[', '.').replace(']', '.')}: expected the \d+ bytes at .*"
    with pytest.raises(ArgumentError, match=words + "build the arguments again"):
        _run(arguments)


def test_sparse_arguments_and_results_that_were_made_are_held_as_well() -> None:
    operation = OperationDouble(ksparse((1, 2, 3, 1)))
    for name in ("W", "bias", "Y"):
        weights, bias = np.ones((1, 2, 3, 1)), np.ones(2)
        arguments = KSparseArguments(operation=operation, X=np.ones((4, 3)), W=weights, bias=bias)
        _run(arguments)
        _cut({"W": weights, "bias": bias, "Y": arguments.Y}[name])
        with pytest.raises(ArgumentError, match=f"memory of {name}"):
            _run(arguments)


@pytest.mark.parametrize(
    "part",
    [
        lambda whole: whole[2:6],
        lambda whole: whole[1:].T[:, ::-1].T[-5:-1],
        lambda whole: np.lib.stride_tricks.as_strided(whole, (4, 6), whole.strides),
        lambda whole: np.asarray(memoryview(whole))[2:6],
        lambda whole: whole.astype(">f8")[2:6],
    ],
)
def test_views_are_held_to_the_array_that_has_their_memory(part: Any) -> None:
    whole = np.ones((8, 6))
    x = part(whole)
    while not np.shares_memory(x, whole) and x.base is not None:  # The copy has another byte order.
        whole = x.base
    arguments = _built(_arrays() | {"X": x})
    _run(arguments)
    _cut(whole)
    with pytest.raises(ArgumentError, match="memory of X"):
        _run(arguments)


def test_a_source_that_is_not_read_may_go_away() -> None:
    tensors = _arrays()
    arguments = _built(tensors, beta=0.0)
    _cut(tensors["Z"])
    _run(arguments)
    np.testing.assert_array_equal(tensors["Y"], 6)


def test_memory_that_only_grew_in_its_place_is_kept() -> None:
    address, size = 4096, 80
    kept = (lambda: address, lambda: size, 4096, 80, "X")
    check_kept([kept])
    size = 81
    check_kept([kept])
    address = 8192
    with pytest.raises(ArgumentError, match=r"memory of X: .* got 81 bytes at 0x2000"):
        check_kept([kept])
    address, size = 4096, 79
    with pytest.raises(ArgumentError, match=r"memory of X: expected the 80 bytes .* got 79 bytes"):
        check_kept([kept])


def test_shared_storage_is_asked_once() -> None:
    whole = np.ones((8, 6))
    arguments = _built(_arrays() | {"X": whole[:4], "Z": whole[4:]})
    _run(arguments)
    assert len(arguments._kept) == 5
    assert of_array(whole[4:]).holder is whole


def test_a_torch_tensor_has_to_lie_in_its_storage() -> None:
    torch = pytest.importorskip("torch")
    whole = torch.ones(8, 6, dtype=torch.float64)
    first, last, none = whole[:4], whole[4:], whole[8:]
    beyond = (whole, last, last.T, whole[::7])
    whole.untyped_storage().resize_(4 * 6 * 8)
    assert view(first, "X").shape == (4, 6)
    for tensor in beyond:
        with pytest.raises(ArgumentError, match=r"X: expected plain.* a storage of 192 bytes"):
            view(tensor, "X")
    assert view(none, "X").shape == (0, 6)


def test_memory_of_cupy_that_was_given_back_is_refused(
    gpu: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Array(types.SimpleNamespace):
        """What kronop reads of an array of CuPy, over host memory."""

    def on_gpu(array: Any) -> Array:
        mem = types.SimpleNamespace(ptr=array.ctypes.data, size=array.nbytes)
        return Array(
            data=types.SimpleNamespace(ptr=mem.ptr, mem=mem),
            dtype=array.dtype,
            shape=array.shape,
            strides=array.strides,
            device=types.SimpleNamespace(id=0),
            memory=array,
        )

    double = types.SimpleNamespace(
        ndarray=Array,
        cuda=types.SimpleNamespace(get_current_stream=lambda: types.SimpleNamespace(ptr=0)),
    )
    monkeypatch.setitem(sys.modules, "cupy", double)  # type: ignore[arg-type]
    for name in _SHAPES:
        tensors = {key: on_gpu(item) for key, item in _arrays().items()}
        arguments = _built(tensors, target="sm_90a")
        arguments.run(arguments.operation, stream=5)
        tensors[name].data.mem.ptr = 0  # As PooledMemory.free() leaves it.
        with pytest.raises(ArgumentError, match=rf"memory of {name[:7]}.* bytes at 0x0"):
            arguments.run(arguments.operation, stream=5)


def test_results_are_not_brought_back_to_memory_that_went_away(gpu: Driver) -> None:
    tensors = _arrays()
    arguments = _built(tensors, target="sm_90a")
    _run(arguments)
    _cut(tensors["X"])  # Was read by the run: `sync` has no need of it.
    arguments.sync()
    arguments = _built(_arrays() | {"Y": tensors["Y"]}, target="sm_90a")
    _run(arguments)
    _cut(tensors["Y"])
    with pytest.raises(ArgumentError, match="memory of Y"):
        arguments.sync()


def test_a_producer_of_an_interface_whose_base_is_itself() -> None:
    class Producer:
        def __init__(self) -> None:
            self.array = np.ones(3)
            self.__array_interface__ = self.array.__array_interface__

        @property
        def base(self) -> Any:
            return self

    array = np.asarray(Producer())
    assert of_array(array).holder is array
