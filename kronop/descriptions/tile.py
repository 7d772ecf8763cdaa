"""Tile sizes: how a block of threads (on x86, a core) divides its work."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import SupportsIndex

from kronop.descriptions.math_instruction import MathInstruction
from kronop.errors import DescriptionError, mismatch
from kronop.frozen import dataclass


@dataclass(frozen=True, slots=True)
class TileDescription:
    """Tile sizes of one operation.

    Args:
        threadblock_shape: [Tile_M, Tile_N, Tile_K].
            Kronecker: Tile_M is the rows of X that a block holds; Tile_N the elements of each row
            that it holds (on x86 an upper limit, for the states of one pass; a value above a row's
            length means the whole row); Tile_K the contraction steps that are unrolled.
            Kronecker-sparse: Tile_M is rows of the batch, Tile_N outputs (of b), Tile_K contraction
            steps (of c) that are held at once.
        stages: tiles in flight; 1 for kernels that do not prefetch.
        warp_count: warps (x86: threads, always [1, 1, 1]) along M, N and K.
        math_instruction: the multiply-add instruction.

    Raises:
        DescriptionError: a size is not a positive integer.
    """

    threadblock_shape: tuple[int, int, int]
    stages: int
    warp_count: tuple[int, int, int]
    math_instruction: MathInstruction

    def __init__(
        self,
        threadblock_shape: Sequence[int],
        stages: int,
        warp_count: Sequence[int],
        math_instruction: MathInstruction,
    ) -> None:
        object.__setattr__(
            self, "threadblock_shape", _three("threadblock_shape", threadblock_shape)
        )
        object.__setattr__(self, "stages", _positive("stages", stages))
        object.__setattr__(self, "warp_count", _three("warp_count", warp_count))
        object.__setattr__(self, "math_instruction", math_instruction)
        if not isinstance(math_instruction, MathInstruction):
            raise DescriptionError(
                mismatch(
                    "math_instruction",
                    expected="a MathInstruction",
                    got=repr(math_instruction),
                    hint="build one with kronop.MathInstruction(...)",
                )
            )

    @property
    def warps(self) -> int:
        m, n, k = self.warp_count
        return m * n * k


def whole(value: object) -> object:
    """An integer of any kind (NumPy's, for example) as a Python int; bools and other values
    unchanged."""
    if not isinstance(value, SupportsIndex) or isinstance(value, bool):
        return value
    try:
        return operator.index(value)
    except TypeError:  # An array with several elements.
        return value


def _positive(name: str, value: object) -> int:
    value = whole(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise DescriptionError(
            mismatch(
                name,
                expected="a positive integer",
                got=repr(value),
                hint="give a size of at least 1",
            )
        )
    return value


def _three(name: str, values: Sequence[int]) -> tuple[int, int, int]:
    if not isinstance(values, Sequence) or len(values) != 3:
        raise DescriptionError(
            mismatch(
                name, expected="three integers [M, N, K]", got=repr(values), hint="give all three"
            )
        )
    m, n, k = (_positive(name, value) for value in values)
    return m, n, k
