"""Matrix products of int8 on vectors; see gemm_pairs.hpp."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from kronop.families.gemm.x86.design import VectorGemm
from kronop.frozen import dataclass
from kronop.target import Target

PAIRED_BYTES = 2  # Of a number that is packed for a pair.


@dataclass(frozen=True, slots=True, kw_only=True)
class PairGemm(VectorGemm):
    """Pairs of neighbours along k are multiplied by one instruction, and their products added."""

    styles: ClassVar[tuple[str, ...]] = ("plain",)
    template: ClassVar[str] = "gemm_pairs"
    header: ClassVar[str] = "gemm_pairs.hpp"

    @property
    def unit(self) -> int:
        return 2

    @property
    def packed_bytes(self) -> int:
        return PAIRED_BYTES

    @property
    def _needs_products(self) -> bool:
        return True

    def style(self, target: Target) -> Iterator[str]:
        yield from self.styles
