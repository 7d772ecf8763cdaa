"""KSparseChainArguments: what reaches the problem, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kronop
from kronop.errors import ArgumentError, ElementTypeError
from tests import support
from tests.unit.args_double import OperationDouble, ksparse

PATTERNS = ((2, 3, 4, 2), (1, 5, 4, 3), (5, 2, 3, 1))


def _operation() -> Any:
    return support.chain_operation("x86", kronop.float64, PATTERNS)


def _weights() -> list[Any]:
    return [np.ones(pattern) for pattern in PATTERNS]


@pytest.mark.parametrize("batch_last", [False, True], ids=["first", "last"])
def test_batches_strides_bias_and_scalars_reach_the_right_elements(batch_last: bool) -> None:
    random = np.random.default_rng(3)
    operation = support.chain_operation("x86", kronop.float64, PATTERNS, batch_last=batch_last)

    def batch_of(features: int) -> Any:
        whole = random.integers(-4, 5, (2, features, 6)).astype(float)
        return (
            whole.transpose(1, 0, 2)[..., ::2] if batch_last else whole[:, ::-1, :].swapaxes(1, 2)
        )

    x, z = batch_of(16), batch_of(10)
    weights = [random.integers(-3, 4, (*pattern, 2)).astype(float)[..., 0] for pattern in PATTERNS]
    bias = random.integers(-9, 10, (20,)).astype(float)[::2]
    output_op = operation.epilogue_type(2, 3)
    arguments = kronop.KSparseChainArguments(
        operation=operation, X=x, weights=weights, Z=z, bias=bias, output_op=output_op
    )
    operation.run(arguments)

    def rows(item: Any, features: int) -> Any:
        return item.reshape(features, -1) if batch_last else item.reshape(-1, features)

    expected = operation.description.reference(
        rows(x, 16), weights, rows(z, 10), bias, output_op
    ).reshape(z.shape)
    np.testing.assert_array_equal(arguments.Y, expected)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"weights": np.ones(PATTERNS[0])}, ElementTypeError, ["weights", "list or tuple"]),
        ({"weights": _weights()[:2]}, ArgumentError, ["3 tensors", "got 2"]),
        (
            {"weights": [*_weights()[:2], np.ones((5, 3, 2, 1))]},
            ArgumentError,
            ["weights[2]", "(5, 2, 3, 1)", "(5, 3, 2, 1)"],
        ),
        (
            {"weights": [np.ones(PATTERNS[0], "f4"), *_weights()[1:]]},
            ElementTypeError,
            ["weights[0]", "float32"],
        ),
        ({"X": np.ones((5, 17))}, ArgumentError, ["X", "2 x 4 x 2 = 16", "(5, 17)"]),
        ({"bias": np.ones(15)}, ArgumentError, ["bias", "(10,)"]),
        ({"Y": np.ones((4, 10))}, ArgumentError, ["Y", "(5, 10)", "(4, 10)"]),
        ({"Z": np.ones((5, 12))}, ArgumentError, ["Z", "(5, 10)"]),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Any], error: type, words: list[str]) -> None:
    operation = _operation()
    arguments = {"X": np.ones((5, 16)), "weights": _weights()} | changes
    if "Z" in changes:
        arguments["output_op"] = operation.epilogue_type(1.0, 0.0)
    with pytest.raises(error) as caught:
        kronop.KSparseChainArguments(operation=operation, **arguments)
    for word in words:
        assert word in str(caught.value)


def test_overlap_with_any_weights_is_refused() -> None:
    memory = np.zeros(200)
    y = memory[:50].reshape(5, 10)
    for index, pattern in enumerate(PATTERNS):
        weights = _weights()
        weights[index] = memory[49 : 49 + weights[index].size].reshape(pattern)
        with pytest.raises(ArgumentError, match=rf"Y and weights\[{index}\]"):
            kronop.KSparseChainArguments(
                operation=_operation(), X=np.ones((5, 16)), Y=y, weights=weights
            )


def test_another_family_is_refused() -> None:
    with pytest.raises(ElementTypeError, match="a KSparseChainOperation, got OperationDouble"):
        kronop.KSparseChainArguments(
            operation=OperationDouble(ksparse(PATTERNS[0])),  # type: ignore[arg-type]
            X=np.ones((5, 16)),
            weights=_weights(),
        )


def test_an_empty_batch_launches_nothing() -> None:
    operation = _operation()
    arguments = kronop.KSparseChainArguments(
        operation=operation, X=np.ones((0, 16)), weights=_weights()
    )
    operation.run(arguments)
    assert arguments.Y.shape == (0, 10)
    assert arguments.launchers == ()


def test_factors_that_do_not_follow_each_other_are_refused() -> None:
    with pytest.raises(kronop.DescriptionError, match=r"patterns\[1\]: expected a c d = 12"):
        support.chain_operation("x86", kronop.float64, ((2, 3, 4, 2), (1, 5, 4, 4)))
    with pytest.raises(kronop.DescriptionError, match="at least one"):
        support.chain_operation("x86", kronop.float64, ())
