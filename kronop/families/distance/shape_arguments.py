"""The shapes of distances: of arrays, and of torch's tensors without values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kronop.args.strides import Broadcast, Shape, broadcast_shapes
from kronop.errors import ArgumentError
from kronop.families.distance.form import Bound
from kronop.families.distance.value_arguments import lead_with_values

# The names of the extents that each operand of a gradient has.
_EXTENTS = {"A": "KM", "B": "NK", "C": "OK", "D": "NM", "L": "KM"}


def matrix_shape(
    x1: Shape, x2: Shape, bound: Bound, broadcast: Broadcast = broadcast_shapes
) -> Shape:
    """The shape (..., M, N) of a kernel matrix of points of these shapes.

    Raises:
        ArgumentError: points, or values of the kernel, that do not fit each other.
    """
    check_points(x1, x2)
    lead = broadcast([("X1", x1[:-2]), ("X2", x2[:-2])])
    points = x1[-2], x2[-2]
    return (*lead_with_values(lead, bound, x1[-1], points, broadcast), *points)


def product_shape(
    x1: Shape, x2: Shape, v: Shape, bound: Bound, broadcast: Broadcast = broadcast_shapes
) -> Shape:
    """The shape (..., M, C) of the product of a kernel matrix and V, of operands of these shapes.

    Raises:
        ArgumentError: as of `matrix_shape`, or a V that does not fit.
    """
    *lead, m, _ = matrix_shape(x1, x2, bound, broadcast)
    check_columns(v, x2)
    return (*broadcast([("X1 and X2", tuple(lead)), ("V", v[:-2])]), m, v[-1])


def gradient_shape(operands: Mapping[str, Shape], broadcast: Broadcast = broadcast_shapes) -> Shape:
    """The shape (..., N, M) of a gradient, or (..., O, N, M) with coefficients C.

    Args:
        operands: the shapes of A, B and D, and of C, L and p as far as they are given.

    Raises:
        ArgumentError: the shapes do not fit each other.
    """
    extents = _extents(operands)
    named = [(name, item if name == "p" else item[:-2]) for name, item in operands.items()]
    own = (extents[letter] for letter in ("ONM" if "C" in operands else "NM"))
    return (*broadcast(named), *own)


def check_points(x1: Shape, x2: Shape) -> None:
    """Raises ArgumentError unless these are shapes of points of as many features."""
    for name, shape in (("X1", x1), ("X2", x2)):
        if len(shape) < 2:
            raise ArgumentError(
                name,
                expected="at least two dimensions, points and features",
                got=f"shape {shape}",
                hint="one point is (1, K); points of one feature are (M, 1)",
            )
    if x1[-1] != x2[-1]:
        raise ArgumentError(
            "features of X2",
            expected=f"{x1[-1]}, as X1 of shape {x1} has",
            got=f"{x2[-1]} of shape {x2}",
            hint="the last extents are the features",
        )


def check_columns(v: Shape, x2: Shape) -> None:
    """Raises ArgumentError unless V has a row for each point of X2."""
    if len(v) < 2 or v[-2] != x2[-2]:
        raise ArgumentError(
            "V",
            expected=f"(..., {x2[-2]}, C): a row for each point of X2",
            got=f"shape {v}",
            hint="a single column is v[..., None]; kernel_matmul also takes vectors (N,)",
        )


def _extents(operands: Mapping[str, Shape]) -> dict[str, Any]:
    """The extents K, M, N and O of operands of these shapes; O is 1 without coefficients.

    Raises:
        ArgumentError: they differ between operands.
    """
    found: dict[str, tuple[str, Any]] = {}
    for name, letters in _EXTENTS.items():
        if name not in operands:
            continue
        shape = operands[name]
        if len(shape) < 2:
            raise ArgumentError(
                name,
                expected=f"at least two dimensions, ({', '.join(letters)})",
                got=f"shape {shape}",
                hint="a single point is a matrix of one column or row",
            )
        for letter, extent in zip(letters, shape[-2:], strict=True):
            known = found.setdefault(letter, (name, extent))
            if known[1] != extent:
                raise ArgumentError(
                    f"extent {letter} of {name}",
                    expected=f"{known[1]}, as {known[0]} has",
                    got=f"{extent} of shape {shape}",
                    hint="A is (K, M), B is (N, K), C is (O, K) and D is (N, M)",
                )
    return {"O": 1} | {letter: extent for letter, (_, extent) in found.items()}
