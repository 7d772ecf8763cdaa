"""Visitor trees: what tracing finds, the names of operands and results, values, refusals."""

# Kinds of operands are annotations that name no types.
# ruff: noqa: F821, UP037
# mypy: disable-error-code="name-defined"

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.descriptions.datatype import DataType
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.emit.plan_text import from_text, to_text
from kronop.emit.render_visitor import visitor_functor

F16, F32, F64 = kronop.float16, kronop.float32, kronop.float64
I32, I8 = kronop.int32, kronop.int8
# Sums of float64 that take turns differ by a few roundings.
CLOSE: dict[str, Any] = {"rtol": 1e-13, "atol": 1e-13}


def floats(tree: Any, element: DataType = F64) -> VisitorEpilogue:
    found: VisitorEpilogue = tree(element, 1, element, element)
    return found


@kronop.epilogue_visitor
def five(
    accum: Any, alpha: "scalar", c: "tensor", beta: "scalar", bias: "row", scale: "column"
) -> Any:
    t = alpha * accum + beta * c + bias
    d = kronop.gelu(t) * scale
    row_max = kronop.maximum(d, axis="row")
    return d, t, row_max


def operands_of_five(m: int, n: int, seed: int = 1) -> tuple[Any, dict[str, Any]]:
    random = np.random.default_rng(seed)
    given = {"alpha": 1.5, "c": random.normal(size=(m, n)), "beta": -0.5}
    given |= {"bias": random.normal(size=n), "scale": random.normal(size=m)}
    return random.normal(size=(m, n)), given


def values_of_five(sums: Any, given: dict[str, Any]) -> dict[str, Any]:
    t = given["alpha"] * sums + given["beta"] * given["c"] + given["bias"]
    d = t * 0.5 * (np.vectorize(math.erf)(t / math.sqrt(2)) + 1) * given["scale"][:, None]
    return {"d": d, "t": t, "row_max": d.max(axis=1)}


def test_a_function_gives_its_names_kinds_and_values() -> None:
    assert [(item.name, item.kind) for item in five.operands] == [
        ("alpha", "scalar"),
        ("c", "tensor"),
        ("beta", "scalar"),
        ("bias", "row"),
        ("scale", "column"),
    ]
    assert [item.name for item in five.results] == ["d", "t", "row_max"]
    assert [item.kind for item in five.results] == ["tensor", "tensor", "column"]
    assert five.scalars == ("alpha", "beta")
    sums, given = operands_of_five(5, 7)
    found = floats(five).evaluate(sums, given)
    for name, value in values_of_five(sums, given).items():
        np.testing.assert_allclose(found[name], value, err_msg=name, **CLOSE)


def test_batches_of_operands() -> None:
    sums, given = operands_of_five(3, 4)
    every = {name: np.stack([item, 2 * item]) for name, item in given.items() if np.ndim(item)}
    found = floats(five).evaluate(np.stack([sums, 2 * sums]), given | every)
    for place in range(2):
        alone = given | {name: item[place] for name, item in every.items()}
        for name, value in values_of_five((1 + place) * sums, alone).items():
            np.testing.assert_allclose(found[name][place], value, err_msg=name, **CLOSE)


def test_functions_without_source() -> None:
    told: dict[str, Any] = {"kronop": kronop}
    text = "def f(accum, c: 'tensor'):\n z = accum - c\n low = kronop.sum(z, axis='column')\n"
    exec(text + " return z, low", told)
    tree = kronop.epilogue_visitor(told["f"])
    assert [item.name for item in tree.results] == ["z", "low"]
    found = floats(tree).evaluate(np.ones((2, 3)), {"c": np.arange(6.0).reshape(2, 3)})
    np.testing.assert_array_equal(found["low"], [-1, -3, -5])


def test_a_lambda_with_kinds() -> None:
    tree = kronop.epilogue_visitor(
        lambda accum, scale: (accum * scale, kronop.maximum(accum, axis="row")),
        kinds={"scale": "column"},
    )
    assert [item.name for item in tree.results] == ["D", "D1"]
    found = floats(tree).evaluate(np.array([[1.0, -2.0]]), {"scale": [3.0]})
    np.testing.assert_array_equal(found["D"], [[3, -6]])
    np.testing.assert_array_equal(found["D1"], [1])


