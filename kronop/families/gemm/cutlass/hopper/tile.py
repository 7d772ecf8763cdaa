"""The tile of a matrix product by CUTLASS 3.x: two warp groups multiply what a third one copies."""

from __future__ import annotations

from kronop.descriptions.datatype import AnyLayout
from kronop.emit.cuda.cutlass.hopper import WARP_GROUP, HopperDesign
from kronop.frozen import dataclass

# Warps along each index of a block whose warp groups alternate tiles.
IN_TURN = (4, 1, 1)
_WARP_GROUPS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class HopperTile(HopperDesign):
    """How a kernel of CUTLASS 3.x divides a product into tiles.

    Attributes:
        layout_a, layout_b: layouts of A and B.
    """

    threads = WARP_GROUP * _WARP_GROUPS

    layout_a: AnyLayout
    layout_b: AnyLayout

    def __str__(self) -> str:
        teams = "in turn" if self.alternate else "shared"
        return self._told(f" {teams}")

    @property
    def alternate(self) -> bool:
        """Whether warp groups alternate tiles (ping-pong) or share each (cooperative)."""
        return self.warps == IN_TURN
