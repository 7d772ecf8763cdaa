"""kronop.linalg on a CPU: NumPy with and without SciPy, and torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.errors import ArgumentError, ElementTypeError
from kronop.linalg import api, host
from tests.unit.linalg_cases import (
    LAYOUTS,
    SHAPES,
    SOLVERS,
    check_eigenvectors,
    check_only_second_failed,
    check_solution,
    columns,
    failing,
    lies_in_place,
    matrices,
    one_triangle,
)

Convert = Callable[[Any], Any]
LIBRARIES = ("numpy", "scipy", "torch")


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> str:
    """One of the libraries; what is not installed is skipped."""
    if request.param != "numpy":
        pytest.importorskip(request.param)
    return str(request.param)


@pytest.fixture
def convert(library: str, monkeypatch: pytest.MonkeyPatch) -> Convert:
    """Makes tensors that this library serves."""
    monkeypatch.setattr("kronop.linalg.solver.has_scipy", lambda: library == "scipy")
    if library != "torch":
        return lambda array: array
    torch = pytest.importorskip("torch")
    return lambda array: torch.from_numpy(array)


def _arrays(*tensors: Any) -> tuple[Any, ...]:
    return tuple(np.asarray(tensor) for tensor in tensors)


@pytest.mark.parametrize("definite", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("shape_a", "shape_b"), SHAPES)
def test_solves(convert: Convert, shape_a: Any, shape_b: Any, dtype: str, definite: bool) -> None:
    a, b = matrices(shape_a, dtype, definite=definite), columns(shape_b, dtype)
    given_a, given_b = a.copy(), b.copy()
    x, info = SOLVERS[definite](convert(given_a), convert(given_b))
    assert type(x) is type(info) is type(convert(given_a))
    check_solution(a, b, *_arrays(x, info), definite=definite)
    np.testing.assert_array_equal(given_a, a)
    np.testing.assert_array_equal(given_b, b)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("definite", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_and_overwriting(
    convert: Convert, layout: str, definite: bool, overwrite: bool
) -> None:
    for batch_a, batch_b in [((2, 3), (2, 3)), ((), (2, 3)), ((1,), (4,))]:
        a = matrices((*batch_a, 5, 5), "float64", definite=definite)
        b = columns((*batch_b, 5, 2), "float64")
        placed_a, placed_b = (convert(LAYOUTS[layout](item)) for item in (a, b))
        options = {"overwrite_a": overwrite, "overwrite_b": overwrite}
        x, info = SOLVERS[definite](placed_a, placed_b, **options)
        assert (x is placed_b) == overwrite
        check_solution(a, b, *_arrays(x, info), definite=definite)
        if not overwrite:
            np.testing.assert_array_equal(np.asarray(placed_a), a)


def test_columns_of_batches_that_lie_apart(convert: Convert) -> None:
    a, b = matrices((2, 3, 5, 5), "float64", definite=True), columns((2, 3, 5, 2), "float64")
    placed = convert(LAYOUTS["columns"](np.repeat(b, 2, 0))[::2])
    x, info = kronop.linalg.solve_cholesky(convert(a), placed, overwrite_b=True)
    assert x is placed
    check_solution(a, b, *_arrays(placed, info), definite=True)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("layout", ["rows", "columns", "padded"])
def test_the_factor_is_left_in_one_triangle(convert: Convert, layout: str, lower: bool) -> None:
    a = matrices((2, 5, 5), "float64", definite=True)
    placed = convert(LAYOUTS[layout](one_triangle(a, lower)))
    _, info = kronop.linalg.solve_cholesky(
        placed, convert(columns((2, 5, 1), "float64")), lower=lower, overwrite_a=True
    )
    assert not info.any()
    left = np.asarray(placed)
    factor = np.linalg.cholesky(a)
    expected = one_triangle(factor if lower else factor.swapaxes(-1, -2), lower)
    np.testing.assert_allclose(left, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_eigh(convert: Convert, layout: str, lower: bool, overwrite: bool) -> None:
    for shape in [(1, 1), (5, 5), (2, 3, 6, 6)]:
        for dtype in ("float32", "float64"):
            a = matrices(shape, dtype, definite=False)
            a = a + a.swapaxes(-1, -2)
            placed = convert(LAYOUTS[layout](one_triangle(a, lower)))
            before = np.asarray(placed).copy()
            w, v, info = kronop.linalg.eigh(placed, lower=lower, overwrite_a=overwrite)
            check_eigenvectors(a, *_arrays(w, v, info))
            in_place = np.shares_memory(np.asarray(v), np.asarray(placed))
            assert in_place == (overwrite and lies_in_place(layout, shape))
            if not in_place:
                np.testing.assert_array_equal(np.asarray(placed), before)


@pytest.mark.parametrize("shape", [(0, 0), (3, 0, 0), (0, 2, 2)])
def test_eigh_of_nothing(convert: Convert, shape: tuple[int, ...]) -> None:
    a = np.empty(shape)
    check_eigenvectors(a, *_arrays(*kronop.linalg.eigh(convert(a))))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_fails_is_told_and_nan(library: str, convert: Convert, dtype: str) -> None:
    indefinite, singular, b = failing(dtype)
    at = 4 if library == "numpy" else 3  # NumPy alone does not tell where.
    for definite, a in ((True, indefinite), (False, singular)):
        x, info = SOLVERS[definite](convert(a), convert(b))
        check_only_second_failed(*_arrays(x, info), at)
        b_memory = convert(b.copy())
        x, info = SOLVERS[definite](convert(a), b_memory, overwrite_b=True)
        check_only_second_failed(*_arrays(b_memory, info), at)
        x, info = SOLVERS[definite](convert(a[1]), convert(b))  # One matrix for three systems.
        assert np.asarray(info).tolist() == [at] * 3
        assert np.isnan(np.asarray(x)).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_are_told(convert: Convert, bad: float) -> None:
    _, _, b = failing("float64")
    b[1, 2, 0] = bad
    for definite, solve in SOLVERS.items():
        a = matrices((4, 4), "float64", definite=definite)
        x, info = solve(convert(a), convert(b))
        check_only_second_failed(*_arrays(x, info), 5)
    a = matrices((3, 4, 4), "float64", definite=True)
    a[1, 2, 1] = bad  # Of the lower triangle alone.
    w, v, info = _arrays(*kronop.linalg.eigh(convert(a)))
    check_only_second_failed(w, info, 5)
    check_only_second_failed(v, info, 5)
    w, v, info = _arrays(*kronop.linalg.eigh(convert(a), lower=False))
    assert np.isfinite(w).all()
    assert not info.any()


def test_overflow_is_told(convert: Convert) -> None:
    a, b = 1e-200 * np.eye(3), 1e200 * np.ones(3)
    for solve in SOLVERS.values():
        x, info = _arrays(*solve(convert(a), convert(b)))
        assert info == 4
        assert np.isnan(x).all()


def test_eigh_that_does_not_converge(
    library: str, convert: Convert, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The libraries' failure is feigned, because no matrix is known on which they fail."""

    def fail(*_: Any, **__: Any) -> Any:
        raise np.linalg.LinAlgError

    if library == "torch":
        torch = pytest.importorskip("torch")
        monkeypatch.setattr(torch.linalg, "LinAlgError", np.linalg.LinAlgError)
        monkeypatch.setattr(torch.linalg, "eigh", fail)
    elif library == "scipy":
        routine = lambda m, **_: (m[0], m, 2)  # noqa: E731
        monkeypatch.setattr(host, "_routines", lambda a, name: (routine,))
    else:
        monkeypatch.setattr(host.np.linalg, "eigh", fail)
    w, v, info = _arrays(*kronop.linalg.eigh(convert(np.eye(3))))
    assert info == (2 if library == "scipy" else 3)
    assert np.isnan(w).all()
    assert np.isnan(v).all()


