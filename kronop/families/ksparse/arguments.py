"""Arguments of Kronecker-sparse products: tensors of any framework -> KSparseProblem.

The arguments of chains, which only differ in their weights, are in `chain_arguments`.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from kronop.args.base import Arguments
from kronop.args.checks import check_source, description_of
from kronop.args.overlap import same_elements
from kronop.args.protocols import OperationLike, Places
from kronop.args.staging import Form, form_for
from kronop.args.strides import flat_stride, matrix_strides
from kronop.args.tensor import check_promise, empty, keeps_promise, view, views_of
from kronop.args.view import TensorView, contiguous_strides
from kronop.descriptions.datatype import Layout
from kronop.descriptions.scalars import EpilogueArguments
from kronop.descriptions.strided import NOTHING, Strided
from kronop.descriptions.summed import summed
from kronop.descriptions.tensor import TensorDescription
from kronop.descriptions.visitor_arguments import VisitorArguments
from kronop.errors import ArgumentError, mismatch
from kronop.families.ksparse.chain_description import (
    KSparseChainDescription,
)
from kronop.families.ksparse.description import KSparseDescription, KSparseProblem, Pattern
from kronop.families.ksparse.shape_arguments import result_shape
from kronop.frozen import dataclass
from kronop.size import Rows


@dataclass(frozen=True, slots=True)
class _Flat:
    """X, Y or Z as one matrix of batch and features: its memory, the copy that it needs (or None),
    and its strides."""

    view: TensorView
    form: Form | None
    row: int
    column: int


class SparseArguments(Arguments):
    """The common base of the arguments of one factor and of a chain: X, Z, Y, bias and scalars.

    Args:
        operation, X, Z, Y, bias, output_op: as for KSparseArguments.
        kind: the family's description.
        weights: the factors' weights under the names that messages give them.
    """

    _description: KSparseDescription | KSparseChainDescription

    def __init__(
        self,
        operation: OperationLike,
        kind: type[KSparseDescription] | type[KSparseChainDescription],
        X: Any,
        weights: Mapping[str, Any],
        Z: Any,
        Y: Any,
        bias: Any,
        output_op: EpilogueArguments | None,
    ) -> None:
        self._description = what = description_of(operation, kind)
        super().__init__(operation, output_op)
        Y, Z, bias = self._given_result(Y, ("Z", Z), ("bias", bias))
        operands = {"X": X, **weights, "bias": bias, "Z": Z, "Y": Y}
        views = views_of(operands, optional=("bias", "Z", "Y"))
        check_source(self.output_op, views.get("Z"))
        self._check_shapes(views)
        self._settle(views)
        for name in weights:
            check_promise(views[name], what.W, name)
        if "bias" in views:
            check_promise(views["bias"], TensorDescription(what.Y.element), "bias")
        flats: dict[str, _Flat] = {
            name: self._flat(views[name], name) for name in ("X", "Z", "Y") if name in views
        }
        if Y is None:
            flats["Y"] = self._new_result(views["X"])
        else:
            self._take_result(Y, views)
        if isinstance(self.output_op, VisitorArguments):
            flats["Y"] = self._flat_sums({name: views[name] for name in ("X", *weights)})
        self._flats = flats
        self._weights = {name: views[name] for name in weights}
        self._bias = views.get("bias")
        self._source_is_result = self.output_op.beta != 0 and same_elements(
            flats["Z"].view, flats["Y"].view
        )

    @property
    @abc.abstractmethod
    def _patterns(self) -> Mapping[str, Pattern]:
        """The patterns of the weights, by the weights' names."""

    def _check_shapes(self, views: dict[str, TensorView]) -> None:
        what = self._description
        patterns, last = [*self._patterns.values()], what.batch_last
        self._result_shape = result_shape(views["X"].shape, patterns, last)
        self._lead = self._result_shape[1:] if last else self._result_shape[:-1]
        expected_shapes = {
            **self._patterns,
            "bias": (what.output_columns,),
            "Z": self._result_shape,
            "Y": self._result_shape,
        }
        for name, item in views.items():
            if name != "X" and item.shape != expected_shapes[name]:
                raise ArgumentError(
                    mismatch(
                        f"shape of {name}",
                        expected=expected_shapes[name],
                        got=item.shape,
                        hint="check it against the pattern (a, b, c, d) and X",
                    )
                )

    def _flat(self, item: TensorView, name: str) -> _Flat:
        """The tensor as a matrix, after checking its promised layout; or a copy if its batch
        dimensions have no common stride."""
        last = self._description.batch_last
        description = self._description.X if name == "X" else self._description.Y
        features = item.shape[0 if last else -1]
        step, steps = (
            (item.strides[0], item.strides[1:]) if last else (item.strides[-1], item.strides[:-1])
        )
        row = flat_stride(self._lead, steps)
        shape = self._ordered(self.size, features)
        matrix = item.reshaped(shape, self._ordered(row or 0, step))
        # A tensor of more dimensions may keep a promise that its matrix breaks: copy it then.
        differs = len(item.shape) > 2 and not keeps_promise(matrix, description)
        if row is not None and item.in_place and not (differs and keeps_promise(item, description)):
            check_promise(matrix, description, name)
            form = form_for(matrix, description, self._device)
            strides = matrix.strides if form is None else form.strides
            return _Flat(matrix, form, *(strides[::-1] if last else strides))
        check_promise(item, dataclasses.replace(description, alignment=1), name)
        row, step = self._ordered(*matrix_strides(shape, description.layout, description.alignment))
        steps = contiguous_strides(self._lead, row)
        form = Form(item.shape, (step, *steps) if last else (*steps, step))
        return _Flat(item, form, row, step)

    def _ordered(self, of_batch: int, of_features: int) -> tuple[int, int]:
        """(batch, features) in the order of the matrix's dimensions, or back: it is its own
        inverse."""
        return (of_features, of_batch) if self._description.batch_last else (of_batch, of_features)

    def _new_result(self, like: TensorView) -> _Flat:
        what = self._description
        matrix = what.y_shape(self.size)
        columns_first = what.Y.layout is Layout.ColumnMajor
        row, column = matrix_strides(matrix, what.Y.layout, 1)
        planned = dataclasses.replace(
            like,
            pointer=0,
            shape=matrix,
            strides=(row, column),
            element=what.Y.element,
            in_place=True,
        )
        check_promise(planned, what.Y, "a new Y")
        if columns_first:
            memory = empty(like, (matrix[1], matrix[0]), what.Y.element)
            self.Y = memory.swapaxes(0, 1).reshape(self._result_shape)
        else:
            self.Y = empty(like, self._result_shape, what.Y.element)
        return self._flat(view(self.Y, "Y"), "Y")

    def _flat_sums(self, inputs: Mapping[str, TensorView]) -> _Flat:
        """The sums of a visitor tree, which kernels write in place of Y."""
        what, y = self._description, view(self.Y, "Y")
        if what.batch_last and len(self._lead) > 1:
            raise ArgumentError(
                mismatch(
                    "X of an operation with batch_last and a visitor tree",
                    expected="(features, batch), so that results have rows and columns",
                    got=f"{1 + len(self._lead)} dimensions",
                    hint="reshape it to two dimensions",
                )
            )
        lead = self._lead or (1,)
        if not self._lead:  # A batch of 1.
            y = y.reshaped(self._ordered(1, *y.shape), self._ordered(0, *y.strides))
        self._description = of_sums = summed(what)
        matrix = self._ordered(self.size, what.output_columns)
        batch, step = self._ordered(*matrix_strides(matrix, of_sums.Y.layout, of_sums.Y.alignment))
        strides = (step, batch) if what.batch_last else (*contiguous_strides(lead, batch), step)
        sums = self._summed(y, what.Y, inputs, strides)
        if not self._lead:
            sums = sums.reshaped(self._result_shape, (step,))
        return self._flat(sums, "Y")

    @property
    def size(self) -> Rows:
        return Rows(math.prod(self._lead))

    def _ends(self, places: Places, workspace: int) -> dict[str, Any]:
        """The fields that problems of one factor and of chains have in common."""
        y = self._flats["Y"]
        read = self._source_is_result
        result = _matrix(y, places.output("Y", y.view, y.form, read=read))
        source = None
        if self.output_op.beta:
            source = result if self._source_is_result else self._placed(places, "Z")
        return {
            "rows": self.size,
            "x": self._placed(places, "X"),
            "z": source,
            "bias": self._place_bias(places),
            "y": result,
            "scalars": self.output_op.scalars,
            "workspace": workspace,
            "threads": self._threads,
        }

    def _place_weights(self, places: Places, name: str) -> Strided:
        item = self._weights[name]
        form = form_for(item, self._description.W, self._device)
        strides = item.strides if form is None else form.strides
        return Strided(
            pointer=places.input(name, item, form).pointer,
            strides=(strides[0], strides[1], strides[2], strides[3]),
        )

    def _placed(self, places: Places, name: str) -> Strided:
        flat = self._flats[name]
        return _matrix(flat, places.input(name, flat.view, flat.form))

    def _place_bias(self, places: Places) -> Strided:
        if self._bias is None:
            return NOTHING
        form = form_for(self._bias, TensorDescription(self._bias.element), self._device)
        strides = self._bias.strides if form is None else form.strides
        pointer = places.input("bias", self._bias, form).pointer
        return Strided(pointer=pointer, strides=(0, strides[0]))


