"""Solvers and eigendecompositions of batches of dense matrices, by LAPACK, cuSOLVER and cuBLAS.

Importing this package imports none of these: a call imports what its tensors need.
"""

from kronop.linalg.api import eigh, solve_cholesky, solve_lu

__all__ = ["eigh", "solve_cholesky", "solve_lu"]
