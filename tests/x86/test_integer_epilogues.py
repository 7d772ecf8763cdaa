"""Integer sums through every epilogue, with values at the ends of their ranges."""

from __future__ import annotations

import numpy as np
import pytest

import kronop
from tests import support

pytestmark = pytest.mark.optimised
_LINEAR, _CLAMP = kronop.LinearCombination, kronop.LinearCombinationClamp
_OUTPUTS = (kronop.int8, *support.ELEMENTS)


def _run(element, epilogue, x, factor, scalars=()):
    """(result, reference) of x times one factor."""
    operation = kronop.KronMatmulOperation(
        "x86",
        None,
        kronop.TensorDescription(element),
        kronop.TensorDescription(element),
        kronop.TensorDescription(epilogue.element_output),
        epilogue,
        [factor.shape],
    )
    output_op = operation.epilogue_type(*scalars)
    y = support.poison((x.shape[0], factor.shape[1]), epilogue.element_output)
    arguments = kronop.KronMatmulArguments(
        operation=operation, X=x, factors=[factor], Y=y, output_op=output_op
    )
    operation.run(arguments)
    return y, operation.description.reference(x, [factor], None, output_op)


@pytest.mark.covering(element=[kronop.int32, kronop.int64], output=_OUTPUTS, kind=[_LINEAR, _CLAMP])
def test_every_output_type(element, output, kind) -> None:
    x = np.array([[1, 300, -5, 70000, -70000, 0, 127, -129]], element.name).T
    factor = np.ones((1, 1), element.name)
    y, expected = _run(element, kind(output, 1, element, element), x, factor)
    if output == kronop.int8:
        assert expected.ravel().tolist() == [1, 127, -5, 127, -128, 0, 127, -128]
    if output == kronop.float16 and kind is _LINEAR:
        expected = np.where(np.abs(expected) > 65504, np.copysign(np.inf, expected), expected)
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=2.0**-8)


@pytest.mark.parametrize("alpha", [1, 3, -(2**31)])
def test_a_clamp_of_int32_computes_without_overflow(alpha) -> None:
    x = np.array([[2**30, 2**29], [-(2**30), -(2**29)], [2**30, 2**30]], np.int32)
    factor = np.array([[2, 1], [-2, 1]], np.int32)
    epilogue = _CLAMP(kronop.int32, 1, kronop.int32, kronop.int32)
    y, expected = _run(kronop.int32, epilogue, x, factor, (alpha,))
    np.testing.assert_array_equal(y, expected)


def test_a_sum_wraps_before_it_is_clamped() -> None:
    x = np.full((1, 2), 2**30, np.int32)
    factor = np.array([[2, 1], [2, 1]], np.int32)
    for epilogue in (
        _CLAMP(kronop.int32, 1, kronop.int32, kronop.int32),
        kronop.FastLinearCombinationClamp(kronop.int32, 1),
    ):
        y, expected = _run(kronop.int32, epilogue, x, factor)
        assert y.tolist() == expected.tolist() == [[0, -(2**31)]]


def test_floats_keep_their_fractions_on_the_way_to_integers() -> None:
    x = np.full((1, 2), 0.75, np.float32)
    epilogue = _LINEAR(kronop.int32, 1, kronop.float32, kronop.float32)
    y, expected = _run(kronop.float32, epilogue, x, np.ones((2, 1), np.float32))
    assert y.tolist() == expected.tolist() == [[2]]


@pytest.mark.parametrize("columns", [5, 64])
def test_an_epilogue_of_floats_rounds_every_sum(columns) -> None:
    random = np.random.default_rng(columns)
    x = random.integers(2**20, 2**21, (13, columns), np.int32)
    factor = random.integers(1, 20, (columns, columns), np.int32)
    epilogue = _LINEAR(kronop.int32, 1, kronop.int32, kronop.float32)
    y, exact = _run(kronop.int32, epilogue, x, factor)
    rounded = exact.astype(np.float32).astype(np.int64)
    assert (rounded != exact).any()
    np.testing.assert_array_equal(y, rounded)
