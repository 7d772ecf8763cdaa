"""Front ends of visitor trees: a decorated function, PyCUTLASS's class, a lambda.

The function is called once, with objects that record what it does with them. Its source is not
read.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

from kronop.descriptions.datatype import DataType
from kronop.descriptions.graph import Graph
from kronop.descriptions.traced import Reduced, Trace, Traced
from kronop.descriptions.visitor import (
    ACCUMULATOR,
    KINDS,
    Operand,
    Result,
    VisitorEpilogue,
    VisitorTree,
)
from kronop.errors import DescriptionError, ElementTypeError

_POSITIONAL = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)


@overload
def epilogue_visitor(
    function: Callable[..., Any],
    *,
    kinds: Mapping[str, str] | None = None,
    results: Sequence[str] | None = None,
) -> VisitorTree: ...
@overload
def epilogue_visitor(
    function: None = None,
    *,
    kinds: Mapping[str, str] | None = None,
    results: Sequence[str] | None = None,
) -> Callable[[Callable[..., Any]], VisitorTree]: ...
def epilogue_visitor(
    function: Callable[..., Any] | None = None,
    *,
    kinds: Mapping[str, str] | None = None,
    results: Sequence[str] | None = None,
) -> VisitorTree | Callable[[Callable[..., Any]], VisitorTree]:
    """A visitor tree from a function of the sums and of further operands.

    The first parameter stands for the sums. Each other one has a kind: "scalar" (a number at run
    time), "tensor" (M, N), "row" (N, the same in every row) or "column" (M, the same in every
    column). The function returns D, or D and auxiliary results: (M, N) values, and reductions by
    `kronop.sum` and `kronop.maximum` along rows, which give (M), or columns, which give (N).

    Args:
        function: what to trace; None for a decorator with the other arguments.
        kinds: parameter -> kind, for those that are not annotated, as a lambda's.
        results: names of the results; by default those of the local variables that are returned,
            else D, D1, D2, ... `epilogue_type` takes the first one as `D` too.

    Returns:
        The tree. Called with the types, as `kronop.LinearCombination` is, it gives the epilogue of
        a description, whose `evaluate` computes the results by NumPy.

    Raises:
        DescriptionError: a kind is missing or unknown, names don't fit, or the function does what
            no tree can do, such as a comparison.
        ElementTypeError: it computes with, or returns, what is no value of it.

    Example:
        >>> @kronop.epilogue_visitor
        ... def epilogue(accum, alpha: "scalar", bias: "row"):
        ...     t = alpha * accum + bias
        ...     d = kronop.gelu(t)
        ...     row_max = kronop.maximum(d, axis="row")
        ...     return d, t, row_max
        >>> functor = epilogue(kronop.float32, 4, kronop.float32, kronop.float32)
        >>> found = functor.evaluate([[1.0, 2.0, 3.0]], {"alpha": 2.0, "bias": [0.0, 0.5, -6.0]})
        >>> found["t"].tolist(), found["row_max"].round(2).tolist()
        ([[2.0, 4.5, 0.0]], [4.5])
    """
    if function is None:
        return lambda item: epilogue_visitor(item, kinds=kinds, results=results)
    names = _parameters(function)
    return _traced(function, function, names, kinds or {}, results)


class EpilogueVisitTree:
    """PyCUTLASS's form of a visitor tree: a class with a `__call__`.

    Making an object of a subclass traces `__call__` and gives the epilogue of a description.

    Args:
        elementwise_functor: what PyCUTLASS's programs pass first; not read.
        tile_description: kept as an attribute, for `__call__`.
        element_accumulator: type of the sums.
        elements_per_access: elements of D written at once.
        element_compute: type of the values between, float32 or float64.
        element_output: type of D and of operands.

    Raises:
        DescriptionError, ElementTypeError: as for `kronop.epilogue_visitor`.

    Example:
        >>> class BiasAndMaximum(kronop.EpilogueVisitTree):
        ...     def __call__(self, accum: "tensor", bias: "row", alpha: "scalar"):
        ...         D = alpha * accum + bias
        ...         row_max = kronop.maximum(D, axis="row")
        ...         return D, row_max
        >>> f32 = kronop.float32
        >>> functor = BiasAndMaximum(None, None, f32, 4, f32, f32)
        >>> found = functor.evaluate([[1.0, 2.0]], {"alpha": 2.0, "bias": [0.0, 0.5]})
        >>> found["D"].tolist(), found["row_max"].tolist()
        ([[2.0, 4.5]], [4.5])
    """

    def __new__(  # type: ignore[misc]
        cls,
        elementwise_functor: Any,
        tile_description: Any,
        element_accumulator: DataType,
        elements_per_access: int,
        element_compute: DataType,
        element_output: DataType,
    ) -> VisitorEpilogue:
        written: Any = object.__new__(cls)
        written.tile_description = tile_description
        written.element_accumulator = element_accumulator
        written.elements_per_access = elements_per_access
        written.element_compute = element_compute
        written.element_output = element_output
        if cls.__init__ is not object.__init__:
            hint = "__call__ is traced when an object is made; take what varies as scalars"
            raise DescriptionError(cls.__name__, expected="no __init__", got="one", hint=hint)
        if not callable(written):
            raise DescriptionError(
                cls.__name__,
                expected="a __call__(self, accum, ...)",
                got="none",
                hint="it says what is done with the sums",
            )
        code = type(written).__call__
        tree = _traced(written, code, _parameters(code)[1:], {}, None)
        return tree(element_output, elements_per_access, element_accumulator, element_compute)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters, checked to be plain ones."""
    found = list(inspect.signature(function).parameters.values())
    for item in found:
        if item.kind not in _POSITIONAL or item.default is not inspect.Parameter.empty:
            raise DescriptionError(
                "parameters of an epilogue visitor",
                expected="plain ones without defaults",
                got=str(item),
                hint="epilogue_type gives the value of each",
            )
    return found


