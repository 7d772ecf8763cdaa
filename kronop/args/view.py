"""`TensorView`: a tensor's memory, shape and strides, the form in which kronop handles tensors."""

from __future__ import annotations

import math
from dataclasses import field, replace
from typing import Any

from kronop.args.storage import Storage
from kronop.descriptions.datatype import DataType
from kronop.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Device:
    """The host ("cpu"), one GPU ("cuda" and its index), or any GPU of a target ("sm_90a").

    Memory of the last kind has no address here: it stands for that of programs to come.
    """

    kind: str
    index: int = 0

    @property
    def is_host(self) -> bool:
        return self.kind == "cpu"

    def __str__(self) -> str:
        return "cpu" if self.is_host else f"cuda:{self.index}"


CPU = Device("cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorView:
    """A tensor's memory.

    Attributes:
        pointer: address of the element with all indices 0.
        shape: extents.
        strides: in elements, one per extent; any sign.
        element: element type.
        device: the device that holds the memory.
        framework: "numpy", "torch", "cupy", or "dlpack" for every other readable tensor.
        writable: whether the owner allows writing.
        owner: the object that keeps the memory alive: the tensor, or a torch tensor's storage.
        in_place: False for an array that no kernel can read where it lies (foreign byte order, a
            misaligned address, strides that are no multiple of the element size); pointer is then
            0, and the array is copied before each run.
        storage: the storage that the memory is part of, to check that it has not moved; None for
            tensors read through DLPack or the CUDA array interface, which tell no storage.
    """

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    element: DataType
    device: Device
    framework: str
    writable: bool
    owner: Any = field(repr=False, compare=False)
    in_place: bool = True
    storage: Storage | None = field(default=None, repr=False, compare=False)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def reshaped(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> TensorView:
        """The same memory seen with another shape and other strides."""
        return replace(self, shape=shape, strides=strides)


def contiguous_strides(shape: tuple[int, ...], unit: int = 1) -> tuple[int, ...]:
    """Strides of a row-major array whose last stride is `unit`."""
    strides = []
    for extent in reversed(shape):
        strides.append(unit)
        unit *= max(extent, 1)
    return tuple(reversed(strides))
