"""The public functions: they read the tensors, hand them to a library, and mark what failed."""

from __future__ import annotations

from collections.abc import Callable

from kronop.args.changes import counter
from kronop.descriptions.datatype import int32
from kronop.descriptions.shared import check_flag
from kronop.linalg.arrays import Arrays
from kronop.linalg.matrices import Matrices
from kronop.linalg.places import Square, Unknowns, place_columns, place_square
from kronop.linalg.solver import Solver, solver_for
from kronop.linalg.systems import System, read_square, read_system
from kronop.tensors import Tensor

_Solve = Callable[[Solver, Square, Matrices, Tensor], None]


def _check_flags(**flags: object) -> None:
    """Refuses what is neither True nor False; a string would be true."""
    for name, value in flags.items():
        check_flag(name, value)


def solve_cholesky(
    a: Tensor,
    b: Tensor,
    *,
    lower: bool = True,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
) -> tuple[Tensor, Tensor]:
    """Solves a x = b for symmetric positive definite matrices: factors a and substitutes twice.

    Args:
        a: matrices (..., N, N) of float32 or float64, of NumPy, torch or CuPy, with any strides.
        b: right-hand sides as columns (..., N, C), or one of shape (N,) beside a single matrix.
            Leading dimensions broadcast.
        lower: which triangle of a is read: the lower one, or the upper one. The other may hold
            anything.
        overwrite_a: allows to use a's memory. If its layout allows it, the triangle then holds the
            factor, L of L L^T or U of U^T U; else a stays as it is.
        overwrite_b: writes the solution into b, which is returned as x.

    Returns:
        (x, info). Of a system with info 0 the solution is finite, of every other one it is NaN
        throughout. An info up to N is that of LAPACK's potrf: the leading minor of this order is
        not positive definite. N + 1: the factor exists, but the solution is not finite, because
        of the values in a or b, or by overflow. info is int32 of the shape of the leading
        dimensions. Where there is nothing to solve (N is 0 or there are no systems), it is 0.

    Raises:
        ArgumentError: shapes, frameworks or devices do not fit, or memory can't be overwritten.
        ElementTypeError: an element type is neither float32 nor float64.
        DeviceError: tensors are on a GPU, and nvmath-python or a library of CUDA is missing.

    Example:
        >>> a = np.array([[[4.0, 2.0], [2.0, 5.0]], [[1.0, 2.0], [2.0, 1.0]]])
        >>> x, info = kronop.linalg.solve_cholesky(a, np.ones((2, 2, 1)))
        >>> info.tolist()  # the second matrix's minor of order 2 is not positive definite
        [0, 2]
        >>> bool(np.allclose(a[0] @ x[0], 1)), bool(np.isnan(x[1]).all())
        (True, True)
    """
    _check_flags(lower=lower, overwrite_a=overwrite_a, overwrite_b=overwrite_b)

    def solve(solver: Solver, square: Square, columns: Matrices, info: Tensor) -> None:
        # Seen from the transposed memory, the lower triangle is the upper one.
        solver.cholesky(square.matrices, columns, lower != square.transposed, info)

    return _solved(read_system(a, b, overwrite_a, overwrite_b), solve)


def solve_lu(
    a: Tensor, b: Tensor, *, overwrite_a: bool = False, overwrite_b: bool = False
) -> tuple[Tensor, Tensor]:
    """Solves a x = b for square matrices by LU decomposition with partial pivoting.

    Args:
        a: as for `solve_cholesky`; the whole matrix is read.
        b: as for `solve_cholesky`.
        overwrite_a: allows to use a's memory. If its layout allows it, it then holds the factors of
            a, or those of its transpose if a is row-major; else, and where NumPy alone computes, a
            stays as it is.
        overwrite_b: writes the solution into b, which is returned as x.

    Returns:
        (x, info) as for `solve_cholesky`. An info up to N is that of LAPACK's getrf, the number of
        a pivot that is exactly zero, so that the matrix is singular. A row-major matrix is factored
        as its transpose, whose zero pivot may be another one.

    Raises:
        ArgumentError, ElementTypeError, DeviceError: as for `solve_cholesky`.

    Example:
        >>> a, b = np.array([[0.0, 2.0], [1.0, 0.0]]), np.array([4.0, 3.0])
        >>> x, info = kronop.linalg.solve_lu(a, b)
        >>> x.tolist(), int(info)
        ([3.0, 2.0], 0)
    """
    _check_flags(overwrite_a=overwrite_a, overwrite_b=overwrite_b)

    def solve(solver: Solver, square: Square, columns: Matrices, info: Tensor) -> None:
        solver.lu(square.matrices, columns, square.transposed, info)

    return _solved(read_system(a, b, overwrite_a, overwrite_b), solve)


