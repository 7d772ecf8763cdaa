"""Y[o, n, m] = epilogue(sum over k of C[o, k] A[k, m] s(D[n, m] - B[n, k]), Z[o, n, m]),

with s(t) = sgn(t) |t|^(p - 1), the derivative of |t|^p / p, and s(0) = 0 for every p. For Relative
powers it is sgn(t) (|t| / L[k, m])^(p - 1), where L has the largest difference of every pair.

A is (K, M): what the pairs of points weigh; L is (K, M) too. B is (N, K) and D is (N, M): K and M
points of N features. C is (O, K); without it, Y is (N, M) and all coefficients are 1.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import field
from typing import Any

import numpy as np

from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.numeric import finish, widen
from kronop.descriptions.scalars import EpilogueArguments
from kronop.descriptions.shaped import Shaped
from kronop.descriptions.shared import check_flag, check_operands
from kronop.descriptions.strided import Strided
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import ArgumentError, ElementTypeError
from kronop.families.distance.description import Value, check_floats, extents_of
from kronop.families.distance.form import POWERS, TermKind
from kronop.frozen import dataclass


def power_of(p: Any) -> float:
    """A power as a float.

    Raises:
        ElementTypeError: it is no number.
        ArgumentError: it is not positive and finite.
    """
    if isinstance(p, bool) or not isinstance(p, numbers.Real):
        raise ElementTypeError(
            "p",
            expected="a real number, or a tensor that broadcasts over the batch",
            got=repr(p),
            hint="p = 2 for Euclidean distances",
        )
    try:
        power = float(p)
    except OverflowError:  # An integer that float64 does not reach.
        power = math.inf
    if not 0 < power < math.inf:
        raise ArgumentError(
            "p",
            expected="a positive, finite number",
            got=repr(p),
            hint="p = 0 counts differences, and has no gradient; that of p = infinity is in"
            " the largest difference alone, and needs another sum",
        )
    return power


def kind_of(p: Any) -> TermKind:
    """The kind of power: General for those that need a logarithm, whose value each call brings."""
    if isinstance(p, TermKind):
        return p
    return POWERS.get(power_of(p), TermKind.General)


@dataclass(frozen=True, slots=True, kw_only=True)
class DistanceGradientDescription(Shaped):
    """The frozen description of weighted sums of derivatives of powers of differences.

    Attributes:
        math: multiply-add; its type `element_a` is that of the operands.
        tile: tile sizes that the user chose, or None.
        A, B, C, D, Y: descriptions of the operands and the result; L is as A.
        epilogue: what is done with a sum.
        power: the kind of the power p; General for one that each call brings.
        expanded: for p = 2, differences may be multiplied out into matrix products, around b[n, 0]:
            errors are then relative to the largest differences from there.

    Raises:
        DescriptionError: types, or what was promised of tensors, do not agree.
        ElementTypeError: an argument has the wrong class, or an element type that is no float of
            16 to 64 bits.
        ArgumentError: a power without a kernel.

    Example:
        >>> matrix = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> described = [matrix, matrix, matrix, matrix, matrix, epilogue]  # A, B, C, D and Y
        >>> operation = kronop.DistanceGradientOperation(90, None, *described, 1.5)
        >>> operation.description.power_value
        1.5
    """

    A: TensorDescription
    B: TensorDescription
    C: TensorDescription
    D: TensorDescription
    Y: TensorDescription
    epilogue: Epilogue
    power: TermKind = field(metadata={"plain": lambda _, p: kind_of(p)})
    expanded: bool = False

    def __post_init__(self) -> None:
        check_operands(self, "ABCD")
        check_floats(self.A, of="distances", what="tensors")
        check_flag("expanded", self.expanded)
        kinds = [*range(TermKind.Half, TermKind.General + 1), TermKind.Relative]
        if not isinstance(self.power, TermKind) or self.power not in kinds:
            raise ArgumentError(
                "power",
                expected="one of TermKind.Half to General, or Relative",
                got=repr(self.power),
                hint="pass p, a positive number",
            )

    @property
    def power_value(self) -> float | None:
        """p; None if each call brings it."""
        return next((p for p, kind in POWERS.items() if kind is self.power), None)

    def shapes(self, size: Any) -> dict[str, Any]:
        m, n, k, o = extents_of(size, "mnko")
        return {"A": (k, m), "B": (n, k), "C": (o, k), "D": (n, m), "Y": (o, n, m)}

    def reference(
        self,
        a: Any,
        b: Any,
        c: Any,
        d: Any,
        z: Any = None,
        output_op: EpilogueArguments | None = None,
        p: Any = None,
        largest: Any = None,
    ) -> Any:
        """The result in NumPy, in float64: (..., O, N, M), or (..., N, M) where `c` is None."""
        p = self.power_value if p is None else np.asarray(p, np.float64)[..., None, None, None]

        def slope(t: Any) -> Any:
            size = np.abs(t)
            if largest is not None:
                divisor = np.asarray(largest, np.float64)[..., None, :, :]
                size = size / np.where(divisor > 0, divisor, 1)
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.where(size == 0, 0.0, np.sign(t) * size ** (p - 1))

        return finish(self.epilogue, output_op, self._summed(a, b, c, d, slope), z)

    def magnitudes(self, a: Any, b: Any, c: Any, d: Any) -> Any:
        """For operands that are not negative, a bound of the sum of the magnitudes of all that is
        added up, even where differences are multiplied out; for powers from 1 to 2."""
        return self._summed(a, b, c, d, lambda t: 1 + t, np.add)

    def _summed(self, a: Any, b: Any, c: Any, d: Any, of: Any, join: Any = np.subtract) -> Any:
        wide = widen(self.math.element_accumulator)
        a, b, d = (np.asarray(item, wide) for item in (a, b, d))
        terms = of(join(d[..., :, None, :], b[..., :, :, None])) * a[..., None, :, :]
        if c is None:
            return terms.sum(-2)
        return np.einsum("...ok,...nkm->...onm", np.asarray(c, wide), terms)


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientProblem:
    """O x N x M sums over K.

    Attributes:
        batch: extents of the leading dimensions, at most 4.
        c: its address is 0 where all coefficients are 1.
        z: None where beta is 0.
        largest: None unless the power is Relative.
        y, z: with strides of o, n and m; that of o is 0 without coefficients.
        power: p.
    """

    m: int
    n: int
    k: int
    o: int
    batch: tuple[int, ...]
    a: Strided
    b: Strided
    c: Strided
    d: Strided
    y: Strided
    z: Strided | None
    power: Value
    scalars: tuple[float, ...]
    threads: int
    largest: Strided | None = None
