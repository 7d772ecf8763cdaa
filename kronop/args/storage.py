"""The storage of a tensor: where it was when the tensor was read, and whether it is still there.

A reference to a tensor does not pin its memory: torch storages are resized under their tensors
(FSDP frees parameters that way), NumPy arrays by `resize(refcheck=False)`, and CuPy memory can be
given back to its pool by hand. A kernel would then read or write memory that is no longer theirs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from kronop.args.signature import address_reader
from kronop.errors import ArgumentError
from kronop.frozen import dataclass
from kronop.tensors import Tensor

# (the functions that give its address and size now, its address and size when the tensor was read,
# the tensor's name for messages).
Kept = tuple[Callable[[], int], Callable[[], int], int, int, str]


@dataclass(frozen=True, slots=True, eq=False)
class Storage:
    """The memory that a tensor lies in.

    Attributes:
        holder: the array, torch storage or CuPy memory object that owns it; kept alive.
        where, size: functions that return its current address and size in bytes.
        address, nbytes: its address and size in bytes when the tensor was read.
    """

    holder: Any
    where: Callable[[], int]
    size: Callable[[], int]
    address: int
    nbytes: int

    def kept(self, name: str) -> Kept:
        """The item for `check_kept`; `name` is the tensor's name in messages."""
        return self.where, self.size, self.address, self.nbytes, name


def check_kept(kept: Iterable[Kept]) -> None:
    """Refuses memory that was freed, moved or shrunk after its tensor was read.

    Raises:
        ArgumentError: the memory has another address, or fewer bytes.
    """
    for where, size, address, nbytes, name in kept:
        if where() != address or size() < nbytes:
            raise ArgumentError(
                f"memory of {name}",
                expected=f"the {nbytes} bytes at {address:#x} that the arguments were built on",
                got=f"{size()} bytes at {where():#x}",
                hint="it was freed, resized or moved since: build the arguments again",
            )


_base_of: Any = np.ndarray.base.__get__
_nbytes_of: Any = np.ndarray.nbytes.__get__


def of_array(array: Tensor) -> Storage:
    """The storage of a NumPy array: the last array in its chain of bases owns the memory."""
    holder = base = array
    while (base := _behind(base)) is not None:
        if isinstance(base, np.ndarray):
            holder = base
    where, size = address_reader(holder), functools.partial(_nbytes_of, holder)
    return Storage(holder, where, size, where(), size())


def _behind(item: object) -> object:
    """The next object in a chain of bases: an array's base, or an object between two arrays."""
    if isinstance(item, np.ndarray):
        return _base_of(item)  # ndarray's own `base`: a subclass may override the attribute.
    if isinstance(item, memoryview):
        return item.obj
    if type(item).__module__.startswith("numpy."):
        return getattr(item, "base", None)  # as_strided puts such an object between two arrays.
    return None


def of_torch(tensor: Tensor) -> Storage:
    """The storage of a torch tensor."""
    holder = tensor.untyped_storage()
    where, size = holder.data_ptr, holder.nbytes
    return Storage(holder, where, size, where(), size())


def of_cupy(array: Tensor) -> Storage:
    """The allocation that a CuPy array lies in."""
    holder = array.data.mem
    where, size = (functools.partial(getattr, holder, name) for name in ("ptr", "size"))
    return Storage(holder, where, size, where(), size())
