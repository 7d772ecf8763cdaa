"""What descriptions accept, refuse and compute."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
from typing import Any

import numpy as np
import pytest

import kronop
from tests import support


def test_every_valid_instruction_is_accepted_and_its_neighbours_are_not() -> None:
    simt = kronop.MathInstruction(
        [1, 1, 1],
        kronop.float16,
        kronop.float16,
        kronop.float32,
        kronop.OpClass.Simt,
        kronop.MathOperation.multiply_add,
    )
    assert simt == kronop.MathInstruction.simt(kronop.float16)
    assert hash(simt) == hash(kronop.MathInstruction.simt(kronop.float16))
    of_bytes = (kronop.int8, kronop.int8, kronop.int32, kronop.OpClass.TensorOp)
    for operation in ("multiply_add_saturate", "multiply_add"):
        kronop.MathInstruction([16, 8, 32], *of_bytes, kronop.MathOperation[operation])
    for operands in (
        ([1, 1, 1], kronop.float32, kronop.float16, kronop.float32),
        ([1, 1, 2], kronop.float32, kronop.float32, kronop.float32),
        ([1, 1, 1], kronop.bfloat16, kronop.bfloat16, kronop.bfloat16),
        (None, kronop.float32, kronop.float32, kronop.float64),
        ([16, 8, 8], kronop.float64, kronop.float64, kronop.float64, kronop.OpClass.TensorOp),
    ):
        with pytest.raises(kronop.DescriptionError, match=r"TensorOp \[16, 8, 32\] int8 -> int32"):
            kronop.MathInstruction(*operands)


@pytest.mark.parametrize(
    "arguments", [([0, 1, 1], 1, [1, 1, 1]), ([1, 1], 1, [1, 1, 1]), ([1, 1, 1], 0, [1, 1, 1])]
)
def test_tiles_refuse_sizes_that_are_not_positive(arguments) -> None:
    with pytest.raises(kronop.DescriptionError, match="expected"):
        kronop.TileDescription(*arguments, kronop.MathInstruction.simt(kronop.float32))


def _tiled(operation: Any, target: str, sizes: Any, instruction: Any, shape: Any) -> str:
    """The plan of an operation whose tile leaves the warps and stages out."""
    tensor = kronop.TensorDescription(instruction.element_a)
    tile = kronop.TileDescription(sizes, None, None, instruction)
    epilogue = support.linear(instruction.element_a)
    return str(operation(target, tile, tensor, tensor, tensor, epilogue, shape).plan)


def test_tiles_on_cpus_leave_warps_and_stages_out() -> None:
    simt = kronop.MathInstruction.simt(kronop.float32)
    assert "64 outputs" in _tiled(
        kronop.KSparseOperation, "x86", [64, 64, 16], simt, (2, 64, 64, 1)
    )
    assert "4 rows" in _tiled(kronop.KronMatmulOperation, "x86", [4, 512, 4], simt, [(8, 8)] * 3)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", ["simt float32", "tensor_op float32", "tensor_op float16"])
def test_tiles_on_gpus_leave_warps_and_stages_to_the_planner(target: str, name: str) -> None:
    kind, element = name.split()
    instruction = getattr(kronop.MathInstruction, kind)(getattr(kronop, element))
    sparse = kronop.KSparseOperation
    assert "64 x 64 x 16" in _tiled(sparse, target, [64, 64, 16], instruction, (2, 64, 64, 1))
    assert _tiled(kronop.KronMatmulOperation, target, [4, 512, 4], instruction, [(8, 8)] * 3)
    if kind == "tensor_op":
        gradient, shape = kronop.KSparseGradientOperation, (1, 256, 256, 1)
        assert "64 x 64 x 64" in _tiled(gradient, target, [64, 64, 64], instruction, shape)
    with pytest.raises(kronop.DescriptionError, match=r"change|use") as refused:
        _tiled(sparse, target, [63, 7, 3], instruction, (2, 12, 20, 1))
    assert "None" not in str(refused.value)


def test_a_shape_is_left_to_the_instruction() -> None:
    half, tensor_op = kronop.float16, kronop.OpClass.TensorOp
    for sums, shape in ((kronop.float32, (16, 8, 8)), (half, (16, 8, 16))):
        given = kronop.MathInstruction(None, half, half, sums, tensor_op)
        assert given.instruction_shape == shape
        assert given == kronop.MathInstruction(shape, half, half, sums, tensor_op)


def test_alignments_are_powers_of_two_of_at_most_16_bytes() -> None:
    for element in support.ELEMENTS:
        widest = 16 // element.bytes
        for wider in (widest, 2 * widest, 64):  # More means the widest.
            assert kronop.TensorDescription(element, kronop.RowMajor, wider).alignment == widest
        for wrong in (0, 3, 5 * widest, -1):
            with pytest.raises(kronop.DescriptionError, match="alignment"):
                kronop.TensorDescription(element, kronop.RowMajor, wrong)


def test_types_must_agree() -> None:
    single, double = (
        kronop.TensorDescription(kronop.float32),
        kronop.TensorDescription(kronop.float64),
    )
    epilogue = support.linear(kronop.float32)
    with pytest.raises(kronop.DescriptionError, match=r"elements of X and F.*float64 of F"):
        kronop.KronMatmulOperation("x86", None, single, double, single, epilogue, [(2, 2)])
    with pytest.raises(kronop.DescriptionError, match="element of Y"):
        kronop.KronMatmulOperation("x86", None, single, single, double, epilogue, [(2, 2)])
    half = kronop.TensorDescription(kronop.float16)
    narrow = kronop.MathInstruction(
        [16, 8, 16], kronop.float16, kronop.float16, kronop.float16, kronop.OpClass.TensorOp
    )
    tile = kronop.TileDescription([16, 64, 4], 1, [1, 1, 1], narrow)
    sums = kronop.LinearCombination(kronop.float16, 1, kronop.float32, kronop.float32)
    with pytest.raises(kronop.DescriptionError, match=r"^math.element_accumulator: .* in float32"):
        kronop.KronMatmulOperation("x86", tile, half, half, half, sums, [(2, 2)])
    with pytest.raises(kronop.ElementTypeError, match="epilogue"):
        kronop.KronMatmulOperation("x86", None, single, single, single, "linear", [(2, 2)])


def test_weights_promise_no_runs_that_they_do_not_have() -> None:
    matrix = kronop.TensorDescription(kronop.float32)
    epilogue = support.linear(kronop.float32)
    for patterns, layout, refused in [
        ([(2, 8, 8, 1)], kronop.RowMajor, True),
        ([(2, 8, 8, 1)], kronop.ColumnMajor, False),
        ([(2, 8, 1, 8)], kronop.ColumnMajor, True),
        ([(2, 8, 8, 8)], kronop.RowMajor, False),
        ([(1, 8, 8, 8), (1, 8, 64, 1)], kronop.RowMajor, True),
        ([(1, 8, 8, 8), (1, 8, 64, 1)], kronop.ColumnMajor, False),
    ]:
        weights = kronop.TensorDescription(kronop.float32, layout, 4)
        family, asked = (
            (kronop.KSparseOperation, patterns[0])
            if len(patterns) == 1
            else (kronop.KSparseChainOperation, patterns)
        )
        expected = (
            pytest.raises(
                kronop.DescriptionError, match=r"alignment of W: .*, got 4; .*alignment 1"
            )
            if refused
            else contextlib.nullcontext()
        )
        with expected:
            family("x86", None, matrix, weights, matrix, epilogue, asked)


def test_elements_without_a_simt_instruction_get_the_short_list() -> None:
    for element in (kronop.tfloat32, "int8"):
        with pytest.raises(kronop.DescriptionError, match=r"^element type: [^\n]*bfloat16[^\n]*$"):
            kronop.MathInstruction.simt(element)


@pytest.mark.parametrize("factors", [[], [(2, 0)], [(2, -1)], [(2,)], [2], [(2.0, 2)], 5])
def test_factor_shapes_that_make_no_sense(factors) -> None:
    with pytest.raises(kronop.KronopError, match="expected"):
        support.kron_operation("x86", kronop.float32, factors)


@pytest.mark.parametrize("pattern", [(1, 2, 3), (1, 2, 3, 0), (1, 2, 3, -4), 7])
def test_patterns_that_make_no_sense(pattern) -> None:
    with pytest.raises(kronop.KronopError, match="expected"):
        support.ksparse_operation("x86", kronop.float32, pattern)


def test_tensor_cores_are_refused_with_what_to_use() -> None:
    math_instruction = kronop.MathInstruction(
        [16, 8, 8], kronop.float32, kronop.float32, kronop.float32, kronop.OpClass.TensorOp
    )
    tile = kronop.TileDescription([1, 1024, 8], 1, [4, 1, 1], math_instruction)
    for target, hint in (("sm_80", "threadblock_shape"), ("x86-generic", "Simt")):
        with pytest.raises(kronop.DescriptionError, match=hint):
            support.ksparse_operation(target, kronop.float32, (2, 8, 8, 1), tile=tile)
    with pytest.raises(kronop.DescriptionError, match="Simt"):
        support.kron_operation("x86-generic", kronop.float32, [(8, 8)] * 2, tile=tile)


@pytest.mark.parametrize("side", list(kronop.Side))
def test_the_kron_reference_is_the_kronecker_product(side) -> None:
    random = np.random.default_rng()
    operation = support.kron_operation(
        "x86-generic", kronop.float64, [(2, 3), (5, 2), (6, 4)], side=side
    )
    factors = [random.standard_normal(shape) for shape in operation.description.factors]
    product = functools.reduce(np.kron, factors)
    x = random.standard_normal((3, *operation.description.x_shape(7)))
    expected = x @ product if side is kronop.Side.Right else product @ x
    actual = operation.description.reference(x, factors)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-13 * math.sqrt(product.size))


def test_the_kron_reference_of_very_many_factors() -> None:
    operation = support.kron_operation("x86-generic", kronop.float64, [(1, 1)] * 70)
    x = np.arange(3.0)[:, None]
    np.testing.assert_array_equal(
        operation.description.reference(x, [np.ones((1, 1)) * -1] * 70), x
    )
    with pytest.raises(kronop.OutOfMemoryError, match="the result: expected at most"):
        operation.description.reference(x, [np.ones((1, 2))] * 63)


def test_the_kron_reference_broadcasts_batches_as_matmul_does() -> None:
    random = np.random.default_rng()
    operation = support.kron_operation("x86-generic", kronop.float64, [(2, 3), (4, 4)])
    first, second = random.standard_normal((5, 1, 2, 3)), random.standard_normal((7, 4, 4))
    x = random.standard_normal((7, 6, 8))
    actual = operation.description.reference(x, [first, second])
    assert actual.shape == (5, 7, 6, 12)
    expected = x[3] @ np.kron(first[2, 0], second[3])
    np.testing.assert_allclose(actual[2, 3], expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("batch_last", [False, True])
def test_the_ksparse_reference_is_the_dense_matrix(batch_last) -> None:
    random = np.random.default_rng()
    a, b, c, d = pattern = (2, 3, 4, 5)
    operation = support.ksparse_operation(
        "x86-generic", kronop.float64, pattern, batch_last=batch_last
    )
    weights = random.standard_normal(pattern)
    dense = np.zeros((a * b * d, a * c * d))
    for i, j, k, el in np.ndindex(*pattern):
        dense[i * b * d + j * d + el, i * c * d + k * d + el] = weights[i, j, k, el]
    x = random.standard_normal(operation.description.x_shape(7))
    expected = dense @ x if batch_last else x @ dense.T
    np.testing.assert_allclose(
        operation.description.reference(x, weights), expected, rtol=0, atol=1e-13
    )


def test_sizes_of_a_problem() -> None:
    operation = support.kron_operation("x86-generic", kronop.float32, [(2, 3), (5, 7)])
    sizes = operation.sizes(11, batch=(4,))
    assert (sizes.x_shape, sizes.y_shape, sizes.y_bytes) == (
        (4, 11, 10),
        (4, 11, 21),
        4 * 4 * 11 * 21,
    )
    assert sizes.workspace_bytes >= 0
    left = support.kron_operation(
        "x86-generic", kronop.float32, [(2, 3), (5, 7)], side=kronop.Side.Left
    )
    assert (left.sizes(11).x_shape, left.sizes(11).y_shape) == ((21, 11), (10, 11))
    with pytest.raises(kronop.ArgumentError, match="rows"):
        operation.sizes(-1)
    for batch in ((2.5,), (-2,), (3, True)):
        with pytest.raises(kronop.ArgumentError, match=r"batch: expected integers of at least 0"):
            operation.sizes(1, batch=batch)


def test_a_class_of_a_users_own_is_of_the_same_kind() -> None:
    class Own(kronop.KronMatmulOperation):
        pass

    plain = kronop.TensorDescription(kronop.float32)
    epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
    operation = Own("x86", None, plain, plain, plain, epilogue, [(8, 4)])
    assert operation.sizes(3).y_shape == (3, 4)
    assert repr(operation).startswith("Own(")
    assert inspect.signature(Own) == inspect.signature(kronop.KronMatmulOperation)


@pytest.mark.parametrize("more", [{}, {"epilogue_functor": None, "pattern": (1, 2, 2, 1)}])
def test_arguments_that_are_no_operations_are_refused_by_its_name(more: dict[str, Any]) -> None:
    plain = kronop.TensorDescription(kronop.float32)
    with pytest.raises(TypeError, match=r"KronMatmulOperation: .*argument"):
        kronop.KronMatmulOperation("x86", None, plain, plain, plain, **more)


def test_descriptions_are_values() -> None:
    one, two = (support.kron_operation("sm_80", kronop.float32, [(8, 8)] * 3) for _ in range(2))
    assert one.description == two.description
    assert hash(one.description) == hash(two.description)
    assert one.plan is two.plan
    with pytest.raises(AttributeError):
        one.description.factors = ()


def test_an_epilogue_writes_no_more_at_once_than_y_promises() -> None:
    plain = kronop.TensorDescription(kronop.float32)
    epilogue = kronop.LinearCombination(kronop.float32, 4, kronop.float32, kronop.float32)
    with pytest.raises(kronop.DescriptionError, match="at most 1, the alignment of Y, got 4"):
        kronop.KronMatmulOperation("x86", None, plain, plain, plain, epilogue, [(8, 8)])


def test_numpy_integers_are_sizes_and_bools_are_not() -> None:
    plain = kronop.TensorDescription(kronop.float32)
    epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
    sizes = np.array([8, 4])
    operation = kronop.KronMatmulOperation("x86", None, plain, plain, plain, epilogue, [sizes])
    assert operation.description.factors == ((8, 4),)
    assert operation.sizes(sizes[1], [sizes[0]]).x_shape == (8, 4, 8)
    for wrong in ([(True, 8)], [(8.0, 8)], [8]):
        with pytest.raises((kronop.DescriptionError, kronop.ElementTypeError), match="factors"):
            kronop.KronMatmulOperation("x86", None, plain, plain, plain, epilogue, wrong)
    with pytest.raises(kronop.ElementTypeError, match="batch"):
        operation.sizes(3, 5)


def test_flags_are_bools_alignments_integers_and_shapes_sequences() -> None:
    plain = kronop.TensorDescription(kronop.float32)
    epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
    with pytest.raises(kronop.ElementTypeError, match="batch_last"):
        kronop.KSparseOperation("x86", None, plain, plain, plain, epilogue, (1, 2, 3, 1), "no")
    with pytest.raises(kronop.ElementTypeError, match="batch_last"):
        kronop.ksmm(np.ones((2, 3), "f"), np.ones((1, 2, 3, 1), "f"), batch_last="no")
    with pytest.raises(kronop.DescriptionError, match="alignment"):
        kronop.TensorDescription(kronop.float32, kronop.RowMajor, 4.0)
    for wrong in (5, 1.5):
        with pytest.raises(kronop.DescriptionError, match=f"Simt {wrong} float32"):
            kronop.MathInstruction(wrong, kronop.float32, kronop.float32, kronop.float32)
