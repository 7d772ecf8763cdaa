"""Matrix products of int8 on vectors; see gemm_pairs.hpp."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from kronop.artifacts import Status
from kronop.families.gemm.x86.design import VectorGemm
from kronop.frozen import dataclass
from kronop.machine import LEAST_LEVEL_1_BYTES
from kronop.target import Target

PAIRED_BYTES = 2  # Bytes of a number that is packed for a pair.


@dataclass(frozen=True, slots=True, kw_only=True)
class PairGemm(VectorGemm):
    """Register tiles of int8: an instruction multiplies pairs of neighbours along k and adds up."""

    unit = 2
    packed_bytes = PAIRED_BYTES
    styles: ClassVar[tuple[str, ...]] = ("plain",)
    template: ClassVar[str] = "gemm_pairs"

    def status(self, target: Target) -> Status:
        """As other designs, but panels fit in the first-level cache of every processor.

        NOTE: pairs read panels at twice the rate. On Zen 4, whose cache has 32 KiB, 1024^3 took 6.5
        ms with panels of that size, and 7.4 with 48 KiB.
        """
        panel = self.tile[1] * self.depth * self.packed_bytes
        if panel > LEAST_LEVEL_1_BYTES:
            reason = f"panels of {panel} bytes, more than a near cache of {LEAST_LEVEL_1_BYTES}"
            return Status.reject(f"Tile_K is {self.depth}: {reason}")
        return VectorGemm.status(self, target)

    @property
    def _needs_products(self) -> bool:
        return True

    def style(self, target: Target) -> Iterator[str]:
        yield from self.styles
