"""Visitor trees as text: what is written is read again, and nothing else is."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from typing import Any

import pytest

import kronop
from kronop.descriptions.tree_text import from_text
from kronop.descriptions.visitor import VisitorTree

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
