"""Arguments of Kronecker-sparse products: tensors of any framework -> KSparseProblem, or of chains
-> KSparseChainProblem."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, ClassVar

from kronop.args.base import Arguments
from kronop.args.operands import Operand, results
from kronop.args.placing import Placed, along
from kronop.args.protocols import OperationLike, Places
from kronop.args.staging import Form
from kronop.args.strides import flat_stride, matrix_strides
from kronop.args.tensor import check_promise, keeps_promise, view
from kronop.args.view import TensorView, contiguous_strides
from kronop.descriptions.datatype import Layout
from kronop.descriptions.scalars import EpilogueArguments
from kronop.descriptions.strided import NOTHING, Strided
from kronop.descriptions.summed import summed
from kronop.descriptions.visitor_arguments import VisitorArguments
from kronop.errors import ArgumentError
from kronop.families.ksparse.description import (
    KSparseChainDescription,
    KSparseChainProblem,
    KSparseDescription,
    KSparseProblem,
    OfFeatures,
)
from kronop.families.ksparse.shape_arguments import check_shapes, result_shape
from kronop.size import Rows
from kronop.tensors import Tensor

Ints = tuple[int, ...]
# X, Y and Z are one matrix of batch and features for kernels.
_FLAT = ("X", "Z", "Y")
_ENDS = (
    Operand("bias", "n", like="Y", typed=True, over="mn", optional=True, of_tree=True),
    *results("mn"),
)


class SparseArguments(Arguments):
    """The common base of the arguments of one factor and of a chain."""

    _description: KSparseDescription | KSparseChainDescription

    def _fit(self, views: dict[str, TensorView]) -> Ints:
        what: OfFeatures = self._description
        self._placed_ends: dict[str, tuple[Placed, Ints]] = {}
        shape = result_shape(views["X"].shape, what.chain, what.batch_last)
        self._of_batch = shape[1:] if what.batch_last else shape[:-1]
        weights = (name for name in views if name not in (*_FLAT, "bias"))
        expected = {
            **dict(zip(weights, what.chain, strict=True)),
            "bias": (what.output_columns,),
            "Z": shape,
            "Y": shape,
        }
        check_shapes(views, expected, "X")
        return shape

    def _lead_of(self, shape: Ints) -> Ints:
        """None: the batch is the rows of one matrix."""
        return ()

    @property
    def size(self) -> Rows:
        return Rows(math.prod(self._of_batch))

    def _check(self, name: str, item: TensorView) -> None:
        if name in _FLAT:
            self._flatten(name, item, name)
        else:
            super()._check(name, item)

    def _flatten(self, name: str, item: TensorView, called: str) -> None:
        """Finds how kernels read X, Y or Z as a matrix, after checking its promised layout; in a
        copy if its batch dimensions have no common stride."""
        last = self._description.batch_last
        described = self._described(name)
        features = item.shape[0 if last else -1]
        step, steps = (
            (item.strides[0], item.strides[1:]) if last else (item.strides[-1], item.strides[:-1])
        )
        row = flat_stride(self._of_batch, steps)
        shape = self._ordered(self.size, features)
        matrix = item.reshaped(shape, self._ordered(row or 0, step))
        # A tensor of more dimensions may keep a promise that its matrix breaks: copy it then.
        differs = len(item.shape) > 2 and not keeps_promise(matrix, described)
        if row is not None and item.in_place and not (differs and keeps_promise(item, described)):
            check_promise(matrix, described, called)
            found = Placed.of(matrix, described, self._device, 2)
            self._placed_ends[name] = found, self._ordered(*found.own)
            return
        check_promise(item, dataclasses.replace(described, alignment=1), called)
        strides = matrix_strides(shape, described.layout, described.alignment)
        row, step = self._ordered(*strides)
        steps = contiguous_strides(self._of_batch, row)
        form = Form(item.shape, (step, *steps) if last else (*steps, step))
        found = Placed(view=item, described=described, inner=len(item.shape), form=form)
        self._placed_ends[name] = found, (row, step)

    def _ordered(self, of_batch: int, of_features: int) -> tuple[int, int]:
        """(batch, features) in the order of the matrix's dimensions, or back: it is its own
        inverse."""
        return (of_features, of_batch) if self._description.batch_last else (of_batch, of_features)

    def _placed_of(self, name: str, item: TensorView) -> Placed:
        return self._placed_ends[name][0] if name in _FLAT else super()._placed_of(name, item)

    def _strides(self, name: str, item: Placed) -> Ints:
        if name in _FLAT:
            return self._placed_ends[name][1]
        own = self._table[name]
        return along(item.own, own.axes, own.over or own.axes)

    def _new_result(self, like: TensorView) -> TensorView:
        what = self._description
        if what.Y.layout is Layout.ColumnMajor:
            self._made(like, what.y_shape(self.size))
            self.Y = self.Y.reshape(self._shape)
        else:
            self._made(like, self._shape)
        made = view(self.Y, "Y")
        self._flatten("Y", made, "a new Y")
        return made

    def _end(self, views: dict[str, TensorView]) -> None:
        """Has kernels write the sums of a visitor tree in place of Y, as a matrix."""
        if not isinstance(self.output_op, VisitorArguments):
            return
        what, y, lead = self._description, views.pop("Y"), self._of_batch
        if what.batch_last and len(lead) > 1:
            raise ArgumentError(
                "X of an operation with batch_last and a visitor tree",
                expected="(features, batch), so that results have rows and columns",
                got=f"{1 + len(lead)} dimensions",
                hint="reshape it to two dimensions",
            )
        if not lead:  # A batch of 1.
            y = y.reshaped(self._ordered(1, *y.shape), self._ordered(0, *y.strides))
        self._description = of_sums = summed(what)
        matrix = self._ordered(self.size, what.output_columns)
        batch, step = self._ordered(*matrix_strides(matrix, of_sums.Y.layout, of_sums.Y.alignment))
        steps = contiguous_strides(lead or (1,), batch)
        strides = (step, *steps) if what.batch_last else (*steps, step)
        sums = self._summed(y, what.Y, views, strides)
        views["Y"] = sums if lead else sums.reshaped(self._shape, (step,))
        self._flatten("Y", views["Y"], "Y")

    def _ends(self, places: Places, workspace: int) -> tuple[tuple[Strided, ...], dict[str, Any]]:
        """(the weights, the fields that problems of one factor and of chains have in common)."""
        _, found = self._place(places)
        weights = tuple(item for name, item in found.items() if name.startswith("W") or "[" in name)
        return weights, {
            "rows": self.size,
            "x": found["X"],
            "z": found.get("Z"),
            "bias": found.get("bias", NOTHING),
            "y": found["Y"],
            "scalars": self.output_op.scalars,
            "workspace": workspace,
            "threads": self._threads,
        }


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

    describes: ClassVar[type] = KSparseDescription
    operands = (Operand("X", "mk"), Operand("W", "abcd"), *_ENDS)

    def __init__(
        self,
        *,
        operation: OperationLike,
        X: Tensor,
        W: Tensor,
        Z: Tensor = None,
        Y: Tensor = None,
        bias: Tensor = None,
        output_op: EpilogueArguments | None = None,
    ) -> None:
        super().__init__(operation, output_op, X=X, W=W, bias=bias, Z=Z, Y=Y)

    def _problem(self, places: Places, workspace: int) -> KSparseProblem:
        (weights,), ends = self._ends(places, workspace)
        return KSparseProblem(weights=weights, **ends)


class KSparseChainArguments(SparseArguments):
    """Y = epilogue(X K1' ... KL'), or KL ... K1 X with batch_last, for the factors' weights.

    Args:
        operation: a KSparseChainOperation.
        X: (..., a c d) of the first factor, or (a c d, ...) with batch_last; the other dimensions
            are the batch. A vector is a batch of 1.
        weights: one (a, b, c, d) tensor for each factor, any strides, in the order of the patterns.
        Z: like Y; needed where beta is not 0, and read only there. It may be Y itself.
        Y: where the result goes, shaped as X with a b d features of the last factor; None for a
            new tensor like X.
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
        >>> operation = kronop.KSparseChainOperation(
        ...     "x86", None, tensor, tensor, tensor, epilogue, patterns=((2, 8, 8, 1), (2, 8, 8, 1))
        ... )
        >>> rng = np.random.default_rng(0)
        >>> x = rng.standard_normal((4, 16), np.float32)
        >>> w = rng.standard_normal((2, 8, 8, 1), np.float32)
        >>> arguments = kronop.KSparseChainArguments(operation=operation, X=x, weights=[w, w])
        >>> operation.run(arguments)
        >>> bool(np.allclose(arguments.Y, kronop.ksmm(kronop.ksmm(x, w), w), atol=1e-3))
        True
    """

    describes: ClassVar[type] = KSparseChainDescription
    operands = (Operand("X", "mk"), Operand("weights", "abcd", like="W", each="patterns"), *_ENDS)

    def __init__(
        self,
        *,
        operation: OperationLike,
        X: Tensor,
        weights: Sequence[Tensor],
        Z: Tensor = None,
        Y: Tensor = None,
        bias: Tensor = None,
        output_op: EpilogueArguments | None = None,
    ) -> None:
        super().__init__(operation, output_op, X=X, weights=weights, bias=bias, Z=Z, Y=Y)

    def _problem(self, places: Places, workspace: int) -> KSparseChainProblem:
        weights, ends = self._ends(places, workspace)
        return KSparseChainProblem(weights=weights, **ends)
