"""The shapes of Kronecker-sparse products: of arrays, of torch's tensors without values, of
JAX's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kronop.args.strides import Shape
from kronop.args.view import TensorView
from kronop.errors import ArgumentError
from kronop.families.ksparse.description import Pattern, check_chain, inputs_of, outputs_of


def chain_patterns(weights: Sequence[Shape]) -> list[Pattern]:
    """The patterns of a chain with weights of these shapes, the factor applied first being first.

    Raises:
        ArgumentError: there are none, one is not (a, b, c, d), or a factor takes other features
            than the one before gives.
    """
    if not weights:
        raise ArgumentError(
            "weights",
            expected="at least one (a, b, c, d) tensor",
            got="an empty list",
            hint="give the right-most factor first",
        )
    for index, shape in enumerate(weights):
        if len(shape) != 4:
            raise ArgumentError(
                f"weights[{index}]",
                expected="shape (a, b, c, d)",
                got=shape,
                hint="K is I_a x dense(b, c) x I_d in structure",
            )
    patterns = [(a, b, c, d) for a, b, c, d in weights]
    check_chain(patterns, "weights", ArgumentError)
    return patterns


def check_features(x: Shape, pattern: Pattern, batch_last: bool, name: str = "X") -> None:
    """Raises ArgumentError unless an operand of that shape has the features of a pattern."""
    if not x or x[0 if batch_last else -1] != inputs_of(pattern):
        a, _, c, d = pattern
        where = "first" if batch_last else "last"
        raise ArgumentError(
            f"shape of {name}",
            expected=f"{a} x {c} x {d} = {inputs_of(pattern)} as {where} extent",
            got=x,
            hint=f"check {name} against the pattern (a, b, c, d)",
        )


def check_shapes(views: Mapping[str, TensorView], expected: Mapping[str, Shape], by: str) -> None:
    """Raises ArgumentError for a tensor of another shape than the pattern and `by` ask for."""
    for name, item in views.items():
        if item.shape != expected.get(name, item.shape):
            raise ArgumentError(
                f"shape of {name}",
                expected=expected[name],
                got=item.shape,
                hint=f"check it against the pattern (a, b, c, d) and {by}",
            )


def with_features(x: Shape, features: Any, batch_last: bool) -> Shape:
    """The shape of an operand of the same batch and so many features."""
    return (features, *x[1:]) if batch_last else (*x[:-1], features)


def result_shape(x: Shape, patterns: Sequence[Pattern], batch_last: bool) -> Shape:
    """The shape of the product of an operand of that shape with a chain's factors.

    Raises:
        ArgumentError: the operand has other features than the first factor takes.
    """
    check_features(x, patterns[0], batch_last)
    return with_features(x, outputs_of(patterns[-1]), batch_last)
