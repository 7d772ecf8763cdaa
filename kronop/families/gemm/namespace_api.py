"""Matrix products in one line, interleaved tensors, and PyCUTLASS's names of sizes and modes."""

from kronop.families.gemm.api import matmul
from kronop.families.gemm.grouped_api import grouped_matmul
from kronop.families.gemm.panel_arguments import deinterleave, interleave
from kronop.families.gemm.vocabulary import GemmCoord, Mode

__all__ = ["GemmCoord", "Mode", "deinterleave", "grouped_matmul", "interleave", "matmul"]
