"""Expressions as they are kept: rows, in which each shared node is there once.

Everything that walks over expressions goes over the rows: nothing recurses, and nothing takes a
shared node twice, so that `x * x` of `x * x` of ... is as long as it is written.
"""

from __future__ import annotations

import functools
import itertools
import math
import numbers
import operator
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass  # torch.compile can trace its constructors.
from typing import Any

from kronop.artifacts import Decision
from kronop.descriptions.expression import (
    DERIVATIVES,
    FADING,
    OPERATIONS,
    Expression,
    Factors,
    apply,
    atom,
    is_one,
    lift,
    nodes_below,
    spelled,
    variable,
)
from kronop.errors import DescriptionError, shown

Row = tuple[Any, ...]
# Operations that are in each other in one C++ expression at most, since compilers recurse.
_MOST_DEPTH = 50
# NOTE: an exponential in a kernel of points takes g++ 0.3 s and NVRTC 1.5 s.
_MOST_ROWS = 1 << 14


@dataclass(frozen=True)
class Graph(Decision):
    """Expressions as rows, which are compared, hashed and written.

    Attributes:
        rows: one for each node, behind those of its operands: ("input", name), ("constant", the
            number's text), or (operation, the row of an operand, ...).
        results: the rows of the expressions, one for each.

    It may be made by hand or come from a text, so `check` says whether it is one: whoever takes
    graphs calls it, and so does what writes C++.
    """

    rows: tuple[Row, ...]
    results: tuple[int, ...]

    def check(self, inputs: Collection[str]) -> None:
        """Raises DescriptionError unless the rows are as above, with some of these inputs, and no
        more than compilers can be asked for."""
        if not isinstance(self.rows, tuple) or not isinstance(self.results, tuple):
            raise _refused(f"{shown(self.rows)} and {shown(self.results)}", inputs)
        if len(self.rows) > _MOST_ROWS:
            raise DescriptionError(
                "an expression",
                expected=f"at most {_MOST_ROWS} operations, inputs and constants",
                got=f"{len(self.rows)}",
                hint="compilers take minutes for fewer: compute parts of it one after another",
            )
        for place, row in enumerate(self.rows):
            if not _is_row(row, place, inputs):
                raise _refused(f"{shown(row)} in row {place}", inputs)
        if not self.results or not all(_is_place(at, len(self.rows)) for at in self.results):
            raise _refused(f"results {shown(self.results)} of {len(self.rows)} rows", inputs)

    @classmethod
    def of(cls, *expressions: Expression) -> Graph:
        """The graph of these expressions; equal nodes become one row.

        Raises:
            DescriptionError: an expression that was made by hand is none.
        """
        try:
            rows, results = _numbered(expressions)
        except (AttributeError, TypeError, ValueError, OverflowError) as error:
            raise _refused(str(error), ()) from error
        return cls(rows, results)

    def text(self) -> str:
        """The graph as JSON; its inputs have no quotes in their names."""
        # It is written by hand so that torch.compile can trace it.
        rows = ",".join([f"[{','.join([_json(item) for item in row])}]" for row in self.rows])
        return f"[[{rows}],[{','.join([str(at) for at in self.results])}]]"

    @classmethod
    def from_lists(cls, told: Any) -> Graph:
        """The graph of `text`, which was read as JSON.

        Raises:
            DescriptionError, TypeError, ValueError: it is not that of a graph.
        """
        rows, results = told
        return cls(tuple([tuple(row) for row in rows]), tuple(results))

    @property
    def inputs(self) -> set[str]:
        """Names of the inputs."""
        return {row[1] for row in self.rows if row[0] == "input"}

    @property
    def constants(self) -> list[float]:
        """The numbers in it."""
        return [_number(row[1]) for row in self.rows if row[0] == "constant"]

    @property
    def operations(self) -> Counter[str]:
        """How often each operation is computed."""
        return Counter([row[0] for row in self.rows if row[0] in OPERATIONS])

    def renamed(self, names: Mapping[str, str]) -> Graph:
        """The same of inputs with other names."""
        return Graph(
            tuple([("input", names[row[1]]) if row[0] == "input" else row for row in self.rows]),
            self.results,
        )

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """The NumPy value of the first result, with the inputs taken from `values`."""
        return self.evaluate_all(values)[0]

    def evaluate_all(self, values: Mapping[str, Any]) -> list[Any]:
        """As `evaluate`, of all results. What is not needed any more is not kept."""
        uses, found = self._uses(), dict[int, Any]()
        for place, (operation, *operands) in enumerate(self.rows):
            if operation == "input":
                found[place] = values[operands[0]]
            elif operation == "constant":
                found[place] = _number(operands[0])
            else:
                found[place] = OPERATIONS[operation][0](*[found[at] for at in operands])
                for at in operands:
                    uses[at] -= 1
                    if not uses[at]:
                        found.pop(at, None)
        return [found[at] for at in self.results]

    def render(self, compute_type: str) -> str:
        """C++ statements that end in a return of the first result; inputs are called as here."""
        names = {name: name for name in self.inputs}
        lines, results = self.statements(compute_type, names, frozenset())
        return "\n".join([*lines, f"return {results[0]};"])

    def statements(
        self, compute_type: str, names: Mapping[str, str], named: Collection[int]
    ) -> tuple[list[str], list[str]]:
        """The statements that the results need before them, and the C++ texts of these.

        Args:
            compute_type: the type of all values.
            names: input -> how C++ calls it.
            named: rows whose values get names; as those do which are used repeatedly.
        """
        self.check(names)
        uses, lines = self._uses(), list[str]()
        texts: list[tuple[str, int]] = []
        depths: list[int] = []
        for place, (operation, *operands) in enumerate(self.rows):
            depth = 0
            if operation == "input":
                text = atom(names[operands[0]])
            elif operation == "constant":
                text = atom(f"{compute_type}({operands[0]})")
            else:
                text = spelled(operation, [texts[at] for at in operands])
                depth = 1 + max([depths[at] for at in operands])
                if uses[place] > 1 or place in named or depth == _MOST_DEPTH:
                    name, depth = f"v{len(lines)}", 0
                    lines.append(f"const {compute_type} {name} = {text[0]};")
                    text = atom(name)
            texts.append(text)
            depths.append(depth)
        return lines, [texts[at][0] for at in self.results]

    def derivative(self, name: str) -> Graph | None:
        """The derivative of the first result with respect to the input of that name; None if it is
        0 everywhere.

        Where a square root or a power of 0 has no finite derivative, its derivative is 0. Where an
        exponential or a power is 0, so is its derivative, even if its operand is infinite.

        Raises:
            NotImplementedError: an operation has no derivative here.
        """
        nodes = self._nodes()
        slopes: list[Factors | None] = []
        for node in nodes:
            below = [slopes[at] for at in self.rows[len(slopes)][1:]] if nodes_below(node) else []
            if node.operation == "input" and node.operands[0] == name:
                slopes.append(())
            elif any(slope is not None for slope in below):
                slopes.append(_chained(node, below))
            else:
                slopes.append(None)
        found = slopes[self.results[0]]
        return None if found is None else Graph.of(_product(found))

    def _uses(self) -> list[int]:
        """How often each row is an operand or a result."""
        uses = [0] * len(self.rows)
        for row in self.rows:
            for at in row[1:] if row[0] in OPERATIONS else ():
                uses[at] += 1
        for at in self.results:
            uses[at] += 1
        return uses

    def _nodes(self) -> list[Expression]:
        """The rows as expressions."""
        nodes: list[Expression] = []
        for operation, *operands in self.rows:
            if operation == "input":
                nodes.append(variable(operands[0]))
            elif operation == "constant":
                nodes.append(lift(_number(operands[0])))
            else:
                nodes.append(apply(operation, *[nodes[at] for at in operands]))
        return nodes


