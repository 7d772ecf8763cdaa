"""PyCUTLASS's words for matrix products: sizes, modes, and the order of tiles."""

from __future__ import annotations

import enum

from kronop.frozen import dataclass
from kronop.size import extent_of


@dataclass(frozen=True, slots=True)
class GemmCoord:
    """The extents of a product: A is M x K, B is K x N, C and D are M x N.

    Raises:
        ArgumentError: an extent is not an integer of at least 0.

    Example:
        >>> kronop.gemm.GemmCoord(300, 100, 200)
        GemmCoord(m=300, n=100, k=200)
    """

    m: int
    n: int
    k: int

    def __post_init__(self) -> None:
        for name in ("m", "n", "k"):
            hint = "kronop.gemm.GemmCoord(M, N, K) takes three integers"
            object.__setattr__(self, name, extent_of(f"extent {name}", getattr(self, name), hint))


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
