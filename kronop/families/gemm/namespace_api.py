"""Matrix products in one line, interleaved tensors, and PyCUTLASS's names of sizes and modes.

Example:
    >>> a, b = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
    >>> kronop.gemm.matmul(a, b, alpha=0.5).tolist()
    [[1.5, 1.5, 1.5, 1.5], [1.5, 1.5, 1.5, 1.5]]
"""

from kronop.families.gemm.api import matmul
from kronop.families.gemm.grouped_api import grouped_matmul
from kronop.families.gemm.panel_arguments import deinterleave, interleave
from kronop.families.gemm.vocabulary import GemmCoord, Mode

__all__ = ["GemmCoord", "Mode", "deinterleave", "grouped_matmul", "interleave", "matmul"]
