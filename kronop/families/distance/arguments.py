"""Arguments of distances: tensors of any framework -> DistanceProblem."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from typing import Any

from kronop.args.base import Arguments
from kronop.args.checks import check_results, check_source, description_of
from kronop.args.overlap import same_elements
from kronop.args.placing import Laid, collapsed, walkable
from kronop.args.protocols import OperationLike, Places
from kronop.args.tensor import check_promise, views_of
from kronop.args.view import TensorView
from kronop.descriptions.datatype import DataType
from kronop.descriptions.scalars import EpilogueArguments
from kronop.descriptions.strided import Strided
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import ArgumentError, mismatch
from kronop.families.distance.description import (
    DistanceDescription,
    DistanceProblem,
    Value,
    varying,
)
from kronop.families.distance.form import Bound, Form
from kronop.families.distance.kernels import Kernel
from kronop.families.distance.point_arguments import DIFFERENTIABLE
from kronop.families.distance.shape_arguments import check_points, matrix_shape
from kronop.families.distance.size import DistanceSize
from kronop.families.distance.value_arguments import (
    checked,
    in_memory,
    names_of,
    tensors_of,
    view_of_value,
)

DISTANCE_OPERANDS = {"X1": "x1", "X2": "x2", "Y": "y", "Z": "z"}


class DistanceArguments(Arguments):
    """The tensors and values of distances, or of another kernel, between all pairs of points:
    `Y = epilogue(kernel(X1, X2))`.

    Args:
        operation: a DistanceOperation.
        X1: (..., M, K), any strides.
        X2: (..., N, K); leading dimensions broadcast. None for X1 itself, if the operation is
            symmetric.
        Z: like Y; needed where beta is not 0, and read only there. It may be Y itself.
        Y: (..., M, N), where the result goes; None for a new tensor like X1.
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

    def __init__(
        self,
        *,
        operation: OperationLike,
        X1: Any,
        X2: Any = None,
        Z: Any = None,
        Y: Any = None,
        kernel: Kernel | Bound | None = None,
        regularization: Any = None,
        diagonal: int = 0,
        output_op: EpilogueArguments | None = None,
    ) -> None:
        what = description_of(operation, DistanceDescription)
        super().__init__(operation, output_op)
        Y, Z = self._given_result(Y, ("Z", Z))
        X2 = X1 if X2 is None and what.symmetric else X2
        views = views_of({"X1": X1, "X2": X2, "Z": Z, "Y": Y}, differentiable=DIFFERENTIABLE)
        check_source(self.output_op, views.get("Z"))
        check_points(views["X1"].shape, views["X2"].shape)
        self._diagonal = check_diagonal("diagonal", diagonal)
        self._described = {"X1": what.X1, "X2": what.X2, "Z": what.Y, "Y": what.Y}
        self._hold(kernel, regularization, views, what.kernel, what.math.element_accumulator)
        if what.symmetric and not same_elements(views["X1"], views["X2"]):
            raise ArgumentError(
                mismatch(
                    "X2",
                    expected="X1 itself, since the operation is symmetric",
                    got="another tensor",
                    hint="pass X1 twice, or describe an operation that is not symmetric",
                )
            )
        self._shape = matrix_shape(views["X1"].shape, views["X2"].shape, self._bound)
        describes = "a row for each point of X1, a column for each of X2"
        check_results(views, self._shape, "M, N", describes)
        inputs = {**{name: views[name] for name in ("X1", "X2")}, **self._value_views}
        self._settle_result(Y, views, self._shape, what.Y.element, self._value_views)
        self._views = {**self._views, "Y": self._summed(self._views["Y"], what.Y, inputs)}
        self._lay_out(DISTANCE_OPERANDS)

    def _hold(
        self,
        kernel: Kernel | Bound | None,
        regularization: Any,
        views: Mapping[str, TensorView],
        form: Form,
        element: DataType,
    ) -> None:
        """Takes the kernel's values, of a form and a type; finds the device of all operands, and
        checks what was promised of these."""
        dims = max(len(item.shape) for name, item in views.items() if name not in ("Z", "Y")) - 2
        bound = kernel.bound(dims, regularization) if isinstance(kernel, Kernel) else kernel
        self._element_of_sums = element
        self._bound = in_memory(checked(bound, form), element, views["X1"])
        self._value_views = self._views_of_values()
        self._settle({**views, **self._value_views})
        for name, item in views.items():
            check_promise(item, self._described[name], name)

    def _views_of_values(self) -> dict[str, TensorView]:
        """The tensors among values and vectors, by the names under which they are placed."""
        names, element = names_of(self._bound), self._element_of_sums
        return {
            name: view_of_value(names[name], item, element)
            for name, item in tensors_of(self._bound).items()
        }

    @property
    def size(self) -> DistanceSize:
        m, n = self._shape[-2:]
        k, batch = self._views["X1"].shape[-1], math.prod(self._shape[:-2])
        return DistanceSize(m, n, k, batch, **self._own())

    def _own(self) -> dict[str, int]:
        """How many problems of the batch have points of their own: see `DistanceSize`."""
        return {
            "own_x1": self._differing("X1"),
            "own_x2": self._differing("X2"),
            "own_points": self._differing("X1", "X2"),
        }

    def _differing(self, *names: str) -> int:
        """How many problems of the batch differ in one of these operands."""
        lead = self._shape[:-2]
        return math.prod(varying(lead, *(self._laid[name].steps(lead) for name in names)))

    def _lay_out(self, names: Iterable[str]) -> None:
        """Finds how kernels walk the operands of these names that they read, and the values."""
        operands = {name: (self._views[name], 2) for name in names if self._is_walked(name)}
        values = {
            name: (item, int(name.startswith("vector"))) for name, item in self._value_views.items()
        }
        laid = {
            name: Laid.of(
                item,
                self._described.get(name, TensorDescription(item.element)),
                self._device,
                inner,
            )
            for name, (item, inner) in {**operands, **values}.items()
        }
        self._laid = walkable(self._shape[:-2], laid, self._device)

    def _is_walked(self, name: str) -> bool:
        """Whether kernels walk an operand; Z may be Y."""
        return name != "Z" or bool(self.output_op.beta and not self._source_is_result)

    def _problem(self, places: Places, workspace: int) -> DistanceProblem:
        operands = self._operands(places, DISTANCE_OPERANDS)
        return DistanceProblem(**operands, diagonal=self._diagonal, workspace=workspace)

    def _operands(self, places: Places, names: Mapping[str, str]) -> dict[str, Any]:
        """The members of a problem that are operands, values, extents or scalars.

        Args:
            names: operands, and the members that they become.
        """
        pointers = {name: self._pointer(places, name) for name in self._laid}
        extents, batches = collapsed(self._shape[:-2], self._laid)

        def strided(name: str) -> Strided | None:
            if name == "Z" and self._source_is_result:
                name = "Y"
            if name not in self._laid:
                return None
            return Strided(
                pointer=pointers[name], strides=(*self._laid[name].moving,), batch=batches[name]
            )

        def value(name: str, number: Any) -> Value:
            if name not in self._laid:
                return Value(float(number))
            return Value(0.0, pointers[name], batches[name], *self._laid[name].moving)

        size, bound = self.size, self._bound
        return {
            **{member: strided(name) for name, member in names.items()},
            "m": size.m,
            "n": size.n,
            "k": size.k,
            "batch": extents,
            "values": tuple(value(f"value {i}", item) for i, item in enumerate(bound.values)),
            "vectors": tuple(value(f"vector {i}", item) for i, item in enumerate(bound.vectors)),
            "scalars": self.output_op.scalars,
            "threads": self._threads,
        }

    def _pointer(self, places: Places, name: str) -> int:
        item = self._laid[name]
        if name == "Y":
            read = self._source_is_result
            return places.output(name, item.view, item.form, read=read).pointer
        return places.input(name, item.view, item.form).pointer


def check_diagonal(name: str, value: Any) -> int:
    """The place of a diagonal as an int.

    Raises:
        ArgumentError: it is no integer.
    """
    try:
        return operator.index(value)
    except TypeError:
        raise ArgumentError(
            mismatch(
                name,
                expected="an integer",
                got=repr(value),
                hint="it counts rows or columns; the diagonal's value is `regularization`",
            )
        ) from None
