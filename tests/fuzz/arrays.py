"""Tensors of NumPy and torch with random values, each in memory of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from kronop.descriptions.datatype import DataType
from tests import support
from tests.fuzz.case import Operand

_ALIGNMENT = 64


class HostMemory:
    """The memory of a tensor on the host, with guard elements around the tensor.

    Args:
        operand: the tensor's layout in the memory.
        element: the tensor's element type.
        framework: the framework of the tensor, "numpy" or "torch".

    Attributes:
        tensor: the tensor.
    """

    def __init__(self, operand: Operand, element: DataType, framework: str) -> None:
        self.operand, self.element = operand, element
        raw = np.empty(operand.size * element.bytes + _ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % _ALIGNMENT
        self._bytes = raw[start : start + operand.size * element.bytes]
        self._flat = self._bytes.view(support.numpy_type(element))
        self.tensor = self.array if framework == "numpy" else self._of_torch()

    @property
    def array(self) -> Any:
        """The tensor as a NumPy array."""
        return self._over(self._bytes, self._flat.dtype)

    def _over(self, memory: Any, kind: Any) -> Any:
        return array_over(self.operand, memory, kind)

    def _of_torch(self) -> Any:
        import torch

        bits = torch.from_numpy(self._flat.view(f"i{self.element.bytes}"))
        flat = bits.view(getattr(torch, self.element.name))
        return torch.as_strided(flat, self.operand.shape, self.operand.strides, self.operand.offset)

    def fill(self, seed: int, scale: float, wide: bool) -> None:
        """Fills all of the memory with new values, also between and around the tensor's."""
        random = np.random.default_rng(seed)
        if self.element.kind == "float":
            values = random.standard_normal(len(self._flat)) * scale
        elif wide:
            info = np.iinfo(self.element.name)
            values = random.integers(info.min, info.max, len(self._flat), np.int64, True)
        else:
            values = random.integers(-9, 10, len(self._flat))
        self._flat[...] = values.astype(self._flat.dtype)

    def poison(self) -> None:
        """Fills all of the memory with a value that no result has."""
        self._flat[...] = support.poison((), self.element)

    def poison_around(self) -> None:
        """As `poison`, but only outside the tensor."""
        kept = self.array.copy()
        self.poison()
        self.array[...] = kept

    def wide(self) -> Any:
        """The tensor's values in float64, or in int64 for integers."""
        return wide(self.array)

    def bits(self) -> Any:
        """A copy of all of the memory."""
        return self._bytes.copy()

    def is_kept(self, bits: Any, *, besides: bool = False) -> bool:
        """Whether the memory equals an earlier copy; with `besides`, the tensor may differ."""
        now = self.bits()
        if besides:
            kind = f"i{self.element.bytes}"
            self._over(now, kind)[...] = self._over(bits, kind)
        return bool((now == bits).all())


class DeviceMemory:
    """As HostMemory, but on a GPU and for torch."""

    def __init__(self, operand: Operand, element: DataType, device: str = "cuda") -> None:
        import torch

        self.operand, self.element, self._torch = operand, element, torch
        self._flat = torch.empty(operand.size, dtype=getattr(torch, element.name), device=device)
        self._kind = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[element.bytes]
        self.tensor = self._over(self._flat)

    def _over(self, flat: Any) -> Any:
        item = self.operand
        return self._torch.as_strided(flat, item.shape, item.strides, item.offset)

    def fill(self, seed: int, scale: float, wide: bool) -> None:
        torch, flat = self._torch, self._flat
        generator = torch.Generator(flat.device).manual_seed(seed)
        options = {"generator": generator, "device": flat.device}
        if self.element.kind == "float":
            kind = torch.float64 if self.element.bytes == 8 else torch.float32
            values = torch.randn(len(flat), dtype=kind, **options) * scale
        else:
            bits = self.element.bits - 1
            low, high = (-(2**bits), 2**bits - 1) if wide else (-9, 10)
            values = torch.randint(low, high, (len(flat),), **options)
        flat.copy_(values)

    def poison(self) -> None:
        value = support.poison((), self.element)
        self._flat.view(self._kind).fill_(int(value.view(f"i{self.element.bytes}")))

    def poison_around(self) -> None:
        kept = self.tensor.clone()
        self.poison()
        self.tensor.copy_(kept)

    def wide(self) -> Any:
        return wide(self.tensor)

    def bits(self) -> Any:
        return self._flat.view(self._kind).clone()

    def is_kept(self, bits: Any, *, besides: bool = False) -> bool:
        now = self.bits()
        if besides:
            self._over(now).copy_(self._over(bits))
        return bool((now == bits).all())


def array_over(operand: Operand, memory: Any, kind: Any) -> Any:
    """An array with this layout and type over memory that is given as bytes."""
    size = np.dtype(kind).itemsize
    strides = tuple(stride * size for stride in operand.strides)
    return np.ndarray(operand.shape, kind, memory, operand.offset * size, strides)


Memory = HostMemory | DeviceMemory


def memory(operand: Operand, element: DataType, framework: str, on_gpu: bool) -> Memory:
    """New memory, not yet filled; for NumPy it is always on the host."""
    if on_gpu and framework == "torch":
        return DeviceMemory(operand, element)
    return HostMemory(operand, element, framework)


def wide(tensor: Any) -> Any:
    """The values in float64 or int64: a NumPy array if they are on the host, else a tensor."""
    if isinstance(tensor, np.ndarray):
        kind = np.int64 if tensor.dtype.kind == "i" else np.float64
        return tensor.astype(kind)
    values = tensor.detach().double() if tensor.is_floating_point() else tensor.long()
    return values.clone() if values.is_cuda else values.numpy().copy()
