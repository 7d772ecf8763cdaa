"""What may vary between the runs of one operation: the extent of its problem."""

from __future__ import annotations

import operator
from typing import Any, Protocol, Self

from kronop.errors import ArgumentError, mismatch


class Size(Protocol):
    """A hashable value that is false where there is nothing to do.

    A family whose operations vary in more than rows has a class of its own: its `Kind` names it,
    its arguments have it, its emitters plan for it.
    """

    def __bool__(self) -> bool: ...

    def __hash__(self) -> int: ...

    def bucket(self) -> Self:
        """What stands for all sizes that are planned and tuned alike."""
        ...

    def told(self) -> str:
        """The size in words."""
        ...

    def served(self) -> str:
        """In words, the sizes that this bucket stands for."""
        ...

    def times(self, batch: int) -> Self:
        """The size of so many problems."""
        ...


class Rows(int):
    """Rows in all: M times the batch. A number like any other.

    Raises:
        ArgumentError: no integer of at least 0.
    """

    __slots__ = ()

    def __new__(cls, count: Any) -> Self:
        try:
            rows = -1 if isinstance(count, bool) else operator.index(count)
        except TypeError:
            rows = -1
        if rows < 0:
            raise ArgumentError(
                mismatch(
                    "rows", expected="an integer of at least 0", got=repr(count), hint="count rows"
                )
            )
        return super().__new__(cls, rows)

    def bucket(self) -> Rows:
        """The largest power of two that is no more; 1 for none."""
        return Rows(1 << max(self, 1).bit_length() - 1)

    def told(self) -> str:
        return f"{self} rows"

    def served(self) -> str:
        return f"{self} to {2 * self - 1}"

    def times(self, batch: int) -> Rows:
        return Rows(self * batch)
