"""Proxies that record what a function does with them: the nodes of a visitor tree.

Calling a Python function with these objects gives its expression graph. No source is read, so that
functions of a REPL and lambdas can be traced.
"""

from __future__ import annotations

import math
import numbers
import sys
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any, NoReturn

from kronop.descriptions.expression import Expression, variable
from kronop.errors import DescriptionError, ElementTypeError, mismatch

# Operations that are in each other, at most.
_MOST_DEPTH = 50


class Trace:
    """The nodes of one function while it runs. Equal nodes are the same object, so that what is
    computed twice in the function is computed once in a kernel.

    Args:
        code: the code of the function, whose local variables give results their names.
    """

    def __init__(self, code: CodeType | None) -> None:
        self._code = code
        self._known: dict[tuple[object, ...], Traced] = {}
        self._frame: FrameType | None = None

    def input(self, name: str) -> Traced:
        return self._node("input", (name,))

    def apply(self, operation: str, *operands: Any) -> Traced:
        """A node with these operands: nodes of this trace, or numbers.

        Raises:
            ElementTypeError: an operand is anything else.
        """
        return self._node(operation, tuple(self._lifted(operation, item) for item in operands))

    def locals(self) -> Mapping[str, object]:
        """The function's local variables, once it has returned; empty if they are not known."""
        found, self._frame = self._frame, None  # The variables hold nodes, and these hold this.
        return {} if found is None else dict(found.f_locals)

    def _node(self, operation: str, operands: tuple[Any, ...]) -> Traced:
        self._find_frame()
        key = (operation, *(_key(item) for item in operands))
        if key not in self._known:
            self._known[key] = Traced(self, operation, operands)
        return self._known[key]

    def _find_frame(self) -> None:
        """Keeps the frame of the function, if it is running: a frame that somebody holds keeps its
        variables when its function returns."""
        frame: FrameType | None = sys._getframe(2) if self._frame is None else None
        while frame is not None and frame.f_code is not self._code:
            frame = frame.f_back
        self._frame = self._frame or frame

    def _lifted(self, operation: str, item: Any) -> Traced:
        if isinstance(item, Traced):
            if item.trace is self:
                return item
            got = "one of another call"
        elif isinstance(item, Reduced):
            item.refuse(operation)
        elif isinstance(item, numbers.Real) and not isinstance(item, bool):
            try:
                value = float(item)
            except OverflowError:  # A whole number beyond all floats.
                value = math.inf
            if math.isfinite(value):
                return self._node("constant", (value,))
            got = repr(item)
        else:
            got = repr(item)
        raise ElementTypeError(
            mismatch(
                f"an operand of {operation} in an epilogue",
                expected="a value of this function, or a finite number",
                got=got,
                hint="tensors and numbers of a run are the function's parameters",
            )
        )

    def imported(self, expression: Expression, inputs: Mapping[str, Traced]) -> Traced:
        """The node of an expression over these inputs."""
        if expression.operation == "input":
            return inputs[expression.operands[0]]
        if expression.operation == "constant":
            return self._lifted("constant", expression.operands[0])
        return self.apply(
            expression.operation, *(self.imported(item, inputs) for item in expression.operands)
        )


_OF_NUMPY = {
    "add": "add",
    "subtract": "subtract",
    "multiply": "multiply",
    "divide": "divide",
    "true_divide": "divide",
}


