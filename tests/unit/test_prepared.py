"""What is kept of a call: its launches as functions of addresses, signatures, bounds on memory."""

from __future__ import annotations

import functools
import struct
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import kronop
from kronop.args import host, memory, signature
from kronop.args.staging import Placement
from kronop.args.view import CPU, Device
from kronop.compiler import tensor_maps
from kronop.core import addressed, prepared, served
from kronop.families.gemm import composed_api
from tests import support
from tests.test_properties import _gradient_problems, _kron_problems, _ksparse_problems
from tests.unit.gpu_double import Driver, gpu

__all__ = ["gpu"]

_SETTINGS = settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)
_TARGETS = ["x86", "x86-generic", "sm_80", "sm_90a"]


class _OnGpu:
    """An array that says that it is on a GPU."""

    def __init__(self, array: Any) -> None:
        self.__cuda_array_interface__ = {**array.__array_interface__, "version": 2}
        self.array = array


class _Scratch(Placement):
    """Memory, and where its workspace is."""

    def workspace(self, nbytes: int) -> int:
        self.address = super().workspace(nbytes)
        return self.address


class _Kernel:
    """Records what it is launched with."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def bind_words(self, launch: Any, device: int) -> Any:
        words = np.frombuffer(bytearray(launch.parameters), np.uint64)
        rest = (launch.step, launch.grid, launch.block, launch.shared_bytes)

        def launcher(stream: int) -> None:
            self.seen.append((words.tobytes(), *rest, stream))

        return launcher, words


def _elsewhere(array: Any) -> Any:
    """A copy with the same strides, at another address with the same low bits."""
    low, high = np.lib.array_utils.byte_bounds(array)
    memory = np.zeros(high - low + 32, np.uint8)
    start = (low - memory.ctypes.data) % signature.ALIGNMENT
    offset = start + array.ctypes.data - low
    copy = np.ndarray(array.shape, array.dtype, memory, offset, array.strides)
    copy[...] = array
    return copy


def _at(array: Any, offset: int) -> Any:
    """A contiguous copy `offset` bytes behind a multiple of 16."""
    memory = np.zeros(array.nbytes + 32, np.uint8)
    start = -memory.ctypes.data % 16 + offset
    copy = np.ndarray(array.shape, array.dtype, memory, start)
    copy[...] = array
    return copy


def _serve(operation: Any) -> _Kernel:
    """Has the operation run its own plan on a kernel's double."""
    kernel = _Kernel()
    operation.plan_for = lambda rows, device=None: operation.plan
    operation.serve = lambda plan: SimpleNamespace(
        plan=plan,
        kernels=(kernel,) * len(plan.steps),
        launches=operation.launches,
        workspace_bytes=plan.workspace_bytes,
    )
    return kernel


def _check(operation: Any, build: Any, tensors: dict[str, Any]) -> None:
    """The launches learned from some tensors, over the addresses of others, are the others'."""
    # The CUDA array interface has no name for bfloat16.
    is_host = operation.target.backend == "x86"
    if not is_host and operation.description.Y.element is kronop.bfloat16:
        assume(False)
    kernel = _serve(operation)
    device = CPU if is_host else Device("cuda", 0)
    distinct = {id(item): _elsewhere(item) for item in tensors.values()}
    others = {name: distinct[id(item)] for name, item in tensors.items()}
    slots = {name: slot for slot, name in enumerate(tensors)} | {"": len(tensors)}
    first, second = build(tensors), build(others)
    addresses = [item.ctypes.data for item in tensors.values()]
    if not first.rows and not hasattr(operation.description, "tied"):
        with pytest.raises(addressed.UnfitError):
            addressed.Product(first, addressed.Symbols(slots, addresses, device))
        return
    if len(getattr(first, "_batch", ())) > 4:  # Some of these are copied.
        return
    try:
        product = addressed.Product(first, addressed.Symbols(slots, addresses, device))
    except addressed.UnfitError:
        placement = Placement(device)
        first.launches(operation, placement)
        assert placement.before or placement.after
        return
    memory = _Scratch(device)
    expected = second.launches(operation, memory)
    scratch = memory.address
    assert bool(scratch) == bool(product.scratch_bytes)
    product.launch([*(item.ctypes.data for item in others.values()), scratch], 7)
    assert kernel.seen == [
        (_written(item), item.step, item.grid, item.block, item.shared_bytes, 7)
        for item in expected
    ]


