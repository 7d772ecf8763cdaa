"""Signatures of calls: every fact of plain tensors but their addresses, read as fast as possible.

A signature serves to recognise a call that was checked before, so two calls that the checks could
judge differently must have different signatures. Only arrays of NumPy and CuPy, tensors of torch
and torch's Parameter have signatures; other subclasses and unusual tensors have none, and a call
with one of them is checked every time.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kronop.args.host import empty_array
from kronop.late import imported
from kronop.tensors import Tensor

ALIGNMENT = 16  # No kernel asks more of an operand's address: accesses have at most 16 bytes.

Facts = tuple[Any, ...]
Reading = tuple[int, Facts]
Maker = Callable[[Tensor], Tensor]

_at = ctypes.c_size_t.from_address
# NOTE: reading the address through `__array_interface__` takes 0.9 microseconds, reading it from
# the object's memory 0.1. It lies right behind the object's head: PyArray_DATA, a macro that is
# compiled into every extension module, reads it there.
_DATA = object.__basicsize__


def _struct_address(array: Tensor) -> int:
    return _at(id(array) + _DATA).value


def _interface_address(array: Tensor) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _array_address() -> Callable[[Tensor], int]:
    """The fast reader if it gives right addresses in this interpreter, else the public one.

    Only CPython's ids are addresses of objects.
    """
    if sys.implementation.name != "cpython":
        return _interface_address
    base = np.zeros((3, 5))
    every = (base, base[1:, ::-1], base.T, np.zeros((), np.int8))
    right = all(_struct_address(item) == _interface_address(item) for item in every)
    return _struct_address if right else _interface_address


address_of_array = _array_address()


def address_reader(array: Tensor) -> Callable[[], int]:
    """A function that returns the array's current address; the array must outlive it."""
    if address_of_array is _struct_address:
        return functools.partial(getattr, _at(id(array) + _DATA), "value")
    return functools.partial(_interface_address, array)


def _numpy(array: Tensor) -> Reading:
    address = address_of_array(array)
    return address, (array.dtype, array.shape, array.strides, address & 15, array.flags.writeable)


def _cupy(array: Tensor) -> Reading:
    address = array.data.ptr
    return address, (array.dtype, array.shape, array.strides, address & 15, array.device.id, "cupy")


def _torch_reader(torch: Any) -> Callable[[Tensor], Reading | None]:
    forward_ad = imported("torch.autograd.forward_ad")
    records = torch.is_grad_enabled

    def read(tensor: Tensor) -> Reading | None:
        address = tensor.data_ptr()
        if tensor.is_neg() or (tensor.requires_grad and records()):
            return None
        if not address and tensor.numel():  # A FakeTensor, or one whose storage was freed.
            return None
        if forward_ad._current_level >= 0:  # The tensor may have a tangent, which is refused.
            return None
        return address, (tensor.dtype, tensor.shape, tensor.stride(), address & 15, tensor.device)

    return read


_readers: dict[type, Callable[[Tensor], Reading | None]] = {np.ndarray: _numpy}


def _learn(kind: type) -> Callable[[Tensor], Reading | None] | None:
    """The reader of a type that is met for the first time, or None.

    Frameworks are only looked up: a tensor of one can exist only if it has been imported.
    """
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and kind in (torch.Tensor, torch.nn.Parameter):
        _readers[kind] = _torch_reader(torch)
    elif cupy is not None and kind is cupy.ndarray:
        _readers[kind] = _cupy
    return _readers.get(kind)


def read(tensors: Sequence[Tensor]) -> tuple[list[Any], list[int]] | None:
    """(the facts of each tensor, its address), with None and 0 for a tensor that is None.

    The result is None if a tensor has no signature.
    """
    facts: list[Any] = []
    addresses: list[int] = []
    try:
        for tensor in tensors:
            if tensor is None:
                facts.append(None)
                addresses.append(0)
                continue
            kind = type(tensor)
            reader = _readers.get(kind) or _learn(kind)
            reading = None if reader is None else reader(tensor)
            if reading is None:
                return None
            addresses.append(reading[0])
            facts.append(reading[1])
    except Exception:  # Tensors without memory or strides raise exceptions of any class.
        return None
    return facts, addresses


def maker(framework: str, shape: tuple[int, ...], result: Tensor) -> Maker:
    """A function that makes a new tensor like `result`, on the device of the X it is given."""
    dtype = result.dtype
    if framework == "numpy":
        return lambda x: empty_array(shape, dtype)
    if framework == "torch":
        return torch_maker(shape, dtype)
    cupy = imported("cupy")

    def make(x: Tensor) -> Tensor:
        with cupy.cuda.Device(index):
            return cupy.empty(shape, dtype)

    index = result.device.id
    return make


def torch_maker(shape: Sequence[int], dtype: Any) -> Maker:
    """A function that makes a contiguous torch tensor on the device of the tensor it is given.

    NOTE: `empty_strided` takes half the time of `new_empty`, which needs 1.7 microseconds for a
    small tensor.
    """
    torch, sizes = sys.modules["torch"], tuple(shape)
    empty, strides = torch.empty_strided, torch.empty(sizes, device="meta").stride()
    return lambda x: empty(sizes, strides, dtype=dtype, device=x.device)


def scratch_maker(framework: str) -> Callable[[Tensor, int], Tensor] | None:
    """A function of X and a number of bytes that allocates scratch memory on X's device.

    The memory comes from the framework's allocator. None for frameworks other than torch: their
    allocators do not order memory on the current stream, on which the kernels run.

    NOTE: a buffer from kronop's own pool costs two events and a dozen driver calls, which takes
    longer on the host of an H200 than the launches it is for. torch's allocator takes 2 us.
    """
    if framework != "torch":
        return None
    torch = sys.modules["torch"]
    return lambda x, nbytes: x.new_empty(nbytes, dtype=torch.uint8)


def addresser(framework: str) -> Callable[[Tensor], int]:
    """The function that reads the address of a tensor of `framework`."""
    if framework == "numpy":
        return address_of_array
    if framework == "torch":
        read: Callable[[Tensor], int] = sys.modules["torch"].Tensor.data_ptr
        return read
    return lambda array: int(array.data.ptr)
