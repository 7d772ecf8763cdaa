"""Expressions and kernels that share nodes, or are in each other to any depth."""

from __future__ import annotations

import copy
import functools
import itertools
import json
import math
import operator
import pickle
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kronop
from kronop import kernels
from kronop.descriptions.expression import apply, variable
from kronop.descriptions.graph import Graph
from kronop.emit import plan_text
from kronop.families.distance.form import Form, Term, TermKind

# Powers of these products and one are of moderate size.
_X, _Y = np.array([[6e-4, 1e-4]]), np.array([[2e-2, -3e-2], [0.0, 2.5e-2]])
_DOT = _X @ _Y.T


def _squared(kernel: kernels.Kernel, times: int) -> kernels.Kernel:
    return functools.reduce(lambda k, _: k * k, range(times), kernel)


def _operation(kernel: Any, target: str = "x86") -> kronop.DistanceOperation:
    points = kronop.TensorDescription(kronop.float32)
    epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
    return kronop.DistanceOperation(target, None, points, points, points, epilogue, kernel)


def _depth(text: str) -> int:
    """How many parentheses are in each other at most."""
    steps = [{"(": 1, ")": -1}.get(letter, 0) for letter in text]
    return max(itertools.accumulate(steps))


# name -> (the kernel, its value, the most rows of its graph)
_LARGE: dict[str, tuple[Callable[[], kernels.Kernel], Any, int]] = {
    "a power of two": (lambda: kernels.Polynomial(2**15, 1.0), (_DOT + 1) ** (2**15), 18),
    "a power": (lambda: kernels.Polynomial(10**6, 1.0), (_DOT + 1) ** (10**6), 29),
    "a product of products": (
        lambda: _squared(kernels.Polynomial(1, 1.0), 20),
        (_DOT + 1) ** (2**20),
        23,
    ),
    "a sum of thousands": (
        lambda: sum((kernels.Polynomial(2, 1.0 + n) for n in range(2000)), start=kernels.Linear()),
        _DOT + sum((_DOT + 1 + n) ** 2 for n in range(2000)),
        2001 + 3 * 2000,
    ),
    "a product of thousands": (
        lambda: functools.reduce(operator.mul, [kernels.Polynomial(1, 1.0) * 0.9999] * 2000),
        (_DOT + 1) ** 2000 * 0.9999**2000,
        2004,
    ),
}


@pytest.mark.parametrize("name", _LARGE)
def test_large_kernels_are_as_long_as_they_are_written(name: str) -> None:
    make, expected, rows = _LARGE[name]
    kernel = make()
    bound = kernel.bound()
    form = bound.form
    assert len(form.expression.rows) <= rows
    found = form.evaluate(_X, _Y, bound.values)
    # The relative error of a power grows with the exponent.
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert Form.from_text(form.text()) == form
    assert len(form.text()) + len(repr(form)) < 200 + 100 * rows
    assert len(repr(kernel)) < 5000
    for same in (pickle.loads(pickle.dumps(kernel)), copy.deepcopy(kernel)):
        assert same.bound().form == form
    operation = _operation(kernel)
    assert (
        len(plan_text.to_text(operation.plan, operation.description.epilogue)) < 5000 + 200 * rows
    )
    (source,) = operation.sources
    assert len(source.text) < 3000 + 100 * rows
    assert _depth(source.text) < 60


def test_derivatives_share_nodes_too() -> None:
    form = kernels.Polynomial(1000, 1.0).bound().form
    slope = form.expression.derivative("s[0]")
    assert slope is not None
    assert len(slope.rows) < 80
    at = {"s[0]": 1e-3, "h[0]": 1.0}
    assert slope.evaluate(at) == pytest.approx(1000 * 1.001**999, rel=1e-12)
    deep = functools.reduce(lambda x, _: apply("exp", x) * -0.5, range(5000), variable("x"))
    found = Graph.of(deep).derivative("x")
    assert found is not None
    assert len(found.rows) < 6 * 5000


def test_rendered_text_is_what_is_evaluated() -> None:
    x = y = variable("x")
    for place in range(300):
        x = apply("max", x * y - 0.25, apply("divide", y, 3.0 + place)) * 0.75
        x = apply("min", x, 1.5)
        y = x if place % 7 == 0 else y
    graph = Graph.of(x)
    names = {"Compute": float, "max": max, "x": 1.75}
    *lines, last = graph.render("Compute").replace("kronop::math::", "").splitlines()
    for line in lines:
        exec(line.removeprefix("const Compute ").rstrip(";"), names)
    found = eval(last.removeprefix("return ").rstrip(";"), names)
    assert len(lines) < 150
    assert _depth("\n".join([*lines, last])) <= 52
    assert found == graph.evaluate({"x": 1.75})


def test_what_no_compiler_could_take_is_refused() -> None:
    with pytest.raises(kronop.DescriptionError, match=r"at most 16384 operations.* got 20001"):
        Graph.of(functools.reduce(lambda x, _: x * x, range(20000), variable("x"))).check(["x"])
    many = sum((kernels.Gaussian(1.0 + n) for n in range(700)), start=kernels.Linear())
    operation = _operation(many, "sm_90a")
    with pytest.raises(kronop.DescriptionError, match=r"at most 32764 bytes on sm_90a, got \d+"):
        _ = operation.sources


def test_zeros_of_both_signs_are_two_graphs() -> None:
    graphs = [Graph.of(apply("max", variable("x"), zero)) for zero in (0.0, -0.0, 0)]
    assert len({*graphs}) == 3
    assert math.copysign(1, graphs[1].constants[0]) == -1


def test_forms_that_are_made_by_hand_are_checked() -> None:
    squares = Term(kind=TermKind.Two)
    for terms, input_name, counts in (
        ((squares,), "[&]{ return exit(1), 0.f; }()", {}),
        ((squares,), "s[1]", {}),
        ((squares,), "h[0]", {}),
        ((squares,), "s[0]", {"values": "1"}),
        ((), "s[0]", {}),
        ((Term(kind=TermKind.Two, vector=1),), "s[0]", {"vectors": 1}),
        ((Term(kind=TermKind.General),), "s[0]", {"values": 1}),
        ((Term(kind="2", value="0"),), "s[0]", {}),
    ):
        form = Form(terms=terms, expression=Graph.of(variable(input_name)), **counts)  # type: ignore[arg-type]
        with pytest.raises(kronop.DescriptionError):
            _operation(form)
    by_name: Any = variable("s[0]")
    with pytest.raises(kronop.DescriptionError, match="the form of a kernel"):
        _operation(Form(terms=(squares,), expression=by_name))


def test_any_texts_are_a_form_or_refused() -> None:
    draw = random.Random(6)
    text = (kernels.Gaussian(np.ones(3)) * 2 + kernels.PowerNorm(1.3)).bound().form.text()
    junk = (None, True, -1, 2**70, 0.5, "", "s[0]", "s[9]", "0; exit(1)", [], {}, ["exp", 0])
    made = 0
    for _ in range(300):
        within = told = json.loads(text)
        while draw.random() < 0.8:
            inner = [item for item in within if isinstance(item, list) and item]
            within = draw.choice(inner) if inner else within
        within[draw.randrange(len(within))] = draw.choice([*junk, draw.randrange(9)])
        try:
            form = Form.from_text(json.dumps(told))
        except kronop.DescriptionError:
            continue
        made += 1
        (source,) = _operation(form).sources
        body = source.text.partition("struct Kernel {")[2].partition("};")[0]
        assert re.fullmatch(r"[\w\s.,:=+\-*/()\[\]&;{}]*", body)
        assert "exit" not in source.text
    assert 5 < made < 150