def test_arrays_of_foreign_byte_order() -> None:
    a, b = (item.astype(">f8") for item in (np.eye(3) * 2, np.ones((3, 2))))
    x, _ = kronop.linalg.solve_lu(a, b, overwrite_a=True, overwrite_b=True)
    assert x is b
    np.testing.assert_array_equal(b, np.full((3, 2), 0.5))


def test_torch_counts_what_is_overwritten() -> None:
    torch = pytest.importorskip("torch")
    a, b = torch.eye(3), torch.ones(3, 2)
    before = a._version, b._version
    kronop.linalg.solve_lu(a, b, overwrite_a=True, overwrite_b=True)
    assert a._version > before[0]
    assert b._version > before[1]


A, B = np.eye(3), np.ones((3, 2))
REPEATED = np.lib.stride_tricks.as_strided(np.ones(3), (2, 3, 2), (0, 8, 0))
FROZEN = np.ones((3, 2))
FROZEN.flags.writeable = False


@pytest.mark.parametrize(
    ("a", "b", "options", "error", "message"),
    [
        (
            A + 0j,
            B,
            {},
            ElementTypeError,
            "element type of a: expected float32 or float64, got com",
        ),
        (A.astype("int32"), B, {}, ElementTypeError, "element type of a: .* got int32"),
        (A.astype("float16"), B, {}, ElementTypeError, "element type of a: .* got float16"),
        (A, B.astype("float32"), {}, ElementTypeError, "element type of b: expected that of a"),
        ([[1.0]], B, {}, ElementTypeError, "a: expected a tensor"),
        (A[:2], B, {}, ArgumentError, r"shape of a: .* got \(2, 3\)"),
        (A[0], B, {}, ArgumentError, r"shape of a: .* got \(3,\)"),
        (A, B[:2], {}, ArgumentError, r"rows of b: expected 3.* got 2"),
        (A[None], B[:, 0], {}, ArgumentError, r"shape of b: .*pass b\[\.\.\., None\]"),
        (np.stack([A, A]), np.stack([B] * 3), {}, ArgumentError, "leading dimensions of b"),
        (
            np.stack([A, A]),
            B,
            {"overwrite_b": True},
            ArgumentError,
            "leading dimensions of b, into",
        ),
        (A, REPEATED, {"overwrite_b": True}, ArgumentError, "memory of b: .*strides"),
        (A, FROZEN, {"overwrite_b": True}, ArgumentError, "memory of b: .*read-only"),
        (A, A, {"overwrite_b": True}, ArgumentError, "a and b: expected separate memory"),
    ],
)
def test_errors(a: Any, b: Any, options: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        kronop.linalg.solve_lu(a, b, **options)


def test_frameworks_are_not_mixed() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(ArgumentError, match="b: expected a numpy tensor on cpu"):
        kronop.linalg.solve_cholesky(A, torch.ones(3, 2, dtype=torch.float64))
    with pytest.raises(ArgumentError, match="gradient"):
        kronop.linalg.eigh(torch.eye(3, requires_grad=True))


def test_public_names() -> None:
    assert api.eigh is kronop.linalg.eigh
    assert "linalg" in kronop.__all__
