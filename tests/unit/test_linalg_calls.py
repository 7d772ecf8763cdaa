"""Calls of cuSOLVER and cuBLAS on doubles: addresses, triangles, transposes, streams, errors."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.errors import DeviceError, installing
from kronop.linalg import api, cuda, lanes
from kronop.linalg.library import Library, library
from tests.unit import cusolver_double
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

CALLER = 77  # The caller's stream.


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> cusolver_double.Log:
    """Host arrays go to the doubles as tensors on a GPU would go to cuSOLVER."""
    log = cusolver_double.Log()
    driver = cusolver_double.Driver(log)
    doubles = Library(solver=cusolver_double.Solver(log), blas=cusolver_double.Blas(log))
    monkeypatch.setattr(lanes, "cuda_driver", lambda: driver)
    monkeypatch.setattr(lanes, "_idle", {})
    monkeypatch.setattr(cuda, "library", lambda: doubles)
    monkeypatch.setattr(cuda, "stream_handle", lambda *_: CALLER)
    monkeypatch.setattr(api, "solver_for", cuda.CudaSolver)
    log.driver, log.doubles = driver, doubles
    return log


@pytest.fixture(params=[512, 0], ids=["batched", "lanes"])
def order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The order up to which calls are batched."""
    monkeypatch.setattr(cuda, "_MOST_BATCHED", request.param)
    return request.param


@pytest.mark.parametrize("definite", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("shape_a", "shape_b"), SHAPES)
def test_solves(
    log: Any, order: int, shape_a: Any, shape_b: Any, layout: str, definite: bool
) -> None:
    for dtype in ("float32", "float64"):
        a, b = matrices(shape_a, dtype, definite=definite), columns(shape_b, dtype)
        for overwrite_a, overwrite_b in [(False, False), (True, b.ndim == 1)]:
            options = {"overwrite_a": overwrite_a, "overwrite_b": overwrite_b}
            placed_a, placed_b = LAYOUTS[layout](a), b.copy()
            x, info = SOLVERS[definite](placed_a, placed_b, **options)
            check_solution(a, b, x, info, definite=definite)
            assert overwrite_a or np.array_equal(placed_a, a)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("lower", [True, False])
