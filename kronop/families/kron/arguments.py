"""Arguments of the Kronecker matmul family: tensors of any framework -> KronProblem."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from kronop.args.base import Arguments
from kronop.args.checks import check_source, description_of
from kronop.args.overlap import same_elements
from kronop.args.placing import Laid
from kronop.args.protocols import OperationLike, Places
from kronop.args.strides import Loops, broadcast_shapes, collapse
from kronop.args.tensor import check_promise, empty, listed, view
from kronop.args.view import TensorView, contiguous_strides
from kronop.descriptions.datatype import Layout
from kronop.descriptions.scalars import EpilogueArguments
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS, Strided
from kronop.descriptions.summed import summed
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import ArgumentError, ElementTypeError, mismatch
from kronop.families.kron.description import KronMatmulDescription, KronProblem, Side
from kronop.families.kron.shape_arguments import result_shape
from kronop.size import Rows


class KronMatmulArguments(Arguments):
    """Y = epilogue(X (F1 x ... x FN)), or the same from the left.

    Args:
        operation: a KronMatmulOperation.
        X: (..., M, K) for Side.Right, (..., K, M) for Side.Left, with K the product of the
            factors' rows (Left: columns). K elements alone are one row (one column); Y and Z then
            have no dimension M either.
        factors: one (..., rows, columns) tensor per factor, in the order of the product.
        Z: like Y; needed where beta is not 0, and read only there. It may be Y itself.
        Y: where the result goes, of the broadcast shape; None for a new tensor like X.
        output_op: `operation.epilogue_type(alpha, beta, ...)`; None for its defaults, without Z.

    Leading dimensions broadcast as in torch.matmul. Everything is checked here; nothing is
    computed, and nothing but Y is allocated, before the first run.

    Raises:
        ElementTypeError: not a tensor, or another element type than the operation's.
        ArgumentError: shapes, strides, alignment, devices or overlaps that do not fit.
        OutOfMemoryError: no room for Y.

    Example:
        >>> tensor = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> operation = kronop.KronMatmulOperation(
        ...     "x86", None, tensor, tensor, tensor, epilogue, factors=((8, 8), (8, 8))
        ... )
        >>> x, f = np.ones((4, 64), np.float32), np.full((8, 8), 0.5, np.float32)
        >>> arguments = kronop.KronMatmulArguments(operation=operation, X=x, factors=[f, f])
        >>> operation.run(arguments)
        >>> arguments.Y.shape, bool(np.allclose(arguments.Y, 64 * 0.25))
        ((4, 64), True)
    """

    def __init__(
        self,
        *,
        operation: OperationLike,
        X: Any,
        factors: Sequence[Any],
        Z: Any = None,
        Y: Any = None,
        output_op: EpilogueArguments | None = None,
    ) -> None:
        self._description = description_of(operation, KronMatmulDescription)
        super().__init__(operation, output_op)
        Y, Z = self._given_result(Y, ("Z", Z))
        views = self._read(X, factors, Z, Y)
        self._settle(views)
        for name, item in views.items():
            check_promise(item, self._described(name), name)
        if Y is None:
            views["Y"] = self._new_result(views["X"])
        else:
            self._take_result(Y, views)
        inputs = {name: item for name, item in views.items() if name != "Y"}
        views["Y"] = self._summed(views["Y"], self._description.Y, inputs)
        if self._tree is not None:
            self._description = summed(self._description)
        self._lay_out(views)

    def _read(self, X: Any, factors: Sequence[Any], Z: Any, Y: Any) -> dict[str, TensorView]:
        """The views by name of X, the factors, and Z and Y if given, as matrices with batch
        dimensions."""
        what = self._description
        found = listed(factors)
        if found is None:
            raise ElementTypeError(
                mismatch(
                    "factors",
                    expected="a list or tuple of tensors",
                    got=type(factors).__name__,
                    hint="pass one tensor per factor",
                )
            )
        if len(found) != len(what.factors):
            raise ArgumentError(
                mismatch(
                    "factors",
                    expected=f"{len(what.factors)} tensors, for {list(what.factors)}",
                    got=f"{len(found)}",
                    hint="pass one tensor per factor of the operation",
                )
            )
        views = {"X": view(X, "X")}
        views |= {
            f"factors[{index}]": view(factor, f"factors[{index}]")
            for index, factor in enumerate(found)
        }
        views |= {name: view(item, name) for name, item in (("Z", Z), ("Y", Y)) if item is not None}
        self._is_vector = len(views["X"].shape) == 1
        check_source(self.output_op, views.get("Z"))
        self._check_shapes(views)
        return views

    def _check_shapes(self, views: dict[str, TensorView]) -> None:
        """Checks all shapes against the operation, and gives vectors a dimension M of 1."""
        what = self._description
        for index, expected in enumerate(what.factors):
            _check_shape(views[f"factors[{index}]"], f"factors[{index}]", expected, expected)
        factors = [views[f"factors[{index}]"].shape for index in range(len(what.factors))]
        given, views["X"] = views["X"].shape, self._with_rows(views["X"], "X")
        shape = result_shape(given, factors, what.side)
        self._batch = shape[: -1 if self._is_vector else -2]
        self._m = views["X"].shape[-2 if what.side is Side.Right else -1]
        for name in ("Z", "Y"):
            if name in views:
                self._check_result(views, name, what.y_shape(self._m))

    def _check_result(
        self, views: dict[str, TensorView], name: str, matrix: tuple[int, int]
    ) -> None:
        item = self._with_rows(views[name], name)
        shown = (self._description.output_columns,) if self._is_vector else matrix
        _check_shape(item, name, matrix, shown)
        views[name] = item
        if name == "Z":
            self._batch = broadcast_shapes([("X and factors", self._batch), ("Z", item.shape[:-2])])
        elif item.shape[:-2] != self._batch:
            came = _shape(item, self._is_vector, self._description.side is Side.Right)
            raise ArgumentError(
                mismatch(
                    "shape of Y",
                    expected=(*self._batch, *shown),
                    got=came,
                    hint="its leading dimensions are what X, the factors and Z broadcast to",
                )
            )

    def _with_rows(self, item: TensorView, name: str) -> TensorView:
        """The matrix view; a vector gets M = 1, before its elements or (Left) after them."""
        needed = 1 if self._is_vector else 2
        if len(item.shape) < needed:
            raise ArgumentError(
                mismatch(
                    f"shape of {name}",
                    expected=f"at least {needed} dimensions",
                    got=item.shape,
                    hint="only X of one dimension stands for a single row",
                )
            )
        if not self._is_vector:
            return item
        at = len(item.shape) - (1 if self._description.side is Side.Right else 0)
        strides = (*item.strides[:at], item.shape[-1] * item.strides[-1], *item.strides[at:])
        return item.reshaped((*item.shape[:at], 1, *item.shape[at:]), strides)

    def _described(self, name: str) -> TensorDescription:
        what = self._description
        return what.X if name == "X" else what.Y if name in ("Y", "Z") else what.F

    def _new_result(self, like: TensorView) -> TensorView:
        what = self._description
        matrix = what.y_shape(self._m)
        columns_first = what.Y.layout is Layout.ColumnMajor and not self._is_vector
        memory = (*self._batch, *(reversed(matrix) if columns_first else matrix))
        shape = (*self._batch, what.output_columns) if self._is_vector else memory
        # Check the promised layout before allocating: new memory is aligned, so only the strides
        # can break it.
        strides = contiguous_strides(memory)
        planned = like.reshaped(memory, strides)
        planned = dataclasses.replace(planned, pointer=0, element=what.Y.element, in_place=True)
        if columns_first:
            planned = _exchanged(planned)
        check_promise(planned, what.Y, "a new Y")
        result = empty(like, shape, what.Y.element)
        self.Y = result.swapaxes(-1, -2) if columns_first else result
        return self._with_rows(view(self.Y, "Y"), "Y")

    def _lay_out(self, views: dict[str, TensorView]) -> None:
        """Finds the loops over batches, and plans copies of operands if these are more loops than
        kernels have."""
        names = [
            "X",
            "Y",
            *(["Z"] if self.output_op.beta else []),
            *(n for n in views if n.startswith("factors")),
        ]
        self._source_is_result = "Z" in names and same_elements(views["Z"], views["Y"])
        self._operands: Mapping[str, Laid] = {
            name: Laid.of(views[name], self._described(name), self._device, 2) for name in names
        }
        if not self.size:
            return
        self._loops = self._collapse()
        if len(self._loops.extents) > MOST_BATCH_DIMENSIONS:
            # The batch is then a single dimension in every operand.
            self._operands = {
                name: item.joined(self._batch, self._device)
                for name, item in self._operands.items()
            }
            self._loops = self._collapse()

    def _collapse(self) -> Loops:
        right = self._description.side is Side.Right
        rows = 0 if right else 1  # The index of M's stride in a matrix.
        unit = Layout.ColumnMajor if right else Layout.RowMajor
        moving = [item for name, item in self._operands.items() if name in ("X", "Y", "Z")]
        loops = Loops(
            self._m,
            self._batch,
            tuple(item.own[rows] for item in moving),
            tuple(item.steps(self._batch) for item in self._operands.values()),
        )
        keep_unit = tuple(
            item.described.layout is unit and item.described.alignment > 1 for item in moving
        )
        return collapse(loops, keep_unit)

    @property
    def size(self) -> Rows:
        return Rows(self._m * math.prod(self._batch))

    def _problem(self, places: Places, workspace: int) -> KronProblem:
        matrices: dict[str, Strided] = {}
        loops, right = self._loops, self._description.side is Side.Right
        for position, (name, operand) in enumerate(self._operands.items()):
            if name == "Z" and self._source_is_result:
                matrices["Z"] = matrices["Y"]
                continue
            if name == "Y":
                read = self._source_is_result
                place = places.output(name, operand.view, operand.form, read=read)
            else:
                place = places.input(name, operand.view, operand.form)
            row, column = operand.own if right else operand.own[::-1]
            if position < len(loops.row_strides):
                row = loops.row_strides[position]
            matrices[name] = Strided(
                pointer=place.pointer, strides=(row, column), batch=loops.batch_strides[position]
            )
        return KronProblem(
            rows=loops.rows,
            batch=loops.extents,
            x=matrices["X"],
            y=matrices["Y"],
            z=matrices.get("Z"),
            factors=tuple(item for name, item in matrices.items() if name.startswith("factors")),
            scalars=self.output_op.scalars,
            workspace=workspace,
            threads=self._threads,
        )


def _check_shape(
    item: TensorView, name: str, matrix: tuple[int, int], shown: tuple[int, ...]
) -> None:
    if len(item.shape) < 2 or item.shape[-2:] != matrix:
        sizes = ", ".join(str(size) for size in shown)
        raise ArgumentError(
            mismatch(
                f"shape of {name}",
                expected=f"(..., {sizes})",
                got=item.shape,
                hint="the last dimensions must fit",
            )
        )


def _shape(item: TensorView, is_vector: bool, right: bool) -> tuple[int, ...]:
    """The shape that the caller passed: without the M that vectors were given."""
    if not is_vector:
        return item.shape
    return (*item.shape[:-2], item.shape[-1]) if right else item.shape[:-1]


def _exchanged(item: TensorView) -> TensorView:
    shape, strides = item.shape, item.strides
    return item.reshaped(
        (*shape[:-2], shape[-1], shape[-2]), (*strides[:-2], strides[-1], strides[-2])
    )
