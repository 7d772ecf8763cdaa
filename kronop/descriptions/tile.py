"""How a block of threads, or a core, cuts up the work."""

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
            Kronecker: rows of X that a block holds; elements of each row that it holds (x86: at
            most, in the states of one pass; more than a row has is the whole row);
            contraction steps unrolled.
            Kronecker-sparse: rows of the batch; outputs (of b); contraction steps (of c) at once.
        stages: tiles in flight; 1 for kernels that do not prefetch.
        warp_count: warps (x86: threads, always [1, 1, 1]) along M, N and K.
        math_instruction: the multiply-add.

    Raises:
        DescriptionError: a size that is no positive integer.
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
    """Any integer but a bool as Python's own, NumPy's for example; other values as they are."""
    if not isinstance(value, SupportsIndex) or isinstance(value, bool):
        return value
    try:
        return operator.index(value)
    except TypeError:  # An array of several.
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