def test_the_class_form() -> None:
    class Reducing(kronop.EpilogueVisitTree):
        def __call__(self, accum: "tensor", c: "tensor", alpha: "scalar", beta: "scalar") -> Any:
            assert getattr(self, "elements_per_access") == 4  # noqa: B009
            D = alpha * accum + kronop.tanh(beta * c)
            reduction = kronop.sum(D, axis="row")
            return D, reduction

    made: Any = Reducing(None, None, F32, 4, F32, F32)
    made.initialize()
    assert isinstance(made, VisitorEpilogue)
    assert [item.name for item in made.tree.results] == ["D", "reduction"]
    assert (made.epilogue_vector_length, made.scalar_names) == (4, ("alpha", "beta"))
    given = {"c": np.ones((1, 2)), "alpha": 2.0, "beta": 0.0}
    found = made.evaluate(np.array([[1.0, 2.0]]), given)
    np.testing.assert_array_equal(found["reduction"], [6])


def test_names_of_results() -> None:
    given = kronop.epilogue_visitor(results=("D", "t"))(lambda accum: (accum, accum * 2))
    assert [item.name for item in given.results] == ["D", "t"]

    def inner(accum: Any) -> Any:
        kept = accum * 2
        return accum, kept, kept + 1

    tree = kronop.epilogue_visitor(inner)
    assert [item.name for item in tree.results] == ["D", "kept", "D2"]


def test_what_is_computed_twice_is_computed_once() -> None:
    def twice(accum: Any) -> Any:
        return kronop.exp(accum) + kronop.exp(accum) * (accum - 1)

    tree = kronop.epilogue_visitor(twice)
    assert tree.graph.operations == {"exp": 1, "add": 1, "multiply": 1, "subtract": 1}
    assert "".join(visitor_functor(floats(tree))).count("exp(") == 1


def test_deep_sharing_stays_short() -> None:
    def deep(accum: Any) -> Any:
        for _ in range(60):
            accum = kronop.silu(accum) * accum
        return accum

    tree = kronop.epilogue_visitor(deep)
    assert len(repr(floats(tree))) < 60 * 1000
    assert hash(floats(tree)) == hash(floats(kronop.epilogue_visitor(deep)))


