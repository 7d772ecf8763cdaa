"""Reads a DLPack capsule (dmlc/dlpack, dlpack.h, versions 0.x and 1.x) without consuming it."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from kronop.args.view import CPU, Device, contiguous_strides
from kronop.errors import ArgumentError, ElementTypeError
from kronop.frozen import dataclass
from kronop.tensors import Tensor

_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13
# NOTE: DLPack 1.1 has one type code for each 8-bit float format; the code implies the width.
_WHOLE_TYPES = {10: "float8_e4m3fn", 12: "float8_e5m2"}
_TYPE_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}
_READ_ONLY, _IS_COPIED = 1, 2  # Flags. A copy counts as read-only: writes never reach the tensor.


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DLPackTensor:
    """The tensor in a capsule, with strides in elements; its memory lives as long as `capsule`."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    type_name: str
    device: Device
    writable: bool
    capsule: Any


def _api() -> tuple[Any, Any]:
    # Prototypes of our own: setting `restype` on ctypes.pythonapi would change it for everyone.
    valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    api = ctypes.pythonapi
    return valid(("PyCapsule_IsValid", api)), pointer(("PyCapsule_GetPointer", api))


_is_valid, _get_pointer = _api()


def refuse_jax(tensor: Tensor, name: str) -> None:
    """Refuses JAX's arrays and tracers, which DLPack would read too: the result would be of another
    framework, without derivatives, and a function under jax.jit would not have the call in it."""
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(tensor, getattr(jax, "Array", ())):
        raise ElementTypeError(
            name,
            expected="NumPy, torch or CuPy",
            got="a JAX array",
            hint="use kronop.jax: kronop.jax.gemkm, gekmm, ksmm and conv2d take JAX arrays, also"
            " under jit, vmap and grad; for anything else pass numpy.asarray(array)",
        )


def read(tensor: Tensor, name: str) -> DLPackTensor:
    """The memory behind `tensor.__dlpack__()`.

    A GPU tensor is exported for the legacy default stream, because kronop runs such tensors on that
    stream unless the caller gives another one.

    Raises:
        ArgumentError: the object refuses to export, or is neither on the host nor on an NVIDIA GPU.
    """
    capsule = _export(tensor, name)
    if _is_valid(capsule, b"dltensor_versioned"):
        managed = _Versioned.from_address(_get_pointer(capsule, b"dltensor_versioned"))
        writable = not managed.flags & (_READ_ONLY | _IS_COPIED)
        return _decode(managed.tensor, capsule, name, writable=writable)
    if _is_valid(capsule, b"dltensor"):
        item = _Tensor.from_address(_get_pointer(capsule, b"dltensor"))
        return _decode(item, capsule, name, writable=True)
    raise ArgumentError(
        name,
        expected="a DLPack capsule from __dlpack__",
        got=repr(capsule),
        hint="update the producer",
    )


def _export(tensor: Tensor, name: str) -> Any:
    try:
        on_gpu = hasattr(tensor, "__dlpack_device__") and tensor.__dlpack_device__()[0] in (
            _CUDA,
            _CUDA_MANAGED,
        )
        stream = {"stream": 1} if on_gpu else {}
        try:
            return tensor.__dlpack__(max_version=(1, 0), **stream)
        except TypeError:  # A producer older than DLPack 1.0.
            return tensor.__dlpack__(**stream)
    except Exception as error:  # Exporting libraries raise exceptions of any class.
        raise ArgumentError(
            name,
            expected="a tensor that exports through __dlpack__",
            got=f"{type(error).__name__}: {error}",
            hint="copy it to NumPy, torch or CuPy",
        ) from error


def _decode(item: Any, capsule: Any, name: str, *, writable: bool) -> DLPackTensor:
    if item.device_type in (_CPU, _CUDA_HOST):
        device = CPU
    elif item.device_type in (_CUDA, _CUDA_MANAGED):
        device = Device("cuda", item.device_id)
    else:
        raise ArgumentError(
            name,
            expected="a tensor on the host or on an NVIDIA GPU",
            got=f"DLPack device type {item.device_type}",
            hint="copy it to one of these",
        )
    shape = tuple(item.shape[: item.ndim])
    strides = tuple(item.strides[: item.ndim]) if item.strides else contiguous_strides(shape)
    lanes = f"x{item.lanes}" if item.lanes != 1 else ""
    code = f"{_TYPE_CODES.get(item.code, f'code {item.code} ')}{item.bits}"
    return DLPackTensor(
        pointer=(item.data or 0) + item.byte_offset,
        shape=shape,
        strides=strides,
        type_name=_WHOLE_TYPES.get(item.code, code) + lanes,
        device=device,
        writable=writable,
        capsule=capsule,
    )
