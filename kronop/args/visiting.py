"""Arguments of operations whose own kernels apply visitor trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from kronop.args import visited
from kronop.args.base import Arguments
from kronop.args.operands import Operand
from kronop.args.placing import Results
from kronop.args.strides import broadcast_strides
from kronop.args.view import TensorView
from kronop.descriptions.datatype import AnyLayout
from kronop.descriptions.visitor_arguments import VisitorArguments


class VisitingArguments(Arguments):
    """The part of arguments that takes the operands and results of a visitor tree.

    Attributes:
        tree_rows: how many axes of the result are the rows of the matrix that a tree sees.
    """

    tree_rows: ClassVar[int] = 1
    _visited: tuple[visited.Visited, ...] = ()

    def _take_tree(self, layout: AnyLayout) -> None:
        """Takes what a tree reads and writes, if there is one; `layout` is that of D."""
        if isinstance(self.output_op, VisitorArguments):
            epilogue = self.operation.description.epilogue
            found = visited.visited(epilogue, self.output_op, layout, self.differentiable)
            self._visited = found

    def _shaped_items(self) -> Sequence[visited.Visited]:
        """What a tree reads and writes, as `visited.fitted` takes it."""
        return self._visited

    def _settle(self, views: Mapping[str, TensorView]) -> None:
        super()._settle({**views, **{item.key: item.view for item in self._visited}})

    def _end(self, views: dict[str, TensorView]) -> None:
        """Has C repeat over D, and accepts what else a tree reads and writes."""
        if "Z" in views:
            source = views["Z"]
            strides = broadcast_strides(source.shape, source.strides, self._shape)
            views["Z"] = source.reshaped(self._shape, strides)
        if not isinstance(self.output_op, VisitorArguments):
            return
        size, items = self.output_op.problem_size, self._shaped_items()
        self._visited = visited.fitted(items, self._shape, size, rows=self.tree_rows)
        visited.check_overlaps(self._visited, views["Y"], {"A": views["A"], "B": views["B"]})
        for item in self._visited:
            views[item.key] = item.view
            like, over = item.described, visited.OVER
            self._table[item.key] = Operand(item.key, item.axes, like=like, over=over)
        self.output_op.attach(self)

    def _read_again(self, views: Mapping[str, TensorView]) -> Mapping[str, str]:
        """C, or operands of a tree, where they are results."""
        written = {name: views[name] for name in self._outputs}
        return {**super()._read_again(views), **visited.read_again(self._visited, written)}

    @property
    def _outputs(self) -> Results:
        names = ("Y", *(item.key for item in self._visited if item.result))
        return {name: name in self._same.values() for name in names}

    @property
    def results(self) -> tuple[Any, ...]:
        """The tensors that a run writes, D, then auxiliary results of a visitor tree."""
        return (self.Y, *(item.owner for item in self._visited if item.result))
