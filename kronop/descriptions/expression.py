"""Scalar expressions, from which both the NumPy value and straight-line C++ text are made.

The C++ functions are those of `kronop::math` in both header libraries; they take and return the
compute type. `max` and `min` propagate NaN, as in NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kronop.descriptions.ordered import in_order


class Expression:
    """A node with its operands, as expressions are written; `Graph` is what is kept of them.

    Nodes may be shared: who walks over them takes each once, and does not recurse. It is no
    dataclass because repeated calls write their kernels' expressions anew.

    Attributes:
        operation: a key of `OPERATIONS`, "input" or "constant".
        operands: nodes; the name of an input, the number of a constant.
    """

    __slots__ = ("operands", "operation")

    def __init__(self, operation: str, operands: tuple[Any, ...]) -> None:
        self.operation, self.operands = operation, operands

    def __repr__(self) -> str:
        return f"<an expression: {self.operation}>"

    def __add__(self, other: Expression | float) -> Expression:
        return Expression("add", (self, lift(other)))

    def __mul__(self, other: Expression | float) -> Expression:
        return Expression("multiply", (self, lift(other)))

    def __sub__(self, other: Expression | float) -> Expression:
        return Expression("subtract", (self, lift(other)))

    def __truediv__(self, other: Expression | float) -> Expression:
        return Expression("divide", (self, lift(other)))

    @property
    def inputs(self) -> set[str]:
        """Names of the inputs."""
        every = in_order([self], nodes_below)
        return {node.operands[0] for node in every if node.operation == "input"}


def nodes_below(node: Expression) -> tuple[Any, ...]:
    """The operands of an operation; none of an input or a constant."""
    return () if node.operation in ("input", "constant") else node.operands


def lift(value: Expression | float) -> Expression:
    return value if isinstance(value, Expression) else Expression("constant", (value,))


def variable(name: str) -> Expression:
    """An input of the kernel's epilogue."""
    return Expression("input", (name,))


def apply(operation: str, *operands: Expression | float) -> Expression:
    return Expression(operation, tuple(map(lift, operands)))


def _inverse(x: Any) -> Any:
    """1 / x, and 0 for 0."""
    x = np.asarray(x)
    return np.divide(1, x, out=np.zeros_like(x), where=x != 0)


def _inverse_root(x: Any) -> Any:
    """1 / sqrt(x), and 0 for 0."""
    return _inverse(np.sqrt(x))


def _threshold(x: Any, least: Any) -> Any:
    """x, and 0 if it is below `least`."""
    return np.where(np.less(x, least), 0, x)


def _numpy_exp(x: Any) -> Any:
    with np.errstate(over="ignore"):
        return np.exp(x)


def _fade(a: Any, b: Any) -> Any:
    """a b, and 0 where a is 0, whatever b is."""
    return np.where(np.equal(a, 0), 0, np.multiply(a, b))


