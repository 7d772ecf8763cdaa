"""How distances are written on the command line."""

from __future__ import annotations

import argparse
import math
import re

import numpy as np
import pytest

import kronop
from kronop.__main__ import main
from kronop.families.distance import kernels
from kronop.families.distance.command import COMMAND, kernel_of, norm_of, size_of
from kronop.families.distance.form import TermKind
from kronop.families.distance.size import DistanceSize


def _options(**given) -> argparse.Namespace:
    names = ("p", "kernel", "symmetric", "expanded", "direct")
    return argparse.Namespace(**dict.fromkeys(names) | {"symmetric": False} | given)


def _common() -> tuple:
    points = kronop.TensorDescription(kronop.float32)
    epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
    return "sm_90a", None, points, points, points, epilogue


def test_a_size_is_m_n_k() -> None:
    assert size_of("1024x2048x64") == DistanceSize(1024, 2048, 64)
    with pytest.raises(kronop.ArgumentError, match="M x N x K"):
        size_of("1024x2048x64x2")


@pytest.mark.parametrize(("text", "p"), [("0", 0), (".5", 0.5), ("1.30", 1.3), ("inf", math.inf)])
def test_norms(text, p) -> None:
    assert norm_of(text) == p


@pytest.mark.parametrize(
    ("text", "kernel"),
    [
        ("gaussian", kernels.Gaussian(1.0)),
        ("laplace:2", kernels.Laplace(1.0, 2)),
        ("matern", kernels.Matern(1.5, 1.0)),
        ("matern:2.5", kernels.Matern(2.5, 1.0)),
        ("rational-quadratic", kernels.RationalQuadratic(1.0, 1.0)),
        ("polynomial:3", kernels.Polynomial(3, 1.0)),
        (
            "gaussian+linear*cosine",
            kernels.Gaussian(1.0) + kernels.Linear() * kernels.Cosine(),
        ),
    ],
)
def test_kernels_by_name(text, kernel) -> None:
    assert kernel_of(text).bound().form == kernel.bound().form


@pytest.mark.parametrize(
    ("given", "expanded"),
    [
        ({}, True),
        ({"direct": True}, False),
        ({"kernel": "gaussian"}, False),
        ({"kernel": "gaussian", "expanded": True}, True),
    ],
)
def test_an_operation_is_that_of_the_one_line_function(given, expanded) -> None:
    operation = COMMAND.operation(_options(**given), ["40x30x5"], _common())
    assert operation.description.expanded is expanded
    assert [term.kind for term in operation.description.kernel.terms] == [TermKind.Two]
    few = COMMAND.operation(_options(**given), ["20x20x5"], _common())
    assert few.description.expanded is (expanded and "expanded" in given)


def test_arguments_take_their_points_from_the_shape_or_from_rows() -> None:
    def tensor(shape):
        return np.ones(shape, np.float32)

    arguments = COMMAND.arguments(_options(p="1"), "6x7x5", None, tensor)
    assert arguments.size == DistanceSize(6, 7, 5)
    assert COMMAND.arguments(_options(p="1"), "6x7x5", 9, tensor).size == DistanceSize(9, 7, 5)
    same = COMMAND.arguments(_options(symmetric=True), "6x6x5", 9, tensor)
    assert same.operation.description.symmetric
    assert same.size == DistanceSize(9, 9, 5)


def test_show_plans_for_the_size(capsys, monkeypatch) -> None:
    sizes = []
    monkeypatch.setattr(
        kronop.DistanceOperation,
        "plan_for",
        lambda self, size, device=None: sizes.append(size) or self.plan,
    )
    assert main(["show", "distance", "100x200x3", "--p", "inf", "--view", "source"]) == 0
    assert sizes == [DistanceSize(100, 200, 3)]
    assert "#include" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["64x64x4", "128x4x4"], "name one at a time"),
        (["64", "64", "4"], "join them by x: 64x64x4"),
        (["64x64x4", "--p", "1", "--expanded"], "--expanded: .* got --p 1;"),
        (["64x64x4", "--kernel", "linear", "--expanded"], "--expanded: .* got --kernel linear;"),
    ],
)
def test_what_show_refuses(words, message, capsys) -> None:
    assert main(["show", "distance", *words]) != 0
    assert re.search(message, capsys.readouterr().err)


@pytest.mark.parametrize("words", [["show", "distance"], ["bench", "distance"]])
def test_help_lists_all_kernels(words, capsys) -> None:
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    told = "".join(capsys.readouterr().out.split())
    for name in ("gaussian", "laplace[:1]", "matern[:1.5]", "rational-quadratic", "polynomial[:2]"):
        assert name in told
