"""Arguments of gradients of distances: tensors of any framework -> GradientProblem."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

from kronop.args.base import Arguments
from kronop.args.checks import check_results
from kronop.args.operands import Operand, results
from kronop.args.protocols import OperationLike, Places
from kronop.args.view import TensorView
from kronop.descriptions.scalars import EpilogueArguments
from kronop.descriptions.strided import NOTHING
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import ArgumentError
from kronop.families.distance.description import Value
from kronop.families.distance.form import GENERAL_POWERS, TermKind
from kronop.families.distance.gradient_description import (
    DistanceGradientDescription,
    GradientProblem,
    kind_of,
    power_of,
)
from kronop.families.distance.gradient_size import GradientSize
from kronop.families.distance.shape_arguments import gradient_shape
from kronop.families.distance.value_arguments import (
    DIFFERENTIABLE,
    bounded_power,
    is_tensor,
    item_in_memory,
    view_of_value,
)
from kronop.tensors import Tensor

Ints = tuple[int, ...]


class DistanceGradientArguments(Arguments):
    """The tensors and the power of a gradient of distances: sums of coefficients times derivatives
    of powers of differences.

    Args:
        operation: a DistanceGradientOperation.
        A: (..., K, M), any strides, as all operands.
        B: (..., N, K); leading dimensions broadcast.
        D: (..., N, M).
        C: (..., O, K); None for ones.
        L: (..., K, M), the largest difference of each pair; for a Relative power alone.
        Z: like Y; needed where beta is not 0, and read only there. It may be Y itself.
        Y: (..., O, N, M), or (..., N, M) if C is None; None for a new tensor like A,
            in the described layout.
        p: the power, of the operation's kind: a number, or a tensor that broadcasts over the
            leading dimensions, of the type that sums have (float64 for float64, else float32),
            whose values are not checked; None for that of the operation, unless it is General.
        output_op: `operation.epilogue_type(alpha, beta, ...)`; None for its defaults, without Z.

    Everything is checked here; nothing is computed, and nothing but Y is allocated, before the
    first run.

    Raises:
        ElementTypeError: not a tensor, or another element type than the operation's.
        ArgumentError: shapes, devices, powers or overlaps that do not fit.
        OutOfMemoryError: no room for Y.

    Example:
        >>> matrix = kronop.TensorDescription(kronop.float64)
        >>> epilogue = kronop.LinearCombination(kronop.float64, 1, kronop.float64, kronop.float64)
        >>> described = [matrix, matrix, matrix, matrix, matrix, epilogue]  # A, B, C, D and Y
        >>> operation = kronop.DistanceGradientOperation("x86", None, *described, 2.0, True)
        >>> A, B, D = np.ones((2, 1)), np.array([[0.0, 2.0]]), np.array([[3.0]])
        >>> arguments = kronop.DistanceGradientArguments(operation=operation, A=A, B=B, D=D)
        >>> operation.run(arguments)
        >>> arguments.Y.tolist()
        [[4.0]]
    """

    describes: ClassVar[type] = DistanceGradientDescription
    operands = (
        Operand("A", "km"),
        Operand("B", "nk"),
        Operand("C", "ok", optional=True),
        Operand("D", "nm"),
        Operand("L", "km", like="A", optional=True),
        *results("onm"),
    )
    differentiable = DIFFERENTIABLE
    _description: DistanceGradientDescription

    def __init__(
        self,
        *,
        operation: OperationLike,
        A: Tensor,
        B: Tensor,
        D: Tensor,
        C: Tensor = None,
        L: Tensor = None,
        Z: Tensor = None,
        Y: Tensor = None,
        p: Any = None,
        output_op: EpilogueArguments | None = None,
    ) -> None:
        super().__init__(operation, output_op)
        _check_largest(L, self._description.power)
        self._power = _checked(p, self._description)
        self._accept(A=A, B=B, C=C, D=D, L=L, Z=Z, Y=Y)

    def _fit(self, views: dict[str, TensorView]) -> Ints:
        element = self._description.math.element_accumulator
        power = bounded_power(self._power, element.bytes)
        self._power = item_in_memory(power, element, views["A"])
        if is_tensor(self._power):
            views["p"] = view_of_value("p", self._power, element)
            self._table["p"] = Operand("p", "", like=TensorDescription(element))
        if "C" not in views:
            for name in ("Z", "Y"):
                self._table[name] = dataclasses.replace(self._table[name], axes="nm", over="onm")
        shape = gradient_shape(
            {name: item.shape for name, item in views.items() if name not in ("Z", "Y")}
        )
        describes = "a matrix like D for each row of coefficients"
        check_results(views, shape, "O with coefficients, N, M", describes)
        return shape

    @property
    def size(self) -> GradientSize:
        n, m = self._shape[-2:]
        o = self._shape[-3] if "C" in self._views else 1
        return GradientSize(m, n, self._views["A"].shape[-2], o, math.prod(self._lead))

    def _problem(self, places: Places, workspace: int) -> GradientProblem:
        size, (batch, found) = self.size, self._place(places)
        return GradientProblem(
            m=size.m,
            n=size.n,
            k=size.k,
            o=size.o,
            batch=batch,
            a=found["A"],
            b=found["B"],
            c=found.get("C", NOTHING),
            d=found["D"],
            y=found["Y"],
            z=found.get("Z"),
            largest=found.get("L"),
            power=Value(memory=found["p"]) if "p" in found else Value(self._power),
            scalars=self.output_op.scalars,
            threads=self._threads,
        )


def _check_largest(largest: Any, power: TermKind) -> None:
    """Refuses largest differences with another power than a relative one, or none with that."""
    if (largest is not None) != (power is TermKind.Relative):
        raise ArgumentError(
            f"L with the power {power.name}",
            expected="none" if largest is not None else "a tensor",
            got="a tensor" if largest is not None else "none",
            hint="relative powers are of differences divided by the largest ones",
        )


def _checked(p: Any, what: DistanceGradientDescription) -> Any:
    """The power: a number or a tensor.

    Raises:
        ArgumentError: it is not of the description's kind, or not positive and finite.
    """
    p = what.power_value if p is None else p
    power = p if p is None or is_tensor(p) else power_of(p)
    of_one_kind = what.power not in GENERAL_POWERS
    if power is None or (of_one_kind and (is_tensor(power) or kind_of(power) is not what.power)):
        raise ArgumentError(
            "p",
            expected=f"a power of the operation's kind, {what.power.name}",
            got="none" if p is None else repr(p),
            hint="describe the operation with power=TermKind.General for any powers",
        )
    return power
