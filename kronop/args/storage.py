"""What holds a tensor's memory: where that was when the tensor was read, and whether it still is.

A tensor that is referred to keeps its memory alive, but not in its place: torch's storages are
resized under the tensors that lie in them (FSDP frees parameters that way), arrays of NumPy by
`resize(refcheck=False)`, and CuPy's memory is given back to its pool by hand.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from kronop.args.signature import address_reader
from kronop.errors import ArgumentError, mismatch
from kronop.frozen import dataclass

# Where and how large memory is now, where it was and how large; and whose it is, for messages.
Kept = tuple[Callable[[], int], Callable[[], int], int, int, str]


@dataclass(frozen=True, slots=True, eq=False)
class Storage:
    """Memory that a tensor lies in.

    Attributes:
        holder: the array, torch storage or CuPy memory that has it, kept alive.
        where, size: tell its address and its bytes as they are now.
        address, nbytes: what they told when the tensor was read.
    """

    holder: Any
    where: Callable[[], int]
    size: Callable[[], int]
    address: int
    nbytes: int

    def kept(self, name: str) -> Kept:
        """What `check_kept` takes; `name` is that of the tensor."""
        return self.where, self.size, self.address, self.nbytes, name


def check_kept(kept: Iterable[Kept]) -> None:
    """Refuses memory that has been freed, moved or cut since its tensor was read.

    Raises:
        ArgumentError: it has another address, or fewer bytes.
    """
    for where, size, address, nbytes, name in kept:
        if where() != address or size() < nbytes:
            raise ArgumentError(
                mismatch(
                    f"memory of {name}",
                    expected=f"the {nbytes} bytes at {address:#x} that the arguments were built on",
                    got=f"{size()} bytes at {where():#x}",
                    hint="it was freed, resized or moved since: build the arguments again",
                )
            )


_base_of: Any = np.ndarray.base.__get__
_nbytes_of: Any = np.ndarray.nbytes.__get__


def of_array(array: Any) -> Storage:
    """The memory of an array of NumPy: that of the last array that it is a view of."""
    holder = base = array
    while (base := _behind(base)) is not None:
        if isinstance(base, np.ndarray):
            holder = base
    where, size = address_reader(holder), functools.partial(_nbytes_of, holder)
    return Storage(holder, where, size, where(), size())


def _behind(item: Any) -> Any:
    """What an array, or what stands between two arrays, has its memory from."""
    if isinstance(item, np.ndarray):
        return _base_of(item)  # A subclass may tell otherwise.
    if isinstance(item, memoryview):
        return item.obj
    if type(item).__module__.startswith("numpy."):
        return getattr(item, "base", None)  # as_strided has an object of its own there.
    return None


def of_torch(tensor: Any) -> Storage:
    """The storage of a torch tensor."""
    holder = tensor.untyped_storage()
    where, size = holder.data_ptr, holder.nbytes
    return Storage(holder, where, size, where(), size())


def of_cupy(array: Any) -> Storage:
    """The allocation that an array of CuPy lies in."""
    holder = array.data.mem
    where, size = (functools.partial(getattr, holder, name) for name in ("ptr", "size"))
    return Storage(holder, where, size, where(), size())