def _written(launch: Any) -> bytes:
    """The parameters with their tensor maps."""
    whole = bytearray(launch.parameters)
    for offset, nbytes, value in launch.blocks:
        tensor_maps.write_block(value, memoryview(whole)[offset : offset + nbytes], value.address)
    return bytes(whole)


def _arguments(kind: Any, operation: Any, output_op: Any, tensors: dict[str, Any]) -> Any:
    if operation.target.backend == "cuda":
        tensors = {name: _OnGpu(item) for name, item in tensors.items()}
    given: dict[str, Any] = {}
    for name, item in tensors.items():
        if name.startswith("factors"):
            given.setdefault("factors", []).append(item)
        else:
            given[name] = item
    return kind(operation=operation, output_op=output_op, **given)


def _named(x: Any, factors: Any, z: Any, y: Any) -> dict[str, Any]:
    matrices = {f"factors[{index}]": item for index, item in enumerate(factors)}
    return {"X": x, **matrices, "Z": z, "Y": y}


@pytest.mark.parametrize("target", _TARGETS)
@_SETTINGS
@given(st.data(), st.sampled_from([0, 1, -2]), st.booleans())
def test_kron_launches_are_functions_of_addresses(
    gpu: Driver, target: str, data: Any, beta: int, in_place: bool
) -> None:
    operation, x, factors, z, y = data.draw(_kron_problems(target))
    gpu.abilities = (int(target[3]), 0, 227 * 1024) if "sm" in target else gpu.abilities
    tensors = _named(x, factors, y if in_place else z, y)
    output_op = operation.epilogue_type(3, beta)
    build = functools.partial(_arguments, kronop.KronMatmulArguments, operation, output_op)
    _check(operation, build, tensors)


@pytest.mark.parametrize("target", _TARGETS)
@_SETTINGS
@given(st.data(), st.sampled_from([0, 1, -2]), st.booleans(), st.booleans())
def test_ksparse_launches_are_functions_of_addresses(
    gpu: Driver, target: str, data: Any, beta: int, in_place: bool, with_bias: bool
) -> None:
    operation, x, weights, bias, z, y = data.draw(_ksparse_problems(target))
    gpu.abilities = (int(target[3]), 0, 227 * 1024) if "sm" in target else gpu.abilities
    tensors = {"X": x, "W": weights, "Z": y if in_place else z, "Y": y}
    if with_bias:
        tensors["bias"] = bias
    output_op = operation.epilogue_type(3, beta)
    build = functools.partial(_arguments, kronop.KSparseArguments, operation, output_op)
    _check(operation, build, tensors)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@_SETTINGS
@given(st.data(), st.sampled_from([0, 1, -2]), st.booleans())
def test_gradient_launches_are_functions_of_addresses(
    gpu: Driver, target: str, data: Any, beta: int, in_place: bool
) -> None:
    operation, x, g, z, y, matrices = data.draw(_gradient_problems(target))
    gpu.abilities = (int(target[3]), 0, 227 * 1024)
    factors = {f"factors[{index}]": item for index, item in enumerate(matrices)}
    tensors = {"X": x, "G": g, "Z": y if in_place else z, "Y": y, **factors}
    output_op = operation.epilogue_type(3, beta)
    build = functools.partial(_arguments, kronop.KSparseGradientArguments, operation, output_op)
    _check(operation, build, tensors)


@pytest.mark.parametrize("target", _TARGETS)
@pytest.mark.parametrize("element", [kronop.float16, kronop.float32])
def test_launches_of_groups_are_functions_of_addresses(
    gpu: Driver, monkeypatch: pytest.MonkeyPatch, target: str, element: Any
) -> None:
    """Those of more products than one launch of warp groups holds, an operand of two among them."""
    support.encode_maps(monkeypatch, lambda value, address: struct.pack("=Q120x", address))
    gpu.abilities = (int(target[3]), 0, 227 * 1024) if "sm" in target else gpu.abilities
    widest, compute = 16 // element.bytes, kronop.float32
    operand = kronop.TensorDescription(element, kronop.RowMajor, widest)
    epilogue = kronop.LinearCombination(element, widest, compute, compute)
    operation = kronop.GemmOperationGrouped(target, None, *[operand] * 3, epilogue)
    tensors = _group(element)

    def build(tensors: dict[str, Any]) -> Any:
        lists = dict(zip(("A", "B", "biases", "C", "D"), _lists(tensors, target), strict=True))
        return kronop.GemmGroupedArguments(
            operation, output_op=operation.epilogue_type(1, 3), **lists
        )

    _check(operation, build, tensors)


_OF_GROUPS = ("A", "B", "bias", "Z", "Y")


