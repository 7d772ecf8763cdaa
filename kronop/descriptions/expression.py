"""Scalar expression trees: one tree gives the NumPy value and the straight-line C++ text.

C++ functions are those of `kronop::math` in both header libraries; they take and return the
compute type. NaN goes through `max` and `min` as it does in NumPy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

# Of C++20 and C++23, with the words for operators.
_KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t
    char8_t class co_await co_return co_yield compl concept const const_cast consteval constexpr
    constinit continue decltype default delete do double dynamic_cast else enum explicit export
    extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq
    nullptr operator or or_eq private protected public register reinterpret_cast requires return
    short signed sizeof static static_assert static_cast struct switch template this thread_local
    throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while
    xor xor_eq
    """,
    )
)


@dataclass(frozen=True, slots=True)
class Expression:
    """A node: an operation of `OPERATIONS`, "input" or "constant", with its operands."""

    operation: str
    operands: tuple[Any, ...]

    def __add__(self, other: Expression | float) -> Expression:
        return Expression("add", (self, lift(other)))

    def __mul__(self, other: Expression | float) -> Expression:
        return Expression("multiply", (self, lift(other)))

    @property
    def inputs(self) -> set[str]:
        """Names of the inputs."""
        if self.operation == "input":
            return {self.operands[0]}
        nodes = [item for item in self.operands if isinstance(item, Expression)]
        return set().union(*(item.inputs for item in nodes))

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """The NumPy value, with the inputs taken from `values`."""
        if self.operation == "input":
            return values[self.operands[0]]
        if self.operation == "constant":
            return self.operands[0]
        return OPERATIONS[self.operation][0](*(item.evaluate(values) for item in self.operands))

    def render(self, compute_type: str) -> str:
        """C++ statements, one per distinct node, that end in a return."""
        names: dict[Expression, str] = {}
        lines: list[str] = []

        def visit(node: Expression) -> str:
            if node.operation == "input":
                return str(node.operands[0])
            if node.operation == "constant":
                return f"{compute_type}({node.operands[0]!r})"
            if node not in names:
                spelled = OPERATIONS[node.operation][1].format(*map(visit, node.operands))
                names[node] = f"v{len(names)}"
                lines.append(f"const {compute_type} {names[node]} = {spelled};")
            return names[node]

        result = visit(self)
        return "\n".join([*lines, f"return {result};"])


def lift(value: Expression | float) -> Expression:
    return value if isinstance(value, Expression) else Expression("constant", (value,))


def variable(name: str) -> Expression:
    """An input of the kernel's epilogue."""
    return Expression("input", (name,))


def is_identifier(name: object) -> bool:
    """Whether C++ takes this for the name of a variable, and `render` for none of its own.

    Names with an underscore in front or two in a row are the compilers' own.
    """
    return (
        isinstance(name, str)
        and re.fullmatch(r"(?!v\d+$)[A-Za-z]\w*", name, re.ASCII) is not None
        and "__" not in name
        and name not in _KEYWORDS
    )


def apply(operation: str, *operands: Expression | float) -> Expression:
    return Expression(operation, tuple(map(lift, operands)))


def _numpy_exp(x: Any) -> Any:
    with np.errstate(over="ignore"):
        return np.exp(x)


# operation -> (NumPy function, C++ spelling)
OPERATIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "add": (np.add, "{} + {}"),
    "multiply": (np.multiply, "{} * {}"),
    "divide": (np.divide, "{} / {}"),
    "max": (np.maximum, "math::max({}, {})"),
    "min": (np.minimum, "math::min({}, {})"),
    "exp": (_numpy_exp, "math::exp({})"),
    "tanh": (np.tanh, "math::tanh({})"),
    "erf": (np.vectorize(math.erf, otypes=[np.float64]), "math::erf({})"),
}
