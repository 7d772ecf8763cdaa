"""gemkm and gekmm on JAX arrays: one primitive, linear in x and in each factor."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.interpreters import batching
from jax.typing import ArrayLike

from kronop.args.base import Arguments
from kronop.args.view import TensorView
from kronop.families.kron.api import kron_arguments
from kronop.families.kron.description import Side
from kronop.families.kron.formed import kronecker_product
from kronop.families.kron.runs import runs
from kronop.families.kron.shape_arguments import result_shape
from kronop.jax.checks import array, arrays, check_types, number, with_source
from kronop.jax.derivatives import contract, differentiate
from kronop.jax.primitives import primitive

__all__ = ["gekmm", "gemkm"]


def gemkm(
    x: ArrayLike,
    factors: Sequence[ArrayLike],
    alpha: float = 1.0,
    beta: float | None = None,
    z: ArrayLike | None = None,
) -> jax.Array:
    """alpha x (F1 x ... x FN) + beta z on JAX arrays, on a CPU or an NVIDIA GPU.

    As `kronop.gemkm`, and a primitive of JAX: under jit, vmap, grad, jvp, linearize, checkpoint and
    their compositions, to any order. When a function is compiled, kronop plans and compiles the
    kernels for the shapes in it; the compiled function calls them directly, without Python.

    The gradient of x alone is one product with the transposed factors. For gradients of factors,
    neighbouring factors are merged into a few runs, which are multiplied by one after the other;
    x's products with them are kept for the backward.

    Args:
        x: (..., M, K) or (K,), with K the product of the factors' rows, in float64 (with
            jax_enable_x64), 32 or 16, bfloat16, int64, 32 or 8.
        factors: one (..., P, Q) array each; leading dimensions broadcast as in `jax.numpy.matmul`.
        alpha, beta: Python numbers, constants of a compiled function; beta needs `z`.
        z: like the result; XLA adds it.

    Returns:
        (..., M, product of the factors' columns), of x's element type (int32 of int8).

    Raises:
        ArgumentError: shapes or scalars that do not fit.
        ElementTypeError: what is no array, or element types that do not fit.
        CompileError, DeviceError: no compiler, or a kernel that does not load here.

    Example:
        >>> import jax, kronop.jax
        >>> rng = np.random.default_rng(0)
        >>> x = rng.standard_normal((3, 16), np.float32)
        >>> factors = list(rng.standard_normal((2, 4, 4), np.float32))
        >>> y = jax.jit(kronop.jax.gemkm)(x, factors)
        >>> bool(np.allclose(y, x @ np.kron(*factors), atol=1e-5))
        True
        >>> jax.grad(lambda x: kronop.jax.gemkm(x, factors).sum())(x).shape
        (3, 16)
    """
    return _kron(x, factors, Side.Right, alpha, beta, z)


def gekmm(
    factors: Sequence[ArrayLike],
    x: ArrayLike,
    alpha: float = 1.0,
    beta: float | None = None,
    z: ArrayLike | None = None,
) -> jax.Array:
    """alpha (F1 x ... x FN) x + beta z on JAX arrays, on a CPU or an NVIDIA GPU.

    Args:
        factors: one (..., P, Q) array each; leading dimensions broadcast as in `jax.numpy.matmul`.
        x: (..., K, M) or (K,), with K the product of the factors' columns.
        alpha, beta, z: as of `gemkm`.

    Returns:
        (..., product of the factors' rows, M), of x's element type (int32 of int8).

    What it does under JAX's transformations and its errors are those of `gemkm`.

    Example:
        >>> import kronop.jax
        >>> rng = np.random.default_rng(0)
        >>> factors = list(rng.standard_normal((2, 4, 4), np.float32))
        >>> x = rng.standard_normal((16, 3), np.float32)
        >>> y = kronop.jax.gekmm(factors, x)
        >>> y.shape, bool(np.allclose(y, np.kron(*factors) @ x, atol=1e-5))
        ((16, 3), True)
    """
    return _kron(x, factors, Side.Left, alpha, beta, z)


def _kron(
    x: ArrayLike,
    factors: Sequence[ArrayLike],
    side: Side,
    alpha: float,
    beta: float | None,
    z: ArrayLike | None,
) -> jax.Array:
    x, factors = array("x", x, 1), arrays("factors", factors, 2)
    check_types(x, factors, "factors")
    at = -2 if side is Side.Right else -1
    operand = jnp.expand_dims(x, at) if x.ndim == 1 else x
    result = kron.bind(operand, *factors, side=side, alpha=number("alpha", alpha, x.dtype))
    return with_source(result.squeeze(at) if x.ndim == 1 else result, z, beta)


def _shape(x: jax.Array, *factors: jax.Array, side: Side, alpha: float) -> tuple[int, ...]:
    return result_shape(x.shape, [item.shape for item in factors], side)


def _arguments(
    x: TensorView, *factors: TensorView, out: TensorView, side: Side, alpha: float
) -> Arguments:
    return kron_arguments(x, factors, side, alpha, out=out)


def _steps(x: jax.Array, *factors: jax.Array, side: Side, alpha: float) -> jax.Array:
    """The product as one product with each run of factors, from the first run to the last.

    For each run, the operand is (..., before, P, behind): M or digits that are done, the run's
    own digits, and digits to come or M.
    """
    right = side is Side.Right
    turned = [item if right else item.mT for item in factors]
    outer, inner = (x.shape[-2], 1) if right else (1, x.shape[-1])
    shapes = tuple(item.shape[-2:] for item in turned)
    every = (True,) * len(turned)
    for run in runs(shapes, every, True, inner, x.dtype.itemsize, False):
        lead, behind = x.shape[:-2], inner * run.behind
        folded = x.reshape(*lead, outer * run.before, run.rows, behind)
        merged = kronecker_product(turned[run.start : run.stop])
        made = _step(folded, merged, alpha if not run.start else 1)
        digits = run.before * run.columns * run.behind
        x = made.reshape(*made.shape[:-3], *((outer, digits) if right else (digits, inner)))
    return x


def _step(x: jax.Array, factor: jax.Array, alpha: float) -> jax.Array:
    """sum over p of x[..., m, p, r] factor[..., p, q], as (..., m, q, r)."""
    if x.shape[-1] == 1:
        made = kron.bind(x.squeeze(-1), factor, side=Side.Right, alpha=alpha)
        return jnp.expand_dims(made, -1)
    along_m = jnp.expand_dims(factor, -3) if factor.ndim > 2 else factor
    return kron.bind(x, along_m.mT, side=Side.Left, alpha=alpha)


def _transposed(ct: jax.Array, factors: Sequence[jax.Array], side: Side, alpha: float) -> jax.Array:
    return kron.bind(ct, *(item.mT for item in factors), side=side, alpha=alpha)


def _gradient(
    ct: jax.Array, x: jax.Array, factor: jax.Array, side: Side, alpha: float
) -> jax.Array:
    """The gradient of the only factor, summed over all dimensions that it does not have."""
    in_x, in_ct, kept = (_labels(item.shape) for item in (x, ct, factor))
    right = side is Side.Right
    matrices = ("mp", "mq") if right else ("qm", "pm")
    labels = (*in_x, *matrices[0]), (*in_ct, *matrices[1]), (*kept, "p", "q")
    return contract(_without_ones(x), _without_ones(ct), labels, alpha).reshape(factor.shape)


def _labels(shape: tuple[int, ...]) -> list[str]:
    """A label for each leading dimension above 1: its place, counted from the right."""
    lead = reversed(shape[:-2])
    return [f"lead {place}" for place, extent in enumerate(lead) if extent != 1][::-1]


def _without_ones(item: jax.Array) -> jax.Array:
    lead = [extent for extent in item.shape[:-2] if extent != 1]
    return item.reshape(*lead, *item.shape[-2:])


def _mapped(
    operands: Sequence[jax.Array], dims: Sequence[int | None], **parameters: object
) -> tuple[jax.Array, int]:
    """jax.vmap: the mapped dimension becomes the first of the leading dimensions that broadcast."""
    most = max(item.ndim - (dim is not None) for item, dim in zip(operands, dims, strict=True))
    aligned = []
    for item, dim in zip(operands, dims, strict=True):
        if dim is not None:
            item = jnp.moveaxis(item, dim, 0)
            ones = (1,) * (most + 1 - item.ndim)
            item = item.reshape(item.shape[0], *ones, *item.shape[1:])
        aligned.append(item)
    return kron.bind(*aligned, **parameters), 0


kron = primitive("kronop_kron", _shape, _arguments)
differentiate(kron, _steps, _transposed, _gradient)
batching.primitive_batchers[kron] = _mapped