def _chained(node: Expression, slopes: Sequence[Factors | None]) -> Factors:
    """The factors of the derivative of an operation, from those of its operands, some of which are
    not 0. Outer factors come first.

    Raises:
        NotImplementedError: it has none here.
    """
    rule, parts = DERIVATIVES.get(node.operation), list[Factors]()
    outers = rule(node, *node.operands) if rule else [None] * len(slopes)
    for index, (outer, inner) in enumerate(zip(outers, slopes, strict=True)):
        if inner is None:
            continue
        if outer is None:
            raise NotImplementedError(f"the derivative of {node.operation} by operand {index}")
        if node.operation not in FADING:
            parts.append((*outer, *inner))
        elif node.operation == "fade" and index == 0:
            parts.append((_faded(inner, outer),))
        else:
            parts.append((_faded(outer, inner),))
    if len(parts) == 1:
        return parts[0]
    return (functools.reduce(operator.add, map(_product, parts)),)


def _faded(first: Factors, second: Factors) -> Expression:
    """The product, and 0 where the first is 0."""
    a, b = _product(first), _product(second)
    return a if is_one(b) else apply("fade", a, b)


def _product(factors: Factors) -> Expression:
    """The product from left to right, without factors that are 1: values that are in range are not
    multiplied by products of inner factors, such as the square of a reciprocal, that may not be."""
    return functools.reduce(_times, factors, lift(1.0))


