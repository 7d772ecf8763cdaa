"""Arguments of gradients of distances: tensors of any framework -> GradientProblem."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from kronop.args.base import Arguments
from kronop.args.checks import check_results, check_source, description_of
from kronop.args.placing import Laid, collapsed, walkable
from kronop.args.protocols import OperationLike, Places
from kronop.args.tensor import check_promise, views_of
from kronop.descriptions.scalars import EpilogueArguments
from kronop.descriptions.strided import NOTHING, Strided
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import ArgumentError, mismatch
from kronop.families.distance.description import Value
from kronop.families.distance.form import GENERAL_POWERS, TermKind
from kronop.families.distance.gradient_description import (
    DistanceGradientDescription,
    GradientProblem,
    kind_of,
    power_of,
)
from kronop.families.distance.gradient_size import GradientSize
from kronop.families.distance.point_arguments import DIFFERENTIABLE
from kronop.families.distance.shape_arguments import check_extents, gradient_shape
from kronop.families.distance.value_arguments import (
    bounded_power,
    is_tensor,
    item_in_memory,
    view_of_value,
)


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
        Y: (..., O, N, M), or (..., N, M) if C is None; None for a new tensor like A.
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

    def __init__(
        self,
        *,
        operation: OperationLike,
        A: Any,
        B: Any,
        D: Any,
        C: Any = None,
        L: Any = None,
        Z: Any = None,
        Y: Any = None,
        p: Any = None,
        output_op: EpilogueArguments | None = None,
    ) -> None:
        what = description_of(operation, DistanceGradientDescription)
        super().__init__(operation, output_op)
        _check_largest(L, what.power)
        operands = {"A": A, "B": B, "C": C, "D": D, "L": L, "Z": Z, "Y": Y}
        views = views_of(operands, ("C", "L", "Z", "Y"), DIFFERENTIABLE)
        check_source(self.output_op, views.get("Z"))
        self._extents = check_extents({name: item.shape for name, item in views.items()})
        element = what.math.element_accumulator
        power = bounded_power(_checked(p, what), element.bytes)
        self._power = item_in_memory(power, element, views["A"])
        if is_tensor(self._power):
            views["p"] = view_of_value("p", self._power, element)
        self._settle(views)
        self._described = {"A": what.A, "B": what.B, "C": what.C, "D": what.D, "L": what.A}
        self._described |= {"Z": what.Y, "Y": what.Y, "p": TensorDescription(element)}
        for name, item in views.items():
            check_promise(item, self._described[name], name)
        given = {name: item.shape for name, item in views.items() if name not in ("Z", "Y")}
        shape, own = gradient_shape(given), 2 if C is None else 3
        self._lead, self._own = shape[:-own], shape[-own:]
        describes = "a matrix like D for each row of coefficients"
        check_results(views, shape, "O with coefficients, N, M", describes)
        self._settle_result(Y, views, shape, what.Y.element)

    @property
    def size(self) -> GradientSize:
        extents = {name.lower(): extent for name, extent in self._extents.items()}
        return GradientSize(**extents, batch=math.prod(self._lead))

    def _problem(self, places: Places, workspace: int) -> GradientProblem:
        laid = walkable(self._lead, self._laid(), self._device)
        batch, strides = collapsed(self._lead, laid)
        pointers = {name: self._pointer(places, name, item) for name, item in laid.items()}

        def strided(name: str) -> Strided:
            return Strided(pointer=pointers[name], strides=laid[name].moving, batch=strides[name])

        def result(name: str) -> Strided:
            found = strided(name)  # Without coefficients, there is no dimension of outputs.
            return replace(found, strides=(0, *found.strides)[-3:])

        power = Value(0.0, pointers["p"], strides["p"]) if "p" in laid else Value(self._power)
        source = "Y" if self._source_is_result else "Z"
        size = self.size
        return GradientProblem(
            m=size.m,
            n=size.n,
            k=size.k,
            o=size.o,
            batch=batch,
            a=strided("A"),
            b=strided("B"),
            c=strided("C") if "C" in laid else NOTHING,
            d=strided("D"),
            y=result("Y"),
            z=result(source) if source in laid else None,
            largest=strided("L") if "L" in laid else None,
            power=power,
            scalars=self.output_op.scalars,
            threads=self._threads,
        )

    def _laid(self) -> dict[str, Laid]:
        """The operands that kernels walk, and the power if it is a tensor."""
        result = len(self._own)
        inner = dict.fromkeys("ABCDL", 2) | {"Y": result, "p": 0}
        if self.output_op.beta and not self._source_is_result:
            inner["Z"] = result
        return {
            name: Laid.of(self._views[name], self._described[name], self._device, count)
            for name, count in inner.items()
            if name in self._views
        }

    def _pointer(self, places: Places, name: str, item: Laid) -> int:
        if name == "Y":
            read = self._source_is_result
            return places.output(name, item.view, item.form, read=read).pointer
        return places.input(name, item.view, item.form).pointer


def _check_largest(largest: Any, power: TermKind) -> None:
    """Refuses largest differences with another power than a relative one, or none with that."""
    if (largest is not None) != (power is TermKind.Relative):
        raise ArgumentError(
            mismatch(
                f"L with the power {power.name}",
                expected="none" if largest is not None else "a tensor",
                got="a tensor" if largest is not None else "none",
                hint="relative powers are of differences divided by the largest ones",
            )
        )


def _checked(p: Any, what: DistanceGradientDescription) -> Any:
    """The power: a number or a tensor.

    Raises:
        ArgumentError: it is not of the description's kind, or not positive and finite.
    """
    if p is None and what.power_value is not None:
        return what.power_value
    if p is not None and (is_tensor(p) or what.power in GENERAL_POWERS):
        is_same = what.power in GENERAL_POWERS
        p = p if is_tensor(p) else power_of(p)
    else:
        is_same = p is not None and kind_of(p) is what.power
    if not is_same:
        raise ArgumentError(
            mismatch(
                "p",
                expected=f"a power of the operation's kind, {what.power.name}",
                got="none" if p is None else repr(p),
                hint="describe the operation with power=TermKind.General for any powers",
            )
        )
    return p if is_tensor(p) else power_of(p)
