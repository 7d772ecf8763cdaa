"""Epilogue functors: their formulas, their scalars and what they refuse."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.descriptions.activation import Activation
from kronop.descriptions.expression import apply, variable
from kronop.descriptions.graph import Graph
from kronop.descriptions.numeric import finish

_X = np.linspace(-8, 8, 41)
_FORMULAS = {
    "relu": lambda x: np.maximum(x, 0),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.125 * x),
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "gelu": lambda x: x * 0.5 * (1 + np.array([math.erf(v / math.sqrt(2)) for v in x])),
}


@pytest.mark.parametrize("name", _FORMULAS)
def test_activations_are_their_formulas(name: str) -> None:
    functor = getattr(kronop, name)(kronop.float64)
    epilogue = kronop.LinearCombinationGeneric(
        functor, kronop.float64, 1, kronop.float64, kronop.float64
    )
    output_op = epilogue.epilogue_type(2.0, -1.0, *([0.125] if name == "leaky_relu" else []))
    source = np.linspace(1, 2, 41)
    actual = finish(epilogue, output_op, _X, source)
    np.testing.assert_allclose(actual, _FORMULAS[name](2 * _X - source), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["celu", "Activation", "", "x; y", None, ["relu"], 3])
def test_unknown_activations_are_refused(name: Any) -> None:
    with pytest.raises(kronop.DescriptionError, match=r"activation: expected one of relu, leaky"):
        Activation(name, kronop.float32)


def test_parameters_are_pairs_and_those_of_the_expression() -> None:
    for parameters in ([("slope", 1.0)], ("slope",), (("slope",),), None, "ab", (("a", 1, 2),)):
        with pytest.raises(kronop.DescriptionError, match="parameters of activation relu"):
            Activation("relu", kronop.float32, parameters)  # type: ignore[arg-type]
    right = ("leaky_alpha", 0.5)
    for other in ((), (("slope", 0.5),), (("x; int y", 3.0), right), (right, right), ((3, 1.0),)):
        with pytest.raises(kronop.DescriptionError, match="of leaky_alpha, got"):
            Activation("leaky_relu", kronop.float32, other)  # type: ignore[arg-type]
    own = Activation("leaky_relu", kronop.float32, (right,))
    epilogue = kronop.LinearCombinationGeneric(
        own, kronop.float32, 1, kronop.float32, kronop.float32
    )
    assert epilogue.scalar_names == ("alpha", "beta", "leaky_alpha")
    assert finish(epilogue, None, np.array([-2.0, 2.0])).tolist() == [-1.0, 2.0]


@pytest.mark.parametrize("of_16_bits", [False, True])
def test_activations_have_limits(of_16_bits: bool) -> None:
    x = np.array([-math.inf, math.inf, math.nan, -1e4])
    for name in ("relu", "sigmoid", "silu", "hardswish", "gelu"):
        activation = Activation(name, kronop.float32)
        graph = Graph.of(activation.expression(variable("x"), of_16_bits=of_16_bits))
        rising = 1 if name == "sigmoid" else math.inf
        np.testing.assert_array_equal(graph.evaluate({"x": x}), [0, rising, math.nan, 0])


def test_clamp_keeps_results_finite_and_integers_saturate() -> None:
    half = kronop.LinearCombinationClamp(kronop.float16, 1, kronop.float32, kronop.float32)
    assert finish(half, half.epilogue_type(1.0), np.array([1e9, -1e9, 3.0])).tolist() == [
        65504.0,
        -65504.0,
        3.0,
    ]
    fast = kronop.FastLinearCombinationClamp(kronop.int8, 1)
    assert finish(fast, fast.epilogue_type(0.5), np.array([1000, -1000, 5, 7])).tolist() == [
        127,
        -128,
        2,
        4,
    ]
    for output, sums, given, expected in (
        (kronop.int8, kronop.int32, [256, 127, -129, 2**31 + 1], [127, 127, -128, -128]),
        (kronop.int32, kronop.int64, [2**40, -(2**31)], [2**31 - 1, -(2**31)]),
        (kronop.int64, kronop.float64, [1e300, -1e300, math.nan], [2**63 - 1, -(2**63), 0]),
    ):
        narrow = kronop.LinearCombination(output, 1, sums, sums)
        assert finish(narrow, narrow.epilogue_type(), np.array(given)).tolist() == expected
    plain = kronop.LinearCombination(kronop.int32, 1, kronop.int32, kronop.int32)
    assert finish(plain, plain.epilogue_type(2), np.array([2**30])).tolist() == [-(2**31)]


def test_the_integer_clamp_sees_the_wrapped_sum_and_overflows_no_more() -> None:
    clamp = kronop.LinearCombinationClamp(kronop.int32, 1, kronop.int32, kronop.int32)
    sums = np.array([2**30, -(2**30), 2**31, 2**32 + 5])
    assert finish(clamp, clamp.epilogue_type(3), sums).tolist() == [
        2**31 - 1,
        -(2**31),
        -(2**31),
        15,
    ]
    text = clamp.expression.render("Compute")
    assert "max" not in text
    assert clamp.element_compute == kronop.int64


def test_integers_are_clamped_to_half_where_they_exceed_it() -> None:
    half = kronop.LinearCombinationClamp(kronop.float16, 1, kronop.int32, kronop.int32)
    values = finish(half, None, np.array([70000, -70000, 300]))
    assert values.tolist() == [65504, -65504, 300]
    assert "Compute(65504)" in half.expression.render("Compute")
    wide = kronop.LinearCombinationClamp(kronop.bfloat16, 1, kronop.int64, kronop.int64)
    assert (
        wide.expression
        == kronop.LinearCombination(kronop.bfloat16, 1, kronop.int64, kronop.int64).expression
    )


def test_scalars_have_defaults_and_are_checked() -> None:
    epilogue = kronop.LinearCombination(kronop.float32, 4, kronop.float32, kronop.float32)
    assert epilogue.epilogue_type().scalars == (1.0, 0.0)
    assert epilogue.epilogue_type(np.float32(3), beta := 2).beta == beta
    for wrong in (math.inf, -math.inf, math.nan):
        with pytest.raises(kronop.ArgumentError, match="a finite"):
            epilogue.epilogue_type(wrong)
        with pytest.raises(ValueError, match="beta"):
            epilogue.epilogue_type(1.0, wrong)
    assert epilogue.epilogue_type(np.array(3.0, np.float16)).scalars == (3.0, 0.0)
    for wrong in ("1", None, 1j, True, np.array(True), np.array(1j), np.ones(1)):
        with pytest.raises(TypeError, match="alpha"):
            epilogue.epilogue_type(wrong)
    with pytest.raises(kronop.ArgumentError, match="a finite float32"):
        epilogue.epilogue_type(1e39)
    with pytest.raises(kronop.ArgumentError, match="at most"):
        epilogue.epilogue_type(1, 2, 3)


def test_integer_epilogues_take_whole_numbers_of_their_range() -> None:
    epilogue = kronop.LinearCombination(kronop.int32, 1, kronop.int32, kronop.int32)
    assert epilogue.epilogue_type(2.0, -3).scalars == (2, -3)
    assert epilogue.epilogue_type(np.array(2**31 - 1), np.array(-3.0)).scalars == (2**31 - 1, -3)
    for wrong in (0.5, 2**31, -(2**31) - 1, 10**400, math.inf, math.nan):
        with pytest.raises(kronop.ArgumentError, match="whole number"):
            epilogue.epilogue_type(wrong)


@pytest.mark.parametrize("length", ["x", -3, 0, 3, 12, True, 4.0, None])
def test_a_vector_is_a_power_of_two_of_at_most_16_bytes(length) -> None:
    with pytest.raises(kronop.DescriptionError, match="epilogue_vector_length for int32"):
        kronop.LinearCombination(kronop.int32, length, kronop.int32, kronop.int32)
    with pytest.raises(kronop.DescriptionError, match="epilogue_vector_length for int32"):
        kronop.FastLinearCombinationClamp(kronop.int32, length)
    wide = kronop.LinearCombination(kronop.int32, 16, kronop.int32, kronop.int32)
    assert wide.epilogue_vector_length == 4  # More means the widest.


def test_types_that_do_not_go_together() -> None:
    with pytest.raises(kronop.DescriptionError, match="element_epilogue"):
        kronop.LinearCombination(kronop.float32, 4, kronop.float32, kronop.float64)
    known = r"^element_accumulator: .*float32, kronop\.float64"
    with pytest.raises(kronop.DescriptionError, match=known):
        kronop.LinearCombination(kronop.float16, 8, kronop.bfloat16, kronop.float32)
    with pytest.raises(kronop.DescriptionError, match=r"^element_accumulator: "):
        kronop.LinearCombination(kronop.float16, 8, [kronop.float32], kronop.float32)
    types = (kronop.int32, kronop.float32)
    clamp = kronop.FastLinearCombinationClamp
    assert clamp(kronop.int8, 16, *types) == clamp(kronop.int8, 16)
    for output, *others in ((kronop.float32, *types), (kronop.int8, kronop.int32, kronop.int32)):
        with pytest.raises(kronop.DescriptionError, match="int8 or int32, of sums in int32"):
            clamp(output, 4, *others)
    with pytest.raises(kronop.DescriptionError, match="activation"):
        kronop.LinearCombinationGeneric("relu", kronop.float32, 4, kronop.float32, kronop.float32)
    with pytest.raises(kronop.DescriptionError, match="floating point"):
        kronop.relu(kronop.int32)


def test_sums_of_float16_become_results_in_float32() -> None:
    for kind in (kronop.LinearCombination, kronop.LinearCombinationClamp):
        for compute in (kronop.float16, kronop.float32):
            epilogue = kind(kronop.float16, 8, kronop.float16, compute)
            assert epilogue.element_compute is kronop.float32
    epilogue = kronop.LinearCombination(kronop.float16, 8, kronop.float16, kronop.float16)
    with pytest.raises(kronop.ArgumentError, match="float16"):
        epilogue.epilogue_type(1e6)


def test_a_node_that_a_tree_shares_has_a_statement_of_its_own() -> None:
    x = variable("x")
    shared = x * x
    text = Graph.of(apply("max", shared + shared, 1.0)).render("Compute")
    assert text.splitlines() == [
        "const Compute v0 = x * x;",
        "return kronop::math::max(v0 + v0, Compute(1.0));",
    ]


def test_a_tree_is_spelled_with_the_parentheses_that_keep_it() -> None:
    a, b, c = map(variable, "abc")
    spelled = {
        a + b + c: "a + b + c",
        a + (b + c): "a + (b + c)",
        a * b + c: "a * b + c",
        (a + b) * c: "(a + b) * c",
        a * (b * c): "a * (b * c)",
        apply("divide", a * b, c): "a * b / c",
        apply("divide", a, b * c): "a / (b * c)",
        a * apply("divide", b, c + 1): "a * (b / (c + T(1)))",
        apply("max", a + b, c) * c: "kronop::math::max(a + b, c) * c",
    }
    for tree, text in spelled.items():
        assert Graph.of(tree).render("T") == f"return {text};"
