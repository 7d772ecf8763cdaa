"""Arguments of gradients of weights: tensors of any framework -> KSparseGradientProblem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kronop.args.base import Arguments
from kronop.args.checks import check_source, description_of
from kronop.args.protocols import OperationLike, Places, Planned
from kronop.args.staging import form_for
from kronop.args.tensor import check_promise, view, views_of
from kronop.args.view import TensorView
from kronop.artifacts import Launch
from kronop.descriptions.scalars import EpilogueArguments
from kronop.descriptions.strided import NOTHING, Strided
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import ArgumentError, mismatch
from kronop.families.ksparse.gradient_description import (
    KSparseGradientDescription,
    KSparseGradientProblem,
)
from kronop.size import Rows

_MOST_ROWS = 2**31 - 1


class KSparseGradientArguments(Arguments):
    """Y = epilogue(the gradient of weights), from a product's operand and its result's gradient.

    Args:
        operation: a KSparseGradientOperation.
        X: (B, a c d), or (a c d, B) with batch_last; any strides, which may be 0.
        G: (B, a b d), or (a b d, B) with batch_last.
        Z: like Y; needed where beta is not 0, and read only there. It may be Y itself.
        Y: where the result goes: (a, b, c, d), or (c, b) where weights are tied; any strides. None
            for a new tensor like X.
        output_op: `operation.epilogue_type(alpha, beta, ...)`; None for its defaults, without Z.
        factors: a (rows, columns) matrix for each factor of the operation, if it has any; Y is
            then a vector of all of their gradients.

    With several products, all four have a dimension for them in front. Everything is checked here;
    nothing is computed, and nothing but Y is allocated, before the first run.

    Raises:
        ElementTypeError: not a tensor, or another element type than the operation's.
        ArgumentError: shapes, strides, alignment, devices or overlaps that do not fit.
        OutOfMemoryError: no room for Y.

    Example:
        >>> tensor = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> operation = kronop.KSparseGradientOperation(
        ...     90, None, tensor, tensor, tensor, epilogue, pattern=(2, 8, 8, 1)
        ... )
        >>> operation.description.operands(4)
        {'X': (4, 16), 'G': (4, 16)}
        >>> # The lines from here on need a GPU.
        >>> import cupy  # doctest: +SKIP
        >>> x, g = cupy.ones((2, 4, 16), "float32")  # doctest: +SKIP
        >>> arguments = kronop.KSparseGradientArguments(
        ...     operation=operation, X=x, G=g
        ... )  # doctest: +SKIP
        >>> operation.run(arguments)  # doctest: +SKIP
        >>> arguments.Y.shape  # doctest: +SKIP
        (2, 8, 8, 1)
    """

    def __init__(
        self,
        *,
        operation: OperationLike,
        X: Any,
        G: Any,
        Z: Any = None,
        Y: Any = None,
        output_op: EpilogueArguments | None = None,
        factors: Sequence[Any] = (),
    ) -> None:
        self._description = what = description_of(operation, KSparseGradientDescription)
        super().__init__(operation, output_op)
        views = views_of({"X": X, "G": G, "Z": Z, "Y": Y})
        self._factors = tuple(f"factors[{index}]" for index in range(len(factors)))
        views |= {name: view(item, name) for name, item in zip(self._factors, factors, strict=True)}
        check_source(self.output_op, views.get("Z"))
        self._check_shapes(views)
        self._settle(views)
        for name, item in views.items():
            check_promise(item, self._promised(name), name)
        self._settle_result(Y, views, what.y_shape(self._batch_size), what.Y.element)

    def _check_shapes(self, views: dict[str, TensorView]) -> None:
        what, shape = self._description, views["X"].shape
        dimensions = len(what.lead) + 2
        self._batch_size = shape[-1 if what.batch_last else -2] if len(shape) == dimensions else 0
        expected = {
            "X": what.x_shape(self._batch_size),
            "G": what.g_shape(self._batch_size),
            "Z": what.y_shape(self._batch_size),
            "Y": what.y_shape(self._batch_size),
        }
        if len(self._factors) != len(what.factors):
            raise ArgumentError(
                mismatch(
                    "factors",
                    expected=f"{len(what.factors)} matrices, for {list(what.factors)}",
                    got=len(self._factors),
                    hint="pass one for each factor of the operation",
                )
            )
        expected |= dict(zip(self._factors, what.factors, strict=True))
        for name, item in views.items():
            if item.shape != expected[name]:
                raise ArgumentError(
                    mismatch(
                        f"shape of {name}",
                        expected=expected[name],
                        got=item.shape,
                        hint="check it against the pattern (a, b, c, d) and the batch of X",
                    )
                )
        if self._batch_size > _MOST_ROWS:
            raise ArgumentError(
                mismatch(
                    "batch of X",
                    expected=f"at most {_MOST_ROWS}",
                    got=self._batch_size,
                    hint="add up the gradients of parts with beta = 1",
                )
            )

    def _promised(self, name: str) -> TensorDescription:
        what = self._description
        every = {"X": what.X, "G": what.G, "Z": what.Y, "Y": what.Y}
        return every.get(name) or TensorDescription(what.X.element)

    @property
    def size(self) -> Rows:
        return Rows(self._batch_size)

    def launches(self, planned: Planned, places: Places) -> tuple[Launch, ...]:
        """The kernel calls over the memory of `places`; for an empty batch, they still write Y."""
        needed = planned.workspace_bytes(self.size, self._threads)
        return planned.launches(self._problem(places, places.workspace(needed)))

    def _problem(self, places: Places, workspace: int) -> KSparseGradientProblem:
        what = self._description
        y = self._views["Y"]
        form = form_for(y, what.Y, self._device)
        result = self._weights(places.output("Y", y, form, read=self._source_is_result))
        source = None
        if self.output_op.beta:
            source = result if self._source_is_result else self._weights(self._input(places, "Z"))
        return KSparseGradientProblem(
            rows=self._batch_size,
            x=self._matrix(places, "X"),
            g=self._matrix(places, "G"),
            y=result,
            z=source,
            scalars=self.output_op.scalars,
            workspace=workspace,
            factors=tuple(self._factor(places, name) for name in self._factors),
        )

    def _input(self, places: Places, name: str) -> TensorView:
        """The operand as kernels read it: in place or as a copy, with its strides there."""
        item = self._views[name]
        form = form_for(item, self._promised(name), self._device)
        place = places.input(name, item, form)
        strides = item.strides if form is None else form.strides
        return place.reshaped(item.shape, strides)

    def _matrix(self, places: Places, name: str) -> Strided:
        if not self._batch_size:
            return NOTHING
        place = self._input(places, name)
        *lead, row, column = place.strides
        if self._description.batch_last:
            row, column = column, row
        return Strided(pointer=place.pointer, strides=(row, column), batch=tuple(lead))

    def _factor(self, places: Places, name: str) -> Strided:
        place = self._input(places, name)
        row, column = place.strides
        return Strided(pointer=place.pointer, strides=(row, column))

    def _weights(self, place: TensorView) -> Strided:
        strides = place.strides
        if self._description.factors:
            return Strided(pointer=place.pointer, strides=(0, 0, 0, 0, strides[0]))
        lead = 0
        if self._description.lead:
            lead, *rest = strides
            strides = tuple(rest)
        if self._description.tied:
            q, p = strides
            return Strided(pointer=place.pointer, strides=(lead, 0, 0, p, q))
        i, p, q, lane = strides
        return Strided(pointer=place.pointer, strides=(lead, i, lane, p, q))
