"""Visitor trees: epilogues that a user writes as a function of the sums and of further operands.

With A the sums of an (M, N) result, a tree computes D and, beside it, auxiliary results:

    operand    "scalar"  a number
               "tensor"  (M, N)
               "row"     (N): a number for each column, the same in every row
               "column"  (M): a number for each row, the same in every column
    result     (M, N), or reduced by sum or maximum:
               axis "row"     (M): each row gives a number
               axis "column"  (N): each column gives a number
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from kronop.artifacts import Decision
from kronop.descriptions import tree_names
from kronop.descriptions.datatype import RESULT_TYPES, DataType, float32, float64, int64
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.graph import Graph
from kronop.descriptions.scalars import FINITE_MAX, EpilogueArguments, saturated
from kronop.descriptions.tree_names import ACCUMULATOR as ACCUMULATOR
from kronop.descriptions.visitor_arguments import VisitorArguments
from kronop.errors import DescriptionError, ElementTypeError, shown
from kronop.frozen import dataclass, derived

KINDS = ("scalar", "tensor", "row", "column")
AXES = ("row", "column")
_OTHER_AXIS = {"row": "column", "column": "row"}
REDUCTIONS: Mapping[str, Any] = {"sum": np.sum, "max": np.max}
_EVERY_REDUCTION = f"a reduction ({', '.join(REDUCTIONS)}) along an axis ({', '.join(AXES)})"


@dataclass(frozen=True, slots=True)
class Operand(Decision):
    """A parameter of the function: its name and one of KINDS."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Result(Decision):
    """What the function returned at one place.

    Attributes:
        name: what `epilogue_type` calls it.
        reduction, axis: a key of REDUCTIONS and one of AXES; both empty for an (M, N) result.
    """

    name: str
    reduction: str = ""
    axis: str = ""

    def is_one(self) -> bool:
        """Whether the reduction and the axis are known, or both empty."""
        if not isinstance(self.reduction, str) or not isinstance(self.axis, str):
            return False
        is_reduced = self.reduction in REDUCTIONS and self.axis in AXES
        return is_reduced or not (self.reduction or self.axis)

    @property
    def kind(self) -> str:
        """One of KINDS: a reduction along rows gives a column, one along columns a row."""
        return {"": "tensor", "row": "column", "column": "row"}[self.axis]


