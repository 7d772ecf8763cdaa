"""LAPACK on a CPU: through SciPy, through NumPy where SciPy is missing, or through torch."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from kronop.late import imported, spec_of
from kronop.linalg.matrices import Matrices
from kronop.tensors import NDArray, Tensor


@functools.cache
def has_scipy() -> bool:
    return spec_of("scipy") is not None


class ScipySolver:
    """Calls LAPACK for one matrix after the other, in their memory."""

    def cholesky(self, a: Matrices, b: Matrices, lower: bool, info: Tensor) -> None:
        factor, substitute = _routines(a, "potrf", "potrs")
        for index, (matrix, columns) in enumerate(zip(a.tensor, b.tensor, strict=True)):
            # Without `clean=False` the wrapper writes zeros to the other triangle.
            found, info[index] = factor(matrix, lower=lower, clean=False, overwrite_a=True)
            _keep(matrix, found)
            if not info[index] and b.columns:
                _keep(columns, substitute(found, columns, lower=lower, overwrite_b=True)[0])

    def lu(self, a: Matrices, b: Matrices, transposed: bool, info: Tensor) -> None:
        factor, substitute = _routines(a, "getrf", "getrs")
        for index, (matrix, columns) in enumerate(zip(a.tensor, b.tensor, strict=True)):
            found, pivots, info[index] = factor(matrix, overwrite_a=True)
            _keep(matrix, found)
            if not info[index] and b.columns:
                solution = substitute(found, pivots, columns, trans=transposed, overwrite_b=True)
                _keep(columns, solution[0])

    def eigh(self, a: Matrices, lower: bool, values: Tensor, info: Tensor) -> None:
        (decompose,) = _routines(a, "syevd")
        for index, matrix in enumerate(a.tensor):
            values[index], vectors, info[index] = decompose(matrix, lower=lower, overwrite_a=True)
            _keep(matrix, vectors)


def _routines(a: Matrices, *names: str) -> Sequence[Callable[..., Tensor]]:
    found: Sequence[Callable[..., Tensor]]
    found = imported("scipy.linalg").get_lapack_funcs(names, (a.tensor,))
    return found


def _keep(place: Tensor, result: Tensor) -> None:
    """The wrappers work in place only where columns follow each other without gaps."""
    if result is not place:
        place[...] = result


class NumpySolver:
    """Does with NumPy alone.

    NumPy raises where LAPACK tells an info. N then stands for it: the leading minor of this order
    is not positive definite, or the matrix of this order is singular.
    """

    def cholesky(self, a: Matrices, b: Matrices, lower: bool, info: Tensor) -> None:
        for index, matrix, columns in _each(a, b):
            try:
                factor = np.linalg.cholesky(_symmetric(matrix, lower))
                # NumPy does not solve with triangles. LU, with its row exchanges, is as accurate.
                columns[...] = np.linalg.solve(factor.T, np.linalg.solve(factor, columns))
            except np.linalg.LinAlgError:
                info[index] = a.rows
                continue
            triangle = np.tril_indices(a.rows)
            seen = matrix if lower else matrix.T
            seen[triangle] = factor[triangle]

    def lu(self, a: Matrices, b: Matrices, transposed: bool, info: Tensor) -> None:
        for index, matrix, columns in _each(a, b):
            try:
                columns[...] = np.linalg.solve(matrix.T if transposed else matrix, columns)
            except np.linalg.LinAlgError:
                info[index] = a.rows

    def eigh(self, a: Matrices, lower: bool, values: Tensor, info: Tensor) -> None:
        for index, matrix in enumerate(a.tensor):
            try:
                values[index], matrix[...] = np.linalg.eigh(matrix, "L" if lower else "U")
            except np.linalg.LinAlgError:
                info[index] = a.rows


def _each(a: Matrices, b: Matrices) -> Iterator[tuple[int, NDArray, NDArray]]:
    for index, (matrix, columns) in enumerate(zip(a.tensor, b.tensor, strict=True)):
        yield index, matrix, columns


def _symmetric(matrix: NDArray, lower: bool) -> NDArray:
    """The whole matrix of one triangle: NumPy's Cholesky before 2.0 reads the lower one alone."""
    half = np.tril(matrix) if lower else np.triu(matrix)
    return half + np.tril(half, -1).T + np.triu(half, 1).T


class TorchSolver:
    """torch's LAPACK, whose `_ex` forms tell the info and raise nothing."""

    def cholesky(self, a: Matrices, b: Matrices, lower: bool, info: Tensor) -> None:
        torch = sys.modules["torch"]
        factor, info[...] = torch.linalg.cholesky_ex(a.tensor, upper=not lower)
        b.tensor[...] = torch.cholesky_solve(b.tensor, factor, upper=not lower)
        triangle = torch.tril if lower else torch.triu
        inside = triangle(torch.ones(a.rows, a.rows, dtype=torch.bool))
        a.tensor[...] = torch.where(inside, factor, a.tensor)

    def lu(self, a: Matrices, b: Matrices, transposed: bool, info: Tensor) -> None:
        torch = sys.modules["torch"]
        a.tensor[...], pivots, info[...] = torch.linalg.lu_factor_ex(a.tensor)
        b.tensor[...] = torch.linalg.lu_solve(a.tensor, pivots, b.tensor, adjoint=transposed)

    def eigh(self, a: Matrices, lower: bool, values: Tensor, info: Tensor) -> None:
        torch = sys.modules["torch"]
        for index, matrix in enumerate(a.tensor):
            try:
                values[index], matrix[...] = torch.linalg.eigh(matrix, "L" if lower else "U")
            except torch.linalg.LinAlgError:  # It tells no info, and this form has no other.
                info[index] = a.rows
