"""Whether the memory of torch's tensors is still there: storages shrink under tensors, whose shapes
and strides say nothing of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


class Reach:
    """How far the torch tensors of a call reach into their storages.

    Args:
        tensors: those of a call that ran; not kept.
        ends: (place in `tensors`, bytes from the tensor's address to the end of its memory).
    """

    def __init__(self, tensors: Sequence[Any], ends: Iterable[tuple[int, int]]) -> None:
        self._ends = tuple(
            (place, above, tensors[place].element_size())
            for place, above in ends
            if hasattr(tensors[place], "untyped_storage")
        )

    def holds(self, tensors: Sequence[Any]) -> bool:
        """Whether the storages of tensors like those reach as far."""
        for place, above, size in self._ends:
            tensor = tensors[place]
            if len(tensor.untyped_storage()) < tensor.storage_offset() * size + above:
                return False
        return True