def test_triangles_and_factors(log: Any, order: int, layout: str, lower: bool) -> None:
    a, b = matrices((3, 5, 5), "float64", definite=True), columns((3, 5, 2), "float64")
    placed, solution = LAYOUTS[layout](one_triangle(a, lower)), LAYOUTS[layout](b)
    x, info = kronop.linalg.solve_cholesky(
        placed, solution, lower=lower, overwrite_a=True, overwrite_b=True
    )
    assert x is solution
    check_solution(a, b, x, info, definite=True)
    if layout != "gaps":
        factor = np.linalg.cholesky(a)
        expected = one_triangle(factor if lower else factor.swapaxes(-1, -2), lower)
        np.testing.assert_allclose(placed, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("lower", [True, False])
def test_eigh(log: Any, order: int, layout: str, lower: bool) -> None:
    for shape in [(4, 4), (2, 3, 5, 5)]:
        a = matrices(shape, "float32", definite=True)
        for overwrite in (False, True):
            placed = LAYOUTS[layout](one_triangle(a, lower))
            w, v, info = kronop.linalg.eigh(placed, lower=lower, overwrite_a=overwrite)
            check_eigenvectors(a, w, v, info)
            in_place = overwrite and lies_in_place(layout, shape)
            assert np.shares_memory(v, placed) == in_place


def test_matrices_that_lie_apart_are_decomposed_in_place(log: Any) -> None:
    """The batched call knows matrices without gaps between them only."""
    a = matrices((3, 4, 4), "float64", definite=True)
    placed = np.repeat(a, 2, 0)[::2]
    w, v, info = kronop.linalg.eigh(placed, overwrite_a=True)
    check_eigenvectors(a, w, v, info)
    assert np.shares_memory(v, placed)
    assert "xsyev_batched" not in log.names()


def test_a_single_column_is_solved_in_place(log: Any, order: int) -> None:
    """Its stride is no leading dimension: NumPy and torch give 1 here."""
    a, b = matrices((3, 4, 4), "float64", definite=True), columns((3, 4, 1), "float64")
    placed = b.copy()
    x, info = kronop.linalg.solve_cholesky(a, placed, overwrite_b=True)
    assert x is placed
    check_solution(a, b, x, info, definite=True)


def test_columns_that_run_backwards_are_solved_in_a_copy(log: Any) -> None:
    a, b = matrices((4, 4), "float64", definite=True), columns((4, 3), "float64")
    placed = b[:, ::-1].T.copy().T[:, ::-1]
    assert placed.strides[1] < 0
    x, info = kronop.linalg.solve_cholesky(a, placed, overwrite_b=True)
    assert x is placed
    check_solution(a, b, x, info, definite=True)


def test_what_fails_is_told_and_nan(log: Any, order: int) -> None:
    indefinite, singular, b = failing("float64")
    for definite, a in ((True, indefinite), (False, singular)):
        check_only_second_failed(*SOLVERS[definite](a, b), 3)
    indefinite[1, 0, 0] = np.nan
    w, v, info = kronop.linalg.eigh(indefinite)
    check_only_second_failed(w, info, 5)
    check_only_second_failed(v, info, 5)


def test_one_call_for_many_small_systems(log: Any) -> None:
    a, b = matrices((100, 3, 3), "float64", definite=True), columns((100, 3, 1), "float64")
    for call in (*SOLVERS.values(), lambda a, _: kronop.linalg.eigh(a)):
        log.entries.clear()
        call(a, b)
        calls = [name for name, *_ in log.entries if name not in ("record", "wait")]
        assert set(calls) in (
            {"potrf_batched", "trsm"},
            {"getrf_batched", "getrs_batched"},
            {"xsyev_batched"},
        )
        assert len(calls) <= 3
        _check_order(log)


def _check_order(log: Any) -> None:
    """Every call's stream waits for the caller's before it, and is waited for after it."""
    recorded: dict[int, int] = {}
    forked, dirty = set(), set()
    for name, *rest in log.entries:
        if name == "record":
            event, stream = rest
            recorded[event] = stream
        elif name == "wait":
            stream, event = rest
            if stream == CALLER:
                dirty.discard(recorded[event])
            elif recorded[event] == CALLER:
                forked.add(stream)
        else:
            assert rest[0] in forked, f"{name} on a stream that did not fork"
            dirty.add(rest[0])
    assert not dirty, "streams that did not join"


def test_large_systems_share_four_lanes(log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "_MOST_BATCHED", 2)
    a, b = matrices((6, 3, 3), "float64", definite=True), columns((6, 3, 1), "float64")
    for _ in range(2):
        log.entries.clear()
        log.workspaces.clear()
        kronop.linalg.solve_cholesky(a, b)
        streams = [rest[0] for name, *rest in log.entries if name == "xpotrf"]
        assert len(streams) == 6
        assert len(set(streams)) == 4
        # Lanes run at the same time: each has a workspace of its own.
        assert len(set(log.workspaces)) == len({address for _, address in log.workspaces}) == 4
        _check_order(log)
    assert log.handles == 4 * 3  # The second call made none.


def test_lanes_join_when_a_call_fails(log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise _named_error("nvmath.bindings.cusolver")("CUSOLVER_STATUS_ALLOC_FAILED")

    monkeypatch.setattr(log.doubles.solver, "xpotrs", refuse)
    with pytest.raises(DeviceError, match=r"Cholesky: .*ALLOC_FAILED; free GPU memory"):
        kronop.linalg.solve_cholesky(np.eye(3), np.ones(3))
    _check_order(log)
    assert len(lanes._idle[0]) == 1


def _named_error(module: str) -> type[Exception]:
    return type("Refused", (Exception,), {"__module__": module})


def test_host_workspaces_stay_while_work_runs(log: Any) -> None:
    log.driver.ended = False
    for held in (1, 2):
        kronop.linalg.solve_lu(np.eye(3), np.ones(3))
        (lane,) = lanes._idle[0]
        assert len(lane._held) == held
    log.driver.ended = True
    kronop.linalg.solve_lu(np.eye(3), np.ones(3))
    assert len(lane._held) == 1


def test_threads_have_lanes_of_their_own(log: Any) -> None:
    with lanes.borrowed(log.doubles, 0, 2) as first, lanes.borrowed(log.doubles, 0, 2) as second:
        with lanes.borrowed(log.doubles, 1, 1) as elsewhere:
            streams = [lane.stream for lane in (*first, *second, *elsewhere)]
        assert len(set(streams)) == 5
    assert [len(lanes._idle[device]) for device in (0, 1)] == [4, 1]


def test_without_nvmath(monkeypatch: pytest.MonkeyPatch) -> None:
    library.cache_clear()
    monkeypatch.setitem(sys.modules, "nvmath.bindings", None)
    with pytest.raises(DeviceError, match=f"nvmath-python.*{re.escape(installing('linalg'))}"):
        library()
