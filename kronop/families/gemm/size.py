"""The extents of matrix products that may vary between runs of one operation."""

from __future__ import annotations

from typing import Self

from kronop.frozen import dataclass
from kronop.size import bucket_of, extent_of


@dataclass(frozen=True, slots=True)
class GemmSize:
    """`batch` products of (m, k) and (k, n) matrices. Where only M is given, the others are M too.

    Attributes:
        slices: into how many parts sums are cut at least; 1 leaves that to the plan.

    Raises:
        ArgumentError: an extent is not an integer of at least 0.
    """

    m: int
    n: int = -1
    k: int = -1
    batch: int = 1
    slices: int = 1

    def __post_init__(self) -> None:
        for name in ("n", "k"):
            if getattr(self, name) == -1:
                object.__setattr__(self, name, self.m)
        for name in ("m", "n", "k", "batch", "slices"):
            hint = "a size is arguments.size, or one number for M, N and K"
            object.__setattr__(self, name, extent_of(f"extent {name}", getattr(self, name), hint))

    def __bool__(self) -> bool:
        return bool(self.m and self.n and self.batch)

    @property
    def rows(self) -> int:
        return self.m

    def bucket(self) -> Self:
        extents = (self.m, self.n, self.k, self.batch)
        m, n, k, batch = (bucket_of(item) if item else 0 for item in extents)
        return type(self)(m, n, k, batch, self.slices)

    def told(self) -> str:
        times = f"{self.batch} times " if self.batch != 1 else ""
        cut = f" in {self.slices} slices" if self.slices != 1 else ""
        return f"{times}{self.m} x {self.n} x {self.k}{cut}"

    def served(self) -> str:
        extents = {"M": self.m, "N": self.n, "K": self.k}
        if self.batch != 1:
            extents["batch"] = self.batch
        ranges = (
            f"{name} {least} to {2 * least - 1}" if least > 1 else f"{name} {least}"
            for name, least in extents.items()
        )
        cut = f", in {self.slices} slices" if self.slices != 1 else ""
        return f"{', '.join(ranges)}{cut}"

    def times(self, batch: int) -> Self:
        return type(self)(self.m, self.n, self.k, self.batch * batch, self.slices)


# What plans are made for where no size is known, for GPUs and for CPUs.
USUAL = {"cuda": GemmSize(4096), "x86": GemmSize(512)}
