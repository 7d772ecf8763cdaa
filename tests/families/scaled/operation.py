"""Tensors of any framework -> ScaledProblem, and the operation that takes them."""

from __future__ import annotations

from typing import ClassVar

from kronop.args.base import Arguments
from kronop.args.operands import Operand, results
from kronop.args.protocols import Places
from kronop.args.view import TensorView, contiguous_strides
from kronop.core.operation import Operation
from kronop.errors import ArgumentError
from kronop.size import Rows
from tests.families.scaled.declaration import SCALED
from tests.families.scaled.description import ScaledDescription, ScaledProblem


class ScaledArguments(Arguments):
    """Y = epilogue(X * W): X, W, Z and Y are (M, N), contiguous."""

    describes: ClassVar[type] = ScaledDescription
    operands = (Operand("X", "mn"), Operand("W", "mn"), *results("mn"))

    def _fit(self, views: dict[str, TensorView]) -> tuple[int, ...]:
        shape: tuple[int, ...] = self._description.x_shape(views["X"].shape[0])
        for name, item in views.items():
            if (item.shape, item.strides) != (shape, contiguous_strides(shape)):
                expected = f"contiguous {shape}"
                raise ArgumentError(name, expected=expected, got=item.shape, hint="copy it")
        return shape

    @property
    def size(self) -> Rows:
        return Rows(self._shape[0])

    def _problem(self, places: Places, workspace: int) -> ScaledProblem:
        found = {name.lower(): item.pointer for name, item in self._place(places)[1].items()}
        scalars, items = self.output_op.scalars, self.size * self._description.columns
        return ScaledProblem(**found, items=items, scalars=scalars, threads=self._threads)


class ScaledOperation(Operation[ScaledDescription, ScaledArguments], kind=SCALED):
    """Y = epilogue(X * W), element by element; `columns` is N."""
