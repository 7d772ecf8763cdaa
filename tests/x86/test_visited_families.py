"""Visitor trees of Kronecker and Kronecker-sparse products, chains and distances on CPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.descriptions.datatype import DataType
from kronop.descriptions.visitor import VisitorEpilogue, VisitorTree
from kronop.families.ksparse.description import product_of_rows
from tests import support
from tests.trees import several

plain = kronop.epilogue_visitor(
    lambda accum, scale: kronop.tanh(accum) * scale, kinds={"scale": "row"}
)


F32, F64, F16, BF16 = kronop.float32, kronop.float64, kronop.float16, kronop.bfloat16
I8, I32 = kronop.int8, kronop.int32
ROWS, COLUMNS = kronop.RowMajor, kronop.ColumnMajor


def typed(tree: VisitorTree, element: DataType, output: DataType) -> VisitorEpilogue:
    sums = support.accumulator(element)
    return tree(output, 1, sums, F64 if sums == F64 else F32)


def given(epilogue: VisitorEpilogue, shape: tuple[int, ...], random: Any) -> dict[str, Any]:
    """Scalars, operands and poisoned auxiliary results for a result of `shape`."""
    own = {"tensor": shape, "row": (*shape[:-2], shape[-1]), "column": shape[:-1]}
    found: dict[str, Any] = {}
    for place, item in enumerate(epilogue.tree.operands):
        if item.kind == "scalar":
            found[item.name] = 0.5 * (place + 1)
        else:
            element = epilogue.element_of(item)
            found[item.name] = support.random_array(random, own[item.kind], element)
    for result in epilogue.tree.auxiliary:
        found[result.name] = support.poison(own[result.kind], epilogue.element_of(result))
    return found


def check(
    operation: Any,
    make: Callable[..., Any],
    operands: dict[str, Any],
    shape: tuple[int, ...],
    random: Any,
    sums: Any = None,
    rounded: float = 0.0,
) -> None:
    """Runs arguments that `make` builds, and compares all results with the reference.

    Args:
        sums: what goes through the tree, where the reference takes no such shape.
        rounded: what sums are off by, relatively, before they go through the tree.
    """
    epilogue = operation.description.epilogue
    tensors = given(epilogue, shape, random)
    output_op = operation.epilogue_type(**tensors, problem_size=[*shape[-2:]])
    arguments = make(operation=operation, output_op=output_op, **operands)
    operation.run(arguments)
    output_op.sync()
    if sums is None:
        expected = operation.description.reference(*operands.values(), output_op=output_op)
    else:
        expected = epilogue.evaluate(sums, tensors)
    found = {**tensors, epilogue.tree.results[0].name: arguments.Y}
    # Sixteen roundings of the largest value at each step, and one of what is stored.
    unit = rounded + (2.0**-48 if epilogue.element_epilogue == F64 else 2.0**-18)
    for item in epilogue.tree.results:
        element, goal = epilogue.element_of(item), expected[item.name]
        rounding = 0.5 / np.abs(goal).max(initial=1) if element.kind == "int" else unit
        rounding += {16: 2.0**-7}.get(element.bits, 0)
        size = np.abs(goal).max(initial=1) * (max(shape) if item.reduction == "sum" else 1)
        got = np.asarray(found[item.name], np.float64)
        np.testing.assert_allclose(
            got, np.reshape(goal, got.shape), rtol=0, atol=rounding * size, err_msg=item.name
        )


# Of a factor each way, leading dimensions, rows; extents above a panel and an item of work.
FACTORS = ((2, 3), (4, 2), (3, 9))
_KRON = [
    (kronop.Side.Right, ROWS, F32, F32, (), 5),
    (kronop.Side.Right, ROWS, F16, F32, (2, 3), 70),
    (kronop.Side.Right, COLUMNS, F32, F16, (3,), 600),
    (kronop.Side.Right, COLUMNS, F64, F64, (), 33),
    (kronop.Side.Left, ROWS, F32, BF16, (3,), 70),
    (kronop.Side.Left, ROWS, I8, I8, (), 7),
    (kronop.Side.Left, COLUMNS, F32, F32, (2, 3), 5),
    (kronop.Side.Left, COLUMNS, I32, F32, (), 600),
]


@pytest.mark.parametrize(("side", "layout", "element", "output", "lead", "m"), _KRON)
def test_kronecker_products(
    side: Any, layout: Any, element: Any, output: Any, lead: tuple[int, ...], m: int
) -> None:
    random = np.random.default_rng(m)
    operation = kron(side, layout, element, output)
    what = operation.description
    x = support.random_array(random, (*lead, *what.x_shape(m)), element)
    factors = [support.random_array(random, shape, element) for shape in FACTORS]
    operands = {"X": x, "factors": factors}
    check(operation, kronop.KronMatmulArguments, operands, (*lead, *what.y_shape(m)), random)


def kron(side: Any, layout: Any, element: Any, output: Any, tree: Any = several) -> Any:
    matrix = kronop.TensorDescription
    return kronop.KronMatmulOperation(
        "x86",
        None,
        matrix(element),
        matrix(element),
        matrix(output, layout),
        typed(tree, element, output),
        factors=FACTORS,
        side=side,
    )


@pytest.mark.parametrize("side", [kronop.Side.Right, kronop.Side.Left])
def test_a_vector_is_a_matrix_of_one_row(side: Any) -> None:
    random = np.random.default_rng(3)
    operation = kron(side, ROWS, F32, F32)
    what = operation.description
    x = support.random_array(random, (max(what.x_shape(1)),), F32)
    factors = [support.random_array(random, shape, F32) for shape in FACTORS]
    vector = {"X": x, "factors": factors}
    tensors = given(what.epilogue, what.y_shape(1), random)
    output_op = operation.epilogue_type(**tensors)
    arguments = kronop.KronMatmulArguments(operation=operation, output_op=output_op, **vector)
    operation.run(arguments)
    output_op.sync()
    matrix = {**vector, "X": x.reshape(what.x_shape(1))}
    expected = what.reference(*matrix.values(), output_op=output_op)
    np.testing.assert_allclose(arguments.Y, expected["d"].ravel(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(tensors["column_sum"], expected["column_sum"], rtol=1e-4, atol=1e-4)


_SPARSE = [
    ((2, 3, 4, 5), False, ROWS, F32, F32, (6,)),
    ((2, 3, 4, 5), False, COLUMNS, F16, F32, (2, 40)),
    ((1, 64, 32, 1), False, ROWS, BF16, BF16, (300,)),
    ((2, 3, 4, 5), True, ROWS, F32, F32, (70,)),
    ((3, 2, 2, 8), True, COLUMNS, F64, F64, (6,)),
    ((4, 4, 4, 4), False, ROWS, I8, I32, (9,)),
]


@pytest.mark.parametrize(("pattern", "batch_last", "layout", "element", "output", "lead"), _SPARSE)
def test_kronecker_sparse_products(
    pattern: Any, batch_last: bool, layout: Any, element: Any, output: Any, lead: tuple[int, ...]
) -> None:
    random = np.random.default_rng(lead[0])
    matrix = kronop.TensorDescription
    operation = kronop.KSparseOperation(
        "x86",
        None,
        matrix(element),
        matrix(element),
        matrix(output, layout),
        typed(several, element, output),
        pattern=pattern,
        batch_last=batch_last,
    )
    x, y = operation.description.input_columns, operation.description.output_columns
    ends = [(n, *lead) if batch_last else (*lead, n) for n in (x, y)]
    operands = {
        "X": support.random_array(random, ends[0], element),
        "W": support.random_array(random, pattern, element),
    }
    sums = None
    if len(lead) > 1:  # The reference has one batch dimension.
        rows = np.asarray(operands["X"], np.float64).reshape(-1, x)
        product = product_of_rows(pattern, rows, np.asarray(operands["W"], np.float64))
        sums = product.reshape(ends[1])
    check(operation, kronop.KSparseArguments, operands, ends[1], random, sums)


@pytest.mark.parametrize("batch_last", [False, True])
@pytest.mark.parametrize(("element", "output"), [(F32, F32), (F16, F16)])
def test_chains(element: Any, output: Any, batch_last: bool) -> None:
    random = np.random.default_rng(1)
    patterns, matrix = ((1, 4, 2, 6), (4, 5, 3, 2)), kronop.TensorDescription
    operation = kronop.KSparseChainOperation(
        "x86",
        None,
        matrix(element),
        matrix(element),
        matrix(output),
        typed(several, element, output),
        patterns=patterns,
        batch_last=batch_last,
    )
    ends = [(n, 33)[:: 1 if batch_last else -1] for n in (12, 40)]
    operands = {
        "X": support.random_array(random, ends[0], element),
        "weights": [support.random_array(random, shape, element) for shape in patterns],
    }
    rounded = 2.0**-9 if element == F16 else 0.0  # Results between two factors.
    check(operation, kronop.KSparseChainArguments, operands, ends[1], random, rounded=rounded)


@pytest.mark.parametrize(
    ("layout", "element", "output", "lead", "sizes", "symmetric"),
    [
        (ROWS, F32, F32, (), (70, 33, 5), False),
        (COLUMNS, F32, F16, (2,), (5, 300, 3), False),
        (ROWS, F64, F64, (3, 2), (40, 40, 4), True),
        (ROWS, F16, F32, (), (1, 600, 17), False),
    ],
)
def test_distances(
    layout: Any, element: Any, output: Any, lead: Any, sizes: Any, symmetric: bool
) -> None:
    random, (m, n, k) = np.random.default_rng(2), sizes
    matrix = kronop.TensorDescription
    points = matrix(element)
    operation = kronop.DistanceOperation(
        "x86",
        None,
        points,
        points,
        matrix(output, layout),
        typed(several, element, output),
        kernel=kronop.kernels.PowerNorm(1),
        symmetric=symmetric,
    )
    x1 = support.random_array(random, (*lead, m, k), element)
    x2 = x1 if symmetric else support.random_array(random, (n, k), element)
    operands = {"X1": x1, "X2": x2}

    def make(**given: Any) -> Any:
        return kronop.DistanceArguments(**given, kernel=kronop.kernels.PowerNorm(1))

    check(operation, make, operands, (*lead, m, n), random)


def test_kernels_of_values_go_through_a_tree() -> None:
    random, gaussian = np.random.default_rng(4), kronop.kernels.Gaussian(1.5)
    points = kronop.TensorDescription(F32)
    scaled = kronop.epilogue_visitor(
        lambda accum, weight: accum * weight, kinds={"weight": "row"}, results=("D",)
    )
    operation = kronop.DistanceOperation(
        "x86", None, points, points, points, typed(scaled, F32, F32), kernel=gaussian
    )
    x, weight = (support.random_array(random, shape, F32) for shape in ((9, 4), (9,)))
    arguments = kronop.DistanceArguments(
        operation=operation,
        X1=x,
        X2=x,
        kernel=gaussian,
        output_op=operation.epilogue_type(weight=weight),
    )
    operation.run(arguments)
    expected = np.exp(-(((x[:, None] - x) ** 2).sum(-1)) / (2 * 1.5**2)) * weight
    np.testing.assert_allclose(arguments.Y, expected, atol=1e-5)


def test_results_without_a_common_stride_go_through_a_tree() -> None:
    random, norm = np.random.default_rng(5), kronop.kernels.PowerNorm(1)
    points = kronop.TensorDescription(F32)
    functor = typed(plain, F32, F32)
    operation = kronop.DistanceOperation("x86", None, points, points, points, functor, kernel=norm)
    x1 = support.random_array(random, (2, 1, 2, 1, 2, 1, 5, 3), F32)
    x2 = support.random_array(random, (1, 2, 1, 2, 1, 2, 4, 3), F32)
    scale = support.random_array(random, (2, 1, 1, 1, 1, 2, 4), F32)
    Y = np.full((*[2] * 6, 5, 4), 7, np.float32).transpose(5, 0, 4, 1, 3, 2, 6, 7)
    arguments = kronop.DistanceArguments(
        operation=operation,
        X1=x1,
        X2=x2,
        Y=Y,
        kernel=norm,
        output_op=operation.epilogue_type(scale=scale),
    )
    operation.run(arguments)
    expected = np.tanh(kronop.cdist(x1, x2, 1)) * scale[..., None, :]
    np.testing.assert_allclose(Y, expected, rtol=2e-6, atol=1e-6)
