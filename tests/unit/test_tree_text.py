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


_RESULT = ["D", "accumulator", "", ""]


@pytest.mark.parametrize(
    "told",
    [
        [],
        {},
        [[], []],
        [[], [], []],
        [[["x"]], [], [_RESULT]],
        [[["x", "vector"]], [], [_RESULT]],
        [[[1, "row"]], [], [_RESULT]],
        [[["for", "row"]], [], [_RESULT]],
        [[], [], [["D", "x", "", ""]]],
        [[], ["v0"], [_RESULT]],
        [[], [["v1", 1.0]], [_RESULT]],
        [[], [["add", "accumulator"]], [_RESULT]],
        [[], [["exp", "accumulator", 1.0]], [_RESULT]],
        [[], [["exec", "accumulator"]], [_RESULT]],
        [[], [[]], [_RESULT]],
        [[], [True], [_RESULT]],
        [[], [None], [_RESULT]],
        [[], [float("nan")], [_RESULT]],
        [[], [], [["D", "accumulator", "mean", "row"]]],
        [[], [], [["D", "accumulator", "sum", ""]]],
        [[], [], [["D", "accumulator", "", "row"]]],
        [[], [], [["D", "accumulator", "sum", "row"]]],
        [[], [], [["a b", "accumulator", "", ""]]],
        [[], [], [_RESULT, _RESULT]],
    ],
    ids=str,
)
def test_other_texts_are_refused(told: Any) -> None:
    with pytest.raises(kronop.DescriptionError):
        from_text(json.dumps(told))


@pytest.mark.parametrize("text", ["", "[", "x", "[" * 100_000, "NaN"])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(kronop.DescriptionError, match="the text of a visitor tree"):
        from_text(text)
