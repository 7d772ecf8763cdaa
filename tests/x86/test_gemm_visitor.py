"""Visitor trees of matrix products on CPUs, against NumPy."""

# Kinds of operands are annotations that name no types.
# ruff: noqa: F821, UP037

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.descriptions.visitor import VisitorTree
from kronop.families.gemm.arguments import GemmArguments
from kronop.families.gemm.operation import GemmOperationUniversal
from kronop.families.gemm.size import GemmSize
from kronop.families.gemm.vocabulary import GemmCoord, Mode
from kronop.target import Target
from tests import support

F32, F64, F16 = kronop.float32, kronop.float64, kronop.float16
I8, I32 = kronop.int8, kronop.int32
_HERE = Target.parse("x86")
_TARGETS = (
    _HERE.baseline,
    dataclasses.replace(_HERE, vector_bytes=32, registers=16),
)
_COLUMNS = 192  # Small blocks, so that small problems have several.


@kronop.epilogue_visitor
def several(
    accum: Any, alpha: "scalar", c: "tensor", beta: "scalar", bias: "row", scale: "column"
) -> Any:
    t = alpha * accum + beta * c + bias
    d = kronop.gelu(t) * scale
    row_max = kronop.maximum(d, axis="row")
    row_sum = kronop.sum(t, axis="row")
    column_max = kronop.maximum(t, axis="column")
    column_sum = kronop.sum(d, axis="column")
    return d, t, row_max, row_sum, column_max, column_sum


@kronop.epilogue_visitor
def plain(accum: Any) -> Any:
    return kronop.relu(accum)


def operation_of(
    tree: VisitorTree,
    element: Any,
    target: Any = _HERE,
    output: Any = None,
    amx: bool = False,
    **more: Any,
) -> Any:
    math = kronop.MathInstruction.simt(element)
    if amx:
        math = kronop.MathInstruction.amx(element)
    sums = math.element_accumulator
    compute = F64 if sums == F64 else F32
    epilogue = tree(output or element, 1, sums, compute, **more)
    shape = (64, 96, 64) if amx else (24, _COLUMNS, 16)
    tile = kronop.TileDescription(shape, 1, (1, 1, 1), math)
    matrix = kronop.TensorDescription
    result = matrix(epilogue.element_output)
    return GemmOperationUniversal(
        target, tile, matrix(element), matrix(element), result, epilogue, visitor=True
    )


def given(operation: Any, shape: tuple[int, ...], random: np.random.Generator) -> dict[str, Any]:
    """Scalars, operands and poisoned results for a result of `shape`."""
    epilogue, found = operation.description.epilogue, {}
    own = {"tensor": shape, "row": shape[-1:], "column": shape[-2:-1]}
    for item in epilogue.tree.operands:
        if item.kind == "scalar":
            found[item.name] = random.choice([0.5, -1.5])
        else:
            element = epilogue.element_of(item)
            found[item.name] = support.random_array(random, own[item.kind], element)
    for item in epilogue.tree.results:
        extents = (*shape[:-2], *own[item.kind]) if item.kind != "tensor" else shape
        dtype = support.numpy_type(epilogue.element_of(item))
        found[item.name] = np.full(extents, 77, dtype)
    return found


def check(
    operation: Any, a: Any, b: Any, values: dict[str, Any], run: Callable[[Any], None] | None = None
) -> Any:
    """Runs, by `run` if it is given, and compares all results with the reference."""
    output_op = operation.epilogue_type(**values)
    inputs = {name: np.array(item) for name, item in output_op.tensors.items()}
    arguments = GemmArguments(operation=operation, A=a, B=b, output_op=output_op)
    (run or operation.run)(arguments)
    output_op.sync()
    what = operation.description
    sums = np.asarray(a, np.float64) @ np.asarray(b, np.float64)
    scalars = dict(zip(what.epilogue.scalar_names, output_op.scalars, strict=True))
    expected = what.epilogue.evaluate(sums, {**scalars, **inputs})
    # Sixteen roundings of the largest value at each step: those of k products add up like a walk,
    # and those of a reduction at worst like their number.
    unit = 2.0**-50 if what.math.element_accumulator == F64 else 2.0**-20
    first = what.epilogue.tree.results[0]
    for item in what.epilogue.tree.results:
        found = arguments.D if item == first else values[item.name]
        element = what.epilogue.element_of(item)
        rounding = unit if element.kind == "float" else 0
        rounding += {16: 2.0**-10}.get(element.bits, 0) if element.kind == "float" else 0
        size = np.sqrt(a.shape[-1] + 1) * np.nanmax(np.abs(expected[item.name]), initial=1)
        if item.reduction == "sum":
            size *= max(sums.shape)
        bound = rounding * 4 * size
        np.testing.assert_allclose(
            np.asarray(found, np.float64),
            expected[item.name],
            rtol=0,
            atol=bound,
            err_msg=item.name,
        )
    return arguments


