"""Proxies that record what a function does with them: the nodes of a visitor tree.

Calling a Python function with these objects gives its expression graph. No source is read, so that
functions of a REPL and lambdas can be traced.
"""

from __future__ import annotations

import math
import numbers
import sys
from collections.abc import Callable, Mapping
from types import CodeType, FrameType
from typing import Any, NoReturn

from kronop.descriptions.expression import Expression, lift, nodes_below, variable
from kronop.descriptions.ordered import in_order
from kronop.errors import DescriptionError, ElementTypeError


class Trace:
    """One function while it runs.

    Args:
        code: the code of the function, whose local variables give results their names.
    """

    def __init__(self, code: CodeType | None) -> None:
        self._code = code
        self._frame: FrameType | None = None

    def input(self, name: str) -> Traced:
        return self.value(variable(name))

    def apply(self, operation: str, *operands: object) -> Traced:
        """A value of these operands: values of this trace, or numbers.

        Raises:
            ElementTypeError: an operand is anything else.
        """
        every = tuple(self.lifted(operation, item) for item in operands)
        return self.value(Expression(operation, every))

    def value(self, expression: Expression) -> Traced:
        self._find_frame()
        return Traced(self, expression)

    def locals(self) -> Mapping[str, object]:
        """The function's local variables, once it has returned; empty if they are not known."""
        found, self._frame = self._frame, None  # The variables hold nodes, and these hold this.
        return {} if found is None else dict(found.f_locals)

    def _find_frame(self) -> None:
        """Keeps the frame of the function, if it is running: a frame that somebody holds keeps its
        variables when its function returns."""
        frame: FrameType | None = sys._getframe(2) if self._frame is None else None
        while frame is not None and frame.f_code is not self._code:
            frame = frame.f_back
        self._frame = self._frame or frame

    def lifted(self, operation: str, item: object) -> Expression:
        """An operand of an operation; see `apply`."""
        if isinstance(item, Traced):
            if item.trace is self:
                return item.expression
            got = "one of another call"
        elif isinstance(item, Reduced):
            item.refuse(operation)
        elif isinstance(item, numbers.Real) and not isinstance(item, bool):
            try:
                value = float(item)
            except OverflowError:  # A whole number beyond all floats.
                value = math.inf
            if math.isfinite(value):
                return lift(value)
            got = repr(item)
        else:
            got = repr(item)
        raise ElementTypeError(
            f"an operand of {operation} in an epilogue",
            expected="a value of this function, or a finite number",
            got=got,
            hint="tensors and numbers of a run are the function's parameters",
        )


def _of_inputs(expression: Expression, inputs: Mapping[str, Expression]) -> Expression:
    """An expression with others in place of its inputs."""
    found: dict[int, Expression] = {}
    for node in in_order([expression], nodes_below):
        if node.operation == "input":
            found[id(node)] = inputs[node.operands[0]]
        elif node.operation == "constant":
            found[id(node)] = node
        else:
            operands = tuple(found[id(item)] for item in node.operands)
            found[id(node)] = Expression(node.operation, operands)
    return found[id(expression)]


_OF_NUMPY = {name: name for name in ("add", "subtract", "multiply", "divide")}
_OF_NUMPY["true_divide"] = "divide"


_Operator = Callable[["Traced", object], "Traced"]


def _operators(operation: str) -> tuple[_Operator, _Operator]:
    """The methods of an operator: with the value on its left, and on its right."""
    return (
        lambda self, other: self.trace.apply(operation, self, other),
        lambda self, other: self.trace.apply(operation, other, self),
    )


class Traced:
    """A value of an epilogue that is being traced: an input, a constant or what was computed.

    It has the operators + - * / and is taken by the functions of kronop: `kronop.maximum`,
    `kronop.gelu` and their like.
    """

    __slots__ = ("expression", "trace")
    __hash__ = object.__hash__

    def __init__(self, trace: Trace, expression: Expression) -> None:
        self.trace, self.expression = trace, expression

    def __repr__(self) -> str:
        return f"<a value of an epilogue: {self.expression.operation}>"

    def through(self, function: Callable[[Expression], Expression], **others: object) -> Traced:
        """A function of this value; `others` are further inputs that its expression names."""
        inputs = {name: self.trace.lifted(name, item) for name, item in others.items()}
        inputs["x"] = self.expression
        return self.trace.value(_of_inputs(function(variable("x")), inputs))

    def __array_ufunc__(
        self, function: Any, method: str, *inputs: object, **named: object
    ) -> Traced:
        """NumPy's own scalars leave their operators to this; its other functions are refused."""
        operation = _OF_NUMPY.get(function.__name__)
        if method != "__call__" or named or operation is None:
            return self._unknown()
        return self.trace.apply(operation, *inputs)

    __add__, __radd__ = _operators("add")
    __sub__, __rsub__ = _operators("subtract")
    __mul__, __rmul__ = _operators("multiply")
    __truediv__, __rtruediv__ = _operators("divide")

    def __neg__(self) -> Traced:
        return self.trace.apply("multiply", self, -1.0)

    def __pos__(self) -> Traced:
        return self

    def _compared(self, *other: object) -> NoReturn:
        raise DescriptionError(
            "an epilogue",
            expected="arithmetic and functions",
            got="a comparison or a condition",
            hint="use kronop.maximum(a, b) and kronop.minimum(a, b)",
        )

    __bool__ = __lt__ = __le__ = __gt__ = __ge__ = _compared
    __eq__ = __ne__ = _compared

    @classmethod  # As torch, whose functions call __torch_function__, wants it.
    def _unknown(cls, *other: object, **named: object) -> NoReturn:
        raise DescriptionError(
            "an epilogue",
            expected="+ - * / and functions of kronop",
            got="another function or operator on one of its values",
            hint="write kronop.exp(x), kronop.relu(x), x * x, or kronop.maximum(x, -x) for abs(x)",
        )

    __abs__ = __pow__ = __rpow__ = __mod__ = __floordiv__ = __float__ = __int__ = _unknown
    __torch_function__ = _unknown


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
            f"a {self.reduction} along an axis",
            expected="to be returned",
            got="an operation on it",
            hint="it is known when all blocks are done; compute with it after the run",
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = refuse
    __truediv__ = __rtruediv__ = __neg__ = __bool__ = refuse
