"""KSparseArguments: flattened batches, strides of W, bias, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kronop.args.tensor import describe, view
from kronop.descriptions.datatype import ColumnMajor, float64
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import ArgumentError, ElementTypeError
from kronop.families.kron.arguments import KronMatmulArguments
from kronop.families.ksparse.arguments import KSparseArguments
from tests.unit.args_double import OperationDouble, kron, ksparse
from tests.unit.test_args_kron import _integers, _scrambled

PATTERN = (2, 3, 4, 2)
INPUT, OUTPUT = 16, 12


def _shape(batch: tuple[int, ...], features: int, last: bool) -> tuple[int, ...]:
    return (features, *batch) if last else (*batch, features)


def _expected(description: Any, x: Any, weights: Any, last: bool) -> Any:
    batch = x.shape[1:] if last else x.shape[:-1]
    flat = x.reshape(INPUT, -1) if last else x.reshape(-1, INPUT)
    return description.reference(flat, weights).reshape(_shape(batch, OUTPUT, last))


@settings(max_examples=120, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    batch=st.lists(st.integers(0, 4), max_size=3),
    last=st.booleans(),
    with_z=st.booleans(),
    with_bias=st.booleans(),
    given_y=st.booleans(),
    in_place=st.booleans(),
    scrambled=st.booleans(),
    columns=st.booleans(),
)
def test_every_batch_and_stride_reaches_the_right_elements(
    seed: int,
    batch: list[int],
    last: bool,
    with_z: bool,
    with_bias: bool,
    given_y: bool,
    in_place: bool,
    scrambled: bool,
    columns: bool,
) -> None:
    random = np.random.default_rng(seed)
    make = _scrambled if scrambled else _integers
    promise = TensorDescription(float64, ColumnMajor) if columns else None
    description = ksparse(PATTERN, last, Y=promise)
    x = make(random, _shape(tuple(batch), INPUT, last))
    weights = _scrambled(random, PATTERN)
    bias = _integers(random, (OUTPUT * 2,))[::2] if with_bias else None
    result = _shape(tuple(batch), OUTPUT, last)
    z = make(random, result) if with_z else None
    y = make(random, result) if given_y else None
    if with_z and given_y and in_place:
        z = y
    expected = 2 * _expected(description, x, weights, last) if x.size else np.zeros(result)
    if with_bias and x.size:
        expected = expected + (bias.reshape(-1, *(1,) * len(batch)) if last else bias)
    expected = expected + 3 * z if with_z else expected
    operation = OperationDouble(description)
    arguments = KSparseArguments(
        operation=operation,
        X=x,
        W=weights,
        Z=z,
        Y=y,
        bias=bias,
        output_op=operation.epilogue_type(2.0, 3.0 if with_z else 0.0),
    )
    arguments.run(operation)
    arguments.sync()
    np.testing.assert_array_equal(arguments.Y, expected)
    assert arguments.Y is y or not given_y
    assert (arguments.launchers == ()) == (x.size == 0)


def test_a_vector_is_one_row() -> None:
    for last in (False, True):
        operation = OperationDouble(ksparse(PATTERN, last))
        arguments = KSparseArguments(operation=operation, X=np.ones(INPUT), W=np.ones(PATTERN))
        arguments.run(operation)
        np.testing.assert_array_equal(arguments.Y, np.full(OUTPUT, 4.0))
        assert operation.problems[0].rows == 1


def test_foreign_byte_order_is_copied_and_a_plain_batch_is_not() -> None:
    operation = OperationDouble(ksparse(PATTERN))
    x = np.ones((2, 3, INPUT))
    arguments = KSparseArguments(
        operation=operation, X=x, W=np.ones(PATTERN, ">f8"), bias=np.ones(OUTPUT, ">f8")
    )
    arguments.run(operation)
    np.testing.assert_array_equal(arguments.Y, np.full((2, 3, OUTPUT), 5.0))
    assert operation.problems[0].x.pointer == x.ctypes.data
    swapped = KSparseArguments(operation=operation, X=x.astype(">f8"), W=np.ones(PATTERN))
    swapped.run(operation)
    np.testing.assert_array_equal(swapped.Y, np.full((2, 3, OUTPUT), 4.0))


def test_copies_keep_the_promise_that_the_tensor_could_not() -> None:
    promise = TensorDescription(float64, alignment=2)
    operation = OperationDouble(ksparse((1, 2, 3, 1), X=promise))
    x = np.arange(60.0).reshape(2, 5, 6)[:, :, ::2].transpose(1, 0, 2)
    arguments = KSparseArguments(operation=operation, X=x, W=np.ones((1, 2, 3, 1)))
    arguments.run(operation)
    problem = operation.problems[0]
    assert (problem.x.pointer % 16, problem.x.row, problem.x.column) == (0, 4, 1)
    np.testing.assert_array_equal(arguments.Y[..., 0], x.sum(-1))


def test_a_described_tensor_is_always_accepted() -> None:
    random = np.random.default_rng(5)
    for shape in ((INPUT, 4, 1), (INPUT, 1, 4), (INPUT, 4, 2), (INPUT, 1, 1), (INPUT,)):
        for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2))[: 1 if len(shape) == 1 else 3]:
            order = order[: len(shape)]
            x = _integers(random, tuple(shape[axis] for axis in order)).transpose(np.argsort(order))
            description = ksparse(PATTERN, True, X=describe(view(x, "X"), "X"))
            operation = OperationDouble(description)
            arguments = KSparseArguments(operation=operation, X=x, W=np.ones(PATTERN))
            arguments.run(operation)
            np.testing.assert_array_equal(
                arguments.Y, _expected(description, x, np.ones(PATTERN), True)
            )


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"X": np.ones((5, 17))}, ArgumentError, ["X", "2 x 4 x 2 = 16", "(5, 17)"]),
        ({"X": np.array(1.0)}, ArgumentError, ["X", "()"]),
        ({"X": None}, ElementTypeError, ["X", "NoneType"]),
        ({"W": np.ones((2, 4, 3, 2))}, ArgumentError, ["W", "(2, 3, 4, 2)", "(2, 4, 3, 2)"]),
        ({"W": np.ones(PATTERN, "f4")}, ElementTypeError, ["W", "float32"]),
        ({"bias": np.ones(16)}, ArgumentError, ["bias", "(12,)"]),
        ({"bias": np.ones(12, "f4")}, ElementTypeError, ["bias"]),
        ({"Y": np.ones((4, 12))}, ArgumentError, ["Y", "(5, 12)", "(4, 12)"]),
        ({"Z": np.ones((12, 5))}, ArgumentError, ["Z", "(5, 12)"]),
        ({"Z": np.ones((5, 12), "i4")}, ElementTypeError, ["Z", "int32"]),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Any], error: type, words: list[str]) -> None:
    operation = OperationDouble(ksparse(PATTERN))
    arguments = {"X": np.ones((5, 16)), "W": np.ones(PATTERN)} | changes
    if "Z" in changes:
        arguments["output_op"] = operation.epilogue_type(1.0, 0.0)
    with pytest.raises(error) as caught:
        KSparseArguments(operation=operation, **arguments)
    for word in words:
        assert word in str(caught.value)


def test_z_needs_beta() -> None:
    operation = OperationDouble(ksparse(PATTERN))
    arguments = {"X": np.ones((5, 16)), "W": np.ones(PATTERN), "Z": np.ones((5, 12))}
    for scalars in (None, operation.epilogue_type(2.0)):
        with pytest.raises(ArgumentError, match="beta: expected a number, because Z is given"):
            KSparseArguments(operation=operation, **arguments, output_op=scalars)


def test_overlap_with_weights_and_bias_is_refused() -> None:
    memory = np.zeros(200)
    operation = OperationDouble(ksparse(PATTERN))
    y = memory[:60].reshape(5, 12)
    for name, other in (("W", memory[59:107].reshape(PATTERN)), ("bias", memory[59:71])):
        arguments = {"W": np.ones(PATTERN)} | {name: other}
        with pytest.raises(ArgumentError, match=f"Y and {name}"):
            KSparseArguments(operation=operation, X=np.ones((5, 16)), Y=y, **arguments)


@pytest.mark.parametrize("operation", [None, OperationDouble(kron(((2, 3),)))])
def test_what_is_no_operation_of_the_family_is_refused(operation: Any) -> None:
    with pytest.raises(ElementTypeError, match=r"a KSparseOperation, got (NoneType|OperationD)"):
        KSparseArguments(operation=operation, X=np.ones((4, 6)), W=np.ones((1, 2, 3, 2)))


def test_a_kronecker_matmul_wants_its_own_operation() -> None:
    with pytest.raises(ElementTypeError, match="a KronMatmulOperation, got NoneType"):
        KronMatmulArguments(operation=None, X=np.ones((4, 6)), factors=[])  # type: ignore[arg-type]
