"""`Solver`: what a library does for the public functions, and which library serves a tensor."""

from __future__ import annotations

from typing import Protocol

from kronop.late import imported
from kronop.linalg.arrays import Arrays
from kronop.linalg.host import NumpySolver, ScipySolver, TorchSolver, has_scipy
from kronop.linalg.matrices import Matrices
from kronop.tensors import Tensor


class Solver(Protocol):
    """Works in the memory that it is given, and writes LAPACK's info for each matrix of `a`.

    A matrix whose info is not 0 may leave anything in place of its results.
    """

    def cholesky(self, a: Matrices, b: Matrices, lower: bool, info: Tensor) -> None:
        """Factors the given triangle of `a`, and replaces `b` by the solution."""
        ...

    def lu(self, a: Matrices, b: Matrices, transposed: bool, info: Tensor) -> None:
        """Factors `a`, and replaces `b` by the solution with `a`, or with its transpose."""
        ...

    def eigh(self, a: Matrices, lower: bool, values: Tensor, info: Tensor) -> None:
        """Replaces `a` by eigenvectors, and writes eigenvalues (count, N) in ascending order."""
        ...


def solver_for(arrays: Arrays) -> Solver:
    """The library for these tensors; `arrays.on_device()` is entered.

    torch's own LAPACK serves its host tensors: it walks batches in C++ and tells the info.

    Raises:
        DeviceError: on a GPU, nvmath-python or a library of CUDA is missing.
    """
    if not arrays.like.device.is_host:
        imported("kronop.linalg.cuda")
        from kronop.linalg.cuda import CudaSolver

        return CudaSolver(arrays)
    if arrays.like.framework == "torch":
        return TorchSolver()
    return ScipySolver() if has_scipy() else NumpySolver()
