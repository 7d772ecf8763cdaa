"""PyCUTLASS's words for matrix products: sizes, modes, and the order of tiles."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from kronop.frozen import dataclass
from kronop.size import extent_of


class Extent(int):
    """An int that gives itself where it is called: extents are fields in kronop, and methods in
    PyCUTLASS.

    Example:
        >>> size = kronop.gemm.GemmCoord(300, 100, 200)
        >>> size.m, size.m()
        (300, 300)
    """

    __slots__ = ()

    def __call__(self) -> int:
        return int(self)


@dataclass(frozen=True, slots=True)
class GemmCoord:
    """The extents of a product: A is M x K, B is K x N, C and D are M x N.

    PyCUTLASS's programs call them, as in `size.m()`; `size.m` is the same number.

    Raises:
        ArgumentError: an extent is not an integer of at least 0.

    Example:
        >>> kronop.gemm.GemmCoord(300, 100, 200)
        GemmCoord(m=300, n=100, k=200)
    """

    m: Extent
    n: Extent
    k: Extent

    def __init__(self, m: int, n: int, k: int) -> None:
        given = {"m": m, "n": n, "k": k}
        _take_extents(self, given, "kronop.gemm.GemmCoord(M, N, K) takes three integers")


@dataclass(frozen=True, slots=True)
class MatrixCoord:
    """Rows and columns, of a tile for example.

    Raises:
        ArgumentError: one is not an integer of at least 0.

    Example:
        >>> kronop.MatrixCoord(4, 128)
        MatrixCoord(row=4, column=128)
    """

    row: Extent
    column: Extent

    def __init__(self, row: int, column: int) -> None:
        given = {"row": row, "column": column}
        _take_extents(self, given, "kronop.MatrixCoord(rows, columns) takes two integers")


def _take_extents(taker: object, given: Mapping[str, object], hint: str) -> None:
    for name, value in given.items():
        object.__setattr__(taker, name, Extent(extent_of(f"extent {name}", value, hint)))


class Mode(enum.Enum):
    """What a run of a `GemmOperationUniversal` computes.

    Attributes:
        Gemm: one product; with `split_k_slices` above 1, slices of the sum run side by side. On
            GPUs their sums go to scratch memory, and a second launch adds them up, in their order.
        GemmSplitKParallel: the same.
        Batched: `batch` products of matrices that are equally far apart in memory.
        Array: `batch` products of matrices anywhere in memory.

    Example:
        >>> [mode.name for mode in kronop.gemm.Mode]
        ['Gemm', 'GemmSplitKParallel', 'Batched', 'Array']
    """

    Gemm = "gemm"
    GemmSplitKParallel = "split-k parallel"
    Batched = "batched"
    Array = "array"


class Swizzle(enum.Enum):
    """The order in which blocks of a GPU take tiles of the result: the number of tiles along N that
    are taken before the next ones along M, so that blocks that run together share operands in the
    level-2 cache. CPUs and designs with an order of their own take no notice.

    Example:
        >>> kronop.IdentitySwizzle4, kronop.IdentitySwizzle4.width
        (kronop.IdentitySwizzle4, 4)
    """

    IdentitySwizzle1 = 1
    IdentitySwizzle2 = 2
    IdentitySwizzle4 = 4
    IdentitySwizzle8 = 8
    BatchedIdentitySwizzle = 0

    def __repr__(self) -> str:
        return f"kronop.{self.name}"

    @property
    def width(self) -> int:
        """Tiles along N that are taken together."""
        return max(self.value, 1)


class SchedulerMode(enum.Enum):
    """Where it is decided which block computes which tile of which product of a group.

    Example:
        >>> [mode.name for mode in kronop.SchedulerMode]
        ['Device', 'Host']
    """

    Device = "device"
    Host = "host"


IdentitySwizzle1 = Swizzle.IdentitySwizzle1
IdentitySwizzle2 = Swizzle.IdentitySwizzle2
IdentitySwizzle4 = Swizzle.IdentitySwizzle4
IdentitySwizzle8 = Swizzle.IdentitySwizzle8
BatchedIdentitySwizzle = Swizzle.BatchedIdentitySwizzle
