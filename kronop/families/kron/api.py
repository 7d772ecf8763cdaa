"""The operations in one line, on plain tensors: the same kind, type and device out as in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kronop.args.device import target_of
from kronop.args.tensor import describe, listed, view
from kronop.core import prepared
from kronop.core.calls import describe_output, epilogue_of, finish, operand_of, operation_of, plain
from kronop.core.prepared import Call
from kronop.descriptions.shared import Array, beta_beside
from kronop.errors import ElementTypeError
from kronop.families.kron.arguments import KronMatmulArguments
from kronop.families.kron.description import Side
from kronop.families.kron.operation import KronMatmulOperation
from kronop.families.kron.shape_arguments import check_matrix, check_some
from kronop.tensors import Tensor

_NAMES = {Side.Right: "gemkm", Side.Left: "gekmm"}
_ORDER = {Side.Right: "gemkm(x, factors)", Side.Left: "gekmm(factors, x)"}


def gemkm(
    x: Array,
    factors: Sequence[Tensor],
    alpha: float = 1.0,
    beta: float | None = None,
    z: Tensor = None,
    *,
    out: Tensor = None,
) -> Array:
    """alpha x (F1 x ... x FN) + beta z, without forming the Kronecker product.

    It equals `alpha * x @ kron(F1, ..., FN) + beta * z`, where `kron` nests as NumPy's does: the
    last factor's index changes fastest along a row of x.

    The names `gemkm` and `gekmm` and the order of their arguments are those of FastKron (Jangda and
    Yadav, "Fast Kronecker matrix-matrix multiplication on GPUs", PPoPP 2024, arXiv 2401.10187).

    Args:
        x: (..., M, K) or (K,), with K the product of the factors' rows.
        factors: a list, tuple or ParameterList of one (..., P, Q) tensor each; leading dimensions
            broadcast as in `matmul`.
        alpha, beta: scalars; beta needs `z`, and `z` a beta.
        z: like the result; read only where beta is not 0.
        out: where to write the result; a new tensor like `x` where None.

    Returns:
        (..., M, product of the factors' columns), of x's kind, element type and device. Of int8 it
        is int32, wrapped where sums leave its range; to an `out` of int8 it saturates.

    Raises:
        ArgumentError: shapes, devices or scalars that do not fit.
        ElementTypeError: types that do not.
        DescriptionError: this device has no kernel for these types.
        CompileError, DeviceError: no compiler, or a kernel that does not load or run here.
        OutOfMemoryError: no room for the result or for the workspace.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.standard_normal((4, 64), np.float32)
        >>> f1, f2 = rng.standard_normal((2, 8, 8), np.float32)
        >>> y = kronop.gemkm(x, [f1, f2])
        >>> y.shape, bool(np.allclose(y, x @ np.kron(f1, f2), atol=1e-4))
        ((4, 64), True)
        >>> y2 = kronop.gemkm(x, [f1, f2], alpha=0.5, beta=2.0, z=y)
        >>> bool(np.allclose(y2, 2.5 * y, atol=1e-4))
        True
    """
    return _kron(x, factors, Side.Right, alpha, beta, z, out)


def gekmm(
    factors: Sequence[Tensor],
    x: Array,
    alpha: float = 1.0,
    beta: float | None = None,
    z: Tensor = None,
    *,
    out: Tensor = None,
) -> Array:
    """alpha (F1 x ... x FN) x + beta z, without forming the Kronecker product.

    It equals `alpha * kron(F1, ..., FN) @ x + beta * z`, where `kron` nests as NumPy's does. The
    name's source is that of `gemkm`.

    Args:
        factors: a list, tuple or ParameterList of one (..., P, Q) tensor each; leading dimensions
            broadcast as in `matmul`.
        x: (..., K, M) or (K,), with K the product of the factors' columns.
        alpha, beta: scalars; beta needs `z`, and `z` a beta.
        z: like the result; read only where beta is not 0.
        out: where to write the result; a new tensor like `x` where None.

    Returns:
        (..., product of the factors' rows, M), of x's kind, element type and device. Of int8 it is
        int32, wrapped where sums leave its range; to an `out` of int8 it saturates.

    Raises:
        ArgumentError: shapes, devices or scalars that do not fit.
        ElementTypeError: types that do not.
        DescriptionError: this device has no kernel for these types.
        CompileError, DeviceError: no compiler, or a kernel that does not load or run here.
        OutOfMemoryError: no room for the result or for the workspace.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.standard_normal((64, 4), np.float32)
        >>> f1, f2 = rng.standard_normal((2, 8, 8), np.float32)
        >>> y = kronop.gekmm([f1, f2], x)
        >>> y.shape, bool(np.allclose(y, np.kron(f1, f2) @ x, atol=1e-4))
        ((64, 4), True)
    """
    return _kron(x, factors, Side.Left, alpha, beta, z, out)


def _kron(
    x: Tensor,
    factors: Sequence[Tensor],
    side: Side,
    alpha: float,
    beta: float | None,
    z: Any,
    out: Any,
) -> Any:
    beta = beta_beside(z, beta)
    if type(factors) is not list and type(factors) is not tuple:
        factors = list(factors_of(factors, side))
    result, lesson = prepared.repeat(_NAMES[side], alpha, beta, [x, *factors, z, out])
    if result is not None:
        return result
    return finish(kron_arguments(x, factors, side, alpha, beta, z, out), lesson)


def known_call(x: Any, factors: Sequence[Tensor], side: Side, alpha: float) -> Call | None:
    """The repeatable call that equals this `gemkm` or `gekmm` (without z and out), if there was one
    before; else None."""
    return prepared.find(_NAMES[side], alpha, 0.0, [x, *factors, None, None])


def kron_arguments(
    x: Tensor,
    factors: Sequence[Tensor],
    side: Side,
    alpha: float = 1.0,
    beta: float | None = None,
    z: Tensor = None,
    out: Tensor = None,
) -> KronMatmulArguments:
    """The arguments that `gemkm` or `gekmm` runs for these tensors, with their operation."""
    factors = factors_of(factors, side)
    x_view = operand_of(x)
    every = enumerate(factors)
    shapes = tuple(check_matrix(view(item, f"factors[{at}]").shape, at) for at, item in every)
    columns = math.prod(shape[1 if side is Side.Right else 0] for shape in shapes)
    inner = columns if side is Side.Right else (x_view.shape[-1] if len(x_view.shape) > 1 else 1)
    Y = describe_output(x_view.element, inner, z, out)
    X, F = describe(x_view, "X"), plain(x_view.element)
    described = (X, F, Y, epilogue_of(X.element, Y, None), shapes, side)
    operation = operation_of(KronMatmulOperation, target_of(x_view), *described)
    return KronMatmulArguments(
        operation=operation,
        X=x,
        factors=factors,
        Z=z,
        Y=out,
        output_op=operation.epilogue_type(alpha, beta_beside(z, beta)),
    )


def factors_of(factors: Any, side: Side) -> Sequence[Tensor]:
    """The factors of a call that are in a list, a tuple or a ParameterList."""
    found = listed(factors)
    if found is None:
        raise ElementTypeError(
            "factors",
            expected="a list or tuple of tensors",
            got=type(factors).__name__,
            hint=f"the order is {_ORDER[side]}; wrap a single factor in a list",
        )
    check_some(found)
    return found
