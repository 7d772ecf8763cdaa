"""What a step of matrix products can't avoid to do, from which its floor follows."""

from __future__ import annotations

from typing import Any

from kronop.descriptions.datatype import DataType
from kronop.emit.floor import Floor, LeastWork
from kronop.frozen import dataclass
from kronop.late import imported
from kronop.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastOfGemm(LeastWork):
    """A step that computes products, of both targets. Its figures are imported only where a floor
    is asked for, because a process that reads its plans from the cache reports none.

    Attributes:
        element: type of A and B in memory.
        output: type of C and D.
        sums: type of sums.
        multiplied: type that tensor cores or AMX tiles multiply; None where ordinary cores or
            vectors multiply.
        products: how many of these make one product of elements, as 3 for 3xTF32.
    """

    element: DataType
    output: DataType
    sums: DataType
    multiplied: DataType | None = None
    products: int = 1

    def floor(self, target: Target, size: Any = None) -> Floor:
        """The floor on a target; `size` is a GemmSize, or None for the usual one."""
        imported("kronop.families.gemm.floors")
        from kronop.families.gemm import floors

        return floors.floor(self, target, size)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastOfReduction(LeastWork):
    """A step that adds up the sums of slices, each a matrix of `sums`, to a result.

    Attributes:
        slices: how many there are.
    """

    output: DataType
    sums: DataType
    slices: int

    def floor(self, target: Target, size: Any = None) -> Floor:
        imported("kronop.families.gemm.floors")
        from kronop.families.gemm import floors

        return floors.floor_of_reduction(self, target, size)
