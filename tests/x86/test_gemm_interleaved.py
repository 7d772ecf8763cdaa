"""Interleaved matrix products on a CPU against NumPy; helpers; what is refused."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np
import pytest

import kronop
from tests import support

GemmCoord, interleave = kronop.gemm.GemmCoord, kronop.gemm.interleave
deinterleave = kronop.gemm.deinterleave
COLUMNS, ROWS = kronop.ColumnMajorInterleaved32, kronop.RowMajorInterleaved32
LAYOUTS = (COLUMNS, ROWS, COLUMNS)
A = kronop.TensorDescription(kronop.int8, COLUMNS, 16)
B = kronop.TensorDescription(kronop.int8, ROWS, 16)
NARROW = kronop.TensorDescription(kronop.int8, COLUMNS, 8)
WIDE = kronop.TensorDescription(kronop.int32, COLUMNS, 4)
POISON = 99


def _operation(output: kronop.DataType = kronop.int8, target: str = "x86") -> Any:
    if output is kronop.int8:
        functor: Any = kronop.FastLinearCombinationClamp(output, 8)
        return kronop.GemmOperationUniversal(target, None, A, B, NARROW, functor)
    functor = kronop.LinearCombinationClamp(output, 4, output, output)
    return kronop.GemmOperationUniversal(target, None, A, B, WIDE, functor)


def _matrices(m: int, n: int, k: int, lead: tuple[int, ...] = ()) -> list[Any]:
    random = np.random.default_rng(m + n + k)
    shapes = ((*lead, m, k), (k, n), (*lead, m, n))
    return [random.integers(-128, 128, shape).astype(np.int8) for shape in shapes]


def _interleaved(matrices: Any) -> list[Any]:
    return [interleave(item, layout) for item, layout in zip(matrices, LAYOUTS, strict=True)]


def _expected(a: Any, b: Any, c: Any, alpha: float, beta: float) -> Any:
    sums = a.astype(np.int64) @ b.astype(np.int64)
    return np.clip(np.rint(np.float32(alpha) * sums + np.float32(beta) * c), -128, 127)


@pytest.mark.parametrize(
    ("m", "n", "k"), [(50, 96, 64), (1, 32, 32), (33, 64, 320), (7, 32, 96), (160, 224, 32)]
)
def test_products(m: int, n: int, k: int) -> None:
    operation, matrices = _operation(), _matrices(m, n, k)
    a, b, c = _interleaved(matrices)
    d = np.full_like(c, POISON)
    output_op = operation.epilogue_type(1 / 256, 0.5)
    arguments = kronop.GemmArguments(operation, A=a, B=b, C=c, D=d, output_op=output_op)
    operation.run(arguments)
    np.testing.assert_array_equal(deinterleave(d, COLUMNS), _expected(*matrices, 1 / 256, 0.5))
    a[...] = 1  # Copies are renewed in each run.
    operation.run(arguments)
    matrices[0][...] = 1
    np.testing.assert_array_equal(deinterleave(d, COLUMNS), _expected(*matrices, 1 / 256, 0.5))


def test_flat_tensors_in_place_and_sums_of_32_bits() -> None:
    operation, (a, b, _) = _operation(kronop.int32), _matrices(40, 64, 96)
    c = np.arange(40 * 64, dtype=np.int32).reshape(40, 64)
    first, second, third = (item.ravel() for item in _interleaved((a, b, c)))
    arguments = kronop.GemmArguments(
        operation,
        GemmCoord(40, 64, 96),
        A=first,
        B=second,
        C=third,
        D=third,
        output_op=operation.epilogue_type(2, -1),
        split_k_slices=3,
    )
    expected = c.astype(np.int64)
    for _ in range(2):  # D is C: each run takes what the last one left.
        operation.run(arguments)
        expected = 2 * (a.astype(np.int64) @ b.astype(np.int64)) - expected
        got = deinterleave(third.reshape(2, 40, 32), COLUMNS)
        np.testing.assert_array_equal(got, expected)


def test_batches_a_bias_and_a_part_of_the_rows() -> None:
    operation, matrices = _operation(kronop.int32), _matrices(24, 64, 64, (2, 3))
    a, b, _ = _interleaved(matrices)
    bias = np.arange(64, dtype=np.int32)
    arguments = kronop.GemmArguments(operation, A=a[..., 4:20, :], B=b, bias=bias)
    operation.run(arguments)
    assert arguments.D.shape == (2, 3, 2, 16, 32)
    expected = matrices[0][..., 4:20, :].astype(np.int64) @ matrices[1].astype(np.int64) + bias
    np.testing.assert_array_equal(deinterleave(arguments.D, COLUMNS), expected)
    # More dimensions of a batch than kernels walk, without a common stride.
    first, second = matrices[0][:, 0, :, :], np.stack([matrices[1], -matrices[1] // 2])
    first = np.broadcast_to(first[:, None], (2, 2, 24, 64)).reshape(2, 1, 2, 1, 1, 24, 64)
    second = np.broadcast_to(second[:, None], (2, 2, 64, 64)).reshape(1, 2, 1, 2, 1, 64, 64)
    second = np.broadcast_to(second, (1, 2, 1, 2, 3, 64, 64))
    many = kronop.GemmArguments(operation, A=interleave(first, COLUMNS), B=interleave(second, ROWS))
    operation.run(many)
    expected = first.astype(np.int64) @ second.astype(np.int64)
    np.testing.assert_array_equal(deinterleave(many.D, COLUMNS), expected)


def test_groups_and_lists() -> None:
    functor = kronop.FastLinearCombinationClamp(kronop.int8, 8)
    grouped = kronop.GemmOperationGrouped("x86", None, A, B, NARROW, functor)
    every = [_matrices(5, 32, 64), _matrices(70, 96, 32)]
    given = [_interleaved(item) for item in every]
    As, Bs = ([item[at] for item in given] for at in (0, 1))
    output_op = grouped.epilogue_type(1 / 64)
    arguments = kronop.GemmGroupedArguments(grouped, None, As, Bs, output_op=output_op)
    grouped.run(arguments)
    single = _operation()
    listed = kronop.GemmArguments(
        single, A=As, B=Bs, output_op=output_op, gemm_mode=kronop.gemm.Mode.Array
    )
    single.run(listed)
    for matrices, *found in zip(every, arguments.D, listed.D, strict=True):
        for item in found:
            expected = _expected(*matrices, 1 / 64, 0)
            np.testing.assert_array_equal(deinterleave(item, COLUMNS), expected)


@pytest.mark.parametrize("extents", [(4, 32, 0), (0, 32, 32), (4, 0, 32)])
def test_nothing_to_add_or_to_compute(extents: tuple[int, int, int]) -> None:
    operation, matrices = _operation(), _matrices(*extents)
    a, b, c = _interleaved(matrices)
    d = np.full_like(c, POISON)
    output_op = operation.epilogue_type(1.0, 1.0)
    operation.run(kronop.GemmArguments(operation, A=a, B=b, C=c, D=d, output_op=output_op))
    np.testing.assert_array_equal(d, c)


def test_elements_lie_where_the_layouts_say() -> None:
    matrix = np.arange(2 * 64 * 96, dtype=np.int32).reshape(2, 64, 96)
    columns, rows = interleave(matrix, COLUMNS), interleave(matrix, ROWS)
    assert (columns.shape, rows.shape) == ((2, 3, 64, 32), (2, 2, 96, 32))
    for m, k in ((0, 0), (63, 95), (5, 70), (33, 31)):
        assert columns[1, k // 32, m, k % 32] == matrix[1, m, k]
        assert rows[1, m // 32, k, m % 32] == matrix[1, m, k]
    for panels, layout in ((columns, COLUMNS), (rows, ROWS)):
        assert panels.flags.c_contiguous
        np.testing.assert_array_equal(deinterleave(panels, layout), matrix)
    turned = interleave(matrix[:, ::-1].swapaxes(1, 2), COLUMNS)
    np.testing.assert_array_equal(turned, interleave(matrix[:, ::-1], ROWS))


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    operation, matrices = _operation(), _matrices(20, 32, 64)
    a, b, c = _interleaved([torch.from_numpy(item) for item in matrices])
    assert isinstance(a, torch.Tensor)
    output_op = operation.epilogue_type(1 / 16, 1.0)
    arguments = kronop.GemmArguments(operation, A=a, B=b, C=c, output_op=output_op)
    operation.run(arguments)
    got = deinterleave(arguments.D, COLUMNS).numpy()
    np.testing.assert_array_equal(got, _expected(*matrices, 1 / 16, 1.0))


MATRIX = np.zeros((64, 64), np.int8)
PANELS = np.zeros((2, 64, 32), np.int8)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"A": MATRIX}, "shape of A: expected (..., K/32, M, 32), interleaved, got (64, 64)"),
        ({"B": PANELS[..., :16]}, "shape of B: expected (..., K/32, N, 32)"),
        ({"A": PANELS[:, ::2]}, "memory of A: expected panels without gaps"),
        ({"B": PANELS[:1]}, "shape of B"),
        ({"B": PANELS[:, :40]}, "N, the columns of interleaved B: expected a multiple of 32"),
        ({"D": PANELS[:1]}, "shape of D"),
        ({"C": PANELS[0, 0], "output_op": 1.0}, "shape of C: expected (..., N/32, M, 32)"),
        ({"C": PANELS[:, :1], "output_op": 1.0}, "shape of C"),
        ({"D": PANELS}, "D and A"),
        ({"problem_size": GemmCoord(64, 64, 32)}, "A and B"),
        ({"problem_size": GemmCoord(64, 64, 48)}, "K of the problem_size: expected a multiple of"),
        ({"problem_size": GemmCoord(64, 40, 64)}, "N of the problem_size: expected a multiple of"),
        ({"A": PANELS.ravel()[:-1], "problem_size": GemmCoord(64, 64, 64)}, "4096 elements"),
        ({"A": PANELS.astype(np.int32)}, "element type of A"),
    ],
)
def test_tensors_that_are_refused(given: dict[str, Any], reason: str) -> None:
    operation = _operation()
    if "output_op" in given:
        given = {**given, "output_op": operation.epilogue_type(1.0, given["output_op"])}
    with pytest.raises(kronop.KronopError, match=re.escape(reason)):
        kronop.GemmArguments(operation, **{"A": PANELS, "B": PANELS, **given})


def test_descriptions_that_are_refused() -> None:
    for element in (kronop.float16, kronop.int64):
        with pytest.raises(kronop.DescriptionError, match=f"layout of {element.name}: expected"):
            kronop.TensorDescription(element, COLUMNS)
    functor = kronop.FastLinearCombinationClamp(kronop.int8, 8)
    plain = dataclasses.replace(NARROW, layout=kronop.RowMajor)
    for tensors, name in (((plain, B, NARROW), "A"), ((A, A, NARROW), "B"), ((A, B, plain), "C")):
        with pytest.raises(kronop.DescriptionError, match=f"layout of {name} of an interleaved"):
            kronop.GemmOperationUniversal("x86", None, *tensors, functor)
    with pytest.raises(kronop.DescriptionError, match=r"layout of X: .* only matrix products"):
        support.kron_operation("x86", kronop.int8, [(4, 4)], layout=COLUMNS)
    math = kronop.MathInstruction.simt(kronop.int8)
    tile = kronop.TileDescription([128, 128, 8], 4, [4, 2, 1], math)
    with pytest.raises(kronop.DescriptionError, match=r"kronop's own read row-major .* CUTLASS: "):
        kronop.GemmOperationUniversal(80, tile, A, B, NARROW, functor)


@pytest.mark.parametrize(
    ("tensor", "layout", "reason"),
    [
        (MATRIX[:, :40], COLUMNS, "columns: expected a multiple of 32"),
        (MATRIX[:40], ROWS, "rows: expected a multiple of 32"),
        (MATRIX[0], ROWS, "at least 2 dimensions"),
        (MATRIX.astype(np.float32), ROWS, "int8 or int32 of NumPy"),
        (MATRIX, kronop.RowMajor, "layout: expected kronop.ColumnMajorInterleaved32 or"),
    ],
)
def test_what_is_not_interleaved(tensor: Any, layout: Any, reason: str) -> None:
    with pytest.raises(kronop.KronopError, match=re.escape(reason)):
        interleave(tensor, layout)
    if tensor is not MATRIX:
        return
    with pytest.raises(kronop.KronopError, match=re.escape("shape of panels")):
        deinterleave(MATRIX[None], COLUMNS)
