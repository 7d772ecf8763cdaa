"""Visitor trees as text: what is written is read again, and nothing else is."""

from __future__ import annotations

import copy
import functools
import json
import math
import operator
import pickle
import random
import re
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.descriptions.expression import OPERATIONS, Expression, variable
from kronop.descriptions.graph import Graph
from kronop.descriptions.tree_text import from_text
from kronop.descriptions.visitor import KINDS, Operand, Result, VisitorTree
from kronop.emit.render_visitor import _statements, visitor_functor

_FUNCTION = """
lambda accum, alpha, c, bias: (
    kronop.gelu(alpha * accum + bias) - 0.1,
    kronop.maximum(accum, c),
    kronop.sum(accum * accum, axis="row"),
    kronop.maximum(accum, axis="column"),
)
"""
_KINDS = {"alpha": "scalar", "c": "tensor", "bias": "row"}


def _tree() -> VisitorTree:
    return kronop.epilogue_visitor(eval(_FUNCTION), kinds=_KINDS)


def test_a_tree_is_read_from_its_text() -> None:
    tree = _tree()
    assert from_text(tree.text) == tree
    assert from_text(tree.text).text == tree.text
    assert from_text(tree.text) is from_text(tree.text)
    for same in (pickle.loads(pickle.dumps(tree)), copy.deepcopy(tree)):
        assert same == tree
        assert same.text == tree.text


def test_a_deep_tree_is_read_too() -> None:
    def deep(accum: Any) -> Any:
        for place in range(1000):
            accum = accum * 0.5 + float(place)
        return accum

    tree = kronop.epilogue_visitor(deep)
    assert from_text(tree.text) == tree