class KSparseArguments(SparseArguments):
    """Y = epilogue(X K'), or K X with batch_last, for the weights W of a Kronecker-sparse K.

    Args:
        operation: a KSparseOperation.
        X: (..., a c d), or (a c d, ...) with batch_last; the other dimensions are the batch. A
            vector is a batch of 1.
        W: (a, b, c, d), any strides.
        Z: like Y; needed where beta is not 0, and read only there. It may be Y itself.
        Y: where the result goes, shaped as X with a b d features; None for a new tensor like X.
        bias: (a b d,) of Y's element type, added to every row; or None.
        output_op: `operation.epilogue_type(alpha, beta, ...)`; None for its defaults, without Z.

    A batch that no single stride walks is copied (Y: written through a copy). Everything is
    checked here; nothing is computed, and nothing but Y is allocated, before the first run.

    Raises:
        ElementTypeError: not a tensor, or another element type than the operation's.
        ArgumentError: shapes, strides, alignment, devices or overlaps that do not fit.
        OutOfMemoryError: no room for Y.

    Example:
        >>> tensor = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> operation = kronop.KSparseOperation(
        ...     "x86", None, tensor, tensor, tensor, epilogue, pattern=(2, 8, 8, 1)
        ... )
        >>> rng = np.random.default_rng(0)
        >>> x = rng.standard_normal((4, 16), np.float32)
        >>> w = rng.standard_normal((2, 8, 8, 1), np.float32)
        >>> arguments = kronop.KSparseArguments(operation=operation, X=x, W=w)
        >>> operation.run(arguments)
        >>> bool(np.allclose(arguments.Y, kronop.ksmm(x, w), atol=1e-4))
        True
    """

    _description: KSparseDescription

    def __init__(
        self,
        *,
        operation: OperationLike,
        X: Any,
        W: Any,
        Z: Any = None,
        Y: Any = None,
        bias: Any = None,
        output_op: EpilogueArguments | None = None,
    ) -> None:
        super().__init__(operation, KSparseDescription, X, {"W": W}, Z, Y, bias, output_op)

    @property
    def _patterns(self) -> Mapping[str, Pattern]:
        return {"W": self._description.pattern}

    def _problem(self, places: Places, workspace: int) -> KSparseProblem:
        ends = self._ends(places, workspace)
        return KSparseProblem(weights=self._place_weights(places, "W"), **ends)


def _matrix(flat: _Flat, place: TensorView) -> Strided:
    return Strided(pointer=place.pointer, strides=(flat.row, flat.column))
