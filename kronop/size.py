"""Sizes: the extents of a problem that may vary between runs of one operation."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, Protocol, Self

from kronop.errors import ArgumentError


class Size(Protocol):
    """A hashable value that is false if there is nothing to do.

    If operations of a family vary in more than their rows, the family defines a class of its own:
    its `Kind` names the class, its arguments return instances, and its emitters plan for them.
    """

    def __bool__(self) -> bool: ...

    def __hash__(self) -> int: ...

    @property
    def rows(self) -> int:
        """The number by which programs in C ask for the size: the first of its extents."""
        ...

    def bucket(self) -> Self:
        """The size that represents all sizes with the same plan and the same tuning."""
        ...

    def told(self) -> str:
        """The size in words."""
        ...

    def served(self) -> str:
        """In words, the sizes that this bucket represents."""
        ...

    def times(self, batch: int) -> Self:
        """The size of `batch` such problems."""
        ...


class Rows(int):
    """The total number of rows, M times the batch, as an int.

    Raises:
        ArgumentError: the count is not an integer of at least 0.
    """

    __slots__ = ()

    def __new__(cls, count: Any) -> Self:
        return super().__new__(cls, extent_of("rows", count, "count rows"))

    @property
    def rows(self) -> int:
        return int(self)

    def bucket(self) -> Rows:
        """The largest power of two at or below the number of rows; 1 for 0 rows."""
        return Rows(bucket_of(self))

    def told(self) -> str:
        return f"{self} rows"

    def served(self) -> str:
        return f"{self} to {2 * self - 1}"

    def times(self, batch: int) -> Rows:
        return Rows(self * batch)


def bucket_of(extent: int) -> int:
    """The largest power of two at or below the extent; 1 for 0."""
    return 1 << max(extent, 1).bit_length() - 1


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def extent_of(name: str, value: Any, hint: str) -> int:
    """The extent as an int.

    Raises:
        ArgumentError: it is not an integer of at least 0.
    """
    try:
        extent = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        extent = -1
    if extent < 0:
        raise ArgumentError(name, expected="an integer of at least 0", got=repr(value), hint=hint)
    return extent


def size_within(item: Any, kind: type) -> Any:
    """The size of this kind that an object holds, as PyCUTLASS's problem sizes do; else itself."""
    found = getattr(item, "size", None)
    return found if isinstance(found, kind) else item


def problems(batch: Sequence[Any]) -> int:
    """The number of problems in a batch of these leading dimensions.

    Raises:
        ArgumentError: a dimension is no integer of at least 0.
    """
    try:
        return math.prod(map(Rows, batch))
    except ArgumentError:
        raise ArgumentError(
            "batch",
            expected="integers of at least 0",
            got=repr(tuple(batch)),
            hint="give the leading dimensions of X and Y",
        ) from None