def _group(element: Any) -> dict[str, Any]:
    tensors = {}
    for index in range(60):
        m, n, k = 8 + 8 * (index % 3), 16, 8 * (index % 5)
        named = dict(zip(_OF_GROUPS, ((m, k), (k, n), (n,), (m, n), (m, n)), strict=True))
        made = {name: _at(np.zeros(shape, element.name), 0) for name, shape in named.items()}
        tensors |= {f"{name}[{index}]": item for name, item in made.items()}
    tensors["B[16]"], tensors["Y[59]"] = tensors["B[1]"], tensors["Z[59]"]
    return tensors


def _lists(tensors: dict[str, Any], target: str) -> list[list[Any]]:
    place = (lambda item: item) if target.startswith("x86") else _OnGpu
    count = len(tensors) // len(_OF_GROUPS)
    return [[place(tensors[f"{name}[{at}]"]) for at in range(count)] for name in _OF_GROUPS]


@pytest.mark.parametrize("target", ["x86", "sm_80", "sm_90a"])
@pytest.mark.parametrize("element", [kronop.float16, kronop.float32])
def test_groups_are_composed_as_they_are_planned(
    gpu: Driver, monkeypatch: pytest.MonkeyPatch, target: str, element: Any
) -> None:
    """The launches of a group that is composed of known products are those of its plan."""
    if target == "x86" and element is kronop.float16:
        pytest.skip("no kernel")
    support.encode_maps(monkeypatch, lambda value, address: struct.pack("=Q120x", address))
    gpu.abilities = (int(target[3]), 0, 227 * 1024) if "sm" in target else gpu.abilities
    operations: list[Any] = []
    kernel = _Kernel()

    def plan_for(operation: Any, size: Any, device: Any = None) -> Any:
        operations.append(operation)
        return operation.plan

    def serve(operation: Any, plan: Any) -> Any:
        return served.Served(plan, (kernel,) * len(plan.steps))

    monkeypatch.setattr(kronop.GemmOperationGrouped, "plan_for", plan_for)
    monkeypatch.setattr(kronop.GemmOperationGrouped, "serve", serve)
    others = {name: item for name, item in _group(element).items() if name != "Y[59]"}
    others["Y[59]"] = others["Z[59]"]
    order = np.random.default_rng(3).permutation(60)
    for tensors, places in ((_group(element), np.arange(60)), (others, order)):
        lists = [[items[at] for at in places] for items in _lists(tensors, target)]
        own = [[tensors[f"{name}[{at}]"] for at in places] for name in _OF_GROUPS]
        facts = [(target, item.dtype, item.shape) for items in own for item in items]
        addresses = [item.ctypes.data for items in own for item in items]
        call = composed_api.compose(lists, 1.0, 3.0, None, facts, addresses)
        assert call is not None
        kernel.seen.clear()
        scratch = np.zeros(call.product.scratch_bytes + 8, np.uint8).ctypes.data
        call.product.launch([*addresses, scratch], 7)
    operation = operations[-1]
    scalars = operation.epilogue_type(1, 3)
    names = ("A", "B", "biases", "C", "D")
    arguments = kronop.GemmGroupedArguments(
        operation, output_op=scalars, **dict(zip(names, lists, strict=True))
    )
    device = CPU if target == "x86" else Device("cuda", 0)
    memory = _Scratch(device)
    memory.workspace = lambda nbytes: scratch if nbytes else 0  # type: ignore[method-assign]
    assert kernel.seen == [
        (_written(item), item.step, item.grid, item.block, item.shared_bytes, 7)
        for item in arguments.launches(operation, memory)
    ]


