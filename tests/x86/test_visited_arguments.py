"""What visitor trees of other families than matrix products take, give back and refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kronop
from kronop.emit.plan_text import from_text, to_text
from tests import support
from tests.x86.test_visited_families import COLUMNS, F32, FACTORS, ROWS, given, kron, plain, typed


def test_in_place_and_with_strides() -> None:
    """D is an operand, in a view with gaps; a second run goes on from the first."""
    random, add = (
        np.random.default_rng(5),
        kronop.epilogue_visitor(lambda accum, c: accum + c, kinds={"c": "tensor"}, results=("D",)),
    )
    operation = kron(kronop.Side.Right, ROWS, F32, F32, add)
    x = support.random_array(random, operation.description.x_shape(6), F32)
    factors = [support.random_array(random, shape, F32) for shape in FACTORS]
    y = np.zeros((6, 2 * 54), np.float32)[:, ::2]
    arguments = kronop.KronMatmulArguments(
        operation=operation,
        X=x,
        factors=factors,
        output_op=operation.epilogue_type(c=y, D=y),
    )
    assert arguments.accumulates
    operation.run(arguments)
    once = y.copy()
    operation.run(arguments)
    np.testing.assert_allclose(y, 2 * once, rtol=1e-6)


def test_the_number_of_threads_changes_nothing() -> None:
    random = np.random.default_rng(6)
    operation = kron(kronop.Side.Right, COLUMNS, F32, F32)
    x = support.random_array(random, operation.description.x_shape(3000), F32)
    factors = [support.random_array(random, shape, F32) for shape in FACTORS]
    found = []
    for threads in (1, 2):
        tensors = given(operation.description.epilogue, (3000, 54), np.random.default_rng(7))
        arguments = kronop.KronMatmulArguments(
            operation=operation,
            X=x,
            factors=factors,
            output_op=operation.epilogue_type(**tensors),
        )
        arguments.share_among(threads)
        operation.run(arguments)
        found.append([arguments.Y, *(tensors[name] for name in ("row_sum", "column_sum"))])
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)


def test_plans_end_with_the_pass_and_are_remembered() -> None:
    operation = kron(kronop.Side.Right, ROWS, F32, F32)
    assert len(operation.plan.steps) >= 2
    assert "through the visitor tree" in str(operation.plan)
    assert operation.plan.steps[-1].entry.startswith("visit_f32_f32")
    text = to_text(operation.plan, operation.description.epilogue)
    again = from_text(text, operation.target, operation.description.epilogue)
    assert again.steps == operation.plan.steps


_X = np.zeros((5, 24), np.float32)
_FACTORS = [np.zeros(shape, np.float32) for shape in FACTORS]


@pytest.mark.parametrize(
    ("given_too", "message"),
    [
        ({"Z": np.zeros((5, 54), np.float32)}, "Z: expected none, because the epilogue is a"),
        ({"Y": np.zeros((5, 54), np.float32)}, "d: expected the same tensor as epilogue_type's"),
        ({"X": np.zeros((4, 24), np.float32)}, "shape of Y: expected"),
    ],
)
def test_what_does_not_fit_is_refused(given_too: dict[str, Any], message: str) -> None:
    operation = kron(kronop.Side.Right, ROWS, F32, F32)
    tensors = given(operation.description.epilogue, (5, 54), np.random.default_rng(0))
    output_op = operation.epilogue_type(D=np.zeros((5, 54), np.float32), **tensors)
    operands = {"X": _X, "factors": _FACTORS, **given_too}
    with pytest.raises(kronop.ArgumentError, match=message):
        kronop.KronMatmulArguments(operation=operation, output_op=output_op, **operands)


def test_an_auxiliary_result_may_not_be_an_input() -> None:
    keep = kronop.epilogue_visitor(lambda accum: (accum, accum), results=("D", "kept"))
    operation = kron(kronop.Side.Right, ROWS, F32, F32, keep)
    x = np.zeros((5, 54), np.float32)
    with pytest.raises(kronop.ArgumentError, match="kept and X: expected separate memory"):
        kronop.KronMatmulArguments(
            operation=operation,
            X=x[:, :24],
            factors=_FACTORS,
            output_op=operation.epilogue_type(kept=x),
        )


def test_several_batch_dimensions_last_are_refused() -> None:
    matrix = kronop.TensorDescription(F32)
    operation = kronop.KSparseOperation(
        "x86",
        None,
        matrix,
        matrix,
        matrix,
        typed(plain, F32, F32),
        pattern=(1, 2, 2, 1),
        batch_last=True,
    )
    with pytest.raises(kronop.ArgumentError, match="two dimensions"):
        kronop.KSparseArguments(
            operation=operation,
            X=np.zeros((2, 3, 4), np.float32),
            W=np.zeros((1, 2, 2, 1), np.float32),
            output_op=operation.epilogue_type(scale=np.zeros(4, np.float32)),
        )


def test_sizes_count_sums_and_parts() -> None:
    operation = kron(kronop.Side.Right, ROWS, F32, F32)
    plain_one = kron(kronop.Side.Right, ROWS, F32, F32, plain)
    sums = 100 * 56 * 4  # Rows of 54, padded to whole vectors.
    assert plain_one.sizes(100).workspace_bytes - plain_one.workspace_bytes(100, 1) >= sums
    # Four reductions: of rows in parts of 32 columns, and of columns in parts of 32 rows.
    parts = 2 * (2 * 100 + 4 * 54) * 4
    more = operation.sizes(100).workspace_bytes - plain_one.sizes(100).workspace_bytes
    assert parts <= more <= parts + 4 * 256


def test_a_bias_that_the_tree_reads_is_added_once() -> None:
    random = np.random.default_rng(8)
    added = kronop.epilogue_visitor(
        lambda accum, bias: accum + bias, kinds={"bias": "row"}, results=("D",)
    )
    matrix, pattern = kronop.TensorDescription(F32), (1, 3, 2, 1)
    operation = kronop.KSparseOperation(
        "x86", None, matrix, matrix, matrix, typed(added, F32, F32), pattern=pattern
    )
    x, w, bias = (support.random_array(random, shape, F32) for shape in ((4, 2), pattern, (3,)))
    arguments = kronop.KSparseArguments(
        operation=operation,
        X=x,
        W=w,
        bias=bias,
        output_op=operation.epilogue_type(bias=bias),
    )
    operation.run(arguments)
    np.testing.assert_allclose(arguments.D, x @ w[0, :, :, 0].T + bias, rtol=1e-5, atol=1e-6)


def test_tuning_gives_back_all_that_it_writes() -> None:
    both = kronop.epilogue_visitor(
        lambda accum, c: (accum, accum + c), kinds={"c": "tensor"}, results=("D", "t")
    )
    operation = kron(kronop.Side.Right, ROWS, F32, F32, both)
    random = np.random.default_rng(9)
    x = support.random_array(random, operation.description.x_shape(5), F32)
    factors = [support.random_array(random, shape, F32) for shape in FACTORS]
    y, c = np.zeros((5, 54), np.float32), np.ones((5, 54), np.float32)
    arguments = kronop.KronMatmulArguments(
        operation=operation,
        X=x,
        factors=factors,
        output_op=operation.epilogue_type(D=y, c=c, t=c),
    )
    kronop.tune(operation, arguments)
    np.testing.assert_array_equal(c, np.ones_like(c))
    np.testing.assert_array_equal(y, np.zeros_like(y))


@pytest.mark.parametrize("order", [">f4", "<f4"])
def test_operands_of_foreign_byte_order_repeat(order: str) -> None:
    add = kronop.epilogue_visitor(lambda accum, c: accum + c, kinds={"c": "tensor"}, results=("D",))
    operation = kron(kronop.Side.Right, ROWS, F32, F32, add)
    random = np.random.default_rng(10)
    x = support.random_array(random, operation.description.x_shape(5), F32)
    factors = [support.random_array(random, shape, F32) for shape in FACTORS]
    c = np.arange(54, dtype=order)
    arguments = kronop.KronMatmulArguments(
        operation=operation, X=x, factors=factors, output_op=operation.epilogue_type(c=c)
    )
    operation.run(arguments)
    plain_one = operation.description.reference(
        x, factors, output_op=operation.epilogue_type(c=np.zeros(54, np.float32))
    )
    np.testing.assert_allclose(arguments.Y, plain_one["D"] + np.arange(54), rtol=1e-4, atol=1e-4)


def test_more_reductions_than_a_block_has_room_for_are_refused() -> None:
    many = kronop.epilogue_visitor(
        lambda accum: (accum, *(kronop.sum(accum, axis="row") for _ in range(60)))
    )
    matrix, epilogue = kronop.TensorDescription(F32), typed(many, F32, F32)
    with pytest.raises(kronop.DescriptionError, match="60 reductions of a tree take"):
        kronop.KronMatmulOperation(
            "sm_90a", None, matrix, matrix, matrix, epilogue, factors=FACTORS
        )
    assert kron(kronop.Side.Right, ROWS, F32, F32, many).plan.steps
