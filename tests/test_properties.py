"""Random shapes, element types, strides and batches, for every family, against the reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kronop
from tests import support

_SETTINGS = settings(
    deadline=None,
    max_examples=24,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
# Of chains, of which each has several kernels to compile.
_FEW = settings(_SETTINGS, max_examples=8)
_TARGETS = ["x86", pytest.param(support.cuda_target(), marks=pytest.mark.cuda)]
_ELEMENTS = st.sampled_from(support.ELEMENTS)
_SIZE = st.integers(1, 9)


@st.composite
def _batches(draw, operands: int):
    """Leading dimensions for each operand that broadcast together, and what they broadcast to."""
    whole = draw(st.lists(st.integers(0, 3), max_size=3))
    parts = []
    for _ in range(operands):
        kept = whole[draw(st.integers(0, len(whole))) :]
        parts.append(tuple(1 if draw(st.booleans()) else size for size in kept))
    return parts, np.broadcast_shapes(*parts)


def _strided(draw, random, shape, element):
    """An array of `shape` as a view: steps, reversals and exchanged axes."""
    steps = [draw(st.sampled_from([1, 1, 2, -1])) for _ in shape]
    order = draw(st.permutations(range(len(shape))))
    whole = support.random_array(
        random, [shape[axis] * abs(steps[axis]) for axis in order], element
    )
    whole = whole.transpose(np.argsort(order))
    return whole[tuple(slice(None, None, step) for step in steps)]


@st.composite
def _kron_problems(draw, target):
    element = draw(_ELEMENTS)
    factors = draw(st.lists(st.tuples(_SIZE, _SIZE), min_size=1, max_size=4))
    side = draw(st.sampled_from(list(kronop.Side)))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = draw(st.integers(0, 20))
    (lead_x, *leads), lead = draw(_batches(1 + len(factors)))
    operation = support.kron_operation(target, element, factors, side=side)
    x = _strided(draw, random, (*lead_x, *operation.description.x_shape(rows)), element)
    matrices = [
        _strided(draw, random, (*b, *shape), element)
        for b, shape in zip(leads, factors, strict=True)
    ]
    shape = (*lead, *operation.description.y_shape(rows))
    return (
        operation,
        x,
        matrices,
        *(_strided(draw, random, shape, operation.description.Y.element) for _ in range(2)),
    )


@pytest.mark.parametrize("target", _TARGETS)
@_SETTINGS
@given(st.data(), st.sampled_from([1, 2, -3]), st.sampled_from([0, 1, -2]))
def test_kron(target, data, alpha, beta) -> None:
    problem = data.draw(_kron_problems(target))
    operation, x, factors, z, y = problem
    y[...] = support.poison(y.shape, operation.description.Y.element)
    output_op = operation.epilogue_type(alpha, beta)
    arguments = kronop.KronMatmulArguments(
        operation=operation, X=x, factors=factors, Z=z, Y=y, output_op=output_op
    )
    operation.run(arguments)
    arguments.sync()
    support.expected_kron(operation, x, factors, z, output_op).check(y)


@_SETTINGS
@given(_kron_problems("x86"))
def test_gemkm_and_gekmm(problem) -> None:
    operation, x, factors, z, _ = problem
    if operation.description.side is kronop.Side.Right:
        y = kronop.gemkm(x, factors, alpha=2, beta=3, z=z)
    else:
        y = kronop.gekmm(factors, x, alpha=2, beta=3, z=z)
    assert y.dtype == support.numpy_type(operation.description.Y.element)
    support.expected_kron(operation, x, factors, z, operation.epilogue_type(2, 3)).check(y)


@st.composite
def _ksparse_problems(draw, target):
    element = draw(_ELEMENTS)
    pattern = draw(
        st.tuples(st.integers(1, 4), st.integers(1, 20), st.integers(1, 20), st.integers(1, 6))
    )
    batch_last = draw(st.booleans())
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    operation = support.ksparse_operation(target, element, pattern, batch_last=batch_last)
    rows = draw(st.integers(0, 40))
    x = _strided(draw, random, operation.description.x_shape(rows), element)
    weights = _strided(draw, random, pattern, element)
    output = operation.description.Y.element
    bias = _strided(draw, random, (operation.description.output_columns,), output)
    shape = operation.description.y_shape(rows)
    z, y = (_strided(draw, random, shape, output) for _ in range(2))
    return operation, x, weights, bias, z, y


@pytest.mark.parametrize("target", _TARGETS)
@_SETTINGS
@given(st.data(), st.sampled_from([1, 2, -3]), st.sampled_from([0, 1, -2]), st.booleans())
def test_ksparse(target, data, alpha, beta, with_bias) -> None:
    problem = data.draw(_ksparse_problems(target))
    operation, x, weights, bias, z, y = problem
    bias = bias if with_bias else None
    y[...] = support.poison(y.shape, operation.description.Y.element)
    output_op = operation.epilogue_type(alpha, beta)
    arguments = kronop.KSparseArguments(
        operation=operation, X=x, W=weights, Z=z, Y=y, bias=bias, output_op=output_op
    )
    operation.run(arguments)
    arguments.sync()
    support.expected_ksparse(operation, x, weights, z, bias, output_op).check(y)


@st.composite
def _chain_problems(draw, target):
    element = draw(st.sampled_from([item for item in support.ELEMENTS if item != kronop.int8]))
    patterns, features = [], draw(st.sampled_from([6, 12, 24, 35]))
    for _ in range(draw(st.integers(1, 3))):
        a, d = draw(st.sampled_from(_splits(features)))
        patterns.append((a, draw(st.integers(1, 12)), features // (a * d), d))
        features = a * patterns[-1][1] * d
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    operation = support.chain_operation(target, element, patterns, batch_last=draw(st.booleans()))
    what, rows = operation.description, draw(st.integers(0, 40))
    x = _strided(draw, random, what.x_shape(rows), element)
    weights = [_strided(draw, random, pattern, element) for pattern in patterns]
    bias = _strided(draw, random, (what.output_columns,), element)
    z, y = (_strided(draw, random, what.y_shape(rows), element) for _ in range(2))
    return operation, x, weights, bias, z, y


def _splits(features: int) -> list[tuple[int, int]]:
    """Small (a, d) whose product divides the features."""
    sizes = range(1, 5)
    return [(a, d) for a in sizes for d in sizes if features % (a * d) == 0]


@pytest.mark.parametrize("target", _TARGETS)
@_FEW
@given(st.data(), st.sampled_from([1, 2, -3]), st.sampled_from([0, 1, -2]), st.booleans())
def test_ksparse_chain(target, data, alpha, beta, with_bias) -> None:
    operation, x, weights, bias, z, y = data.draw(_chain_problems(target))
    bias = bias if with_bias else None
    y[...] = support.poison(y.shape, operation.description.Y.element)
    output_op = operation.epilogue_type(alpha, beta)
    arguments = kronop.KSparseChainArguments(
        operation=operation, X=x, weights=weights, Z=z, Y=y, bias=bias, output_op=output_op
    )
    operation.run(arguments)
    arguments.sync()
    support.expected_chain(operation, x, weights, z, bias, output_op).check(y)


@_FEW
@given(_chain_problems("x86"))
def test_ksmm_of_several(problem) -> None:
    operation, x, weights, bias, z, _ = problem
    batch_last, output_op = operation.description.batch_last, operation.epilogue_type(2, 3)
    y = kronop.ksmm(x, weights, batch_last=batch_last, bias=bias, alpha=2, beta=3, z=z)
    support.expected_chain(operation, x, weights, z, bias, output_op).check(y)


@st.composite
def _gradient_problems(draw, target):
    element = draw(st.sampled_from([item for item in support.ELEMENTS if item.kind == "float"]))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    a, d = draw(st.integers(1, 3)), draw(st.integers(1, 20))
    factors = draw(st.lists(st.tuples(_SIZE, _SIZE), max_size=2).filter(lambda row: len(row) != 1))
    b, c = draw(st.tuples(st.integers(1, 20), st.integers(1, 20)))
    options = {"tied": draw(st.booleans()), "products": draw(st.sampled_from([None, 1, 2]))}
    if factors:
        c, b = (int(np.prod(sizes)) for sizes in zip(*factors, strict=True))
        options = {"tied": True, "factors": tuple(factors)}
    operation = support.gradient_operation(
        target, element, (a, b, c, d), batch_last=draw(st.booleans()), **options
    )
    what, rows = operation.description, draw(st.integers(0, 40))
    shapes = (what.x_shape(rows), what.shapes(rows)["G"], *[what.y_shape(rows)] * 2, *factors)
    x, g, z, y, *matrices = (_strided(draw, random, shape, element) for shape in shapes)
    return operation, x, g, z, y, matrices


@pytest.mark.cuda
@_SETTINGS
@given(st.data(), st.sampled_from([1, 2, -3]), st.sampled_from([0, 1, -2]))
def test_ksparse_gradient(data, alpha, beta) -> None:
    operation, x, g, z, y, matrices = data.draw(_gradient_problems(support.cuda_target()))
    y[...] = support.poison(y.shape, operation.description.Y.element)
    output_op = operation.epilogue_type(alpha, beta)
    arguments = kronop.KSparseGradientArguments(
        operation=operation, X=x, G=g, Z=z, Y=y, output_op=output_op, factors=matrices
    )
    operation.run(arguments)
    arguments.sync()
    support.expected_gradient(operation, x, g, z, output_op, matrices).check(y)


@_SETTINGS
@given(_ksparse_problems("x86"))
def test_ksmm(problem) -> None:
    operation, x, weights, bias, z, _ = problem
    batch_last = operation.description.batch_last
    y = kronop.ksmm(x, weights, batch_last=batch_last, bias=bias, alpha=2, beta=3, z=z)
    assert y.dtype == support.numpy_type(operation.description.Y.element)
    support.expected_ksparse(operation, x, weights, z, bias, operation.epilogue_type(2, 3)).check(y)