def eigh(
    a: Tensor, *, lower: bool = True, overwrite_a: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Eigenvalues and eigenvectors of symmetric matrices: a v = v diag(w).

    Args:
        a: as for `solve_cholesky`.
        lower: which triangle of a is read, as for `solve_cholesky`.
        overwrite_a: allows to use a's memory. If its layout allows it, v is a view of it; else a
            stays as it is.

    Returns:
        (w, v, info), w (..., N) in ascending order, v (..., N, N) with the eigenvectors as
        orthonormal columns. With info 0 both are finite, otherwise both are NaN throughout. An
        info up to N says that the iteration did not converge. N + 1: the triangle has a value that
        is not finite, a result has overflowed, or (as cuSOLVER's Jacobi says it) there was no
        convergence.

    Raises:
        ArgumentError, ElementTypeError, DeviceError: as for `solve_cholesky`.

    Example:
        >>> a = np.array([[2.0, 1.0], [1.0, 2.0]])
        >>> w, v, info = kronop.linalg.eigh(a)
        >>> w.round(6).tolist(), bool(np.allclose(a @ v, v * w)), int(info)
        ([1.0, 3.0], True, 0)
    """
    _check_flags(lower=lower, overwrite_a=overwrite_a)
    problem = read_square(a, overwrite_a)
    arrays, order = Arrays(problem.a), problem.order
    with arrays.on_device():
        values = arrays.empty((problem.count, order), problem.a.element)
        info = arrays.zeros((problem.count,), int32)
        square = place_square(arrays, problem, problem.batch)
        vectors = square.matrices.tensor
        if order and problem.count:
            solver = solver_for(arrays)
            seen_lower = lower != square.transposed
            # Values that are not finite do not reach the libraries, whose iterations need not end.
            refused = ~arrays.finite(arrays.triangle(vectors, seen_lower))
            arrays.mark(vectors, refused, 0.0)
            solver.eigh(square.matrices, seen_lower, values, info)
            failed = refused | ~arrays.finite(values) | ~arrays.finite(vectors)
            _mark_failures(arrays, info, failed, order, (values, vectors))
            _count_change(a, square.in_place)
        batch = problem.batch
        return (
            values.reshape((*batch, order)),
            vectors.reshape((*batch, order, order)),
            info.reshape(batch),
        )


def _solved(system: System, solve: _Solve) -> tuple[Tensor, Tensor]:
    arrays, square = Arrays(system.square.a), system.square
    with arrays.on_device():
        unknowns = place_columns(arrays, system)
        info = arrays.zeros((system.count,), int32)
        if square.order and system.count:
            solver = solver_for(arrays)
            placed = place_square(arrays, square, square.batch if system.shared else system.batch)
            found = arrays.zeros((1,), int32) if system.shared else info
            solve(solver, placed, unknowns.matrices, found)
            if system.shared:
                info[...] = found
            _mark_solutions(arrays, info, unknowns, square.order)
            _count_change(square.tensor, placed.in_place)
        return _result(system, unknowns), info.reshape(system.batch)


def _mark_solutions(arrays: Arrays, info: Tensor, unknowns: Unknowns, order: int) -> None:
    failed = ~arrays.finite(unknowns.rows)
    _mark_failures(arrays, info, failed, order, (unknowns.rows,))


def _mark_failures(
    arrays: Arrays, info: Tensor, failed: Tensor, order: int, results: tuple[Tensor, ...]
) -> None:
    """Gives info N + 1 to results that are not finite, and NaN to results whose info is not 0."""
    arrays.mark(info, failed & (info == 0), order + 1)
    for result in results:
        arrays.mark(result, info != 0, float("nan"))


def _result(system: System, unknowns: Unknowns) -> Tensor:
    result = unknowns.rows.reshape((*system.batch, system.columns, system.square.order))
    result = result.swapaxes(-1, -2)
    if system.vector:
        result = result[..., 0]
    if not system.overwrite:
        return result
    if not unknowns.in_place:
        system.tensor[...] = result
    _count_change(system.tensor, unknowns.in_place)
    return system.tensor


def _count_change(tensor: Tensor, changed: bool) -> None:
    """Tells torch that the caller's tensor was written by its address."""
    count = counter(tensor) if changed else None
    if count is not None:
        count((tensor,))