class Traced:
    """A value of an epilogue that is being traced: an input, a constant or what was computed.

    It has the operators + - * / and is taken by the functions of kronop: `kronop.maximum`,
    `kronop.gelu` and their like.
    """

    __slots__ = ("operands", "operation", "trace")
    __hash__ = object.__hash__

    def __init__(self, trace: Trace, operation: str, operands: tuple[Any, ...]) -> None:
        self.trace, self.operation, self.operands = trace, operation, operands

    def __repr__(self) -> str:
        return f"<a value of an epilogue: {self.operation}>"

    def through(self, function: Callable[[Expression], Expression], **others: Any) -> Traced:
        """A function of this node; `others` are further inputs that its expression names."""
        inputs = {name: self.trace._lifted(name, item) for name, item in others.items()}
        return self.trace.imported(function(variable("x")), {"x": self, **inputs})

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **named: Any) -> Traced:
        """NumPy's own scalars leave their operators to this; its other functions are refused."""
        operation = _OF_NUMPY.get(function.__name__)
        if method != "__call__" or named or operation is None:
            return self._unknown()
        return self.trace.apply(operation, *inputs)

    def __add__(self, other: Any) -> Traced:
        return self.trace.apply("add", self, other)

    def __radd__(self, other: Any) -> Traced:
        return self.trace.apply("add", other, self)

    def __sub__(self, other: Any) -> Traced:
        return self.trace.apply("subtract", self, other)

    def __rsub__(self, other: Any) -> Traced:
        return self.trace.apply("subtract", other, self)

    def __mul__(self, other: Any) -> Traced:
        return self.trace.apply("multiply", self, other)

    def __rmul__(self, other: Any) -> Traced:
        return self.trace.apply("multiply", other, self)

    def __truediv__(self, other: Any) -> Traced:
        return self.trace.apply("divide", self, other)

    def __rtruediv__(self, other: Any) -> Traced:
        return self.trace.apply("divide", other, self)

    def __neg__(self) -> Traced:
        return self.trace.apply("multiply", self, -1.0)

    def __pos__(self) -> Traced:
        return self

    def _compared(self, *other: object) -> NoReturn:
        raise DescriptionError(
            mismatch(
                "an epilogue",
                expected="arithmetic and functions",
                got="a comparison or a condition",
                hint="use kronop.maximum(a, b) and kronop.minimum(a, b)",
            )
        )

    __bool__ = __lt__ = __le__ = __gt__ = __ge__ = _compared
    __eq__ = __ne__ = _compared

    def _unknown(self, *other: object) -> NoReturn:
        raise DescriptionError(
            mismatch(
                "an epilogue",
                expected="+ - * / and functions of kronop",
                got="another function or operator on one of its values",
                hint="write kronop.exp(x), x * x, or kronop.maximum(x, -x) for the magnitude",
            )
        )

    __abs__ = __pow__ = __rpow__ = __mod__ = __floordiv__ = __float__ = __int__ = _unknown


class Reduced:
    """A reduction of a traced value along an axis, which a function can only return.

    Attributes:
        source: the value.
        reduction: "sum" or "max".
        axis: "row", a number for each row, or "column", a number for each column.
    """

    __array_ufunc__ = None

    def __init__(self, source: Traced, reduction: str, axis: str) -> None:
        self.source, self.reduction, self.axis = source, reduction, axis

    def refuse(self, *use: object) -> NoReturn:
        raise DescriptionError(
            mismatch(
                f"a {self.reduction} along an axis",
                expected="to be returned",
                got="an operation on it",
                hint="it is known when all blocks are done; compute with it after the run",
            )
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = refuse
    __truediv__ = __rtruediv__ = __neg__ = __bool__ = refuse


def _key(item: object) -> object:
    return id(item) if isinstance(item, Traced) else repr(item)


def expressions(results: Sequence[Traced]) -> tuple[tuple[Expression, ...], list[Expression]]:
    """(values, results) of a graph.

    Nodes that are used repeatedly, or are results, become values: expressions over inputs and over
    earlier values, which are inputs called v0, v1, ... All other nodes are written where they are
    used, so that the expressions are no longer than the function. Deep ones are cut into values,
    since who walks over an expression recurses.
    """
    order, uses = _counted(results)
    wanted = {id(node) for node in results}
    values: list[Expression] = []
    written: dict[int, Expression] = {}
    depths: dict[int, int] = {}
    for node in order:
        operands = tuple(
            written[id(item)] if isinstance(item, Traced) else item for item in node.operands
        )
        text, depth = Expression(node.operation, operands), 0
        if node.operation not in ("input", "constant"):
            depth = 1 + max(depths[id(item)] for item in node.operands)
            if uses[id(node)] > 1 or id(node) in wanted or depth == _MOST_DEPTH:
                values.append(text)
                text, depth = variable(f"v{len(values) - 1}"), 0
        written[id(node)], depths[id(node)] = text, depth
    return tuple(values), [written[id(node)] for node in results]


def _counted(results: Sequence[Traced]) -> tuple[list[Traced], dict[int, int]]:
    """(all nodes, each after its operands; how often each is used)."""
    uses: dict[int, int] = {}
    order: list[Traced] = []
    left = [(node, False) for node in reversed(results)]
    while left:
        node, is_done = left.pop()
        if is_done:
            order.append(node)
            continue
        uses[id(node)] = uses.get(id(node), 0) + 1
        if uses[id(node)] == 1:
            below = [item for item in node.operands if isinstance(item, Traced)]
            left += [(node, True), *((item, False) for item in reversed(below))]
    return order, uses
