"""What a problem of points says of itself, so that all are measured and reported alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kronop.bench.arrays import Arrays, spread_rows
from kronop.bench.protocol import Call
from kronop.cpus import cpu_count
from kronop.emit.pipes import Work
from kronop.errors import ArgumentError
from kronop.tensors import Tensor

Host = NDArray[np.float64]

# Features of pairs that are checked against float64, about; at least a few rows are.
_CHECKED = 1 << 26
_LEAST_ROWS, _MOST_ROWS = 4, 64


def checked_rows(count: int, features: int) -> list[int]:
    """Some of `count` rows, each of which takes so many features of pairs."""
    return spread_rows(count, max(_LEAST_ROWS, min(_MOST_ROWS, _CHECKED // features)))


def scaled(count: int, scale: float) -> int:
    """A number of points times `--scale`."""
    return max(1, round(scale * count))


def by_rows(row: Callable[[int], Host], rows: Sequence[int]) -> Host:
    """The rows one by one, on all cores: the differences to one point are as large as all other
    points."""
    with ThreadPoolExecutor(cpu_count()) as pool:
        return np.stack(list(pool.map(row, rows)))


def extents_of(shape: str, names: str, example: str, hint: str) -> tuple[int, int, int, int]:
    """Four extents that are written `5000x5000x16x1`.

    Raises:
        ArgumentError: they are not written so.
    """
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*){3}", shape):
        raise ArgumentError("shape", expected=f"{names}, as {example}", got=repr(shape), hint=hint)
    first, second, third, fourth = map(int, shape.split("x"))
    return first, second, third, fourth


class Problem(Protocol):
    """One problem: a new kind of row in the table is a class with these."""

    @property
    def kind(self) -> str:
        """What such problems are called on the command line."""
        ...

    @property
    def extents(self) -> Mapping[str, int]:
        """Its size by the names of the formulas, in the order of `--shapes`."""
        ...

    @property
    def label(self) -> str:
        """Its size, in the notation of `--shapes`."""
        return "x".join(map(str, self.extents.values()))

    @property
    def case(self) -> str:
        """What is computed, in the notation of `--cases`."""
        ...

    @property
    def dtype(self) -> str: ...

    @property
    def sums(self) -> str:
        """The type of sums."""
        return "float64" if self.dtype == "float64" else "float32"

    @property
    def result(self) -> tuple[int, ...]:
        """The result's shape."""
        ...

    def work(self, *, units: bool) -> Work:
        """The least work; `units` says whether special function units take part."""
        ...

    def operands(self, arrays: Arrays) -> tuple[Tensor, ...]:
        """New tensors with random values."""
        ...

    def call(self, operands: Sequence[Tensor], result: Tensor) -> Call:
        """kronop's call into this result."""
        ...

    @property
    def checked(self) -> list[int]:
        """The rows of the result that are checked."""
        ...

    def picked(self, result: Tensor) -> Tensor:
        """These rows of a result."""
        return result[self.checked]

    def expected(self, operands: Sequence[Host]) -> Host:
        """These rows, from operands in float64."""
        ...

    def error(self, found: Host, expected: Host, operands: Sequence[Host]) -> float:
        """How far the rows found are from those expected."""
        return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))

    def peer(self, name: str, arrays: Arrays, operands: Sequence[Tensor]) -> Call:
        """A call of another library that returns the result.

        Raises:
            PeerUnavailableError: the library is missing, or has no such computation.
        """
        ...

    def as_json(self) -> Mapping[str, object]:
        """What tells this problem from others."""
        return {"kind": self.kind, "case": self.case, **self.extents, "dtype": self.dtype}
