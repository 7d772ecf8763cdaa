"""Scalar expression trees, from which both the NumPy value and straight-line C++ text are made.

The C++ functions are those of `kronop::math` in both header libraries; they take and return the
compute type. `max` and `min` propagate NaN, as in NumPy.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kronop.frozen import dataclass

# The keywords of C++20 and C++23, with alternative spellings of operators.
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
    """A node with its operands; `operation` is a key of `OPERATIONS`, "input" or "constant"."""

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
        return set().union(*(item.inputs for item in self._nodes))

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """The NumPy value, with the inputs taken from `values`."""
        if self.operation == "input":
            return values[self.operands[0]]
        if self.operation == "constant":
            return self.operands[0]
        return OPERATIONS[self.operation][0](*(item.evaluate(values) for item in self.operands))

    def render(self, compute_type: str) -> str:
        """C++ statements that end in a return; a node that is used repeatedly gets a variable."""
        uses: Counter[Expression] = Counter()

        def count(node: Expression) -> None:
            uses[node] += 1
            if uses[node] == 1:
                for item in node._nodes:
                    count(item)

        count(self)
        names: dict[Expression, str] = {}
        lines: list[str] = []

        def visit(node: Expression) -> tuple[str, int]:
            """The node's C++ text, and how tightly its operator binds."""
            if node.operation == "input":
                return str(node.operands[0]), _ATOM
            if node.operation == "constant":
                return f"{compute_type}({node.operands[0]!r})", _ATOM
            if node in names:
                return names[node], _ATOM
            _, spelling, binds = OPERATIONS[node.operation]
            spelled = spelling.format(*_operands([visit(item) for item in node._nodes], binds))
            if uses[node] == 1:
                return spelled, binds
            names[node] = f"v{len(names)}"
            lines.append(f"const {compute_type} {names[node]} = {spelled};")
            return names[node], _ATOM

        result, _ = visit(self)
        return "\n".join([*lines, f"return {result};"])

    @property
    def _nodes(self) -> tuple[Expression, ...]:
        return tuple(item for item in self.operands if isinstance(item, Expression))


def _operands(spelled: Sequence[tuple[str, int]], binds: int) -> Iterator[str]:
    """The texts of an operator's operands, in parentheses if C++ would otherwise parse another
    tree.

    C++ groups operators of equal precedence from the left. Operands of a function need none.
    """
    for place, (text, inner) in enumerate(spelled):
        is_own = binds == _ATOM or inner > binds or (inner == binds and place == 0)
        yield text if is_own else f"({text})"


def lift(value: Expression | float) -> Expression:
    return value if isinstance(value, Expression) else Expression("constant", (value,))


def variable(name: str) -> Expression:
    """An input of the kernel's epilogue."""
    return Expression("input", (name,))


def is_identifier(name: object) -> bool:
    """Whether this can name a variable in C++ without clashing with those that `render` makes.

    Names that begin with an underscore or contain two in a row are reserved for compilers.
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


# How tightly the C++ operators bind: sums, products, everything else.
_SUM, _PRODUCT, _ATOM = range(3)
# operation -> (NumPy function, C++ spelling, how tightly the spelling binds)
OPERATIONS: dict[str, tuple[Callable[..., Any], str, int]] = {
    "add": (np.add, "{} + {}", _SUM),
    "multiply": (np.multiply, "{} * {}", _PRODUCT),
    "divide": (np.divide, "{} / {}", _PRODUCT),
    "max": (np.maximum, "kronop::math::max({}, {})", _ATOM),
    "min": (np.minimum, "kronop::math::min({}, {})", _ATOM),
    "exp": (_numpy_exp, "kronop::math::exp({})", _ATOM),
    "tanh": (np.tanh, "kronop::math::tanh({})", _ATOM),
    "erf": (np.vectorize(math.erf, otypes=[np.float64]), "kronop::math::erf({})", _ATOM),
}
