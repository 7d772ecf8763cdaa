"""One test over the table of emitters: every family, target and element type against the reference.

Sizes are ragged on purpose; outputs are poisoned; inputs are fresh for every run.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import kronop
from kronop.descriptions.datatype import result_type
from kronop.emit.table import EMITTERS
from kronop.target import detect_x86_arch
from tests import support

_X86 = ("generic", "avx2", "avx512", "amx")
_RUNNABLE = _X86[: _X86.index(detect_x86_arch()) + 1]
_CUDA = support.cuda_target()
_TARGETS = {
    "x86": [pytest.param(f"x86-{arch}", id=arch) for arch in _RUNNABLE],
    "cuda": [pytest.param(_CUDA, id=_CUDA, marks=pytest.mark.cuda)],
}
_FACTORS = {
    "square": [(8, 8)] * 4,
    "ragged": [(2, 3), (5, 2), (6, 4)],
    "vector": [(1, 7)],
    "prime": [(127, 31)],
    "long": [(505, 3)],
    "passes": [(40, 36), (3, 2)],
    "five": [(5, 5)] * 5,
    "unit": [(1, 1)] * 3 + [(3, 3)] + [(1, 1)] * 66,
}
_PATTERNS = {
    "small": (1, 2, 2, 1),
    "blocks": (6, 16, 8, 1),
    "strided": (1, 12, 24, 2),
    "odd": (3, 5, 7, 5),
    "wide": (2, 2, 2, 64),
    "tall": (1, 129, 67, 3),
}
_CHAINS = {
    "pair": [(2, 24, 32, 1), (1, 40, 24, 2)],
    "odd": [(3, 10, 17, 1), (1, 18, 10, 3), (9, 5, 6, 1)],
}


def _cells(family: type):
    narrow = support.FLOAT8 if family is kronop.KSparseDescription else ()
    return [
        pytest.param(*target.values, element, id=f"{target.id}-{element.short}", marks=target.marks)
        for kind, backend in EMITTERS
        if kind is family
        for target in _TARGETS[backend]
        for element in (*support.ELEMENTS, *narrow)
    ]


def _with_bias(element):
    """An epilogue for results that get a bias: integers have no activation that reads fractions."""
    compute = support.accumulator(element)
    if element.kind == "int":
        return support.linear(element)
    output = result_type(element)
    return kronop.LinearCombinationGeneric(kronop.gelu(compute), output, 1, compute, compute)


@pytest.mark.parametrize("side", list(kronop.Side), ids=["right", "left"])
@pytest.mark.parametrize("factors", list(_FACTORS.values()), ids=list(_FACTORS))
@pytest.mark.parametrize(("target", "element"), _cells(kronop.KronMatmulDescription))
def test_kron(target, element, factors, side) -> None:
    random = np.random.default_rng()
    operation = support.kron_operation(target, element, factors, side=side)
    output = operation.description.Y.element
    matrices = [support.random_array(random, shape, element) for shape in factors]
    for rows in (1, 19):
        x = support.random_array(random, operation.sizes(rows).x_shape, element)
        z = support.random_array(random, operation.sizes(rows).y_shape, output)
        y = support.poison(z.shape, output)
        output_op = operation.epilogue_type(2, -3)
        arguments = kronop.KronMatmulArguments(
            operation=operation, X=x, factors=matrices, Z=z, Y=y, output_op=output_op
        )
        operation.run(arguments)
        arguments.sync()
        support.expected_kron(operation, x, matrices, z, output_op).check(y)


@pytest.mark.parametrize("batch_last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("pattern", list(_PATTERNS.values()), ids=list(_PATTERNS))
@pytest.mark.parametrize(("target", "element"), _cells(kronop.KSparseDescription))
def test_ksparse(target, element, pattern, batch_last) -> None:
    random = np.random.default_rng()
    operation = support.ksparse_operation(
        target, element, pattern, batch_last=batch_last, epilogue=_with_bias(element)
    )
    output = operation.description.Y.element
    weights = support.random_array(random, pattern, element)
    bias = support.random_array(random, (operation.description.output_columns,), output)
    for rows in (1, 133):
        x = support.random_array(random, operation.sizes(rows).x_shape, element)
        z = support.random_array(random, operation.sizes(rows).y_shape, output)
        y = support.poison(z.shape, output)
        output_op = operation.epilogue_type(*(0.5, -1.5) if element.kind == "float" else (2, -3))
        arguments = kronop.KSparseArguments(
            operation=operation, X=x, W=weights, Z=z, Y=y, bias=bias, output_op=output_op
        )
        operation.run(arguments)
        arguments.sync()
        support.expected_ksparse(operation, x, weights, z, bias, output_op).check(y)


@pytest.mark.parametrize("batch_last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("patterns", list(_CHAINS.values()), ids=list(_CHAINS))
@pytest.mark.parametrize(("target", "element"), _cells(kronop.KSparseChainDescription))
def test_ksparse_chain(target, element, patterns, batch_last) -> None:
    if result_type(element) != element:
        with pytest.raises(kronop.DescriptionError, match="a type that results have as well"):
            support.chain_operation(target, element, patterns)
        return
    random = np.random.default_rng()
    operation = support.chain_operation(
        target, element, patterns, batch_last=batch_last, epilogue=_with_bias(element)
    )
    output = operation.description.Y.element
    weights = [support.random_array(random, pattern, element) for pattern in patterns]
    bias = support.random_array(random, (operation.description.output_columns,), output)
    output_op = operation.epilogue_type(*(0.5, -1.5) if element.kind == "float" else (2, -3))
    for rows in (1, 133):
        x = support.random_array(random, operation.sizes(rows).x_shape, element)
        z = support.random_array(random, operation.sizes(rows).y_shape, output)
        expected = support.expected_chain(operation, x, weights, z, bias, output_op)
        # On CPUs other plans have other tiles, which other tests run.
        for plan in operation.candidates(1 if target.startswith("x86") else 3):
            y = support.poison(z.shape, output)
            arguments = kronop.KSparseChainArguments(
                operation=operation, X=x, weights=weights, Z=z, Y=y, bias=bias, output_op=output_op
            )
            served = operation.serve(plan)
            arguments.run(served.kernels, None, served)
            arguments.sync()
            expected.check(y)


@pytest.mark.parametrize("tied", [False, True], ids=["apart", "tied"])
@pytest.mark.parametrize("batch_last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("pattern", list(_PATTERNS.values()), ids=list(_PATTERNS))
@pytest.mark.parametrize(("target", "element"), _cells(kronop.KSparseGradientDescription))
def test_ksparse_gradient(target, element, pattern, batch_last, tied) -> None:
    if element.kind == "int":
        with pytest.raises(kronop.DescriptionError, match="no kernel"):
            support.gradient_operation(target, element, pattern)
        return
    random = np.random.default_rng()
    for products, rows in ((None, 1), (None, 133), (3, 20)):
        operation = support.gradient_operation(
            target, element, pattern, tied=tied, batch_last=batch_last, products=products
        )
        description = operation.description
        x = support.random_array(random, description.x_shape(rows), element)
        g = support.random_array(random, description.g_shape(rows), element)
        z = support.random_array(random, description.y_shape(rows), element)
        y = support.poison(z.shape, element)
        output_op = operation.epilogue_type(0.5, -1.5)
        arguments = kronop.KSparseGradientArguments(
            operation=operation, X=x, G=g, Z=z, Y=y, output_op=output_op
        )
        operation.run(arguments)
        arguments.sync()
        support.expected_gradient(operation, x, g, z, output_op).check(y)


@pytest.mark.parametrize("batch_last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("factors", [((8, 8), (8, 8)), ((2, 3), (5, 1), (3, 4)), ((2, 2),) * 6])
@pytest.mark.parametrize(("target", "element"), _cells(kronop.KSparseGradientDescription))
def test_ksparse_gradient_of_factors(target, element, factors, batch_last) -> None:
    if element.kind == "int":
        return
    random = np.random.default_rng()
    rows, columns = (math.prod(sizes) for sizes in zip(*factors, strict=True))
    for pattern, batch in (((2, columns, rows, 3), 70), ((1, columns, rows, 16), 33)):
        operation = support.gradient_operation(
            target, element, pattern, tied=True, batch_last=batch_last, factors=factors
        )
        what = operation.description
        shapes = (what.x_shape(batch), what.g_shape(batch), what.y_shape(batch))
        x, g, z = (support.random_array(random, shape, element) for shape in shapes)
        matrices = [support.random_array(random, shape[::-1], element).T for shape in factors]
        y = support.poison(z.shape, element)
        output_op = operation.epilogue_type(0.5, -1.5)
        arguments = kronop.KSparseGradientArguments(
            operation=operation, X=x, G=g, Z=z, Y=y, output_op=output_op, factors=matrices
        )
        operation.run(arguments)
        arguments.sync()
        support.expected_gradient(operation, x, g, z, output_op, matrices).check(y)
