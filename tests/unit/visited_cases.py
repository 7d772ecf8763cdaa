"""Visitor trees and what they are called with, for the tests of kronop.torch.matmul_visited."""

# Kinds of operands are annotations that name no types.
# ruff: noqa: F821, UP037
# mypy: disable-error-code="name-defined"

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

import kronop
import kronop.torch
from kronop.descriptions.visitor import VisitorTree

matmul_visited = kronop.torch.matmul_visited


@kronop.epilogue_visitor
def five(
    accum: Any, alpha: "scalar", c: "tensor", beta: "scalar", bias: "row", scale: "column"
) -> Any:
    t = alpha * accum + beta * c + bias
    d = kronop.gelu(t) * scale
    row_max = kronop.maximum(d, axis="row")
    column_sum = kronop.sum(t, axis="column")
    return d, t, row_max, column_sum


def tree_of(function: Callable[..., Any], **kinds: str) -> VisitorTree:
    return kronop.epilogue_visitor(function, kinds=kinds)


TREES: dict[str, VisitorTree] = {
    "five": five,
    "sums": tree_of(lambda accum: accum),
    "bias": tree_of(lambda accum, bias: kronop.relu(accum + bias), bias="row"),
    "reductions": tree_of(
        lambda accum, scale: (
            accum / scale,
            kronop.sum(accum * accum, axis="row"),
            kronop.maximum(accum - scale, axis="column"),
        ),
        scale="column",
    ),
    # What does not depend on the sums repeats over the result.
    "repeated": tree_of(
        lambda accum, x, y, bias: (
            kronop.exp(bias) * x,
            kronop.sum(bias, axis="row"),
            kronop.maximum(x / y, accum),
        ),
        x="scalar",
        y="scalar",
        bias="row",
    ),
    # Names that the function itself has.
    "named": tree_of(
        lambda accum, a, b, tree: accum * a - b + tree, a="row", b="row", tree="scalar"
    ),
}
M, N, K = 3, 5, 4
_SCALARS = {"alpha": 0.7, "beta": 0.3, "x": 0.9, "y": -1.5, "tree": 2}


def drawn(*shapes: Sequence[int], kind: Any = None, grad: bool = True) -> list[Any]:
    torch.manual_seed(0)
    return [torch.randn(*it, dtype=kind or torch.float64, requires_grad=grad) for it in shapes]


def operands(
    tree: VisitorTree, lead: tuple[int, ...] = (), kind: Any = None, grad: bool = True
) -> dict[str, Any]:
    torch.manual_seed(1)
    shapes = {"tensor": (M, N), "row": (N,), "column": (M,)}
    found: dict[str, Any] = {}
    for item in tree.operands:
        if item.kind == "scalar":
            found[item.name] = _SCALARS[item.name]
            continue
        drawn = torch.randn(*lead, *shapes[item.kind], dtype=kind or torch.float64)
        found[item.name] = drawn.requires_grad_(grad)
    return found


def called(
    tree: VisitorTree, given: Mapping[str, Any]
) -> tuple[Callable[..., tuple[Any, ...]], list[Any]]:
    """A function of a, b and the operands in memory alone, and these operands."""
    names = [item.name for item in tree.tensors]

    def call(a: Any, b: Any, *tensors: Any) -> tuple[Any, ...]:
        every = {**given, **dict(zip(names, tensors, strict=True))}
        found = matmul_visited(tree, a, b, **every)
        return found if isinstance(found, tuple) else (found,)

    return call, [given[name] for name in names]


def expected(tree: VisitorTree, a: Any, b: Any, given: Mapping[str, Any]) -> list[Any]:
    epilogue = tree(kronop.float64, 1, kronop.float64, kronop.float64)
    arrays = {name: np.asarray(torch.as_tensor(item).detach()) for name, item in given.items()}
    found = epilogue.evaluate((a.double() @ b.double()).detach().numpy(), arrays)
    return [torch.tensor(found[item.name]) for item in tree.results]


def loss_of(call: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *given: sum((item**2).sum() for item in call(*given))
