"""A visitor tree with every kind of operand and result, for tests of several folders."""

# Kinds of operands are annotations that name no types.
# ruff: noqa: F821, UP037

from __future__ import annotations

from typing import Any

import kronop


@kronop.epilogue_visitor
def several(
    accum: Any, alpha: "scalar", c: "tensor", beta: "scalar", bias: "row", scale: "column"
) -> Any:
    t = alpha * accum + beta * c + bias
    d = kronop.relu(t) * scale
    row_max = kronop.maximum(d, axis="row")
    row_sum = kronop.sum(t, axis="row")
    column_max = kronop.maximum(t, axis="column")
    column_sum = kronop.sum(d, axis="column")
    return d, t, row_max, row_sum, column_max, column_sum
