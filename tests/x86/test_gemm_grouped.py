"""Groups and arrays of matrix products on a CPU, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.families.gemm.size import GemmSize

_SIZES = ((3, 5, 4), (50, 33, 60), (0, 2, 3), (7, 4, 0), (1, 1, 1), (64, 128, 32))
_MATRIX = kronop.TensorDescription(kronop.float32)
_LINEAR = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)


def _drawn(*shapes: tuple[int, ...]) -> list[Any]:
    random = np.random.default_rng(5)
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]


def _operands() -> tuple[list[Any], list[Any], list[Any]]:
    """As, Bs and Cs."""
    return (
        _drawn(*((m, k) for m, _, k in _SIZES)),
        _drawn(*((k, n) for _, n, k in _SIZES)),
        _drawn(*((m, n) for m, n, _ in _SIZES)),
    )


def _check(found: Any, wanted: Any, depth: int) -> None:
    """Sums of `depth` products, each of which is rounded; the operands are at most about 5."""
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max(initial=0) <= 2.0**-24 * (depth + 4) * (25 * depth + 20)


@pytest.mark.parametrize("mode", kronop.SchedulerMode)
def test_groups(mode: kronop.SchedulerMode) -> None:
    a, b, c = _operands()
    operation = kronop.GemmOperationGrouped(
        "x86", None, _MATRIX, _MATRIX, _MATRIX, _LINEAR, precompute_mode=mode
    )
    coordinates = [kronop.gemm.GemmCoord(*size) for size in _SIZES]
    results = [np.full((m, n), np.nan, np.float32) for m, n, _ in _SIZES]
    flat = [item.reshape(-1) for item in a]
    arguments = kronop.GemmGroupedArguments(
        operation, coordinates, flat, b, c, results, output_op=operation.epilogue_type(2, 3)
    )
    operation.run(arguments)
    arguments.sync()
    for x, y, z, d, (_, _, depth) in zip(a, b, c, results, _SIZES, strict=True):
        _check(d, 2 * (np.float64(x) @ y) + 3 * np.float64(z), depth)
    assert arguments.size == GemmSize(25, 35, 20, 5)  # Means of those that are not empty.


def test_one_line() -> None:
    a, b, c = _operands()
    biases = _drawn(*((n,) for _, n, _ in _SIZES))
    found = kronop.gemm.grouped_matmul(a, b, c, beta=-1.0, biases=biases, activation="relu")
    for x, y, z, bias, d, (_, _, depth) in zip(a, b, c, biases, found, _SIZES, strict=True):
        _check(d, np.maximum(np.float64(x) @ y - z + bias, 0), depth)
    transposed = [np.ascontiguousarray(item.T).T for item in b]
    outs = [np.empty_like(item) for item in found]
    again = kronop.gemm.grouped_matmul(a, transposed, outs=outs)
    assert all(one is other for one, other in zip(again, outs, strict=True))
    _check(again[1], np.float64(a[1]) @ b[1], 60)
    stacked = kronop.gemm.grouped_matmul(np.stack(a[:1] * 2), np.stack(b[:1] * 2))
    _check(stacked[1], np.float64(a[0]) @ b[0], 4)


def test_arrays() -> None:
    a, b, c = _drawn((5, 7), (5, 7)), _drawn((7, 9), (7, 9)), _drawn((5, 9), (5, 9))
    operation = kronop.GemmOperationUniversal("x86", None, _MATRIX, _MATRIX, _MATRIX, _LINEAR)
    arguments = kronop.GemmArguments(
        operation,
        kronop.gemm.GemmCoord(5, 9, 7),
        a,
        b,
        c,
        output_op=operation.epilogue_type(1, 1),
        gemm_mode=kronop.gemm.Mode.Array,
        batch=2,
    )
    operation.run(arguments)
    for x, y, z, d in zip(a, b, c, arguments.D, strict=True):
        _check(d, np.float64(x) @ y + z, 7)
    stacked = kronop.GemmArguments(
        operation,
        kronop.gemm.GemmCoord(5, 9, 7),
        np.stack(a).reshape(-1),
        np.stack(b).reshape(-1),
        gemm_mode=kronop.gemm.Mode.Array,
        batch=2,
    )
    operation.run(stacked)
    _check(stacked.D[1], np.float64(a[1]) @ b[1], 7)


def _grouped(**changed: Any) -> Any:
    a, b, _ = _operands()
    operation = kronop.GemmOperationGrouped("x86", None, _MATRIX, _MATRIX, _MATRIX, _LINEAR)
    return kronop.GemmGroupedArguments(operation, **{"A": a, "B": b, **changed})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: _grouped(A=_operands()[0][:2]), "2 A, 6 B"),
        (lambda: _grouped(A=3), "A: expected a list"),
        (lambda: _grouped(A=[], B=[]), "at least one"),
        (lambda: _grouped(B=_operands()[1][::-1]), "product 0 of the group: shape of B"),
        (lambda: _grouped(D=[np.empty((3, 5), np.float32)] * 6), "product 1 of the group"),
        (
            lambda: _grouped(
                A=_operands()[0][:1] * 2,
                B=_operands()[1][:1] * 2,
                D=[np.empty((3, 5), np.float32)] * 2,
            ),
            r"D\[0\] and D\[1\]",
        ),
    ],
)
def test_refusals(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(kronop.KronopError, match=message):
        make()
    with pytest.raises(kronop.ElementTypeError, match="precompute_mode"):
        kronop.GemmOperationGrouped(
            "x86", None, _MATRIX, _MATRIX, _MATRIX, _LINEAR, precompute_mode="host"
        )


def test_products_of_a_group_share_its_threads() -> None:
    """They run in scratch memory that is as large as the group's threads need."""
    group = _grouped()
    for threads in (3, 7):
        group.share_among(threads)
        problems = group._problem(_Nowhere(), 0).problems
        assert {item.threads for item in problems} == {threads}