def _times(first: Expression, second: Expression) -> Expression:
    if is_one(first) or is_one(second):
        return second if is_one(first) else first
    if first.operation == second.operation == "constant":
        return lift(first.operands[0] * second.operands[0])
    return first * second


def _numbered(expressions: tuple[Expression, ...]) -> tuple[tuple[Row, ...], tuple[int, ...]]:
    """The rows of a graph and its results. A repeated call with a kernel does this, so it is not
    written with `in_order`, which would take twice the time."""
    rows: dict[Row, int] = {}
    places: dict[int, int] = {}  # By identity: shared nodes are taken once.
    left = [Expression("results", expressions)]
    while True:
        node = left[-1]
        row: list[Any] = [node.operation]
        for item in node.operands:
            at = places.get(id(item))
            if at is None:
                leaf = _leaf(item)
                if leaf is None:
                    left.append(item)
                    break
                at = places[id(item)] = rows.setdefault(leaf, len(rows))
            row.append(at)
        else:
            left.pop()
            if not left:
                return tuple(rows), tuple(row[1:])
            places[id(node)] = rows.setdefault(tuple(row), len(rows))


def _leaf(node: Expression) -> Row | None:
    """The row of an input or a constant; None of an operation."""
    if node.operation == "input":
        return ("input", *node.operands)
    if node.operation == "constant":
        return ("constant", *map(_told, node.operands))
    return None


def _told(value: Any) -> str:
    """The text of a constant, by which zeros of both signs are two."""
    is_plain = type(value) in (float, int) or not isinstance(value, numbers.Real)
    return repr(value if is_plain else float(value))


def _json(item: str | int) -> str:
    return f'"{item}"' if isinstance(item, str) else str(item)


def _is_row(row: Any, place: int, inputs: Collection[str]) -> bool:
    """Whether it can be that of a graph of these inputs, behind so many others."""
    if not isinstance(row, tuple) or not row or not isinstance(row[0], str):
        return False
    operation, *operands = row
    if operation in OPERATIONS:
        count = OPERATIONS[operation][1].count("{}")
        return len(operands) == count and all(_is_place(at, place) for at in operands)
    if len(operands) != 1 or not isinstance(operands[0], str):
        return False
    return operands[0] in inputs if operation == "input" else _is_constant(row)


def _is_place(at: Any, count: int) -> bool:
    return type(at) is int and 0 <= at < count


def _is_constant(row: Row) -> bool:
    """Whether it has the text that Python has for a finite number that C++ can read."""
    operation, text = row
    try:
        value = _number(text)
        is_finite = math.isfinite(value) and (isinstance(value, float) or abs(value) < 2**63)
    except (ValueError, OverflowError):
        return False
    return operation == "constant" and is_finite and repr(value) == text


def _number(text: str) -> float:
    """The number of a constant: an integer where it is written as one."""
    return int(text) if text.lstrip("-").isdecimal() else float(text)


def _refused(got: str, inputs: Collection[str]) -> DescriptionError:
    names = ", ".join(itertools.islice(inputs, 10))
    return DescriptionError(
        "an expression",
        expected=f"inputs ({names}), finite numbers, and operations ({', '.join(OPERATIONS)})"
        " with their operands before them",
        got=got,
        hint="make expressions with kronop's functions and operators",
    )
