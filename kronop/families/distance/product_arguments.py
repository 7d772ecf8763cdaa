"""Arguments of products of kernel matrices: tensors of any framework -> KernelMatmulProblem."""

from __future__ import annotations

import math
from typing import Any

from kronop.args.base import Arguments
from kronop.args.checks import check_results, check_source, description_of
from kronop.args.protocols import OperationLike, Places
from kronop.args.tensor import views_of
from kronop.descriptions.scalars import EpilogueArguments
from kronop.families.distance.arguments import DISTANCE_OPERANDS, DistanceArguments
from kronop.families.distance.form import Bound
from kronop.families.distance.kernels import Kernel
from kronop.families.distance.point_arguments import DIFFERENTIABLE
from kronop.families.distance.description import (
    KernelMatmulDescription,
    KernelMatmulProblem,
)
from kronop.families.distance.product_size import KernelMatmulSize
from kronop.families.distance.shape_arguments import check_columns, check_points, product_shape

_OPERANDS = {**DISTANCE_OPERANDS, "V": "v"}


class KernelMatmulArguments(DistanceArguments):
    """The tensors and values of a product with a kernel matrix: `Y = epilogue(K V)`, where
    `K[m, n] = kernel(X1[m], X2[n]) + regularization [m = n]`.

    Args:
        operation: a KernelMatmulOperation.
        X1: (..., M, K), any strides.
        X2: (..., N, K); leading dimensions broadcast.
        V: (..., N, C), likewise.
        Z: like Y; needed where beta is not 0, and read only there. It may be Y itself.
        Y: (..., M, C), where the result goes; None for a new tensor like X1.
        kernel: a kernel of the operation's form, whose values count; None if it has no values. Its
            tensors have the type that sums have (float64 for float64, else float32), and broadcast
            over the leading dimensions.
        regularization: a number or tensor that is added to K[m, m], if the form has that.
        output_op: `operation.epilogue_type(alpha, beta, ...)`; None for its defaults, without Z.

    Everything is checked here; nothing is computed, and nothing but Y is allocated, before the
    first run.

    Raises:
        ElementTypeError: not a tensor, or another element type than the operation's.
        ArgumentError: shapes, devices, values or overlaps that do not fit.
        OutOfMemoryError: no room for Y.

    Example:
        >>> matrix = kronop.TensorDescription(kronop.float64)
        >>> epilogue = kronop.LinearCombination(kronop.float64, 1, kronop.float64, kronop.float64)
        >>> kernel = kronop.kernels.Gaussian(bandwidth=5.0)
        >>> described = [matrix, matrix, matrix, matrix, epilogue]  # of X1, X2, V and Y
        >>> operation = kronop.KernelMatmulOperation("x86", None, *described, kernel)
        >>> operands = {"X1": np.zeros((2, 3)), "X2": np.ones((4, 3)), "V": np.ones((4, 1))}
        >>> arguments = kronop.KernelMatmulArguments(operation=operation, kernel=kernel, **operands)
        >>> arguments.Y.shape  # as operation.run(arguments) fills it
        (2, 1)
    """

    def __init__(
        self,
        *,
        operation: OperationLike,
        X1: Any,
        X2: Any,
        V: Any,
        Z: Any = None,
        Y: Any = None,
        kernel: Kernel | Bound | None = None,
        regularization: Any = None,
        output_op: EpilogueArguments | None = None,
    ) -> None:
        what = description_of(operation, KernelMatmulDescription)
        Arguments.__init__(self, operation, output_op)
        views = views_of(
            {"X1": X1, "X2": X2, "V": V, "Z": Z, "Y": Y}, differentiable=DIFFERENTIABLE
        )
        check_source(self.output_op, views.get("Z"))
        x1, x2, v = (views[name].shape for name in ("X1", "X2", "V"))
        check_points(x1, x2)
        check_columns(v, x2)
        points, results = {"X1": what.X1, "X2": what.X2}, {"Z": what.Y, "Y": what.Y}
        self._described = {**points, "V": what.V, **results}
        self._hold(kernel, regularization, views, what.kernel, what.math.element_accumulator)
        self._shape = product_shape(x1, x2, v, self._bound)
        describes = "a row for each point of X1, and the columns of V"
        check_results(views, self._shape, "M, C", describes)
        self._settle_result(Y, views, self._shape, what.Y.element, self._value_views)
        self._lay_out(_OPERANDS)

    @property
    def size(self) -> KernelMatmulSize:
        m, c = self._shape[-2:]
        n, k = self._views["X2"].shape[-2:]
        own = self._own() | {"own_v": self._differing("V")}
        return KernelMatmulSize(m, n, k, math.prod(self._shape[:-2]), c, **own)

    def _problem(self, places: Places, workspace: int) -> KernelMatmulProblem:
        operands = self._operands(places, _OPERANDS)
        return KernelMatmulProblem(**operands, diagonal=0, c=self._shape[-1], workspace=workspace)
