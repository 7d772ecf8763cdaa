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


def _threshold(x: Any, least: Any) -> Any:
    """x, and 0 if it is below `least`."""
    return np.where(np.less(x, least), 0, x)


def _numpy_exp(x: Any) -> Any:
    with np.errstate(over="ignore"):
        return np.exp(x)


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _gelu(x: Any) -> Any:
    return x * 0.5 * (_erf(x * math.sqrt(0.5)) + 1)


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
    "log": (np.log, "kronop::math::log({})", _ATOM),
    "threshold": (_threshold, "kronop::math::threshold({}, {})", _ATOM),
    "sqrt": (np.sqrt, "kronop::math::sqrt({})", _ATOM),
    "power": (np.power, "kronop::math::power({}, {})", _ATOM),
    "erf": (_erf, "kronop::math::erf({})", _ATOM),
    # For results that are rounded to 16 bits afterwards.
    "gelu_of_16_bits": (_gelu, "kronop::math::gelu_of_16_bits({})", _ATOM),
    "sigmoid_of_16_bits": (
        lambda x: 1 / (1 + _numpy_exp(np.negative(x))),
        "kronop::math::sigmoid_of_16_bits({})",
        _ATOM,
    ),
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


# operation -> (the node, its operands) -> the derivative by each operand, None where there is none.
DERIVATIVES: dict[str, Callable[..., tuple[Expression | None, ...]]] = {
    "add": lambda node, a, b: (lift(1.0), lift(1.0)),
    "subtract": lambda node, a, b: (lift(1.0), lift(-1.0)),
    "multiply": lambda node, a, b: (b, a),
    "divide": lambda node, a, b: (apply("inverse", b), node * apply("inverse", b) * -1.0),
    "exp": lambda node, a: (node,),
    "sqrt": lambda node, a: (apply("inverse", node) * 0.5,),
    "power": lambda node, a, b: (b * node * apply("inverse", a), _log_times(node, a)),
    "inverse": lambda node, a: (node * node * -1.0,),
    "log": lambda node, a: (apply("inverse", a),),
    "max": lambda node, a, b: (None, None) if b.inputs else (lift(1.0), None),
}


def _log_times(node: Expression, base: Expression) -> Expression:
    """node log(base), and 0 for a base of 0: the least positive number stands for it."""
    return node * apply("log", apply("max", base, 1e-37))