@pytest.mark.parametrize("target", _TARGETS)
@_SETTINGS
@given(st.data())
def test_vectors_depend_on_the_low_bits_alone(gpu: Driver, target: str, data: Any) -> None:
    """Operations that promise alignment, over several passes, with operands at every offset."""
    gpu.abilities = (int(target[3]), 0, 227 * 1024) if "sm" in target else gpu.abilities
    element = data.draw(st.sampled_from(support.ELEMENTS))
    widest = 16 // element.bytes
    alignment = data.draw(st.sampled_from([1, widest // 2 or 1, widest]))
    factors = data.draw(st.sampled_from([[(8, 8)] * 2, [(16, 16)] * 4, [(64, 64), (8, 16)]]))
    layout = data.draw(st.sampled_from([kronop.RowMajor, kronop.ColumnMajor]))
    side = kronop.Side.Right if layout is kronop.RowMajor else kronop.Side.Left
    operation = support.kron_operation(
        target, element, factors, alignment=alignment, side=side, layout=kronop.RowMajor
    )
    random = np.random.default_rng(0)
    step, what = alignment * element.bytes, operation.description

    def operand(shape: Any, unit: int, of: Any = element) -> Any:
        offset = data.draw(st.integers(0, 15 // unit)) * unit
        return _at(support.random_array(random, shape, of), offset)

    x = operand(what.x_shape(16), step)
    step = what.Y.alignment * what.Y.element.bytes
    y, z = (operand(what.y_shape(16), step, what.Y.element) for _ in range(2))
    matrices = [operand(shape, element.bytes) for shape in factors]
    output_op = operation.epilogue_type(1, data.draw(st.sampled_from([0, 1])))
    build = functools.partial(_arguments, kronop.KronMatmulArguments, operation, output_op)
    _check(operation, build, _named(x, matrices, z, y))


@given(st.lists(st.integers(0, 3), max_size=4), st.permutations(range(4)), st.booleans())
def test_an_array_is_where_numpy_says(shape: list[int], order: Any, backwards: bool) -> None:
    array = np.zeros((*shape, *[2] * (4 - len(shape))), np.int16).transpose(order)
    array = array[::-1, 1:] if backwards else array
    assert signature.address_of_array(array) == array.__array_interface__["data"][0]
    assert signature._interface_address(array) == signature.address_of_array(array)


def test_only_plain_tensors_have_a_signature() -> None:
    class Sub(np.ndarray):
        pass

    plain = np.zeros((2, 2), np.float32)
    assert signature.read([plain, None]) is not None
    for odd in (plain.view(Sub), np.ma.masked_array(plain), [[1.0]], 1.0, np.float32(1)):
        assert signature.read([plain, odd]) is None


def test_only_plain_torch_tensors_have_a_signature() -> None:
    torch = pytest.importorskip("torch")
    plain = torch.zeros(2, 2)
    parameter = torch.nn.Parameter(torch.zeros(2, 2))
    assert signature.read([plain, torch.zeros(0, 2), None]) is not None
    assert signature.read([parameter]) is None
    with torch.no_grad():
        assert signature.read([parameter]) is not None
    negated = torch.zeros(2, 2, dtype=torch.complex64).conj().imag
    assert negated.is_neg()
    freed = torch.zeros(2, 2)
    freed.untyped_storage().resize_(0)
    odd = (
        torch.zeros(2, 2, requires_grad=True),
        torch.zeros(2, 2, device="meta"),
        torch.eye(2).to_sparse(),
        torch.eye(2).to_sparse_csr(),
        torch.eye(2).to_mkldnn(),
        torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
        negated,
        freed,
    )
    for tensor in odd:
        assert signature.read([tensor]) is None, tensor

    def inside(tensor: Any) -> Any:
        assert type(tensor) is torch.Tensor
        with torch.no_grad():
            assert signature.read([tensor]) is None
        return tensor.sum()

    for transform in (torch.vmap, torch.func.grad, torch.func.functionalize):
        transform(inside)(plain)
    with torch._subclasses.FakeTensorMode() as mode:
        assert signature.read([mode.from_tensor(plain)]) is None


def _facts(*tensors: Any) -> Any:
    reading = signature.read(tensors)
    assert reading is not None
    return reading[0]


def test_signatures_tell_apart_what_the_checks_do() -> None:
    array = np.zeros((4, 4), np.float32)
    frozen = array.view()
    frozen.flags.writeable = False
    others = [
        array[:2],
        array.T,
        array[::-1],
        array.astype(">f4"),
        array.astype(np.int32),
        _at(array, 4),
        frozen,
    ]
    same = _facts(_elsewhere(array))
    for other in others:
        assert (_facts(other) == _facts(array)) is False
    assert same == _facts(array)
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(4, 4)
    assert _facts(tensor) == _facts(torch.zeros(4, 4)) != _facts(array)
    for other in (tensor.T, tensor[:2], tensor.double(), torch.zeros(17)[1:].view(4, 4)):
        assert _facts(other) != _facts(tensor)


def test_scratch_memory_is_kept_within_bounds() -> None:
    """One buffer of each thread, which nobody else gets and no second run of its own meanwhile."""
    large, buffer = host.borrow(1 << 24), host.borrow(100)
    assert large.nbytes >= 1 << 24
    host.give_back(large)
    assert host.borrow(100) is not large
    host.give_back(buffer)
    taken: list[host.HostBuffer] = []
    thread = threading.Thread(target=lambda: taken.append(host.borrow(100)))
    thread.start()
    thread.join()
    assert taken[0] is not buffer
    assert host.borrow(90) is buffer
    assert host.borrow(90) is not buffer
    host.give_back(buffer)
    assert host.borrow(200).nbytes >= 200
    assert buffer.pointer % 64 == 0


def test_what_is_learned_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "_MOST_HELD", 24)  # Four calls of a launch and five tensors.
    monkeypatch.setattr(prepared, "_MOST_SEEN", 4)
    prepared.forget()
    factors = [np.ones((2, 2), np.float32)] * 2
    for rows in range(1, 20):
        for _ in range(3):
            kronop.gemkm(np.ones((rows, 4), np.float32), factors)
        assert len(prepared._calls) <= 4
        assert len(prepared._seen) <= 4
    prepared.forget()
    assert not prepared._calls


def test_calls_of_ksmm_are_no_other_functions() -> None:
    """A form of flags alone could be another family's as well."""
    prepared.forget()
    x, weight = np.ones((5, 4), np.float32), np.ones((1, 2, 4, 1), np.float32)
    for _ in range(3):
        kronop.ksmm(x, weight)
    operands = [x, weight, None, None, None]
    assert prepared.find(("ksmm", None, False), 1.0, 0.0, operands) is not None
    assert prepared.find((None, False), 1.0, 0.0, operands) is None
    prepared.forget()


def _operation_with_scratch() -> Any:
    return support.kron_operation("sm_90a", kronop.float32, [(16, 16)] * 5)


def _call_with_scratch(framework: str) -> tuple[_Kernel, Any, Any, list[int]]:
    """(the kernel, a call of several steps, what it was learned from, the addresses of that)."""
    operation = _operation_with_scratch()
    kernel = _serve(operation)
    x, y = (np.ones((1, 16**5), np.float32) for _ in range(2))
    factors = [np.eye(16, dtype=np.float32) for _ in range(5)]
    tensors = _named(x, factors, y, y)
    scalars = operation.epilogue_type(1.0, 0.0)
    arguments = _arguments(kronop.KronMatmulArguments, operation, scalars, tensors)
    given: list[Any] = [x, *factors, None, y]
    addresses = [0 if item is None else item.ctypes.data for item in given]
    slots = {f"factors[{index}]": 1 + index for index in range(5)}
    slots |= {"X": 0, "Y": len(given) - 1, "": len(given)}
    symbols = addressed.Symbols(slots, addresses, Device("cuda", 0))
    product = addressed.Product(arguments, symbols)
    assert product.scratch_bytes
    if framework == "torch":
        torch = pytest.importorskip("torch")
        given = [None if item is None else torch.from_numpy(item) for item in given]
    call = prepared.Call(given, 1, [], [], product, {}, Device("cuda", 0), framework)
    return kernel, call, given, addresses


@pytest.mark.parametrize("captured", [False, True])
def test_scratch_memory_of_a_gpu_is_given_back_or_stays_with_the_graph(
    gpu: Driver, captured: bool
) -> None:
    kernel, call, given, addresses = _call_with_scratch("numpy")
    if captured:
        gpu.capturing.add(0)
    launches = len(_operation_with_scratch().plan.steps)
    for _ in range(3):
        assert call.run(given, list(addresses)) is given[-1]
    assert len(kernel.seen) == 3 * launches
    assert len(memory._captured) == (3 if captured else 0)
    assert kronop.get_allocated_size() == len(memory._captured) * call.product.scratch_bytes


def test_scratch_memory_of_torchs_tensors_is_torchs(
    gpu: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, call, given, addresses = _call_with_scratch("torch")
    made: list[Any] = []
    make = call._make_scratch

    def keep(x: Any, nbytes: int) -> Any:
        made.append(make(x, nbytes))
        return made[-1]

    monkeypatch.setattr(call, "_make_scratch", keep)
    assert call.run(given, list(addresses)) is given[-1]
    (item,) = made
    assert item.nbytes == call.product.scratch_bytes
    low, high = item.data_ptr(), item.data_ptr() + item.nbytes
    words = [word for seen in kernel.seen for word in np.frombuffer(seen[0], np.uint64)]
    assert any(low <= word < high for word in words)
    assert not gpu.log
    assert kronop.get_allocated_size() == 0


def test_where_torch_has_no_memory_left_nothing_is_launched(
    gpu: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, call, given, addresses = _call_with_scratch("torch")

    def refuse(x: Any, nbytes: int) -> Any:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(call, "_make_scratch", refuse)
    assert call.run(given, list(addresses)) is None
    assert not kernel.seen
