"""Arguments of distances and products of kernel matrices: tensors of any framework -> problems."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from kronop.args.base import Arguments
from kronop.args.checks import check_results
from kronop.args.operands import Operand, results
from kronop.args.overlap import same_elements
from kronop.args.protocols import OperationLike, Places
from kronop.args.view import TensorView
from kronop.descriptions.scalars import EpilogueArguments
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import ArgumentError
from kronop.families.distance.description import (
    DistanceDescription,
    DistanceProblem,
    KernelMatmulDescription,
    KernelMatmulProblem,
    Value,
    varying,
)
from kronop.families.distance.form import Bound
from kronop.families.distance.kernels import Kernel
from kronop.families.distance.product_size import KernelMatmulSize
from kronop.families.distance.shape_arguments import check_points, matrix_shape, product_shape
from kronop.families.distance.size import DistanceSize
from kronop.families.distance.value_arguments import (
    DIFFERENTIABLE,
    checked,
    in_memory,
    is_tensor,
    names_of,
    tensors_of,
    view_of_value,
)
from kronop.tensors import Tensor

Ints = tuple[int, ...]


class DistanceArguments(Arguments):
    """The tensors and values of distances, or of another kernel, between all pairs of points:
    `Y = epilogue(kernel(X1, X2))`.

    Args:
        operation: a DistanceOperation.
        X1: (..., M, K), any strides.
        X2: (..., N, K); leading dimensions broadcast. None for X1 itself, if the operation is
            symmetric.
        Z: like Y; needed where beta is not 0, and read only there. It may be Y itself.
        Y: (..., M, N), where the result goes; None for a new tensor like X1,
            in the described layout.
        kernel: a kernel of the operation's form, whose values count; None if it has no values. Its
            tensors have the type that sums have (float64 for float64, else float32), and broadcast
            over the leading dimensions.
        regularization: a number or tensor that is added on the diagonal, if the form has that.
        diagonal: row m and column m + diagonal are on it.
        output_op: `operation.epilogue_type(alpha, beta, ...)`; None for its defaults, without Z.

    Everything is checked here; nothing is computed, and nothing but Y is allocated, before the
    first run.

    Raises:
        ElementTypeError: not a tensor, or another element type than the operation's.
        ArgumentError: shapes, devices, values or overlaps that do not fit.
        OutOfMemoryError: no room for Y.

    Example:
        >>> points = kronop.TensorDescription(kronop.float64)
        >>> epilogue = kronop.LinearCombination(kronop.float64, 1, kronop.float64, kronop.float64)
        >>> kernel = kronop.kernels.Gaussian(bandwidth=5.0)
        >>> described = [points, points, points, epilogue]  # of X1, X2 and Y
        >>> operation = kronop.DistanceOperation("x86", None, *described, kernel)
        >>> x, y = np.array([[0.0, 0.0], [3.0, 4.0]]), np.zeros((1, 2))
        >>> arguments = kronop.DistanceArguments(operation=operation, X1=x, X2=y, kernel=kernel)
        >>> operation.run(arguments)
        >>> arguments.Y.round(4).tolist()
        [[1.0], [0.6065]]
    """

    describes: ClassVar[type] = DistanceDescription
    operands: ClassVar[tuple[Operand, ...]] = (
        Operand("X1", "mk"),
        Operand("X2", "nk"),
        *results("mn"),
    )
    differentiable = DIFFERENTIABLE
    _rule: ClassVar[Callable[..., Ints]] = staticmethod(matrix_shape)
    _result = ("M, N", "a row for each point of X1, a column for each of X2")

    def __init__(
        self,
        *,
        operation: OperationLike,
        X1: Tensor,
        X2: Tensor = None,
        Z: Tensor = None,
        Y: Tensor = None,
        kernel: Kernel | Bound | None = None,
        regularization: Any = None,
        diagonal: int = 0,
        output_op: EpilogueArguments | None = None,
    ) -> None:
        super().__init__(operation, output_op)
        self._kernel, self._regularization = kernel, regularization
        self._diagonal = check_diagonal("diagonal", diagonal)
        X2 = X1 if X2 is None and self._description.symmetric else X2
        self._accept(X1=X1, X2=X2, Z=Z, Y=Y)

    def _fit(self, views: dict[str, TensorView]) -> Ints:
        """The shape of Y; the kernel's values that are tensors become operands."""
        what, x1, x2 = self._description, views["X1"], views["X2"]
        check_points(x1.shape, x2.shape)
        if isinstance(what, DistanceDescription) and what.symmetric and not same_elements(x1, x2):
            raise ArgumentError(
                "X2",
                expected="X1 itself, since the operation is symmetric",
                got="another tensor",
                hint="pass X1 twice, or describe an operation that is not symmetric",
            )
        shapes = [item.shape for name, item in views.items() if name not in ("Z", "Y")]
        kernel, element = self._kernel, what.math.element_accumulator
        if isinstance(kernel, Kernel):
            kernel = kernel.bound(max(map(len, shapes)) - 2, self._regularization)
        self._bound = in_memory(checked(kernel, what.kernel), element, x1)
        shape = self._rule(*shapes, self._bound)
        check_results(views, shape, *self._result)
        names = names_of(self._bound)
        for name, item in tensors_of(self._bound).items():
            views[name] = view_of_value(names[name], item, element)
            axes = "k" if name.startswith("vector") else ""
            self._table[name] = Operand(name, axes, like=TensorDescription(element))
        return shape

    @property
    def size(self) -> DistanceSize:
        m, n = self._shape[-2:]
        k, batch = self._views["X1"].shape[-1], math.prod(self._lead)
        return DistanceSize(m, n, k, batch, **self._own())

    def _own(self) -> dict[str, int]:
        """How many problems of the batch have operands of their own: see `DistanceSize`."""
        of = {"own_x1": ["X1"], "own_x2": ["X2"], "own_points": ["X1", "X2"], "own_v": ["V"]}
        steps = {name: item.steps(self._lead) for name, item in self._placed.items()}
        return {
            own: math.prod(varying(self._lead, *(steps[name] for name in names)))
            for own, names in of.items()
            if names[0] in steps
        }

    def _problem(self, places: Places, workspace: int) -> DistanceProblem:
        members = self._members(places)
        return DistanceProblem(**members, diagonal=self._diagonal, workspace=workspace)

    def _members(self, places: Places) -> dict[str, Any]:
        """The members of a problem that are operands, values, extents or scalars."""
        batch, found = self._place(places)

        def held(kind: str, items: Sequence[Any]) -> tuple[Value, ...]:
            return tuple(
                Value(memory=found[f"{kind} {at}"]) if is_tensor(item) else Value(float(item))
                for at, item in enumerate(items)
            )

        return {
            **{item.name.lower(): found.get(item.name) for item in self.operands},
            **{name: getattr(self.size, name) for name in ("m", "n", "k")},
            "batch": batch,
            "values": held("value", self._bound.values),
            "vectors": held("vector", self._bound.vectors),
            "scalars": self.output_op.scalars,
            "threads": self._threads,
        }


