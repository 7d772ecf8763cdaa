"""Vectors and single numbers among the operands of a matrix product, as torch.matmul takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kronop.args.strides import broadcasts
from kronop.families.gemm.shape_arguments import shape_error

Ints = tuple[int, ...]
_HINT = "a vector a is one row and b one column, of which the result has none"


def are_vectors(a: Any, b: Any, c: Any) -> bool:
    """Whether a or b has one dimension, or c none."""
    # What has no such attribute is refused, or read, later.
    vectors = getattr(a, "ndim", 2) == 1 or getattr(b, "ndim", 2) == 1
    return vectors or (c is not None and getattr(c, "ndim", 2) == 0)


def multiplied(
    multiply: Callable[[Any, Any, Any, Any], Any], a: Any, b: Any, c: Any, out: Any = None
) -> Any:
    """The product of a and b, of which either or both may be vectors.

    Args:
        multiply: the product of matrices a and b with c and out, which may be None.
        a: (..., M, K), or (K,) for a result without M.
        b: (..., K, N), or (K,) for a result without N.
        c: what broadcasts to the result; also a tensor without dimensions.
        out: of the result's shape; maybe c itself.

    Raises:
        ArgumentError: shapes that do not fit.
    """
    row, column = (getattr(item, "ndim", 2) == 1 for item in (a, b))
    if row or column:
        _check(a, b, c, out)
    c, result = (_as_matrix(item, row, column) for item in (c, out))
    found = multiply(a[None] if row else a, b[..., None] if column else b, c, result)
    if out is not None:
        return out
    found = found[..., 0] if column else found
    return (found[..., 0] if column else found[..., 0, :]) if row else found


def _as_matrix(item: Any, row: bool, column: bool) -> Any:
    """C or the result with the dimensions that a row a and a column b leave out, at least one."""
    if not hasattr(item, "ndim"):  # None, or what is no tensor, which the product refuses.
        return item
    item = item[..., None] if column or not item.ndim else item
    return item[..., None, :] if row else item


def _check(a: Any, b: Any, c: Any, out: Any) -> None:
    left, right = tuple(a.shape), tuple(b.shape)
    if min(len(left), len(right)) < 1 or left[-1] != right[-2:][0]:
        raise shape_error("A and B", "(..., M, K) or (K,), and (..., K, N) or (K,)", (left, right))
    shape: Ints = left[:-1] if len(right) == 1 else (*right[:-2], right[-1])
    if c is not None and not broadcasts(getattr(c, "shape", ()), shape):
        raise shape_error("C", f"{shape}, or what broadcasts to it", tuple(c.shape), _HINT)
    if out is not None and tuple(getattr(out, "shape", shape)) != shape:
        raise shape_error("D", f"{shape}: leading dimensions, M, N", tuple(out.shape), _HINT)
