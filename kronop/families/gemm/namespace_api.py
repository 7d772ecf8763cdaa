"""Matrix products in one line, and PyCUTLASS's names for their sizes and modes."""

from kronop.families.gemm.api import matmul
from kronop.families.gemm.grouped_api import grouped_matmul
from kronop.families.gemm.vocabulary import GemmCoord, Mode

__all__ = ["GemmCoord", "Mode", "grouped_matmul", "matmul"]