class KernelMatmulArguments(DistanceArguments):
    """The tensors and values of a product with a kernel matrix: `Y = epilogue(K V)`, where
    `K[m, n] = kernel(X1[m], X2[n]) + regularization [m = n]`.

    Args:
        operation: a KernelMatmulOperation.
        X1: (..., M, K), any strides.
        X2: (..., N, K); leading dimensions broadcast.
        V: (..., N, C), likewise.
        Z: like Y; needed where beta is not 0, and read only there. It may be Y itself.
        Y: (..., M, C), where the result goes; None for a new tensor like X1,
            in the described layout.
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

    describes: ClassVar[type] = KernelMatmulDescription
    operands = (Operand("X1", "mk"), Operand("X2", "nk"), Operand("V", "nc"), *results("mc"))
    _rule: ClassVar[Callable[..., Ints]] = staticmethod(product_shape)
    _result = ("M, C", "a row for each point of X1, and the columns of V")

    def __init__(
        self,
        *,
        operation: OperationLike,
        X1: Tensor,
        X2: Tensor,
        V: Tensor,
        Z: Tensor = None,
        Y: Tensor = None,
        kernel: Kernel | Bound | None = None,
        regularization: Any = None,
        output_op: EpilogueArguments | None = None,
    ) -> None:
        Arguments.__init__(self, operation, output_op)
        self._kernel, self._regularization = kernel, regularization
        self._accept(X1=X1, X2=X2, V=V, Z=Z, Y=Y)

    @property
    def size(self) -> KernelMatmulSize:
        m, c = self._shape[-2:]
        n, k = self._views["X2"].shape[-2:]
        return KernelMatmulSize(m, n, k, math.prod(self._lead), c, **self._own())

    def _problem(self, places: Places, workspace: int) -> KernelMatmulProblem:
        members, size = self._members(places), self.size
        return KernelMatmulProblem(**members, diagonal=0, c=size.c, size=size, workspace=workspace)


def check_diagonal(name: str, value: Any) -> int:
    """The place of a diagonal as an int.

    Raises:
        ArgumentError: it is no integer.
    """
    try:
        return operator.index(value)
    except TypeError:
        raise ArgumentError(
            name,
            expected="an integer",
            got=repr(value),
            hint="it counts rows or columns; the diagonal's value is `regularization`",
        ) from None
