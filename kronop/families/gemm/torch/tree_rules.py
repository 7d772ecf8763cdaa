"""Operations of visitor trees on torch tensors, with their derivatives.

Derivatives are torch's own operations, and so have derivatives themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from kronop.descriptions.visitor import Result
from kronop.frozen import dataclass
from kronop.torch.activations import RULES as ACTIVATIONS

# (g, y, a, b) -> g times the derivative of y by an operand.
Slope = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Rule:
    """An operation y of operands a and b, or of a alone.

    Attributes:
        apply: the operands -> y.
        slopes: for each operand, (what the function reads of "yab", the function); None where
            there is no derivative. What is not read may be None.
        takes_numbers: an operand may be a Python number if the other one is a tensor.
    """

    apply: Callable[..., Tensor]
    slopes: tuple[tuple[str, Slope] | None, ...]
    takes_numbers: bool = False


def _inverse(x: Tensor, function: Callable[[Tensor], Tensor] = torch.reciprocal) -> Tensor:
    """1 / x, or another such function, and 0 for 0, also of the derivative."""
    is_zero = x == 0
    return torch.where(is_zero, 0.0, function(torch.where(is_zero, 1.0, x)))


def _fade(a: Tensor, b: Tensor) -> Tensor:
    """a b, and 0 where a is 0, also of the derivatives."""
    is_zero = a == 0
    return torch.where(is_zero, 0.0, a * torch.where(is_zero, 0.0, b))


def _activation(name: str) -> Rule:
    rule = ACTIVATIONS[name]
    return Rule(rule.of, (("a", lambda g, y, a, b: rule.slope(g, a)),))


def _larger(g: Tensor, x: Tensor | float, other: Tensor | float) -> Tensor:
    """g where x is the larger one. Where both are equal, half of it, as of `torch.maximum`; of a
    number and a tensor nothing, as of `torch.relu`."""
    of_tensors = isinstance(x, Tensor) and isinstance(other, Tensor)
    return torch.where(x == other, 0.5 * g if of_tensors else 0.0, torch.where(x < other, 0.0, g))


RULES: Mapping[str, Rule] = {
    "add": Rule(lambda a, b: a + b, (("", lambda g, y, a, b: g), ("", lambda g, y, a, b: g)), True),
    "subtract": Rule(
        lambda a, b: a - b, (("", lambda g, y, a, b: g), ("", lambda g, y, a, b: -g)), True
    ),
    "multiply": Rule(
        lambda a, b: a * b, (("b", lambda g, y, a, b: g * b), ("a", lambda g, y, a, b: g * a)), True
    ),
    "divide": Rule(
        lambda a, b: a / b,
        (("b", lambda g, y, a, b: g / b), ("yb", lambda g, y, a, b: -(g * y) / b)),
        True,
    ),
    "max": Rule(
        torch.maximum,
        (("ab", lambda g, y, a, b: _larger(g, a, b)), ("ab", lambda g, y, a, b: _larger(g, b, a))),
    ),
    "min": Rule(
        torch.minimum,
        (("ab", lambda g, y, a, b: _larger(g, b, a)), ("ab", lambda g, y, a, b: _larger(g, a, b))),
    ),
    "exp": Rule(torch.exp, (("y", lambda g, y, a, b: g * y),)),
    "tanh": Rule(torch.tanh, (("y", lambda g, y, a, b: g * (1 - y * y)),)),
    "erf": Rule(
        torch.erf, (("a", lambda g, y, a, b: g * ((2 / math.sqrt(math.pi)) * torch.exp(-a * a))),)
    ),
    **{
        name + end: _activation(name)
        for name in ("sigmoid", "silu", "gelu")
        for end in ("", "_of_16_bits")
    },
    "inverse": Rule(_inverse, (("y", lambda g, y, a, b: -g * y * y),)),
    "inverse_root": Rule(
        lambda a: _inverse(a, torch.rsqrt), (("y", lambda g, y, a, b: g * y * y * y * -0.5),)
    ),
    "fade": Rule(
        _fade, (("b", lambda g, y, a, b: g * b), ("a", lambda g, y, a, b: _fade(a, g))), True
    ),
    "times_log": Rule(
        torch.special.xlogy,
        (
            ("b", lambda g, y, a, b: torch.special.xlogy(g, b)),
            ("ab", lambda g, y, a, b: g * a * _inverse(b)),
        ),
    ),
    "sqrt": Rule(torch.sqrt, (("y", lambda g, y, a, b: g * _inverse(y) * 0.5),)),
    "power": Rule(
        torch.pow,
        (
            ("ab", lambda g, y, a, b: g * b * _inverse(torch.pow(a, 1 - b))),
            ("ya", lambda g, y, a, b: torch.special.xlogy(g * y, a)),
        ),
    ),
    "threshold": Rule(
        lambda a, b: torch.where(a < b, 0.0, a),
        (("ab", lambda g, y, a, b: torch.where(a < b, 0.0, g)), None),
    ),
}


def reduced(matrix: Tensor, result: Result) -> Tensor:
    """The sum or the maximum of each row or column."""
    return matrix.amax(_dim(result)) if result.reduction == "max" else matrix.sum(_dim(result))


def spread(grad: Tensor, matrix: Tensor | None, result: Result) -> Tensor:
    """The gradient of a matrix, from that of its reduction; a sum's does not read the matrix."""
    wide = grad.unsqueeze(_dim(result))
    return wide if matrix is None else wide * _shares(matrix, _dim(result))


def carried(tangent: Tensor, matrix: Tensor | None, result: Result) -> Tensor:
    """The tangent of a reduction, from that of its matrix, which has the same shape."""
    weighted = tangent if matrix is None else tangent * _shares(matrix, _dim(result))
    return weighted.sum(_dim(result))


def _dim(result: Result) -> int:
    return -1 if result.axis == "row" else -2


def _shares(matrix: Tensor, dim: int) -> Tensor:
    """1 over the number of largest elements where these are, 0 elsewhere."""
    is_largest = (matrix == matrix.amax(dim, keepdim=True)).to(matrix.dtype)
    return is_largest / is_largest.sum(dim, keepdim=True)