@kronop.epilogue_visitor
def rising(accum: Any) -> Any:
    sigmoid, hardswish = kronop.sigmoid(accum), kronop.hardswish(accum)
    return kronop.gelu(accum), kronop.silu(accum), hardswish, kronop.relu(accum), sigmoid


@pytest.mark.parametrize("element", [F32, F64])
def test_activations_have_limits(element: Any) -> None:
    operation, kind = operation_of(rising, element), support.numpy_type(element)
    a = np.array([[-np.inf], [np.inf], [np.nan], [-1e4]], kind)
    results = {item.name: np.full((4, 1), 77, kind) for item in rising.results}
    output_op = operation.epilogue_type(**results)
    operation.run(
        GemmArguments(operation=operation, A=a, B=np.ones((1, 1), kind), output_op=output_op)
    )
    for name, found in results.items():
        most = 1 if name == "sigmoid" else np.inf
        np.testing.assert_array_equal(found[:, 0], [0, most, np.nan, 0])


SHAPES = ((1, 1, 1), (5, 3, 7), (70, 300, 33), (300, 7, 40), (3, 500, 9), (49, 193, 0))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("element", [F32, F64, F16])
def test_operands_and_results(element: Any, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    random = np.random.default_rng(m + n + k)
    operation = operation_of(several, element)
    a, b = (support.random_array(random, item, element) for item in ((m, k), (k, n)))
    check(operation, a, b, given(operation, (m, n), random))


@pytest.mark.parametrize("element", [F32, F64, F16])
def test_nan_comes_through(element: Any) -> None:
    """All reductions, and activations."""
    random = np.random.default_rng(1)
    operation = operation_of(several, element)
    a, b = (support.random_array(random, item, element) for item in ((49, 33), (33, 193)))
    a[7, 3] = np.nan
    arguments = check(operation, a, b, values := given(operation, (49, 193), random))
    for item in (arguments.D[7], values["row_max"][7], values["column_max"]):
        assert np.isnan(item).all()


@pytest.mark.parametrize("target", _TARGETS)
def test_other_vectors(target: Target) -> None:
    random = np.random.default_rng(1)
    operation = operation_of(several, F32, target)
    a, b = (support.random_array(random, item, F32) for item in ((70, 33), (33, 210)))
    check(operation, a, b, given(operation, (70, 210), random))


def test_batches_and_strides() -> None:
    random = np.random.default_rng(2)
    operation = operation_of(several, F32)
    a, b = (support.random_array(random, item, F32) for item in ((3, 1, 20, 5), (2, 5, 30)))
    values = given(operation, (3, 2, 20, 30), random)
    # Results that are transposed or backwards, and operands that repeat.
    values["d"] = np.full((3, 2, 30, 20), 7, np.float32).swapaxes(-1, -2)
    values["t"] = np.full((3, 2, 20, 60), 7, np.float32)[..., ::-2]
    values["row_max"] = np.full((3, 2, 40), 7, np.float32)[..., ::2]
    values["c"] = values["c"][0, 0, :1]
    check(operation, a, b, values)
    # More dimensions of a batch than kernels walk, without a common stride.
    a, b = (
        support.random_array(random, item, F32)
        for item in ((2, 1, 2, 1, 2, 20, 5), (1, 2, 1, 2, 1, 5, 30))
    )
    values = given(operation, (2, 2, 2, 2, 2, 20, 30), random)
    for name in ("c", "t"):
        values[name] = values[name].transpose(4, 0, 3, 1, 2, 5, 6)
    check(operation, a, b, values)


def test_results_along_columns_are_computed_turned() -> None:
    random = np.random.default_rng(3)
    operation = operation_of(several, F64)
    a, b = (support.random_array(random, item, F64) for item in ((90, 33), (33, 210)))
    values = given(operation, (90, 210), random)
    values["d"] = np.asfortranarray(values["d"])
    check(operation, a, b, values)


def test_sums_in_slices() -> None:
    random = np.random.default_rng(4)
    operation = operation_of(several, F64)
    a, b = (support.random_array(random, item, F64) for item in ((5, 9000), (9000, 6)))
    check(operation, a, b, given(operation, (5, 6), random))


def test_a_tree_of_one_result() -> None:
    random = np.random.default_rng(5)
    operation = operation_of(plain, F32)
    a, b = (support.random_array(random, item, F32) for item in ((20, 5), (5, 30)))
    arguments = check(operation, a, b, {})
    assert arguments.results == (arguments.D,)


def test_integers_in_other_types() -> None:
    tree = kronop.epilogue_visitor(
        lambda accum, scale: (accum * scale, accum), kinds={"scale": "row"}, results=("D", "sums")
    )
    random = np.random.default_rng(6)
    operation = operation_of(tree, I8, output=I8, elements={"scale": F32, "sums": I32})
    a, b = (support.random_array(random, item, I8) for item in ((20, 50), (50, 30)))
    values = given(operation, (20, 30), random)
    values["scale"] = np.full(30, 2.0**-5, np.float32)
    check(operation, a, b, values)


def test_a_result_may_be_an_operand() -> None:
    random = np.random.default_rng(7)
    operation = operation_of(several, F32)
    a, b = (support.random_array(random, item, F32) for item in ((70, 33), (33, 210)))
    values = given(operation, (70, 210), random)
    values["d"] = values["c"]
    arguments = check(operation, a, b, values)
    assert arguments.accumulates


def test_runs_are_the_same() -> None:
    random = np.random.default_rng(8)
    operation = operation_of(several, F32)
    a, b = (support.random_array(random, item, F32) for item in ((200, 33), (33, 210)))
    first = given(operation, (200, 210), random)
    check(operation, a, b, first)
    kept = {name: np.copy(item) for name, item in first.items()}
    check(operation, a, b, first)
    for name, item in first.items():
        np.testing.assert_array_equal(item, kept[name])


def test_the_words_of_pycutlass() -> None:
    class RowReduction(kronop.EpilogueVisitTree):
        def __call__(self, accum: "tensor", c: "tensor", alpha: "scalar", beta: "scalar") -> Any:
            D = alpha * accum + kronop.tanh(beta * c)
            reduction = kronop.sum(D, axis="row")
            return D, reduction

    m, n, k = 12, 20, 8
    math = kronop.MathInstruction.simt(F32)
    tile = kronop.TileDescription((24, _COLUMNS, 16), 1, (1, 1, 1), math)
    A = B = C = kronop.TensorDescription(F32)
    functor: Any = RowReduction(None, tile, F32, C.alignment, F32, F32)
    functor.initialize()
    operation = GemmOperationUniversal("x86", tile, A, B, C, functor, visitor=True)
    random = np.random.default_rng(9)
    a, b, c = (support.random_array(random, (size,), F32) for size in (m * k, k * n, m * n))
    d, reduction = np.empty(m * n, np.float32), np.empty(m, np.float32)
    output_op: Any = operation.epilogue_type(
        D=d, alpha=0.5, beta=2.0, c=c, reduction=reduction, problem_size=[m, n]
    )
    arguments = GemmArguments(
        operation=operation,
        problem_size=GemmCoord(m, n, k),
        A=a,
        B=b,
        C=c,
        D=d,
        output_op=output_op,
    )
    operation.run(arguments)
    output_op.sync()
    expected = 0.5 * a.reshape(m, k).astype(np.float64) @ b.reshape(k, n)
    expected += np.tanh(2.0 * c.reshape(m, n).astype(np.float64))
    np.testing.assert_allclose(d.reshape(m, n), expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(reduction, expected.sum(axis=1), rtol=0, atol=1e-4)


def test_flat_tensors_have_the_layout_of_the_result() -> None:
    tree = kronop.epilogue_visitor(
        lambda accum, c: (accum + c, accum * c), kinds={"c": "tensor"}, results=("D", "t")
    )
    A, C = kronop.TensorDescription(F32), kronop.TensorDescription(F32, kronop.ColumnMajor)
    operation = GemmOperationUniversal("x86", None, A, A, C, tree(F32, 1, F32, F32), visitor=True)
    random = np.random.default_rng(12)
    a, b, c = (support.random_array(random, item, F32) for item in ((5, 3), (3, 7), (5, 7)))
    d, t = np.empty(35, np.float32), np.empty(35, np.float32)
    output_op = operation.epilogue_type(D=d, c=c.ravel("F"), t=t)
    arguments = GemmArguments(
        operation=operation,
        problem_size=GemmCoord(5, 7, 3),
        A=a.ravel(),
        B=b.ravel(),
        output_op=output_op,
    )
    operation.run(arguments)
    output_op.sync()
    sums = a.astype(np.float64) @ b
    np.testing.assert_allclose(d, (sums + c).ravel("F"), rtol=0, atol=1e-5)
    np.testing.assert_allclose(t, (sums * c).ravel("F"), rtol=0, atol=1e-5)


def test_refused() -> None:
    random = np.random.default_rng(10)
    operation = operation_of(several, F32)
    a, b = (support.random_array(random, item, F32) for item in ((4, 5), (5, 6)))
    good = given(operation, (4, 6), random)

    def arguments(more: dict[str, Any], changed: dict[str, Any]) -> Any:
        output_op = operation.epilogue_type(**good | changed)
        return GemmArguments(operation=operation, A=a, B=b, output_op=output_op, **more)

    arguments({}, {})
    arguments({"C": good["c"], "D": good["d"]}, {})
    other = np.empty((4, 6), np.float32)
    row = np.empty(6, np.float32)
    for more, message in (
        ({"C": other}, "C: expected none, because"),
        ({"bias": row}, "bias: expected none"),
        ({"D": other}, "the same tensor"),
    ):
        with pytest.raises(kronop.ArgumentError, match=message):
            arguments(more, {})
    for changed, error, message in (
        ({"t": good["d"]}, kronop.ArgumentError, "t and D: expected separate memory"),
        ({"t": a[:, :4]}, kronop.ArgumentError, "shape of t"),
        ({"bias": np.empty(4, np.float32)}, kronop.ArgumentError, "shape of bias"),
        ({"scale": row}, kronop.ArgumentError, "shape of scale"),
        ({"row_max": row}, kronop.ArgumentError, "shape of row_max"),
        ({"c": np.empty((4, 6))}, kronop.ElementTypeError, "element type of c"),
        ({"problem_size": [6, 4]}, kronop.ArgumentError, "problem_size of"),
        ({"c": "text"}, kronop.ElementTypeError, "c: expected"),
        ({"column_sum": good["bias"]}, kronop.ArgumentError, "column_sum and bias"),
    ):
        with pytest.raises(error, match=message):
            arguments({}, changed)
    with pytest.raises(kronop.ArgumentError, match="give alpha, c"):
        GemmArguments(operation=operation, A=a, B=b)
    linear = kronop.LinearCombination(F32, 1, F32, F32)
    with pytest.raises(kronop.ArgumentError, match="epilogue_type gave"):
        GemmArguments(operation=operation, A=a, B=b, output_op=linear.epilogue_type())
    empty = operation.epilogue_type(**given(operation, (4, 0), random))
    with pytest.raises(kronop.ArgumentError, match="at least 1, got 0"):
        GemmArguments(operation=operation, A=a, B=b[:, :0], output_op=empty)


def test_the_flag_says_what_the_epilogue_is() -> None:
    matrix = kronop.TensorDescription(F32)
    tree = plain(F32, 1, F32, F32)
    linear = kronop.LinearCombination(F32, 1, F32, F32)
    for epilogue, flag in ((tree, False), (linear, True)):
        with pytest.raises(kronop.DescriptionError, match="visitor: expected"):
            GemmOperationUniversal("x86", None, matrix, matrix, matrix, epilogue, visitor=flag)


def test_what_takes_no_trees(tmp_path: Path) -> None:
    matrix, tree = kronop.TensorDescription(F32), plain(F32, 1, F32, F32)
    with pytest.raises(kronop.DescriptionError, match="GemmOperationUniversal"):
        kronop.GemmOperationGrouped("x86", None, matrix, matrix, matrix, tree)
    operation = operation_of(plain, F32)
    with pytest.raises(kronop.DescriptionError, match="an operation with an epilogue functor"):
        operation.export(tmp_path, rows=[GemmSize(2, 3, 4)])
    a = np.ones((2, 3), np.float32)
    with pytest.raises(kronop.ArgumentError, match="stack the matrices"):
        GemmArguments(
            operation=operation,
            A=[a],
            B=[a.T],
            output_op=operation.epilogue_type(),
            gemm_mode=Mode.Array,
        )
