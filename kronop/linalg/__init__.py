"""Solvers and eigendecompositions of batches of dense matrices, by LAPACK, cuSOLVER and cuBLAS.

Importing this package imports none of these: a call imports what its tensors need.

Example:
    >>> a, b = np.array([[[4.0, 2.0], [2.0, 5.0]], [[1.0, 0.0], [0.0, 2.0]]]), np.ones((2, 2, 1))
    >>> x, info = kronop.linalg.solve_cholesky(a, b)
    >>> bool(np.allclose(a @ x, b)), info.tolist()
    (True, [0, 0])
"""

from kronop.linalg.api import eigh, solve_cholesky, solve_lu

__all__ = ["eigh", "solve_cholesky", "solve_lu"]
__dir__ = __all__.copy  # What completes is public.