UNARY: dict[str, tuple[Any, Callable[[Any], Any] | None]] = {
    "relu": (kronop.relu, lambda x: np.maximum(x, 0)),
    "leaky_relu": (lambda x: kronop.leaky_relu(x, 0.2), lambda x: np.where(x > 0, x, 0.2 * x)),
    "tanh": (kronop.tanh, np.tanh),
    "sigmoid": (kronop.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    "silu": (kronop.silu, lambda x: x / (1 + np.exp(-x))),
    "hardswish": (kronop.hardswish, lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "exp": (kronop.exp, np.exp),
    "minimum": (lambda x: kronop.minimum(x, 0.5), lambda x: np.minimum(x, 0.5)),
    "maximum": (lambda x: kronop.maximum(-0.5, x), lambda x: np.maximum(x, -0.5)),
    "arithmetic": (lambda x: 2 - (+x - 1) / 4 + 1 / (3 + x * x) + -x, None),
    "numbers of NumPy": (lambda x: np.float32(2) * x + x / np.int64(4), lambda x: 2.25 * x),
}


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_values(name: str) -> None:
    function, expected = UNARY[name]
    x = np.linspace(-4, 4, 12).reshape(3, 4)
    found = floats(kronop.epilogue_visitor(lambda accum: function(accum)))
    value = function(x) if expected is None else expected(x)
    np.testing.assert_allclose(found.evaluate(x, {})["D"], value, **CLOSE)


def test_a_scalar_may_be_a_parameter_of_an_activation() -> None:
    tree = kronop.epilogue_visitor(
        lambda accum, slope: kronop.leaky_relu(accum, slope), kinds={"slope": "scalar"}
    )
    found = floats(tree).evaluate(np.array([[-2.0, 2.0]]), {"slope": 0.25})
    np.testing.assert_array_equal(found["D"], [[-0.5, 2]])


def test_activations_of_types_are_what_they_were() -> None:
    assert kronop.relu(F32).name == "relu"
    assert kronop.leaky_relu(F32).parameters == (("leaky_alpha", 0.01),)


def test_integers_are_rounded_and_saturated() -> None:
    tree = kronop.epilogue_visitor(lambda accum, s: (accum * s, accum), kinds={"s": "row"})
    made = tree(I8, 4, I32, F32, elements={"s": F32, "D1": I32})
    assert [made.element_of(item) for item in tree.results] == [I8, I32]
    assert made.element_of(tree.operands[0]) == F32
    found = made.evaluate(np.array([[3, 1000, -1000]]), {"s": [0.5, 1, 1]})
    np.testing.assert_array_equal(found["D"], [[2, 127, -128]])
    np.testing.assert_array_equal(found["D1"], [[3, 1000, -1000]])


REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "a comparison": (
        lambda accum: accum if accum > 0 else -accum,
        kronop.DescriptionError,
        r"kronop\.maximum\(a, b\)",
    ),
    "a condition": (
        lambda accum: accum or 1,
        kronop.DescriptionError,
        r"a comparison or a condition",
    ),
    "equality": (lambda accum: accum == 0, kronop.DescriptionError, "a comparison"),
    "text": (lambda accum: accum + "1", kronop.ElementTypeError, "an operand of add"),
    "an array": (lambda accum: accum * np.ones(2), kronop.ElementTypeError, "of multiply"),
    "infinity": (lambda accum: accum * math.inf, kronop.ElementTypeError, "a finite number"),
    "nothing": (lambda accum: None, kronop.ElementTypeError, "returns: expected values"),
    "no result": (lambda accum: (), kronop.ElementTypeError, "returns: expected values"),
    "a number": (lambda accum: 1.0, kronop.ElementTypeError, "returns: expected values"),
    "no parameter": (lambda: 1.0, kronop.DescriptionError, "the sums, then operands"),
    "no kind": (lambda accum, c: c, kronop.DescriptionError, 'annotate it, c: "tensor"'),
    "a default": (lambda accum=1: accum, kronop.DescriptionError, "without defaults"),
    "many": (lambda *accum: accum[0], kronop.DescriptionError, "without defaults"),
    "D is reduced": (
        lambda accum: kronop.sum(accum, axis="row"),
        kronop.DescriptionError,
        "return D first",
    ),
    "more with a reduction": (
        lambda accum: accum - kronop.maximum(accum, axis="row"),
        kronop.DescriptionError,
        "to be returned",
    ),
    "a function of a reduction": (
        lambda accum: (accum, kronop.exp(kronop.sum(accum, axis="row"))),
        kronop.DescriptionError,
        "to be returned",
    ),
    "an activation of a reduction": (
        lambda accum: (accum, kronop.relu(kronop.sum(accum, axis="row"))),
        kronop.DescriptionError,
        "to be returned",
    ),
    "the maximum of a reduction and a number": (
        lambda accum: (accum, kronop.maximum(kronop.sum(accum, axis="row"), 1.0)),
        kronop.DescriptionError,
        "to be returned",
    ),
    "Python's abs": (lambda accum: abs(accum), kronop.DescriptionError, "functions of kronop"),
    "Python's math": (
        lambda accum: math.exp(accum),
        kronop.DescriptionError,
        "functions of kronop",
    ),
    "NumPy's exp": (lambda accum: np.exp(accum), kronop.DescriptionError, "kronop.exp"),
    "the smallest of a row": (
        lambda accum: (accum, kronop.minimum(accum, axis="row")),
        kronop.DescriptionError,
        "the smallest is minus kronop.maximum",
    ),
    "a number beyond all floats": (
        lambda accum: accum * 10**400,
        kronop.ElementTypeError,
        "finite number",
    ),
    "an axis": (lambda accum: kronop.maximum(accum, axis="0"), kronop.DescriptionError, '"row" or'),
    "maximum of what": (lambda accum: kronop.maximum(accum), kronop.DescriptionError, "neither"),
    "not a value": (lambda accum: kronop.exp(1.0), kronop.ElementTypeError, "kronop.exp"),
}


def test_functions_of_torch_are_refused() -> None:
    torch = pytest.importorskip("torch")
    for tree in (lambda accum: torch.relu(accum), lambda accum: torch.exp(accum + 1)):
        with pytest.raises(kronop.DescriptionError, match=r"kronop\.relu"):
            kronop.epilogue_visitor(tree)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    function, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        kronop.epilogue_visitor(function)


@pytest.mark.parametrize("name", ["double", "accumulator", "a__b", "größe", "problem_size", "self"])
def test_names_that_operands_cannot_have(name: str) -> None:
    told: dict[str, Any] = {}
    exec(f"def f(accum, {name}: 'row'):\n return accum + {name}", told)
    with pytest.raises(kronop.DescriptionError, match="rename the parameter"):
        kronop.epilogue_visitor(told["f"])


def test_results_have_any_names() -> None:
    def function(accum: Any) -> Any:
        new = accum * 2.0
        v0 = new + 1.0
        _größe = kronop.sum(v0, axis="row")
        return new, v0, _größe

    tree = kronop.epilogue_visitor(function)
    assert [item.name for item in tree.results] == ["new", "v0", "_größe"]
    for names in (("D", "D"), ("d", "D"), ("d", "problem_size"), ("d", "1")):
        with pytest.raises(kronop.DescriptionError, match="rename"):
            kronop.epilogue_visitor(lambda accum: (accum, accum + 1.0), results=names)


def test_zeros_of_both_signs_are_two_constants() -> None:
    tree = kronop.epilogue_visitor(
        lambda accum: kronop.maximum(accum, 0.0) + kronop.maximum(accum, -0.0)
    )
    text = "\n".join(visitor_functor(floats(tree, F32)))
    assert text.count("v0 =") == 1
    assert "Compute(-0.0)" in text
    assert "Compute(0.0)" in text


def test_long_functions_are_cut_into_values() -> None:
    def function(accum: Any, c: Any) -> Any:
        for _ in range(3000):
            accum = accum * 0.5 + c
        return accum

    tree = kronop.epilogue_visitor(function, kinds={"c": "row"})
    c = np.array([3.0, -1.0])
    found = tree.evaluate({"accumulator": np.ones((2, 2)), "c": c})
    np.testing.assert_allclose(found["D"], np.broadcast_to(2 * c, (2, 2)))
    assert len(visitor_functor(floats(tree, F32))) < 3000


def test_unknown_kinds_and_results() -> None:
    with pytest.raises(kronop.DescriptionError, match="kinds: expected those of c, got d"):
        kronop.epilogue_visitor(lambda accum, c: c, kinds={"c": "row", "d": "row"})
    with pytest.raises(kronop.DescriptionError, match="results: expected 1 names"):
        kronop.epilogue_visitor(lambda accum: accum, results=("D", "t"))


def test_types_that_do_not_fit() -> None:
    tree = kronop.epilogue_visitor(lambda accum, c: accum * 1e300 + c, kinds={"c": "row"})
    floats(tree)
    with pytest.raises(kronop.DescriptionError, match=r"a finite float32, got 1e\+300"):
        floats(tree, F32)
    with pytest.raises(kronop.DescriptionError, match=r"float32 or float64, got kronop\.int32"):
        five(I32, 1, I32, I32)
    # Reductions are kept in the type that is computed in, which is float32 for float16.
    with pytest.raises(kronop.DescriptionError, match=r"float32 or float64, got kronop\.float16"):
        five(F16, 1, F16, F16)
    with pytest.raises(kronop.DescriptionError, match=r"sums under a visitor tree.* got int64"):
        five(kronop.int64, 1, kronop.int64, F64)
    for elements in ({"D": F32}, {"alpha": F32}, {"row_max": F32}, {"c": kronop.tfloat32}):
        with pytest.raises(kronop.DescriptionError, match="elements of a visitor tree"):
            five(F32, 1, F32, F32, elements=elements)


def test_arguments_have_names() -> None:
    sums, given = operands_of_five(2, 3)
    made = floats(five)
    results = {"t": np.empty((2, 3)), "row_max": np.empty(2)}
    found: Any = made.epilogue_type(D=sums, **given, **results, problem_size=[2, 3])
    assert (found.scalars, found.problem_size) == ((1.5, -0.5), (2, 3))
    assert found.results["d"] is sums
    assert found.tensors["c"] is given["c"]
    found.sync()
    without: Any = made.epilogue_type(**given, **results)
    assert without.results.keys() == results.keys()
    assert without.problem_size is None
    for wrong, message in (
        (given, "give t, row_max"),
        ({**given, **results, "q": 1}, "give no others"),
        ({**given, **results, "alpha": "1"}, "alpha: expected a real number"),
        ({**given, **results, "problem_size": [2]}, r"\[M, N\]"),
    ):
        with pytest.raises(kronop.KronopError, match=message):
            made.epilogue_type(**wrong)
    with pytest.raises(kronop.ArgumentError, match="D: expected the same tensor as d"):
        made.epilogue_type(d=sums, D=sums.copy(), **given, **results)
    with pytest.raises(kronop.ArgumentError, match="without a name"):
        made.epilogue_type(1.0, **given, **results)


def test_gradients_refuse_trees() -> None:
    matrix = kronop.TensorDescription(F32)
    with pytest.raises(kronop.DescriptionError, match="distances take trees"):
        kronop.KSparseGradientOperation(
            "sm_90a", None, matrix, matrix, matrix, floats(five, F32), pattern=(1, 2, 3, 4)
        )


def test_plans_hold_trees() -> None:
    matrix = kronop.TensorDescription(F32)
    plain = kronop.LinearCombination(F32, 1, F32, F32)
    operation = kronop.KronMatmulOperation("x86", None, matrix, matrix, matrix, plain, [(3, 4)])
    tree = floats(five, F32)
    text = to_text(operation.plan, plain)
    read = from_text(text, operation.target, tree)
    assert read.steps[0].design.epilogue == tree
    assert to_text(read, tree) == text
