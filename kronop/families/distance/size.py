"""The extents of distances that may vary between runs of one operation."""

from __future__ import annotations

from dataclasses import field
from typing import Self

from kronop.frozen import dataclass
from kronop.size import bucket_of, extent_of

HINT = "count points and features"


@dataclass(frozen=True, slots=True)
class DistanceSize:
    """M points against N points of K features, `batch` times.

    Where only M is given, as many points are taken against each other.

    Attributes:
        own_x1, own_x2, own_points: how many of the problems have an X1, an X2 and a pair of both of
            their own, instead of sharing them with others over which they broadcast; -1 for all.

    Raises:
        ArgumentError: an extent is not an integer of at least 0.
    """

    m: int
    n: int = -1
    k: int = 64
    batch: int = 1
    own_x1: int = field(default=-1, kw_only=True)
    own_x2: int = field(default=-1, kw_only=True)
    own_points: int = field(default=-1, kw_only=True)

    def __post_init__(self) -> None:
        self._settle(n="m", own_x1="batch", own_x2="batch", own_points="batch")
        for name in ("m", "n", "k", "batch", "own_x1", "own_x2", "own_points"):
            object.__setattr__(self, name, extent_of(name, getattr(self, name), HINT))

    def _settle(self, **alike: str) -> None:
        """Gives each extent that is -1 the value of the one that it is like."""
        for name, other in alike.items():
            if getattr(self, name) == -1:
                object.__setattr__(self, name, getattr(self, other))

    def __bool__(self) -> bool:
        return bool(self.m and self.n and self.batch)

    @property
    def rows(self) -> int:
        return self.m

    def bucket(self) -> Self:
        # Problems that share points are planned as those that don't: tiles compute as much.
        return type(self)(
            bucket_of(self.m),
            bucket_of(self.n),
            bucket_of(self.k) if self.k else 0,
            bucket_of(self.batch),
        )

    def told(self) -> str:
        times = f"{self.batch} times " if self.batch != 1 else ""
        return f"{times}{self.m} x {self.n} points of {self.k} features"

    def served(self) -> str:
        return f"less than twice as many of each as {self.told()}"

    def times(self, batch: int) -> Self:
        return type(self)(self.m, self.n, self.k, self.batch * batch)


# What plans are made for where no size is known, for GPUs and for CPUs.
USUAL = {"cuda": DistanceSize(16384, 16384, 256), "x86": DistanceSize(2048, 2048, 64)}
