"""The extents of products of kernel matrices that may vary between runs of one operation."""

from __future__ import annotations

from dataclasses import field
from typing import Self

from kronop.families.distance.size import HINT, DistanceSize
from kronop.frozen import dataclass
from kronop.size import bucket_of, extent_of


@dataclass(frozen=True, slots=True)
class KernelMatmulSize(DistanceSize):
    """The kernel matrix of M and N points of K features times C columns, `batch` times.

    Attributes:
        own_v: how many of the problems have a V of their own; -1 for all.

    Raises:
        ArgumentError: an extent is not an integer of at least 0.
    """

    c: int = 1
    own_v: int = field(default=-1, kw_only=True)

    def __post_init__(self) -> None:
        # NOTE: `super()` without arguments names the class before `slots` has replaced it.
        DistanceSize.__post_init__(self)
        self._settle(own_v="batch")
        for name in ("c", "own_v"):
            object.__setattr__(self, name, extent_of(name, getattr(self, name), HINT))

    def __bool__(self) -> bool:
        return bool(self.m and self.c and self.batch)

    def bucket(self) -> Self:
        """The size of which problems have up to twice as many points, and up to as many features
        and columns: numbers of these decide what a kernel keeps in registers."""
        m, n, batch = map(bucket_of, (self.m, self.n, self.batch))
        wide = 16 * -(-self.k // 16)
        k = wide if 16 < self.k <= 128 else _above(self.k)
        return type(self)(m, n, k, batch, _above(self.c))

    def told(self) -> str:
        return f"{DistanceSize.told(self)}, {self.c} columns"

    def served(self) -> str:
        return f"up to twice as many points as {self.told()}, of at most as many"

    def times(self, batch: int) -> Self:
        return type(self)(self.m, self.n, self.k, self.batch * batch, self.c)


def _above(extent: int) -> int:
    """The least power of two at or above the extent; 1 for 0."""
    return 1 << max(extent - 1, 0).bit_length()


# What a plan is made for where no size is known.
USUAL = KernelMatmulSize(65536, 65536, 16)
