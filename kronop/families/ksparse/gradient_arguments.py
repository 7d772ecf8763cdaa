"""Arguments of gradients of weights: tensors of any framework -> KSparseGradientProblem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from kronop.args.base import Arguments
from kronop.args.operands import Operand, results
from kronop.args.placing import Placed
from kronop.args.protocols import OperationLike, Places
from kronop.args.view import TensorView
from kronop.descriptions.scalars import EpilogueArguments
from kronop.descriptions.strided import NOTHING, Strided
from kronop.errors import ArgumentError
from kronop.families.ksparse.gradient_description import (
    KSparseGradientDescription,
    KSparseGradientProblem,
)
from kronop.families.ksparse.shape_arguments import check_shapes
from kronop.size import Rows
from kronop.tensors import Tensor

_MOST_ROWS = 2**31 - 1
Ints = tuple[int, ...]


class KSparseGradientArguments(Arguments):
    """Y = epilogue(the gradient of weights), from a product's operand and its result's gradient.

    Args:
        operation: a KSparseGradientOperation.
        X: (B, a c d), or (a c d, B) with batch_last; any strides, which may be 0.
        G: (B, a b d), or (a b d, B) with batch_last.
        Z: like Y; needed where beta is not 0, and read only there. It may be Y itself.
        Y: where the result goes: (a, b, c, d), or (c, b) where weights are tied; any strides. None
            for a new tensor like X, in the described layout.
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

    describes: ClassVar[type] = KSparseGradientDescription
    operands = (
        Operand("X", "mk"),
        Operand("G", "mn"),
        Operand("factors", "pq", like="X", typed=True, each="factors"),
        *results("abcd"),
    )
    _description: KSparseGradientDescription

    def __init__(
        self,
        *,
        operation: OperationLike,
        X: Tensor,
        G: Tensor,
        Z: Tensor = None,
        Y: Tensor = None,
        output_op: EpilogueArguments | None = None,
        factors: Sequence[Tensor] = (),
    ) -> None:
        super().__init__(operation, output_op, X=X, G=G, factors=factors, Z=Z, Y=Y)

    def _fit(self, views: dict[str, TensorView]) -> Ints:
        what, shape = self._description, views["X"].shape
        dimensions = len(what.lead) + 2
        self._batch_size = shape[-1 if what.batch_last else -2] if len(shape) == dimensions else 0
        expected = what.shapes(self._batch_size)
        expected |= {f"factors[{at}]": matrix for at, matrix in enumerate(what.factors)}
        expected["Z"] = expected["Y"]
        check_shapes(views, expected, "the batch of X")
        if self._batch_size > _MOST_ROWS:
            raise ArgumentError(
                "batch of X",
                expected=f"at most {_MOST_ROWS}",
                got=self._batch_size,
                hint="add up the gradients of parts with beta = 1",
            )
        return what.y_shape(self._batch_size)

    @property
    def size(self) -> Rows:
        return Rows(self._batch_size)

    @property
    def _is_empty(self) -> bool:
        """Never: for an empty batch, kernels still write Y."""
        return False

    def _lead_of(self, shape: Ints) -> Ints:
        """None: the dimension of products is one of each operand's own."""
        return ()

    def _every(self) -> dict[str, Placed]:
        unread = () if self._batch_size else ("X", "G")
        return {name: item for name, item in super()._every().items() if name not in unread}

    def _placed_of(self, name: str, item: TensorView) -> Placed:
        return Placed.of(item, self._described(name), self._device, len(item.shape))

    def _strides(self, name: str, item: Placed) -> Ints:
        """Of X and G those of (product, batch, features), of Y and Z the canonical ones."""
        what, own = self._description, item.own
        if name.startswith("factors"):
            return own
        if name in ("X", "G"):
            return (*own[:-2], own[-1], own[-2]) if what.batch_last else own
        if what.factors:
            return (0, 0, 0, 0, *own)
        lead = own[: len(what.lead)] or (0,)
        rest = own[len(what.lead) :]
        if what.tied:
            q, p = rest
            return (*lead, 0, 0, p, q)
        i, p, q, lane = rest
        return (*lead, i, lane, p, q)

    def _problem(self, places: Places, workspace: int) -> KSparseGradientProblem:
        _, found = self._place(places)
        return KSparseGradientProblem(
            rows=self._batch_size,
            x=_batched(found.get("X", NOTHING)),
            g=_batched(found.get("G", NOTHING)),
            y=found["Y"],
            z=found.get("Z"),
            scalars=self.output_op.scalars,
            workspace=workspace,
            factors=tuple(item for name, item in found.items() if name.startswith("factors")),
        )


def _batched(item: Strided) -> Strided:
    """X or G, whose first dimension is that of products if it has three."""
    return Strided(pointer=item.pointer, strides=item.strides[-2:], batch=item.strides[:-2])
