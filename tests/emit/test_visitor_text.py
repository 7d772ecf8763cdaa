"""The C++ of visitor trees."""

# Kinds of operands are annotations that name no types.
# ruff: noqa: F821, UP037

from __future__ import annotations

import re
from typing import Any

import kronop
from kronop.emit.render_visitor import visitor_functor


@kronop.epilogue_visitor
def several(accum: Any, alpha: "scalar", c: "tensor", bias: "row", unused: "column") -> Any:
    t = alpha * accum - (c - bias)
    d = kronop.sigmoid(t) / 2
    total = kronop.sum(t, axis="column")
    return d, t, total, c


def test_a_tree_is_a_functor_of_straight_lines() -> None:
    types = (kronop.float16, 8, kronop.float32, kronop.float32)
    text = "\n".join(visitor_functor(several(*types, elements={"bias": kronop.float32})))
    assert (
        text
        == """\
struct Epilogue : kronop::Visitor<float, kronop::Types<kronop::half_t, float, kronop::half_t>, \
kronop::Types<kronop::half_t, kronop::half_t, kronop::Reduced<kronop::Sum, \
kronop::Axis::kColumn>, kronop::half_t>> {
  Compute scalar0;
  template <class Scalar>
  KRONOP_INLINE explicit Epilogue(const Scalar* scalars) : scalar0(Compute(scalars[0])) {}
  template <class At>
  KRONOP_INLINE void operator()(Compute accumulator, const At& at) const {
    const Compute operand0 = at.operand(0);
    const Compute operand1 = at.operand(1);
    const Compute v0 = scalar0 * accumulator - (operand0 - operand1);
    const Compute v1 = kronop::math::sigmoid(v0) / Compute(2.0);
    at.keep(0, v1);
    at.keep(1, v0);
    at.keep(2, v0);
    at.keep(3, operand0);
  }
};"""
    )
    assert not re.search(r"\b(for|while|if)\b", text)


def test_a_tree_without_scalars_and_operands() -> None:
    tree = kronop.epilogue_visitor(lambda accum: kronop.relu(accum))
    text = "\n".join(visitor_functor(tree(*(kronop.float32, 1, kronop.float32, kronop.float32))))
    assert "explicit Epilogue(const Scalar*) {}" in text
    assert "kronop::Visitor<float, kronop::Types<>, kronop::Types<float>>" in text
    assert "at.keep(0, v0);" in text
