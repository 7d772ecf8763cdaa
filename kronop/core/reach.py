"""Whether the memory of torch tensors is still there.

A storage may be shrunk (`untyped_storage().resize_`) while a tensor's shape and strides stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


class Reach:
    """How far into its storage each torch tensor of a call reaches.

    Args:
        tensors: the tensors of a call that ran; no reference to them is kept.
        ends: (index in `tensors`, bytes from the tensor's address to the end of its memory).
    """

    def __init__(self, tensors: Sequence[Any], ends: Iterable[tuple[int, int]]) -> None:
        self._ends = tuple(
            (place, above, tensors[place].element_size())
            for place, above in ends
            if hasattr(tensors[place], "untyped_storage")
        )

    def holds(self, tensors: Sequence[Any]) -> bool:
        """Whether the storages of these tensors, of the same shapes, are large enough."""
        for place, above, size in self._ends:
            tensor = tensors[place]
            if len(tensor.untyped_storage()) < tensor.storage_offset() * size + above:
                return False
        return True
