"""Kronecker-sparse patterns: the grid of a paper, samples of the grid, and cases to time.

The grid is that of Gonon, Zheng, Carrivain and Le, "Fast inference with Kronecker-sparse matrices"
(arXiv 2405.15013), appendix B.1.
"""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kronop.core.command import rows_of
from kronop.descriptions.datatype import TENSOR_TYPES, DataType, result_type
from kronop.errors import ArgumentError

# The paper's batch: 196 tokens of 128 images.
BATCH = 25088
LAYOUTS = ("first", "last")
_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_SIZES = (48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
_RATIOS = (1, 4)
_DROPPED = {frozenset(pair) for pair in ((1024, 256), (512, 128), (256, 64))}
# X, Y and the weights must each have fewer elements than this.
_MOST_ELEMENTS = 2**31 - 1


@dataclass(frozen=True, slots=True, order=True)
class Pattern:
    """The pattern (a, b, c, d) of a factor K with the nonzeros of I_a x dense(b, c) x I_d."""

    a: int
    b: int
    c: int
    d: int

    def __str__(self) -> str:
        return f"({self.a},{self.b},{self.c},{self.d})"

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        return self.a, self.b, self.c, self.d

    @property
    def inputs(self) -> int:
        """Features of X."""
        return self.a * self.c * self.d

    @property
    def outputs(self) -> int:
        """Features of Y."""
        return self.a * self.b * self.d

    @property
    def weights(self) -> int:
        """Elements of K that may differ from 0."""
        return self.a * self.b * self.c * self.d

    @property
    def density(self) -> float:
        """The share of K's elements that may differ from 0."""
        return 1 / (self.a * self.d)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One product to be timed.

    Attributes:
        layout: "first" if X is (batch, features), "last" if it is (features, batch).
        backward: whether the gradients of X and of the weights are timed too.
    """

    pattern: Pattern
    dtype: str
    layout: str
    batch: int
    backward: bool = False

    def __str__(self) -> str:
        return f"{self.pattern} {self.dtype} {self.layout}"

    def bytes(self, element_bytes: int) -> int:
        """Bytes if each pass, forward and backward, reads its inputs once and writes its outputs
        once.

        Y is counted in its own element type, which is wider than operands of one byte.
        """
        x, y = self.batch * self.pattern.inputs, self.batch * self.pattern.outputs
        w = self.pattern.weights
        elements = x + w
        if self.backward:
            # Read X, the weights and the gradient of Y; write the gradients of X and the weights.
            elements += 2 * x + y + 2 * w
        return element_bytes * elements + self.result.bytes * y

    @property
    def result(self) -> DataType:
        """Element type of Y."""
        return result_type(TENSOR_TYPES[self.dtype])

    @property
    def operations(self) -> int:
        """Multiplications and additions; a gradient takes as many as the product."""
        return 2 * self.batch * self.pattern.weights * (3 if self.backward else 1)


def grid() -> list[Pattern]:
    """The patterns of the paper's benchmark: those that fit its batch, whatever batch is timed."""
    return [
        Pattern(a, b, c, d)
        for a, d in itertools.product(_COUNTS, repeat=2)
        for b, c in itertools.product(_SIZES, repeat=2)
        if 1 in (a, d)
        and any(max(b, c) == ratio * min(b, c) for ratio in _RATIOS)
        and frozenset((b, c)) not in _DROPPED
        and _is_indexed(Pattern(a, b, c, d))
    ]


def _is_indexed(pattern: Pattern) -> bool:
    elements = BATCH * max(pattern.inputs, pattern.outputs), pattern.weights
    return max(elements) < _MOST_ELEMENTS


def sample(count: int) -> list[Pattern]:
    """`count` patterns of the grid; always the same ones, and a prefix of larger samples.

    All pairs (a, d) are taken in turn, each with the pair (b, c) that was taken least often so far.

    Raises:
        ArgumentError: `count` is below 1.
    """
    if count < 1:
        raise ArgumentError("--sample", expected="at least 1", got=count, hint="60 take minutes")
    patterns = grid()
    random.Random(0).shuffle(patterns)
    strata: dict[tuple[int, int], list[Pattern]] = {}
    for pattern in patterns:
        strata.setdefault((pattern.a, pattern.d), []).append(pattern)
    taken: list[Pattern] = []
    seen: Counter[tuple[int, int]] = Counter()
    for stratum in itertools.cycle(strata.values()):
        if len(taken) == min(count, len(patterns)):
            return taken
        if stratum:
            best = min(stratum, key=lambda item: seen[item.b, item.c])
            stratum.remove(best)
            seen[best.b, best.c] += 1
            taken.append(best)
    raise AssertionError("strata hold every pattern")


def parse(texts: Sequence[str]) -> list[tuple[int | None, Pattern]]:
    """(M or None, the pattern) of each text: a,b,c,d, or M:a,b,c,d.

    Raises:
        ArgumentError: a text is not four positive integers joined by commas, with or without rows.
    """
    found = []
    for text in texts:
        rows, pattern = rows_of(text)
        if not re.fullmatch(r"[1-9]\d*(,[1-9]\d*){3}", pattern):
            raise ArgumentError(
                "--patterns",
                expected="a,b,c,d, as 6,64,64,1, or with rows as 256:6,64,64,1",
                got=repr(text),
                hint="K is I_a x dense(b, c) x I_d in structure",
            )
        found.append((rows, Pattern(*map(int, pattern.split(",")))))
    return found