class _Nowhere:
    """Places of operands whose memory is never read."""

    def input(self, name: str, item: Any, form: Any) -> Any:
        return SimpleNamespace(pointer=0)

    def output(self, name: str, item: Any, form: Any, read: bool) -> Any:
        return SimpleNamespace(pointer=0)


def test_scratch_memory_of_a_group_is_that_of_its_largest_product() -> None:
    asked: list[GemmSize] = []

    class Planned:
        def workspace_bytes(self, size: GemmSize, threads: int) -> int:
            asked.append(size)
            return 100 * size.batch

        def launches(self, problem: Any) -> tuple[Any, ...]:
            return ()

    class Places(_Nowhere):
        def workspace(self, nbytes: int) -> int:
            assert nbytes == 100
            return 0

    planned: Any = Planned()
    places: Any = Places()
    _grouped().launches(planned, places)
    assert asked == [GemmSize(m, n, k) for m, n, k in _SIZES if m]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"As": None}, "As: expected a list"),
        ({"As": 5}, "As: expected a list"),
        ({"Cs": 5, "beta": 1}, "Cs: expected a list"),
        ({"outs": []}, "0 outs"),
        ({"Cs": [], "beta": 1}, "0 Cs"),
        ({"biases": 5}, "biases: expected a list"),
        ({"activation": ["relu"]}, "activation: expected None or"),
        ({"outs": [np.empty((3, 4))]}, r"element type of outs\[0\]"),
        ({"Cs": [np.empty((3, 4))], "beta": 1}, r"element type of Cs\[0\]"),
        ({"Cs": [np.empty((3, 4), np.float32)]}, "beta: expected a number"),
    ],
)
def test_refusals_of_one_line(changes: dict[str, Any], message: str) -> None:
    a, b = _drawn((3, 5), (5, 4))
    with pytest.raises(kronop.KronopError, match=message):
        kronop.gemm.grouped_matmul(**{"As": [a], "Bs": [b], **changes})


def test_lists_may_be_generators() -> None:
    a, b = _drawn((3, 5), (5, 4))
    (found,) = kronop.gemm.grouped_matmul((item for item in [a]), (item for item in [b]))
    _check(found, np.float64(a) @ b, 5)


def test_a_source_that_is_not_read_may_be_another_one_s_result() -> None:
    a, b = _drawn((3, 5), (5, 4))
    outs = [np.full((3, 4), np.nan, np.float32) for _ in range(2)]
    kronop.gemm.grouped_matmul([a, a], [b, b], Cs=outs[::-1], beta=0, outs=outs)
    for out in outs:
        _check(out, np.float64(a) @ b, 5)
    with pytest.raises(kronop.ArgumentError, match=r"(C\[0\] and D|D\[0\] and C)\[1\]"):
        kronop.gemm.grouped_matmul([a, a], [b, b], Cs=outs[::-1], beta=1, outs=outs)


def test_results_may_be_columns_of_one_matrix() -> None:
    a, b = _drawn((3, 5), (5, 4))
    memory = np.zeros((3, 4 * 30), np.float32)
    outs = [memory[:, 4 * index : 4 * index + 4] for index in range(30)]
    kronop.gemm.grouped_matmul([a] * 30, [b] * 30, outs=outs)
    for out in outs:
        _check(out, np.float64(a) @ b, 5)
    outs[7] = memory[:, 1:5]
    with pytest.raises(kronop.ArgumentError, match=r"D\[[017]\] and D\[[017]\]"):
        kronop.gemm.grouped_matmul([a] * 30, [b] * 30, outs=outs)


def test_any_of_the_tensors_of_an_array_are_lists() -> None:
    a, b = _drawn((5, 7), (7, 9))
    operation = kronop.GemmOperationUniversal("x86", None, _MATRIX, _MATRIX, _MATRIX, _LINEAR)
    mode = kronop.gemm.Mode.Array
    arguments = kronop.GemmArguments(operation, A=np.stack([a, a]), B=[b, b], gemm_mode=mode)
    operation.run(arguments)
    for found in arguments.D:
        _check(found, np.float64(a) @ b, 7)
    memory = np.empty((5, 9), np.float32)
    with pytest.raises(kronop.ArgumentError, match=r"D\[0\] and D\[1\]"):
        kronop.GemmArguments(
            operation, A=np.stack([a, a]), B=[b, b], D=[memory, memory], gemm_mode=mode
        )
