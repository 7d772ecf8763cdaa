"""Scalar expression trees, from which both the NumPy value and straight-line C++ text are made.

The C++ functions are those of `kronop::math` in both header libraries; they take and return the
compute type. `max` and `min` propagate NaN, as in NumPy.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass  # torch.compile can trace its constructors.
from typing import Any

import numpy as np

from kronop.artifacts import Decision

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


@dataclass(frozen=True)
class Expression(Decision):
    """A node with its operands; `operation` is a key of `OPERATIONS`, "input" or "constant"."""

    operation: str
    operands: tuple[Any, ...]

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
        if self.operation == "input":
            return {self.operands[0]}
        return set().union(*(item.inputs for item in self._nodes))

    @property
    def operations(self) -> int:
        """How many operations it is written with."""
        own = self.operation not in ("input", "constant")
        return own + sum(item.operations for item in self._nodes)

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """The NumPy value, with the inputs taken from `values`."""
        if self.operation == "input":
            return values[self.operands[0]]
        if self.operation == "constant":
            return self.operands[0]
        return OPERATIONS[self.operation][0](*(item.evaluate(values) for item in self.operands))

    def render(self, compute_type: str) -> str:
        """C++ statements that end in a return; a node that is used repeatedly gets a variable."""
        lines, result = self.statements(compute_type)
        return "\n".join([*lines, f"return {result};"])

    def statements(self, compute_type: str) -> tuple[list[str], str]:
        """The statements that the value needs before it, and its C++ text."""
        uses: Counter[Expression] = Counter()

        def count(node: Expression) -> None:
            uses[node] += 1
            if uses[node] == 1:
                for item in node._nodes:
                    count(item)

        count(self)
        return self._written(compute_type, uses)

    def text(self, compute_type: str) -> str:
        """The C++ text of the value; a node that is used repeatedly is written repeatedly."""
        return self._written(compute_type, Counter())[1]

    def _written(self, compute_type: str, uses: Counter[Expression]) -> tuple[list[str], str]:
        """As `statements`, with variables for nodes that are used repeatedly."""
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
            if uses[node] <= 1:
                return spelled, binds
            names[node] = f"v{len(names)}"
            lines.append(f"const {compute_type} {names[node]} = {spelled};")
            return names[node], _ATOM

        result, _ = visit(self)
        return lines, result

    def derivative(self, name: str) -> Expression | None:
        """The derivative with respect to the input of that name; None if it is 0 everywhere.

        Where a square root or a power of 0 has no finite derivative, its derivative is 0. Where an
        exponential or a power is 0, so is its derivative, even if its operand is infinite.

        Raises:
            NotImplementedError: an operation has no derivative here.
        """
        return self._derivative(name, lift(1.0))

    def _derivative(self, name: str, before: Expression) -> Expression | None:
        """The derivative times what is `before` it, factor by factor: values that are in range are
        not multiplied by products of inner factors, such as the square of a reciprocal, that may
        not be."""
        if self.operation in ("input", "constant"):
            return before if self.operation == "input" and self.operands[0] == name else None
        rules, fades, parts = _DERIVATIVES.get(self.operation), self.operation in _FADING, []
        for index, node in enumerate(self._nodes):
            outer = rules(self, *self._nodes)[index] if rules else None
            seen = None if fades else outer
            found = node._derivative(name, lift(1.0) if seen is None else _times(before, seen))
            if found is None:
                continue
            if outer is None:
                raise NotImplementedError(f"the derivative of {self.operation} by operand {index}")
            if fades:
                turned = self.operation == "fade" and index == 0
                faded = _faded(found, outer) if turned else _faded(outer, found)
                found = _times(before, faded)
            parts.append(found)
        return functools.reduce(operator.add, parts) if parts else None

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


def _times(first: Expression, second: Expression) -> Expression:
    """A product from left to right, without factors that are 1."""
    one = lift(1.0)
    if first == one or second == one:
        return second if first == one else first
    if second.operation == "multiply":
        return _times(_times(first, second.operands[0]), second.operands[1])
    if first.operation == second.operation == "constant":
        return lift(first.operands[0] * second.operands[0])
    return first * second


def _faded(first: Expression, second: Expression) -> Expression:
    return first if second == lift(1.0) else apply("fade", first, second)


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

# Operations whose derivative is 0 where they are, even if the operand is infinite there.
_FADING = ("exp", "power", "fade")
# operation -> (the node, its operands) -> the derivative by each operand, None where there is none.
_DERIVATIVES: dict[str, Callable[..., tuple[Expression | None, ...]]] = {
    "add": lambda node, a, b: (lift(1.0), lift(1.0)),
    "subtract": lambda node, a, b: (lift(1.0), lift(-1.0)),
    "multiply": lambda node, a, b: (b, a),
    "divide": lambda node, a, b: (_over(b), node * _over(b) * -1.0),
    "exp": lambda node, a: (node,),
    "sqrt": lambda node, a: (apply("inverse", node) * 0.5,),
    # Not the power times b / a: where a is infinite, that is no number.
    "power": lambda node, a, b: (
        b * apply("inverse", apply("power", a, _one_less(b))),
        apply("times_log", node, a),
    ),
    "inverse": lambda node, a: (node * node * -1.0,),
    "fade": lambda node, a, b: (b, a),
    "times_log": lambda node, a, b: (apply("times_log", 1.0, b), a * apply("inverse", b)),
    "max": lambda node, a, b: (None, None) if b.inputs else (lift(1.0), None),
}


def _over(x: Expression) -> Expression:
    """1 / x, and 0 for 0."""
    is_number = x.operation == "constant" and x.operands[0]
    return lift(1.0 / x.operands[0]) if is_number else apply("inverse", x)


def _one_less(x: Expression) -> Expression:
    """1 - x."""
    return lift(1.0 - x.operands[0]) if x.operation == "constant" else x * -1.0 + 1.0
