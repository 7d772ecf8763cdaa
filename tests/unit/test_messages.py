"""Messages of one-line functions about mistakes that are made at first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kronop


def test_many_factors_are_told_in_few_words() -> None:
    x = np.ones((4, 8), np.float32)
    for factors, told in (
        ([(2, 2)] * 60, "(..., M, 1.2e+18), since 2^60 = 1.2e+18, got (4, 8)"),
        ([(2, 2)] * 3 + [(3, 2)], "(..., M, 24), since 2^3 x 3 = 24, got (4, 8)"),
    ):
        with pytest.raises(kronop.ArgumentError) as caught:
            kronop.gemkm(x, [np.ones(shape, np.float32) for shape in factors])
        assert told in str(caught.value)


def test_a_gradient_of_weights_on_the_host_names_what_computes_it() -> None:
    x: Any = np.ones((4, 8), np.float32)
    with pytest.raises(kronop.DescriptionError, match=r"GPU.*autograd of kronop\.torch\.ksmm"):
        kronop.weight_gradient(x, x, (1, 8, 8, 1))


def test_mixed_types_are_told_what_to_convert() -> None:
    x = np.ones((4, 8), np.float32)
    with pytest.raises(kronop.ElementTypeError, match="convert it to the type that is expected"):
        kronop.gemkm(x, [np.ones((8, 8))])


def test_factors_with_fractions_are_not_to_become_whole_numbers() -> None:
    x = np.ones((4, 8), np.int64)
    told = "factors.0.: expected kronop.int64.*drops fractions, convert the other operands to"
    with pytest.raises(kronop.ElementTypeError, match=told):
        kronop.gemkm(x, [np.ones((8, 8))])


_INT8 = np.ones((4, 4), np.int8)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"out": np.ones((4, 4), np.float32)}, "kronop.int32, .*kronop.int8, .*, got kronop.float"),
        (
            {"c": _INT8, "beta": 1},
            "kronop.int32, .*kronop.int8 where out is of that, got kronop.int8",
        ),
        ({"bias": np.ones(4, np.float32)}, "kronop.int32, the type of D, got kronop.float32"),
        (
            {"b": np.ones((4, 4), np.float32)},
            "b: expected kronop.int8, the type of a, got kronop.fl",
        ),
    ],
)
def test_products_of_int8_name_both_types(given: dict[str, Any], told: str) -> None:
    with pytest.raises(kronop.ElementTypeError, match=told):
        kronop.gemm.matmul(**{"a": _INT8, "b": _INT8} | given)


def test_results_of_8_bit_floats_have_at_least_16_bits() -> None:
    kind = np.dtype(pytest.importorskip("ml_dtypes").float8_e4m3fn)
    a = np.ones((4, 4), kind)
    with pytest.raises(kronop.ElementTypeError, match=r"out: expected one of .*bfloat16.*got"):
        kronop.gemm.matmul(a, a, out=np.ones((4, 4), kind))


_MATRIX = kronop.TensorDescription(kronop.float32)
_TYPES = (kronop.float32, 1, kronop.float32, kronop.float32)
_LINEAR = kronop.LinearCombination(*_TYPES)
_TREE = kronop.epilogue_visitor(lambda accum: accum + 1)


@pytest.mark.parametrize(
    ("epilogue", "told"),
    [
        (_TREE, "expected an epilogue, got a visitor tree without types; call it with them"),
        (lambda accum: accum + 1, r"kronop\.epilogue_visitor\(function\)"),
        (kronop.LinearCombination, "the class LinearCombination; make an object of it"),
        (kronop.relu(kronop.float32), r"kronop\.LinearCombinationGeneric\(kronop\.relu"),
        (None, r"for example kronop\.LinearCombination"),
    ],
)
def test_what_is_no_epilogue_is_told_how_to_be_one(epilogue: Any, told: str) -> None:
    with pytest.raises(kronop.ElementTypeError, match=told):
        kronop.GemmOperationUniversal("x86", None, _MATRIX, _MATRIX, _MATRIX, epilogue)


def test_a_tile_and_tensors_that_are_none_are_told_what_to_build() -> None:
    for given, told in (
        (([8, 8, 8], _MATRIX, _MATRIX, _MATRIX), r"tile_description: .*kronop\.TileDescription"),
        ((None, kronop.float32, _MATRIX, _MATRIX), r"A: .*build a kronop\.TensorDescription"),
        ((None, _MATRIX, _MATRIX, kronop.float32), r"C: .*build a kronop\.TensorDescription"),
    ):
        operation: Any = kronop.GemmOperationUniversal
        with pytest.raises(kronop.ElementTypeError, match=told):
            operation("x86", *given, _LINEAR)


_OPERATION = kronop.GemmOperationUniversal("x86", None, _MATRIX, _MATRIX, _MATRIX, _LINEAR)
_SQUARE = np.ones((4, 4), np.float32)
_FLAT = np.ones(32, np.float32)
_ARRAY, _BATCHED = kronop.gemm.Mode.Array, kronop.gemm.Mode.Batched
_SIZE = kronop.gemm.GemmCoord(4, 4, 4)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"A": [_SQUARE]}, r"A in mode Gemm: .* got list; .*kronop\.gemm\.Mode\.Array"),
        ({"A": [_SQUARE] * 2, "gemm_mode": _ARRAY}, "2 A, 4 B; .*a stacked tensor counts as"),
        ({"batch": 2}, r"batch in mode Gemm: expected 1, got 2; .*Mode\.Batched or Array"),
        ({"batch": 2, "gemm_mode": _BATCHED}, "expected 1, as many products as A and B hold"),
        ({"A": _FLAT, "problem_size": _SIZE}, "got \\(32,\\); flat tensors hold `batch` matrices"),
        ({"problem_size": kronop.gemm.GemmCoord(4, 4, 8)}, r"GemmCoord\(M, N, K\)"),
    ],
)
def test_arguments_say_what_modes_and_sizes_take(given: dict[str, Any], told: str) -> None:
    with pytest.raises(kronop.KronopError, match=told):
        kronop.GemmArguments(operation=_OPERATION, **{"A": _SQUARE, "B": _SQUARE} | given)


def test_plans_are_asked_for_by_a_size() -> None:
    arguments = kronop.GemmArguments(operation=_OPERATION, A=_SQUARE, B=_SQUARE)
    for size, told in ((arguments, r"arguments\.size"), (_SIZE, r"arguments\.size, or one number")):
        with pytest.raises(kronop.KronopError, match=told):
            _OPERATION.plan_for(size)


def test_scalars_have_places_and_no_names() -> None:
    with pytest.raises(kronop.ArgumentError, match="alpha, beta, in this order, got 3 scalars"):
        _OPERATION.epilogue_type(1.0, 0.0, 1.0)
    with pytest.raises(kronop.ArgumentError, match="got beta by name; only visitor trees"):
        _OPERATION.epilogue_type(1.0, beta=1.0)
    wrong: Any = (1.0, 0.0)
    with pytest.raises(kronop.ElementTypeError, match=r"output_op=operation\.epilogue_type\("):
        kronop.GemmArguments(operation=_OPERATION, A=_SQUARE, B=_SQUARE, output_op=wrong)


@pytest.mark.parametrize(
    "scheduled",
    [
        {"cluster_shape": [2, 1, 1]},
        {"kernel_schedule": kronop.KernelScheduleType.TmaWarpSpecializedPingpong},
        {"tile_scheduler": kronop.TileSchedulerType.Persistent},
    ],
)
def test_clusters_and_schedules_are_refused_on_cpus(scheduled: dict[str, Any]) -> None:
    math = kronop.MathInstruction.simt(kronop.float32)
    tile = kronop.TileDescription([192, 96, 64], 1, [1, 1, 1], math, **scheduled)
    for kind in (kronop.GemmOperationUniversal, kronop.GemmOperationGrouped):
        with pytest.raises(kronop.DescriptionError, match=r"cluster_shape, sched.*leave them out"):
            kind("x86", tile, _MATRIX, _MATRIX, _MATRIX, _LINEAR)


def test_arguments_name_the_operation_that_they_are_of() -> None:
    grouped = kronop.GemmOperationGrouped("x86", None, _MATRIX, _MATRIX, _MATRIX, _LINEAR)
    with pytest.raises(kronop.ElementTypeError, match="a GemmOperationUniversal, got GemmOperatio"):
        kronop.GemmArguments(operation=grouped, A=_SQUARE, B=_SQUARE)
    with pytest.raises(kronop.ElementTypeError, match="a GemmOperationGrouped, got GemmOperationU"):
        kronop.GemmGroupedArguments(_OPERATION, A=[_SQUARE], B=[_SQUARE])
