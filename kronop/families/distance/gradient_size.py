"""The extents of gradients of distances that may vary between runs of one operation."""

from __future__ import annotations

from typing import Self

from kronop.frozen import dataclass
from kronop.size import extent_of

_FIELDS = ("m", "n", "k", "o", "batch")
# More coefficients than this are taken this many at a time.
MOST_OUTPUTS = 8
_QUARTERS = 4
_HINT = "count points, features and coefficients"


@dataclass(frozen=True, slots=True)
class GradientSize:
    """O results of N features for M points, summed over K points, `batch` times.

    Raises:
        ArgumentError: an extent is not an integer of at least 0.
    """

    m: int
    n: int = 64
    k: int = 1024
    o: int = 1
    batch: int = 1

    def __post_init__(self) -> None:
        for name in _FIELDS:
            object.__setattr__(self, name, extent_of(name, getattr(self, name), _HINT))

    def __bool__(self) -> bool:
        return bool(self.m and self.n and self.o and self.batch)

    @property
    def rows(self) -> int:
        return self.m

    def bucket(self) -> Self:
        # The number of outputs decides how many sums a thread has, so it is rounded up: a kernel
        # for too few of them would run twice.
        # Tiles depend on how many there are, so that M and N are taken more exactly than others.
        m, n = (_power(extent, _QUARTERS) for extent in (self.m, self.n))
        o = self.outputs if self.o <= MOST_OUTPUTS else _power(self.o)
        return type(self)(m, n, _power(self.k), o, _power(self.batch))

    @property
    def outputs(self) -> int:
        """How many results of one pair a kernel computes at once: a power of two."""
        return min(1 << max(self.o - 1, 0).bit_length(), MOST_OUTPUTS)

    def told(self) -> str:
        times = f"{self.batch} times " if self.batch != 1 else ""
        return f"{times}{self.o} x {self.n} x {self.m} results of {self.k} points"

    def served(self) -> str:
        return f"less than twice as many of each as {self.told()}"

    def times(self, batch: int) -> Self:
        return type(self)(self.m, self.n, self.k, self.o, self.batch * batch)


def _power(extent: int, parts: int = 1) -> int:
    """The largest power of two at or below the extent, and as many whole parts of it as there are;
    1 for 0."""
    power = 1 << max(extent, 1).bit_length() - 1
    step = max(1, power // parts)
    return max(extent, 1) // step * step


# What a plan is made for where no size is known.
USUAL = GradientSize(m=512, n=2048, k=2048, o=4)