def test_the_text_is_the_same_in_every_process() -> None:
    code = (
        f"import kronop\nprint(kronop.epilogue_visitor({_FUNCTION.strip()}, kinds={_KINDS}).text)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == _tree().text


_SUMS, _RESULT = [[["input", "accumulator"]], [0]], ["D", "", ""]


def _rows(*rows: Any, results: Any = (0,)) -> list[Any]:
    return [[], [[["input", "accumulator"], *rows], list(results)], [_RESULT]]


@pytest.mark.parametrize(
    "told",
    [
        [],
        {},
        [[], []],
        [[], [], []],
        [[], [[], []], []],
        [[["x"]], _SUMS, [_RESULT]],
        [[["x", "vector"]], _SUMS, [_RESULT]],
        [[["x", ["row"]]], _SUMS, [_RESULT]],
        [[[1, "row"]], _SUMS, [_RESULT]],
        [[["for", "row"]], _SUMS, [_RESULT]],
        [[], [[["input", "x"]], [0]], [_RESULT]],
        [[], [[["input", "[&]{ return 0; }()"]], [0]], [_RESULT]],
        _rows("v0"),
        _rows(["multiply", 0, 1]),
        _rows(["multiply", 0, -1]),
        _rows(["multiply", 0, True]),
        _rows(["multiply", 0, 0.0]),
        _rows(["multiply", 0]),
        _rows(["exp", 0, 0]),
        _rows(["exec", 0]),
        _rows([]),
        _rows(["constant"]),
        _rows(["constant", 1.0]),
        _rows(["constant", "1"], ["constant", "1.00"]),
        _rows(["constant", "nan"]),
        _rows(["constant", "1e999"]),
        _rows(["constant", str(2**63)]),
        _rows(["constant", "9" * 5000]),
        _rows(["constant", "1.0 + exit(1)"]),
        _rows([["exp"], 0]),
        _rows(results=()),
        _rows(results=(1,)),
        _rows(results=(0, 0)),
        [[], _SUMS, [["D", "mean", "row"]]],
        [[], _SUMS, [["D", "sum", ""]]],
        [[], _SUMS, [["D", "", "row"]]],
        [[], _SUMS, [["D", "sum", "row"]]],
        [[], _SUMS, [["a b", "", ""]]],
        [[], _SUMS, [[["D"], "", ""]]],
        [[], [[["input", "accumulator"]], [0, 0]], [_RESULT, _RESULT]],
    ],
    ids=lambda told: str(told)[:80],
)
def test_other_texts_are_refused(told: Any) -> None:
    with pytest.raises(kronop.DescriptionError):
        from_text(json.dumps(told))


@pytest.mark.parametrize("text", ["", "[", "x", "[" * 100_000, "NaN"])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(kronop.DescriptionError, match="the text of a visitor tree"):
        from_text(text)


# What the C++ of a tree consists of: names of its own, functions of kronop::math, numbers, signs.
_FUNCTIONS = "|".join({*re.findall(r"math::(\w+)", str(OPERATIONS))})
_WORDS = re.compile(
    r"const|Compute|at|keep|operand\d?|scalar\d|v\d+|accumulator|kronop|math|\d+e?|" + _FUNCTIONS
)
_JUNK: tuple[Any, ...] = (
    *(
        "accumulator",
        "c",
        "NULL",
        "",
        "[&]{ return 0; }()",
        "1.0); exit(1",
        "add",
        "constant",
        "row",
    ),
    *(None, True, 0, -1, 2**70, 10**5000, 1.5, math.nan, -math.inf, 1j, 0.1 + 0j),
    *((), [], {}, ("input", "c"), [["input", "c"]], np.float64(2.5), np.int8(3), np.ones(2)),
    *(Fraction(1, 3), Fraction(10**400), Expression("input", ("c",)), kronop.float32, print),
)


def _drawn(draw: random.Random, depth: int = 0) -> Any:
    """An expression, in which there may be anything."""
    if draw.random() < 0.02:
        return draw.choice(_JUNK)
    if depth > 4 or draw.random() < 0.25:
        operands: Any = draw.choice([("accumulator",), ("c",), ("NULL",)])
        return Expression("input", operands if draw.random() < 0.97 else (draw.choice(_JUNK),))
    if draw.random() < 0.2:
        given = draw.choice([0.5, -0.0, 3, 1e300, *(_JUNK if draw.random() < 0.1 else ())])
        return Expression("constant", (given,))
    operation = draw.choice([*OPERATIONS]) if draw.random() < 0.98 else draw.choice(_JUNK)
    is_known = isinstance(operation, str) and operation in OPERATIONS
    count = OPERATIONS[operation][1].count("{}") if is_known else 2
    operands = tuple(_drawn(draw, depth + 1) for _ in range(count))
    return Expression(operation, operands if draw.random() < 0.98 else draw.choice(_JUNK))


def _check(make: Callable[[], VisitorTree]) -> bool:
    """Whether it is a tree, whose C++ then has nothing of its own."""
    try:
        tree = make()
    except kronop.DescriptionError:
        return False
    assert from_text(tree.text) == tree
    types = (kronop.float64, 1, kronop.float64, kronop.float64)
    for line in _statements(tree(*types)):
        assert all(map(_WORDS.fullmatch, re.findall(r"\w+", line))), line
        assert re.fullmatch(r"[\w .,:=+\-*/()]*;", line), line
    return True


def test_any_nodes_are_a_tree_or_refused() -> None:
    draw = random.Random(4)
    found = 0
    for _ in range(500):
        kinds = [draw.choice(KINDS) if draw.random() < 0.98 else draw.choice(_JUNK) for _ in "cN"]
        operands = tuple(
            Operand(name, kind) for name, kind in zip(("c", "NULL"), kinds, strict=True)
        )
        result = Result(*(("D", "", "") if draw.random() < 0.95 else draw.choices(_JUNK, k=3)))
        more = Result("t", *draw.choice([("sum", "row"), ("max", "column"), ("sum", "c")]))
        nodes: Any = (_drawn(draw), _drawn(draw))
        odd = draw.choices([*_JUNK, Graph.of(variable("c"))], k=2)
        whole = draw.random() < 0.95
        found += _check(
            lambda: VisitorTree(  # Called before the next turn.
                operands=operands,  # noqa: B023
                graph=Graph.of(*nodes) if whole else draw.choice([Graph(*odd), odd[0]]),  # noqa: B023
                results=(result, more),  # noqa: B023
            )
        )
    assert 100 < found < 400


def test_any_rows_are_a_tree_or_refused() -> None:
    draw, text = random.Random(5), _tree().text
    found = 0
    for _ in range(500):
        told: Any = json.loads(text)
        within = told
        while draw.random() < 0.8 and isinstance(within[-1], list) and within[-1]:
            within = draw.choice([item for item in within if isinstance(item, list) and item])
        plain = [item for item in _JUNK if isinstance(item, (str, bool, float, list, type(None)))]
        within[draw.randrange(len(within))] = draw.choice(
            [*plain, draw.randrange(9), ["exp", 0], ["input", "bias"], ["constant", "2.5"]]
        )
        found += _check(lambda: from_text(json.dumps(told)))  # noqa: B023
    assert 10 < found < 400


def test_kernels_have_no_names_of_operands() -> None:
    """Which may be macros of a header: of C's, of CUDA's, or of a compiler."""
    names = ["NULL", "EOF", "errno", "INFINITY", "NAN", "M_PI", "assert", "stdin", "linux", "unix"]
    names += ["I", "min", "max", "warpSize", "HUGE_VAL", "v0", "at", "kronop", "Compute", "scalars"]
    for kind in KINDS:
        graph = Graph.of(functools.reduce(operator.add, map(variable, ["accumulator", *names])))
        operands = tuple(Operand(name, kind) for name in names)
        tree = VisitorTree(operands=operands, graph=graph, results=(Result("D"),))
        text = str(visitor_functor(tree(*(kronop.float32, 1, kronop.float32, kronop.float32))))
        for name in set(names) - {"at", "kronop", "Compute", "scalars", "v0"}:
            assert re.search(rf"\b{name}\b", text) is None
