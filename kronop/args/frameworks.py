"""Reads tensors of NumPy, torch and CuPy, and objects with DLPack or the CUDA array interface.

Each framework is read through its fastest public interface. DLPack is the last resort, because it
takes microseconds.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, NoReturn

import numpy as np

from kronop.args import dlpack
from kronop.args.device import check, cuda_driver, current, device_of_pointer
from kronop.args.storage import Storage, of_array, of_cupy, of_torch
from kronop.args.strides import Ints, reach
from kronop.args.view import CPU, Device, TensorView, contiguous_strides
from kronop.descriptions.datatype import TENSOR_TYPES, DataType
from kronop.errors import ArgumentError, ElementTypeError, converting
from kronop.tensors import Tensor

DIFFERENTIABLE = "kronop.torch.gemkm, gekmm and ksmm"
NESTED = "call .to_padded_tensor(0) first, or pass the tensors of .unbind() one after the other"
SPREAD = (
    "kronop.distributed.gemkm and gekmm take DTensors; others take this rank's share"
    " (x.to_local()) or the whole (x.full_tensor())"
)
_KNOWN = f"one of {', '.join(TENSOR_TYPES)}"


def view(tensor: Tensor, name: str, differentiable: str = DIFFERENTIABLE) -> TensorView:
    """A view of the memory of `tensor`, or `tensor` if it is one. `name` is its name in messages,
    in which `differentiable` are the functions with gradients.

    Raises:
        ElementTypeError: `tensor` is not a tensor, is JAX's, or no kernel knows its element type.
        ArgumentError: it has no plain memory (sparse, meta, lazily negated, masked, ...), or it is
            a torch tensor that requires a gradient while gradients are recorded.
    """
    if isinstance(tensor, np.ndarray):
        return _numpy(tensor, name)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        return _torch(torch, tensor, name, differentiable)
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(tensor, cupy.ndarray):
        return _cupy(tensor, name)
    if isinstance(tensor, TensorView):
        return tensor
    dlpack.refuse_jax(tensor, name)
    if hasattr(tensor, "__cuda_array_interface__"):
        return _cuda_array(tensor, name)
    if hasattr(tensor, "__dlpack__"):
        return _dlpack(tensor, name)
    raise ElementTypeError(
        name,
        expected="a tensor of NumPy, torch or CuPy, or one with __dlpack__",
        got=f"{type(tensor).__name__}",
        hint="for example numpy.asarray(value, 'float32')",
    )


def dims(tensor: Tensor) -> int:
    """How many dimensions a tensor has, whether or not kernels read it; 0 of what is none."""
    found: int | None = getattr(tensor, "ndim", None)  # Nested tensors have no shape.
    return len(getattr(tensor, "shape", ())) if found is None else found


def check_strided(tensor: Tensor, name: str) -> None:
    """Refuses a torch tensor whose elements are not one block with strides."""
    if hasattr(tensor, "to_local"):
        _unreadable(name, "a DTensor", SPREAD)
    if tensor.is_nested:
        _unreadable(name, "a nested tensor", NESTED)
    if tensor.layout is not sys.modules["torch"].strided:
        _unreadable(name, f"layout {tensor.layout}", "call .to_dense() first")


def _unsupported(name: str, found: object) -> NoReturn:
    hint = converting(found, "convert the tensor to one of these")
    raise ElementTypeError(f"element type of {name}", expected=_KNOWN, got=str(found), hint=hint)


def _unreadable(name: str, got: str, hint: str) -> NoReturn:
    raise ArgumentError(name, expected="plain strided memory", got=got, hint=hint)


@functools.cache
def _element(dtype: Any) -> DataType | None:
    """The element type of a NumPy, CuPy or torch dtype; cached, because reading names is slow."""
    return TENSOR_TYPES.get(getattr(dtype, "name", str(dtype).removeprefix("torch.")))


def _known_element(dtype: Any, name: str) -> DataType:
    element = _element(dtype)
    if element is None:
        _unsupported(name, dtype)
    return element


def _element_strides(shape: Ints, strides: Ints, size: int) -> Ints | None:
    """Byte strides as element strides; None if one of an extent above 1 is no multiple."""
    for stride, extent in zip(strides, shape, strict=True):
        if stride % size and extent > 1:
            return None
    return tuple([stride // size for stride in strides])


def _numpy(array: Tensor, name: str) -> TensorView:
    # Not imported here, which takes 15 ms: masked arrays exist only if it has been imported.
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(array, masked.MaskedArray):
        _unreadable(name, "a masked array", "fill it first: array.filled(0)")
    if type(array) is not np.ndarray:  # A subclass may override shape, strides or dtype.
        array = np.ndarray.view(array, np.ndarray)
    element = _known_element(array.dtype, name)
    shape = array.shape
    strides = _element_strides(shape, array.strides, element.bytes)
    flags = array.flags
    in_place = strides is not None and flags.aligned and array.dtype.isnative
    if strides is None or not in_place:
        strides = contiguous_strides(shape)
    return TensorView(
        pointer=array.__array_interface__["data"][0] if in_place else 0,
        shape=shape,
        strides=strides,
        element=element,
        device=CPU,
        framework="numpy",
        writable=flags.writeable,
        owner=array,
        in_place=in_place,
        storage=of_array(array),
    )


def _torch(torch: Any, tensor: Tensor, name: str, differentiable: str) -> TensorView:
    check_strided(tensor, name)
    element = _known_element(tensor.dtype, name)
    if tensor.is_cuda:
        device = Device("cuda", tensor.get_device())
    elif tensor.is_cpu:
        device = CPU
    elif tensor.is_meta:
        hint = "pass a real one; kronop.torch tells results' shapes if all tensors are on meta"
        _unreadable(name, "a tensor on the device meta, without values", hint)
    else:
        _unreadable(name, f"device {tensor.device}", "move it to the CPU or to an NVIDIA GPU")
    if tensor.is_neg() or tensor.is_conj():
        _unreadable(
            name,
            "a lazily negated or conjugated view",
            "call .resolve_neg() or .resolve_conj() first",
        )
    if tensor.requires_grad and torch.is_grad_enabled():
        raise ArgumentError(
            name,
            expected="a tensor without gradient",
            got="requires_grad=True",
            hint=f"use {differentiable} for gradients; without one pass .detach(), or work"
            " under torch.no_grad()",
        )
    _check_tangent(torch, tensor, name, differentiable)
    try:
        pointer = tensor.data_ptr()
    except RuntimeError as error:
        if torch._C._functorch.is_batchedtensor(tensor):
            hint = f"use {differentiable}, or pass the batch itself: leading dimensions broadcast"
            _unreadable(name, "a tensor that torch.vmap maps", hint)
        _unreadable(name, f"{type(tensor).__name__} without memory ({error})", "pass a real tensor")
    if not pointer and tensor.numel():  # A FakeTensor, or a tensor whose storage was freed.
        _unreadable(name, f"{type(tensor).__name__} without memory", "pass a real tensor")
    if pointer % element.bytes:
        _unreadable(
            name, f"a pointer that is no multiple of {element.bytes} bytes", "call .clone() first"
        )
    shape, strides, storage = tuple(tensor.shape), tensor.stride(), of_torch(tensor)
    _check_inside(storage, pointer, shape, strides, element, name)
    return TensorView(
        pointer=pointer,
        shape=shape,
        strides=strides,
        element=element,
        device=device,
        framework="torch",
        writable=True,
        # The storage, not the tensor: `x.data = ...` and `x.set_(...)` give the tensor another
        # storage, and would free this one.
        owner=storage.holder,
        storage=storage,
    )


def _check_tangent(torch: Any, tensor: Tensor, name: str, differentiable: str) -> None:
    """Refuses a tensor with a forward-mode tangent, which the result would silently lack."""
    if _has_tangent(torch, tensor):
        raise ArgumentError(
            name,
            expected="a tensor without tangent",
            got="a dual tensor of torch.autograd.forward_ad",
            hint=f"use {differentiable} for forward-mode derivatives; without one pass"
            " torch.autograd.forward_ad.unpack_dual(tensor).primal",
        )


def _has_tangent(torch: Any, tensor: Tensor) -> bool:
    forward_ad = torch.autograd.forward_ad
    if forward_ad._current_level < 0 or not torch._C._is_fwd_grad_enabled():
        return False
    try:
        return forward_ad.unpack_dual(tensor).tangent is not None
    except RuntimeError:  # Inside an operator's kernel, torch refuses to unpack a dual tensor.
        return True


def _check_inside(
    storage: Storage,
    pointer: int,
    shape: Ints,
    strides: Ints,
    element: DataType,
    name: str,
) -> None:
    """Refuses a tensor that reaches beyond its storage: torch lets a storage shrink under it."""
    if 0 in shape:
        return
    first = pointer - storage.address  # The lowest byte: torch tensors have no negative strides.
    end = first + (reach(shape, strides)[1] + 1) * element.bytes
    if first < 0 or end > storage.nbytes:
        _unreadable(
            name,
            f"shape {shape} over bytes {first} to {end} of a storage of {storage.nbytes} bytes",
            "the storage was resized: give it the tensor's size again, or pass another tensor",
        )


def _cupy(array: Tensor, name: str) -> TensorView:
    element = _known_element(array.dtype, name)
    pointer, shape = array.data.ptr, tuple(array.shape)
    return TensorView(
        pointer=pointer,
        shape=shape,
        strides=_device_strides(name, pointer, shape, tuple(array.strides), element),
        element=element,
        device=Device("cuda", array.device.id),
        framework="cupy",
        writable=True,
        owner=array,
        storage=of_cupy(array),
    )


def _cuda_array(tensor: Tensor, name: str) -> TensorView:
    interface = tensor.__cuda_array_interface__
    missing = [key for key in ("shape", "typestr", "data") if key not in interface]
    if missing:
        _unreadable(
            name,
            f"a __cuda_array_interface__ without {', '.join(missing)}",
            "update the producer: the interface requires them",
        )
    if interface.get("mask") is not None:
        _unreadable(name, "a masked array", "fill it first")
    dtype = np.dtype(interface["typestr"])
    if not dtype.isnative:
        _unreadable(
            name, f"element type {dtype} of foreign byte order", "convert it to native byte order"
        )
    element = _known_element(dtype, name)
    shape = tuple(interface["shape"])
    pointer, read_only = interface["data"]
    strides = interface.get("strides")
    if strides is None:
        strides = contiguous_strides(shape, element.bytes)
    device = device_of_pointer(pointer)
    _await_producer(interface.get("stream"), device, name)
    return TensorView(
        pointer=pointer,
        shape=shape,
        strides=_device_strides(name, pointer, shape, tuple(strides), element),
        element=element,
        device=device,
        framework="dlpack",
        writable=not read_only,
        owner=tensor,
    )


def _await_producer(stream: Any, device: Device, name: str) -> None:
    """Waits for the work given to the exporter's `stream` so far, as version 3 of the CUDA array
    interface requires of consumers; a stream of None means that there is nothing to wait for."""
    if stream is None:
        return
    if not isinstance(stream, int) or isinstance(stream, bool) or stream < 1:
        raise ArgumentError(
            f"stream in the CUDA array interface of {name}",
            expected="None, 1 (legacy default), 2 (per-thread default) or a handle",
            got=repr(stream),
            hint="the interface forbids 0, which could mean either default stream",
        )
    with current(device.index):
        check(cuda_driver().cuStreamSynchronize(stream), f"waiting for the producer of {name}")


def _device_strides(
    name: str, pointer: int, shape: Ints, byte_strides: Ints, element: DataType
) -> Ints:
    strides = _element_strides(shape, byte_strides, element.bytes)
    if strides is None or pointer % element.bytes:
        _unreadable(
            name,
            f"pointer or strides that are no multiple of {element.bytes} bytes",
            "copy it first",
        )
    return strides


def _dlpack(tensor: Tensor, name: str) -> TensorView:
    item = dlpack.read(tensor, name)
    element = TENSOR_TYPES.get(item.type_name)
    if element is None:
        _unsupported(name, item.type_name)
    if item.pointer % element.bytes:
        _unreadable(
            name, f"a pointer that is no multiple of {element.bytes} bytes", "copy it first"
        )
    return TensorView(
        pointer=item.pointer,
        shape=item.shape,
        strides=item.strides,
        element=element,
        device=item.device,
        framework="dlpack",
        writable=item.writable,
        owner=(tensor, item.capsule),
    )
