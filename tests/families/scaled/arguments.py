"""Tensors of any framework -> ScaledProblem."""

from __future__ import annotations

from typing import Any

from kronop.args.base import Arguments
from kronop.args.checks import check_source, description_of
from kronop.args.overlap import same_elements
from kronop.args.protocols import OperationLike, Places
from kronop.args.staging import form_for
from kronop.args.tensor import check_promise, empty, view
from kronop.args.view import contiguous_strides
from kronop.descriptions.scalars import EpilogueArguments
from kronop.errors import ArgumentError, mismatch
from kronop.size import Rows
from tests.families.scaled.description import ScaledDescription, ScaledProblem


class ScaledArguments(Arguments):
    """Y = epilogue(X * W): X, W, Z and Y are (M, N), contiguous."""

    def __init__(
        self,
        *,
        operation: OperationLike,
        X: Any,
        W: Any,
        Z: Any = None,
        Y: Any = None,
        output_op: EpilogueArguments | None = None,
    ) -> None:
        what = description_of(operation, ScaledDescription)
        super().__init__(operation, output_op)
        given = (("X", X), ("W", W), ("Z", Z), ("Y", Y))
        views = {name: view(item, name) for name, item in given if item is not None}
        check_source(self.output_op, views.get("Z"))
        self._settle(views)
        self._m = views["X"].shape[0]
        self._described = {"X": what.X, "W": what.W, "Z": what.Y, "Y": what.Y}
        for name, item in views.items():
            check_promise(item, self._described[name], name)
            shape = what.x_shape(self._m)
            if item.shape != shape or item.strides != contiguous_strides(shape):
                raise ArgumentError(
                    mismatch(name, expected=f"contiguous {shape}", got=item.shape, hint="copy it")
                )
        if Y is None:
            self.Y = empty(views["X"], what.y_shape(self._m), what.Y.element)
            views["Y"] = view(self.Y, "Y")
        else:
            self._take_result(Y, views)
        self._views, self._items = views, self._m * what.columns
        self._source_is_result = self.output_op.beta != 0 and same_elements(views["Z"], views["Y"])

    @property
    def size(self) -> Rows:
        return Rows(self._m)

    def _problem(self, places: Places, workspace: int) -> ScaledProblem:
        return ScaledProblem(
            items=self._items,
            x=self._placed(places, "X"),
            w=self._placed(places, "W"),
            z=self._placed(places, "Z") if self.output_op.beta else 0,
            y=self._placed(places, "Y"),
            scalars=self.output_op.scalars,
            threads=self._threads,
        )

    def _placed(self, places: Places, name: str) -> int:
        if name == "Z" and self._source_is_result:
            name = "Y"
        item = self._views[name]
        form = form_for(item, self._described[name], self._device)
        if name == "Y":
            return places.output(name, item, form, read=self._source_is_result).pointer
        return places.input(name, item, form).pointer
