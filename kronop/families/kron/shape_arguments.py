"""The shapes of Kronecker products: of arrays, of torch's tensors without values, of JAX's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kronop.args.checks import count_text, product_text
from kronop.args.strides import Broadcast, Shape, broadcast_shapes
from kronop.errors import ArgumentError
from kronop.families.kron.description import Side


def result_shape(
    x: Shape, factors: Sequence[Shape], side: Side, broadcast: Broadcast = broadcast_shapes
) -> Shape:
    """The shape of X (F1 x ... x FN), or with X on the other side, for operands of these shapes.

    Args:
        x: (..., M, K) or (K,); on the left of X's side, (..., K, M) or (K,).
        factors: (..., rows, columns) of each.

    Raises:
        ArgumentError: the shapes do not fit each other.
    """
    check_some(factors)
    matrices = [check_matrix(shape, at) for at, shape in enumerate(factors)]
    right = side is Side.Right
    rows, columns = ([matrix[axis] for matrix in matrices] for axis in (0, 1))
    contracted, produced = (rows, columns) if right else (columns, rows)
    is_vector, inner = len(x) == 1, -1 if right else -2
    if not x or x[-1 if is_vector else inner] != math.prod(contracted):
        raise _misfit(x, contracted, right)
    lead = broadcast(
        [
            ("X", tuple(x[:-2])),
            *((f"factors[{at}]", tuple(shape[:-2])) for at, shape in enumerate(factors)),
        ]
    )
    made = math.prod(produced)
    if is_vector:
        return (*lead, made)
    return (*lead, x[-2], made) if right else (*lead, made, x[-1])


def check_some(factors: Sequence[object]) -> None:
    """Raises ArgumentError if there are no factors."""
    if not factors:
        raise ArgumentError(
            "factors", expected="at least one factor", got="none", hint="list every factor"
        )


def check_matrix(shape: Shape, index: int) -> tuple[Any, Any]:
    """(rows, columns) of a factor of that shape.

    Raises:
        ArgumentError: it has fewer than two dimensions.
    """
    if len(shape) < 2:
        raise ArgumentError(
            f"factors[{index}]", expected="(..., P, Q)", got=shape, hint="give a matrix"
        )
    return shape[-2], shape[-1]


def _misfit(x: Shape, contracted: Sequence[Any], right: bool) -> ArgumentError:
    count = count_text(math.prod(contracted))
    shape = f"(..., M, {count})" if right else f"(..., {count}, M)"
    return ArgumentError(
        "shape of X",
        expected=f"{shape}, since {product_text(contracted)} = {count}",
        got=tuple(x),
        hint="check X against the factors",
    )