def _operand(item: inspect.Parameter, kinds: Mapping[str, str]) -> Operand:
    kind = kinds.get(item.name, item.annotation)
    # Where annotations are kept as text, that of a string has quotes.
    kind = kind.strip("'\" ") if isinstance(kind, str) else kind
    if kind not in KINDS:
        raise DescriptionError(
            f"the kind of parameter {item.name}",
            expected=f"one of {', '.join(KINDS)}",
            got="none" if kind is inspect.Parameter.empty else repr(kind),
            hint=f'annotate it, {item.name}: "tensor", or pass kinds={{{item.name!r}: ...}}',
        )
    return Operand(item.name, kind)


def _traced(
    called: Callable[..., Any],
    function: Any,
    parameters: Sequence[inspect.Parameter],
    kinds: Mapping[str, str],
    names: Sequence[str] | None,
) -> VisitorTree:
    """The tree that calling `called` shows; `function` is the one whose variables give names."""
    operands = _operands(parameters, kinds)
    trace = Trace(getattr(function, "__code__", None))
    inputs = [trace.input(ACCUMULATOR), *(trace.input(item.name) for item in operands)]
    try:
        returned = called(*inputs)
    finally:
        variables = trace.locals()
    every = list(returned) if isinstance(returned, (tuple, list)) and returned else [returned]
    sources = [_returned(item, trace) for item in every]
    taken = {item.name for item in parameters}
    found = _names(every, variables, taken) if names is None else _given(names, len(every))
    results = tuple(
        Result(name, getattr(item, "reduction", ""), getattr(item, "axis", ""))
        for name, item in zip(found, every, strict=True)
    )
    graph = Graph.of(*(item.expression for item in sources))
    return VisitorTree(operands=operands, graph=graph, results=results)


def _operands(
    parameters: Sequence[inspect.Parameter], kinds: Mapping[str, str]
) -> tuple[Operand, ...]:
    """Those after the sums, with their kinds."""
    if not parameters:
        raise DescriptionError(
            "parameters of an epilogue visitor",
            expected="the sums, then operands",
            got="none",
            hint="for example def epilogue(accum, ...)",
        )
    operands = tuple(_operand(item, kinds) for item in parameters[1:])
    unknown = set(kinds) - {item.name for item in operands}
    if unknown:
        raise DescriptionError(
            "kinds",
            expected=f"those of {', '.join(item.name for item in operands) or 'no parameters'}",
            got=", ".join(sorted(unknown)),
            hint="the first parameter stands for the sums",
        )
    return operands


def _returned(item: object, trace: Trace) -> Traced:
    source = item.source if isinstance(item, Reduced) else item
    if not isinstance(source, Traced) or source.trace is not trace:
        raise ElementTypeError(
            "what an epilogue visitor returns",
            expected="values that it computed",
            got=repr(item),
            hint="return D, or D and auxiliary results",
        )
    return source


def _names(
    results: Sequence[object], variables: Mapping[str, object], taken: set[str]
) -> list[str]:
    """The names of the variables that hold the results; D, D1, D2, ... for those without one."""
    found: list[str] = []
    for place, item in enumerate(results):
        own = [
            name
            for name, value in variables.items()
            if value is item and name not in taken and name not in found
        ]
        found.append(own[0] if own else "D" if place == 0 else f"D{place}")
    return found


def _given(names: Sequence[str], count: int) -> list[str]:
    found = [names] if isinstance(names, str) else list(names)
    if len(found) != count:
        raise DescriptionError(
            "results",
            expected=f"{count} names, as the function returns",
            got=repr(names),
            hint="name all of them, D first",
        )
    return found