def _times_log(a: Any, b: Any) -> Any:
    """a log(b), and 0 where a is 0, unless b is NaN."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.equal(a, 0) & np.equal(b, b), 0, a * np.log(b))


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _gelu(x: Any) -> Any:
    x = np.maximum(x, BOUND)
    return x * 0.5 * (_erf(x * math.sqrt(0.5)) + 1)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + _numpy_exp(np.negative(x)))


def _silu(x: Any) -> Any:
    x = np.maximum(x, BOUND)
    return x * _sigmoid(x)


# Where activations that fall to 0 are 0 in all types: there minus infinity must not meet a factor
# of 0.
BOUND = -1000.0
# How tightly the C++ operators bind: sums, products, everything else.
_SUM, _PRODUCT, _ATOM = range(3)
# operation -> (NumPy function, C++ spelling, how tightly the spelling binds)
OPERATIONS: dict[str, tuple[Callable[..., Any], str, int]] = {
    "add": (np.add, "{} + {}", _SUM),
    "subtract": (np.subtract, "{} - {}", _SUM),
    "multiply": (np.multiply, "{} * {}", _PRODUCT),
    "divide": (np.divide, "{} / {}", _PRODUCT),
    "max": (np.maximum, "kronop::math::max({}, {})", _ATOM),
    "min": (np.minimum, "kronop::math::min({}, {})", _ATOM),
    "exp": (_numpy_exp, "kronop::math::exp({})", _ATOM),
    "tanh": (np.tanh, "kronop::math::tanh({})", _ATOM),
    "inverse": (_inverse, "kronop::math::inverse({})", _ATOM),
    "inverse_root": (_inverse_root, "kronop::math::inverse_root({})", _ATOM),
    "fade": (_fade, "kronop::math::fade({}, {})", _ATOM),
    "times_log": (_times_log, "kronop::math::times_log({}, {})", _ATOM),
    "threshold": (_threshold, "kronop::math::threshold({}, {})", _ATOM),
    "sqrt": (np.sqrt, "kronop::math::sqrt({})", _ATOM),
    "power": (np.power, "kronop::math::power({}, {})", _ATOM),
    "erf": (_erf, "kronop::math::erf({})", _ATOM),
    "sigmoid": (_sigmoid, "kronop::math::sigmoid({})", _ATOM),
    "silu": (_silu, "kronop::math::silu({})", _ATOM),
    "gelu": (_gelu, "kronop::math::gelu({})", _ATOM),
    # For results that are rounded to 16 bits afterwards.
    "sigmoid_of_16_bits": (_sigmoid, "kronop::math::sigmoid_of_16_bits({})", _ATOM),
    "silu_of_16_bits": (_silu, "kronop::math::silu_of_16_bits({})", _ATOM),
    "gelu_of_16_bits": (_gelu, "kronop::math::gelu_of_16_bits({})", _ATOM),
}


def spelled(operation: str, operands: Sequence[tuple[str, int]]) -> tuple[str, int]:
    """The C++ text of an operation, and how tightly it binds, from those of its operands.

    An operand is put in parentheses if C++ would otherwise parse another tree: it groups operators
    of equal precedence from the left. Operands of a function need none.
    """
    _, spelling, binds = OPERATIONS[operation]
    texts = []
    for place, (text, inner) in enumerate(operands):
        is_own = binds == _ATOM or inner > binds or (inner == binds and place == 0)
        texts.append(text if is_own else f"({text})")
    return spelling.format(*texts), binds


def atom(text: str) -> tuple[str, int]:
    """As `spelled`, of what needs no parentheses anywhere."""
    return text, _ATOM


# Operations whose derivative is 0 where they are, even if the operand is infinite there.
FADING = ("exp", "power", "fade")
# operation -> (the node, its operands) -> the factors of its derivative by each operand, of which
# each has an own place in a product (none: it is 1); None where there is no derivative.
Factors = tuple[Expression, ...]
DERIVATIVES: dict[str, Callable[..., tuple[Factors | None, ...]]] = {
    "add": lambda node, a, b: ((), ()),
    "subtract": lambda node, a, b: ((), (lift(-1.0),)),
    "multiply": lambda node, a, b: ((b,), (a,)),
    "divide": lambda node, a, b: ((_over(b),), (node, _over(b), lift(-1.0))),
    "exp": lambda node, a: ((node,),),
    "sqrt": lambda node, a: ((apply("inverse", node), lift(0.5)),),
    # Not the power times b / a: where a is infinite, that is no number.
    "power": lambda node, a, b: (
        (b, apply("inverse", apply("power", a, _one_less(b)))),
        (apply("times_log", node, a),),
    ),
    "inverse": lambda node, a: ((node, node, lift(-1.0)),),
    "inverse_root": lambda node, a: ((node, node, node, lift(-0.5)),),
    "fade": lambda node, a, b: ((b,), (a,)),
    "times_log": lambda node, a, b: ((apply("times_log", 1.0, b),), (a, apply("inverse", b))),
    "max": lambda node, a, b: (None, None) if b.inputs else ((), None),
}


def is_one(node: Expression) -> bool:
    return node.operation == "constant" and node.operands[0] == 1


def _over(x: Expression) -> Expression:
    """1 / x, and 0 for 0."""
    is_number = x.operation == "constant" and x.operands[0]
    return lift(1.0 / x.operands[0]) if is_number else apply("inverse", x)


def _one_less(x: Expression) -> Expression:
    """1 - x."""
    return lift(1.0 - x.operands[0]) if x.operation == "constant" else x * -1.0 + 1.0
