"""Arguments of the Kronecker matmul family: tensors of any framework -> KronProblem."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from kronop.args.base import Arguments
from kronop.args.operands import Operand, results
from kronop.args.placing import Placed
from kronop.args.protocols import OperationLike, Places
from kronop.args.strides import Loops, broadcast_shapes, collapse
from kronop.args.tensor import check_promise
from kronop.args.view import TensorView
from kronop.descriptions.datatype import Layout
from kronop.descriptions.scalars import EpilogueArguments
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS
from kronop.errors import ArgumentError
from kronop.families.kron.description import KronMatmulDescription, KronProblem, Side
from kronop.families.kron.shape_arguments import result_shape
from kronop.size import Rows
from kronop.tensors import Tensor

Ints = tuple[int, ...]


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

    describes: ClassVar[type] = KronMatmulDescription
    operands: ClassVar[tuple[Operand, ...]] = (
        Operand("X", "mk"),
        Operand("factors", "pq", like="F", each="factors"),
        *results("mn"),
    )
    _description: KronMatmulDescription

    def __init__(
        self,
        *,
        operation: OperationLike,
        X: Tensor,
        factors: Sequence[Tensor],
        Z: Tensor = None,
        Y: Tensor = None,
        output_op: EpilogueArguments | None = None,
    ) -> None:
        super().__init__(operation, output_op, X=X, factors=factors, Z=Z, Y=Y)

    @property
    def _right(self) -> bool:
        return self._description.side is Side.Right

    def _fit(self, views: dict[str, TensorView]) -> Ints:
        """The shape of Y with its dimension M, which vectors get here."""
        what = self._description
        self._is_vector = len(views["X"].shape) == 1
        for index, expected in enumerate(what.factors):
            _check_shape(views[f"factors[{index}]"], f"factors[{index}]", expected, expected)
        factors = [views[f"factors[{index}]"].shape for index in range(len(what.factors))]
        given, views["X"] = views["X"].shape, self._with_rows(views["X"], "X")
        batch = result_shape(given, factors, what.side)[: -1 if self._is_vector else -2]
        self._m = views["X"].shape[-2 if self._right else -1]
        matrix = what.y_shape(self._m)
        shown = (what.output_columns,) if self._is_vector else matrix
        for name in ("Z", "Y"):
            if name in views:
                views[name] = item = self._with_rows(views[name], name)
                _check_shape(item, name, matrix, shown)
                if name == "Z":
                    named = [("X and factors", batch), ("Z", item.shape[:-2])]
                    batch = broadcast_shapes(named)
        if "Y" in views and views["Y"].shape[:-2] != batch:
            raise ArgumentError(
                "shape of Y",
                expected=(*batch, *shown),
                got=self._without_rows(views["Y"].shape),
                hint="its leading dimensions are what X, the factors and Z broadcast to",
            )
        return (*batch, *matrix)

    def _with_rows(self, item: TensorView, name: str) -> TensorView:
        """The matrix view; a vector gets M = 1, before its elements or (Left) after them."""
        needed = 1 if self._is_vector else 2
        if len(item.shape) < needed:
            raise ArgumentError(
                f"shape of {name}",
                expected=f"at least {needed} dimensions",
                got=item.shape,
                hint="only X of one dimension stands for a single row",
            )
        if not self._is_vector:
            return item
        at = len(item.shape) - (1 if self._right else 0)
        strides = (*item.strides[:at], item.shape[-1] * item.strides[-1], *item.strides[at:])
        return item.reshaped((*item.shape[:at], 1, *item.shape[at:]), strides)

    def _without_rows(self, shape: Ints) -> Ints:
        """The shape for the caller: without the M that vectors were given."""
        if not self._is_vector:
            return shape
        return (*shape[:-2], shape[-1]) if self._right else shape[:-1]

    def _new_result(self, like: TensorView) -> TensorView:
        made = self._with_rows(self._made(like, self._without_rows(self._shape)), "Y")
        check_promise(made, self._description.Y, "a new Y")
        return made

    def _lay_out(self) -> None:
        """Finds the loops over batches, and plans copies of operands if these are more loops than
        kernels have."""
        every = self._every()  # Those with rows first, as `collapse` takes them.
        self._placed = {name: every[name] for name in ("X", "Y", "Z") if name in every} | every
        if not self.size:
            return
        loops = self._collapse()
        if len(loops.extents) > MOST_BATCH_DIMENSIONS:
            # The batch is then a single dimension in every operand.
            self._placed = {
                name: item.joined(self._lead, self._device) for name, item in self._placed.items()
            }
            loops = self._collapse()
        steps = zip(*loops.batch_strides, strict=True)
        self._batch = [*zip(loops.extents, steps, strict=True)]
        self._rows, self._steps_of_rows = (
            loops.rows,
            dict(zip(self._placed, loops.row_strides, strict=False)),
        )

    def _collapse(self) -> Loops:
        rows = 0 if self._right else 1  # The index of M's stride in a matrix.
        unit = Layout.ColumnMajor if self._right else Layout.RowMajor
        moving = [item for name, item in self._placed.items() if name in ("X", "Y", "Z")]
        loops = Loops(
            self._m,
            self._lead,
            tuple(item.own[rows] for item in moving),
            tuple(item.steps(self._lead) for item in self._placed.values()),
        )
        keep_unit = tuple(
            item.described.layout is unit and item.described.alignment > 1 for item in moving
        )
        return collapse(loops, keep_unit)

    @property
    def size(self) -> Rows:
        return Rows(math.prod(self._lead) * self._m)

    def _strides(self, name: str, item: Placed) -> Ints:
        row, column = item.own if self._right else item.own[::-1]
        return self._steps_of_rows.get(name, row), column

    def _problem(self, places: Places, workspace: int) -> Any:  # Of other families than kron too.
        batch, found = self._place(places)
        return KronProblem(
            rows=self._rows,
            batch=batch,
            x=found["X"],
            y=found["Y"],
            z=found.get("Z"),
            factors=tuple(item for name, item in found.items() if name.startswith("factors")),
            scalars=self.output_op.scalars,
            workspace=workspace,
            threads=self._threads,
        )


def _check_shape(item: TensorView, name: str, matrix: Ints, shown: Ints) -> None:
    if len(item.shape) < 2 or item.shape[-2:] != matrix:
        sizes = ", ".join(str(size) for size in shown)
        raise ArgumentError(
            f"shape of {name}",
            expected=f"(..., {sizes})",
            got=item.shape,
            hint="the last dimensions must fit",
        )
