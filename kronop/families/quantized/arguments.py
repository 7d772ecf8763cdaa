"""Arguments of quantized Kronecker products: tensors of any framework -> QuantizedKronProblem."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from kronop.args.base import Arguments
from kronop.args.checks import check_overlap, check_writable
from kronop.args.operands import Operand, results
from kronop.args.placing import Placed, Results
from kronop.args.protocols import OperationLike, Places
from kronop.args.strides import Broadcast, Shape, broadcast_shapes
from kronop.args.tensor import empty, view
from kronop.args.view import Device, TensorView, contiguous_strides
from kronop.descriptions.datatype import float32, int8
from kronop.descriptions.scalars import scalar
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import ArgumentError
from kronop.families.kron.arguments import KronMatmulArguments
from kronop.families.kron.description import Side
from kronop.families.kron.shape_arguments import result_shape
from kronop.families.quantized.description import (
    LEAST_CLIP,
    QuantizedKronDescription,
    QuantizedKronProblem,
    check_bits,
)
from kronop.tensors import Tensor


class QuantizedKronArguments(KronMatmulArguments):
    """The tensors of a quantized Kronecker product: rows of X (F1 x ... x FN) as integers with a
    scale each.

    Args:
        operation: a QuantizedKronOperation.
        X: (..., M, K), with K the product of the factors' rows; or (K,).
        factors: one (..., rows, columns) tensor per factor, in the order of the product.
        clip: what the largest magnitude of a row is multiplied by: from 1e-6 to 1.
        Y: int8, contiguous, of the broadcast shape (..., M, bytes of a row); None for a new one.
            Errors call it q.
        scales: float32, contiguous, (..., M, 1); None for a new one.

    Raises:
        ElementTypeError: not a tensor, or another element type than the operation's.
        ArgumentError: shapes, strides, devices, overlaps or a clip that do not fit.
        OutOfMemoryError: no room for Y or the scales.

    Attributes:
        scales: the tensor of the scales.

    Example:
        >>> matrix = kronop.TensorDescription(kronop.float32)
        >>> integers = kronop.TensorDescription(kronop.int8)
        >>> clamp = kronop.LinearCombinationClamp(kronop.int8, 1, kronop.float32, kronop.float32)
        >>> described = [matrix, matrix, integers, clamp, [(2, 2), (2, 2)]]
        >>> operation = kronop.QuantizedKronOperation("x86", None, *described, bits=4)
        >>> x, one = np.ones((3, 4), np.float32), np.eye(2, dtype=np.float32)
        >>> arguments = kronop.QuantizedKronArguments(operation=operation, X=x, factors=[one, one])
        >>> arguments.Y.shape, arguments.scales.shape  # as operation.run(arguments) fills them
        ((3, 2), (3, 1))
    """

    describes: ClassVar[type] = QuantizedKronDescription
    operands = (
        *KronMatmulArguments.operands[:-2],
        Operand("scales", "ms", like=TensorDescription(float32), optional=True),
        *results("mn"),
    )
    called: ClassVar[Mapping[str, str]] = MappingProxyType({"Y": "q"})
    _description: QuantizedKronDescription

    def __init__(
        self,
        *,
        operation: OperationLike,
        X: Tensor,
        factors: Sequence[Tensor],
        clip: float = 1.0,
        Y: Tensor = None,
        scales: Tensor = None,
    ) -> None:
        Arguments.__init__(self, operation, None)
        self._clip, self.scales = check_clip(clip), scales
        self._accept(X=X, factors=factors, Y=Y, scales=scales)

    @property
    def results(self) -> tuple[Tensor, ...]:
        return self.Y, self.scales

    @property
    def _outputs(self) -> Results:
        return {"Y": False, "scales": False}

    def _fit(self, views: dict[str, TensorView]) -> Shape:
        """As for products, but with results of other shapes."""
        given = {name: views.pop(name) for name in self._outputs if name in views}
        shapes, x = [item.shape for name, item in views.items() if name != "X"], views["X"].shape
        product = super()._fit(views)
        bytes_of, scales = result_shapes(x, shapes, self._description.bits)
        for name, shape in (("Y", bytes_of), ("scales", scales)):
            if name in given:
                _check_result(given[name], self._called(name), shape, views["X"].device)
        views |= given
        if "Y" in given:
            views["Y"] = self._with_rows(given["Y"], "Y")
        self._shape_of_scales = scales
        return (*product[:-1], self._description.row_bytes)

    def _new_result(self, like: TensorView) -> TensorView:
        """The bytes of a row follow each other, whatever the layout that is described."""
        self.Y = empty(like, self._without_rows(self._shape), int8)
        return self._with_rows(view(self.Y, "Y"), "Y")

    def _end(self, views: dict[str, TensorView]) -> None:
        if "scales" in views:
            check_writable(views["scales"], "scales")
            others = {self._called(name): item for name, item in views.items() if name != "scales"}
            check_overlap(views["scales"], others, None, "scales")
        else:
            self.scales = empty(views["X"], self._shape_of_scales, float32)
            views["scales"] = view(self.scales, "scales")

    def _every(self) -> dict[str, Placed]:
        """The operands of the product: scales lie one after the other."""
        return {name: item for name, item in super()._every().items() if name != "scales"}

    def _problem(self, places: Places, workspace: int) -> Any:  # Of another family than kron's.
        product = super()._problem(places, workspace)
        scales = places.output("scales", self._views["scales"], None, read=False)
        return QuantizedKronProblem(product=product, scales=scales.pointer, clip=self._clip)


def result_shapes(
    x: Shape, factors: Sequence[Shape], bits: int, broadcast: Broadcast = broadcast_shapes
) -> tuple[Shape, Shape]:
    """The shapes of the integers' bytes and of the scales, for operands of these shapes.

    Args:
        broadcast: the common shape of named leading dimensions.

    Raises:
        ArgumentError: the shapes do not fit each other or the bits, or there are no factors.
    """
    *lead, columns = result_shape(x, factors, Side.Right, broadcast)
    check_bits(bits, columns, ArgumentError)
    return (*lead, columns * bits // 8), (*lead, 1)


def check_clip(clip: Any) -> float:
    """A clipping ratio, as the float of 32 bits that kernels take.

    Raises:
        ElementTypeError: it is no number.
        ArgumentError: it is not from 1e-6 to 1.
    """
    value = float(np.float32(scalar("clip", clip, float32)))
    if not np.float32(LEAST_CLIP) <= value <= 1:
        raise ArgumentError(
            "clip",
            expected=f"a number from {LEAST_CLIP:g} to 1",
            got=repr(clip),
            hint="it scales the largest magnitude of each row; 1 clips nothing",
        )
    return value


def _check_result(item: TensorView, name: str, shape: Shape, device: Device) -> None:
    """Refuses a tensor that is no place for a result of this shape."""
    if item.shape != shape or item.device != device:
        raise ArgumentError(
            name,
            expected=f"shape {shape} on {device}, for X and the factors",
            got=f"{item.shape} on {item.device}",
            hint="leave it out for a new tensor",
        )
    axes = zip(shape, item.strides, contiguous_strides(shape), strict=True)
    if math.prod(shape) and any(extent > 1 and own != want for extent, own, want in axes):
        raise ArgumentError(
            f"memory of {name}",
            expected="contiguous rows",
            got=f"strides {item.strides} of shape {shape}",
            hint="pass a new tensor, or none",
        )