@dataclass(frozen=True, kw_only=True)
class VisitorTree(Decision):
    """The graph of an epilogue; `kronop.epilogue_visitor` makes it from a function.

    Called with the types, as `kronop.LinearCombination` is, it gives the epilogue of a description.

    Attributes:
        operands: the function's parameters after the sums, in their order.
        graph: what is computed of the sums ("accumulator") and operands, for each result.
        results: D, then auxiliary results.

    Raises:
        DescriptionError: one of these is not what it should be: a name is there twice, is taken or
            is not one that C can have, a kind or a reduction is unknown, the graph has other inputs
            or another number of results, D is a reduction.
    """

    operands: tuple[Operand, ...]
    graph: Graph
    results: tuple[Result, ...]

    def __post_init__(self) -> None:
        self._check_parts()
        names = [item.name for item in self.operands]
        tree_names.check(names, [item.name for item in self.results])
        self.graph.check([ACCUMULATOR, *names])
        if len(self.graph.results) != len(self.results):
            raise _refused(f"values for {len(self.results)} results", self.graph.results)
        if self.results[0].axis:
            raise DescriptionError(
                "the first result of a visitor tree",
                expected="D, an (M, N) matrix",
                got=f"a {self.results[0].reduction} along each {self.results[0].axis}",
                hint="return D first, then reductions",
            )
        _ = self.text  # Kept from the start: torch.compile reads it, and does not trace its making.

    def _check_parts(self) -> None:
        """Refuses what is no operand, graph or result: trees are made by hand and from texts."""
        if not isinstance(self.operands, tuple) or not isinstance(self.results, tuple):
            raise _refused("tuples of operands and results", (self.operands, self.results))
        for operand in self.operands:
            is_one = isinstance(operand, Operand) and isinstance(operand.kind, str)
            if not is_one or operand.kind not in KINDS:
                raise _refused(f"operands, each with one of {', '.join(KINDS)}", operand)
        for item in self.results:
            if not isinstance(item, Result) or not item.is_one():
                raise _refused(f"results, some with {_EVERY_REDUCTION}", item)
        if not isinstance(self.graph, Graph):
            raise _refused("a graph of its results", self.graph)

    @derived
    def text(self) -> str:
        """The tree as text, from which `kronop.descriptions.tree_text` reads it again."""
        operands = [[item.name, item.kind] for item in self.operands]
        results = [[item.name, item.reduction, item.axis] for item in self.results]
        first, last = (json.dumps(told, separators=(",", ":")) for told in (operands, results))
        return f"[{first},{self.graph.text()},{last}]"

    @property
    def scalars(self) -> tuple[str, ...]:
        """Names of the scalars, in the order of the parameters."""
        return tuple(item.name for item in self.operands if item.kind == "scalar")

    @property
    def tensors(self) -> tuple[Operand, ...]:
        """The operands that lie in memory, in the order of the parameters."""
        return tuple(item for item in self.operands if item.kind != "scalar")

    @property
    def auxiliary(self) -> tuple[Result, ...]:
        """The results after D."""
        return self.results[1:]

    @property
    def reduces(self) -> bool:
        return any(item.axis for item in self.results)

    @property
    def operations(self) -> int:
        """How many operations it computes with a sum; reductions are further ones."""
        return self.graph.operations.total()

    @property
    def in_memory(self) -> tuple[Operand | Result, ...]:
        """What a kernel finds beside D: the operands in memory, then the auxiliary results."""
        return (*self.tensors, *self.auxiliary)

    def __call__(
        self,
        element_output: DataType,
        epilogue_vector_length: int,
        element_accumulator: DataType,
        element_epilogue: DataType,
        elements: Mapping[str, DataType] | None = None,
    ) -> VisitorEpilogue:
        """The tree as the epilogue of a description.

        Args:
            element_output: type of D, and of other operands and results in memory.
            epilogue_vector_length: elements of D written at once.
            element_accumulator: type of the sums.
            element_epilogue: type of the values between, float32 or float64, and of reductions.
            elements: name -> type, for operands and (M, N) results of another type.

        Raises:
            DescriptionError: the types do not fit each other.
        """
        return VisitorEpilogue(
            element_output,
            epilogue_vector_length,
            element_accumulator,
            element_epilogue,
            self,
            tuple((elements or {}).items()),
        )

    def evaluate(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The results in NumPy by their names, from arrays that broadcast to (..., M, N)."""
        shape = np.broadcast_shapes(*(np.shape(item) for item in inputs.values()))
        found = {}
        for item, value in zip(self.results, self.graph.evaluate_all(inputs), strict=True):
            matrix = np.broadcast_to(value, shape)
            if item.axis:
                matrix = REDUCTIONS[item.reduction](matrix, axis=-1 if item.axis == "row" else -2)
            found[item.name] = matrix
        return found


@dataclass(frozen=True, slots=True)
class VisitorEpilogue(Epilogue):
    """A visitor tree with its types.

    Attributes:
        tree: the graph.
        elements: (name, type) of operands and (M, N) results of another type than element_output.

    Raises:
        DescriptionError: the types do not fit each other, a constant is beyond the range of
            element_epilogue, or `elements` names what has no type of its own.
    """

    tree: VisitorTree
    elements: tuple[tuple[str, DataType], ...] = ()

    def __post_init__(self) -> None:
        if self.element_accumulator is int64:
            raise DescriptionError(
                "sums under a visitor tree",
                expected="float16, float32, float64 or int32",
                got="int64",
                hint="compute with the result after the run",
            )
        Epilogue.__post_init__(self)
        if not isinstance(self.tree, VisitorTree):
            raise ElementTypeError(
                "tree",
                expected="a visitor tree",
                got=repr(self.tree),
                hint="decorate a function with kronop.epilogue_visitor",
            )
        # Kernels keep reductions in the type that they compute in, which has to be this one.
        if self.element_epilogue not in (float32, float64):
            raise DescriptionError(
                "element_epilogue of a visitor tree",
                expected="float32 or float64",
                got=repr(self.element_epilogue),
                hint="sums of int32 and float16 are computed with in float32",
            )
        self._check_constants()
        self._check_elements()

    def _check_constants(self) -> None:
        for constant in self.tree.graph.constants:
            if abs(constant) > FINITE_MAX[self.element_epilogue]:
                raise DescriptionError(
                    "a constant in a visitor tree",
                    expected=f"a finite {self.element_epilogue.name}",
                    got=repr(constant),
                    hint="compute the epilogue in float64",
                )

    def _check_elements(self) -> None:
        named = [item.name for item in self.tree.tensors]
        named += [item.name for item in self.tree.auxiliary if not item.axis]
        for name, element in self.elements:
            if name not in named or getattr(element, "name", None) not in RESULT_TYPES:
                raise DescriptionError(
                    "elements of a visitor tree",
                    expected=f"{', '.join(named) or 'nothing'}, each with one of"
                    f" {', '.join(RESULT_TYPES)}",
                    got=f"{name}: {element!r}",
                    hint="scalars and reductions have the type element_epilogue, D has"
                    " element_output",
                )

    @property
    def name(self) -> str:
        return "visitor"

    @property
    def scalar_names(self) -> tuple[str, ...]:
        return self.tree.scalars

    @property
    def expression(self) -> Graph:
        """A tree has none: its results share values; see `tree.graph`.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("a visitor tree is no single expression")

    def element_of(self, item: Operand | Result) -> DataType:
        """The type of an operand or a result in memory."""
        if isinstance(item, Result) and item.axis:
            return self.element_epilogue
        return dict(self.elements).get(item.name, self.element_output)

    @property
    def transposed(self) -> VisitorEpilogue:
        """The tree of the transposed result, whose rows are the columns."""

        def turned(item: Any, field: str) -> Any:
            axis = getattr(item, field)
            return dataclasses.replace(item, **{field: _OTHER_AXIS.get(axis, axis)})

        operands = tuple(turned(item, "kind") for item in self.tree.operands)
        results = tuple(turned(item, "axis") for item in self.tree.results)
        tree = dataclasses.replace(self.tree, operands=operands, results=results)
        return dataclasses.replace(self, tree=tree)

    def initialize(self) -> None:
        """Does nothing: a tree is complete when it is made. PyCUTLASS's programs call this."""

    def epilogue_type(self, *scalars: float, **given: Any) -> EpilogueArguments:
        """Scalars, operands and results of a run, by their names.

        Example:
            output_op = operation.epilogue_type(D=d, alpha=2.0, bias=bias, problem_size=[m, n])

        Args:
            D: the result, which the function may also call otherwise; it may be left out, and
                `arguments.D` is then a new tensor.
            problem_size: [M, N], which tensors are checked against, if given.
            given: a number for each scalar, a tensor for each other operand and result.

        Raises:
            ArgumentError: one is missing or unknown, or a scalar is not finite.
            ElementTypeError: a scalar is not a real number.
        """
        operands, results = (
            [item.name for item in items] for items in (self.tree.operands, self.tree.results)
        )
        return VisitorArguments.of(self, operands, results, scalars, given)

    def evaluate(self, accumulator: Any, operands: Mapping[str, Any]) -> dict[str, Any]:
        """The results in NumPy by their names: (..., M, N), (..., M) and (..., N).

        Args:
            accumulator: the sums, (..., M, N); integers are wrapped to their width.
            operands: numbers, and arrays of the shapes that this module's text tells, also with
                leading dimensions.
        """
        if self.element_accumulator.kind == "int":
            accumulator = np.asarray(accumulator).astype(self.element_accumulator.name)
        inputs: dict[str, Any] = {ACCUMULATOR: np.asarray(accumulator, np.float64)}
        for item in self.tree.operands:
            value = np.asarray(operands[item.name], np.float64)
            if item.kind in AXES:
                value = value[..., None, :] if item.kind == "row" else value[..., :, None]
            inputs[item.name] = value
        types = {item.name: self.element_of(item) for item in self.tree.results}
        return {
            name: value if types[name].kind == "float" else saturated(value, types[name])
            for name, value in self.tree.evaluate(inputs).items()
        }


def _refused(expected: str, got: object) -> DescriptionError:
    hint = "kronop.epilogue_visitor makes trees of functions"
    return DescriptionError("a visitor tree", expected=expected, got=shown(got), hint=hint)
