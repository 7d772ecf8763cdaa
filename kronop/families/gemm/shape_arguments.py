"""Shapes of the operands of matrix products, and vectors and single numbers among them, as
torch.matmul takes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from kronop.args.strides import Broadcast, Shape, broadcast_shapes, broadcasts, matrix_strides
from kronop.args.view import TensorView
from kronop.descriptions.datatype import INTERLEAVE, AnyLayout, InterleavedLayout, Layout
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import ArgumentError, ElementTypeError
from kronop.families.gemm.panels import DIMENSIONS, extents_of, shape_in_memory
from kronop.families.gemm.vocabulary import GemmCoord

_HINT = "a vector a is one row and b one column, of which the result has none"
# The names of operands for callers, where these are others.
CALLED: Mapping[str, str] = {"Z": "C", "Y": "D"}


def shaped(
    views: Mapping[str, TensorView],
    size: GemmCoord,
    batch: int,
    described: Callable[[str], TensorDescription],
) -> dict[str, TensorView]:
    """Flat ones among the views as matrices of these extents in the described layouts.

    Raises:
        ElementTypeError: `size` is no GemmCoord.
        ArgumentError: tensors of other sizes, or that are copied.
    """
    if not isinstance(size, GemmCoord):
        raise ElementTypeError(
            "problem_size",
            expected="a kronop.gemm.GemmCoord",
            got=repr(size),
            hint="kronop.gemm.GemmCoord(M, N, K), or None",
        )
    if described("Y").interleaved:
        check_whole("K of the problem_size", size.k)
        check_whole("N of the problem_size", size.n)
    result = (size.m, size.n)
    extents = {"A": (size.m, size.k), "B": (size.k, size.n), "Z": result, "Y": result}
    return {
        name: _as_matrix(views[name], name, matrix, batch, described(name))
        for name, matrix in extents.items()
        if name in views and len(views[name].shape) == 1
    }


def _as_matrix(
    item: TensorView, name: str, matrix: Shape, batch: int, described: TensorDescription
) -> TensorView:
    own = shape_in_memory(matrix, described.layout)
    shape = (batch, *own) if batch > 1 else own
    called, others = CALLED.get(name, name), ""
    if name == "Z":
        line = "row" if described.layout is Layout.RowMajor else "column"
        others = f", or those of one {line}"
        shape = _shape_of_source(item.shape[0], shape, described)
        if len(shape) == 2 and shape[0] == 1:
            return item  # A row, which repeats as it is.
    if not item.in_place:
        hint = "only tensors that kernels can read, of native byte order and aligned, may be flat"
        raise shape_error(called, f"a matrix of {matrix}", item.shape, hint)
    if item.shape[0] != math.prod(shape):
        expected = f"{math.prod(shape)} elements, {' x '.join(map(str, shape))}{others}"
        hint = "flat tensors hold `batch` matrices of the problem_size (M, N, K)"
        raise shape_error(called, expected, item.shape, hint)
    steps = matrix_strides(shape, described.layout, 1)
    return item.reshaped(shape, tuple(item.strides[0] * step for step in steps))


def _shape_of_source(
    elements: int, shape: tuple[int, ...], described: TensorDescription
) -> tuple[int, ...]:
    """The shape of a flat C: that of D, or of one row of it, of a column-major C one column, that
    repeats: the same for all products, or one for each."""
    if described.interleaved or elements == math.prod(shape):
        return shape
    line = (1, shape[-1]) if described.layout is Layout.RowMajor else (shape[-2], 1)
    each = (*shape[:-2], *line)
    return next((it for it in (line, each) if elements == math.prod(it)), shape)


def product_of(
    a: Shape,
    b: Shape,
    of_a: AnyLayout = Layout.RowMajor,
    of_b: AnyLayout = Layout.RowMajor,
    broadcast: Broadcast = broadcast_shapes,
) -> tuple[tuple[Any, Any, Any], Shape]:
    """(M, N and K, the leading dimensions) of a product of tensors of these shapes and layouts.

    Raises:
        ArgumentError: they are no matrices, or do not fit each other.
    """
    for name, shape in (("A", a), ("B", b)):
        if len(shape) < 2:
            hint = "flat tensors need a problem_size; reshape a vector to one row or column"
            raise shape_error(name, "at least two dimensions", shape, hint)
    (m, k), (depth, n) = extents_of(a, of_a), extents_of(b, of_b)
    own = 2
    if isinstance(of_b, InterleavedLayout):
        check_whole("N, the columns of interleaved B", n)
        own = DIMENSIONS
    if k != depth:
        raise shape_error("B", f"(..., {k}, N), as A of shape {a} has {k} columns", b)
    return (m, n, k), broadcast([("A", a[:-own]), ("B", b[:-own])])


def check_others(others: Mapping[str, Shape], shape: Shape, columns: Any, whole: int = 0) -> None:
    """Raises ArgumentError unless a bias, Y and Z, as far as there are any, fit a result of this
    shape and number of columns.

    Args:
        whole: how many of its last dimensions Z must have as the result has them; the others may
            broadcast.
    """
    if "bias" in others and others["bias"] != (columns,):
        raise shape_error("bias", f"({columns},): a number for each column", others["bias"])
    if "Y" in others and others["Y"] != shape:
        raise shape_error("D", f"{shape}: leading dimensions, M, N", others["Y"])
    if "Z" in others and not broadcasts(others["Z"], shape):
        raise shape_error("C", f"{shape}, or what broadcasts to it", others["Z"])
    if whole and "Z" in others and others["Z"][-whole:] != shape[-whole:]:
        raise shape_error("C", f"(..., {shape[-whole:]})", others["Z"])


def check_panels(item: TensorView, name: str) -> None:
    """Raises ArgumentError unless a tensor holds panels, each of them without gaps."""
    width = item.shape[-1] if item.shape else None
    if len(item.shape) < DIMENSIONS or width != INTERLEAVE:
        expected = {"A": "(..., K/32, M, 32)", "B": "(..., K/32, N, 32)"}.get(
            name, "(..., N/32, M, 32)"
        )
        hint = "flat tensors need a problem_size; kronop.gemm.interleave makes panels of a matrix"
        raise shape_error(name, f"{expected}, interleaved", item.shape, hint)
    # Of extents above 1, strides tell where elements are.
    follows = item.shape[-2] <= 1 or item.strides[-2] == INTERLEAVE
    if item.size and not (follows and item.strides[-1] == 1 and item.in_place):
        raise ArgumentError(
            f"memory of {name}",
            expected=f"panels without gaps: strides (any, {INTERLEAVE}, 1), in native byte order",
            got=f"strides {item.strides[-DIMENSIONS:]}",
            hint=f"copy {name}, or make it with kronop.gemm.interleave",
        )


def check_whole(name: str, extent: int) -> None:
    """Raises ArgumentError if an extent that panels cut is no multiple of theirs."""
    if extent % INTERLEAVE:
        raise ArgumentError(
            name,
            expected=f"a multiple of {INTERLEAVE}, which a panel has",
            got=extent,
            hint="pad the tensors with zeros",
        )


def shape_error(
    name: str, expected: str, got: object, hint: str = "check the tensors' shapes"
) -> ArgumentError:
    return ArgumentError(f"shape of {name}", expected=expected, got=got, hint=hint)


def steps_forward(item: TensorView) -> bool:
    """Whether rows and columns of an operand follow each other in memory: tensor maps of GPUs have
    neither negative strides nor rows that repeat."""
    pairs = zip(item.shape[-2:], item.strides[-2:], strict=True)
    return all(stride > 0 for extent, stride in pairs if extent > 1)


def check_steps(item: TensorView, described: TensorDescription, name: str) -> None:
    """Raises ArgumentError if an operand that was described as aligned does not step forward."""
    if described.alignment > 1 and not steps_forward(item):
        raise ArgumentError(
            f"memory of {name}",
            expected="positive strides of rows and columns, as an alignment above 1 promises"
            " on a GPU",
            got=f"shape {item.shape}, strides {item.strides}",
            hint=f"describe {name} with alignment 1, or copy it",
        )


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
        _check_vectors(a, b, c, out)
    c, result = (_with_left_out(item, row, column) for item in (c, out))
    found = multiply(a[None] if row else a, b[..., None] if column else b, c, result)
    if out is not None:
        return out
    found = found[..., 0] if column else found
    return (found[..., 0] if column else found[..., 0, :]) if row else found


def _with_left_out(item: Any, row: bool, column: bool) -> Any:
    """C or the result with the dimensions that a row a and a column b leave out, at least one."""
    if not hasattr(item, "ndim"):  # None, or what is no tensor, which the product refuses.
        return item
    item = item[..., None] if column or not item.ndim else item
    return item[..., None, :] if row else item


def _check_vectors(a: Any, b: Any, c: Any, out: Any) -> None:
    left, right = tuple(a.shape), tuple(b.shape)
    if min(len(left), len(right)) < 1 or left[-1] != right[-2:][0]:
        raise shape_error("A and B", "(..., M, K) or (K,), and (..., K, N) or (K,)", (left, right))
    shape: Shape = left[:-1] if len(right) == 1 else (*right[:-2], right[-1])
    if c is not None and not broadcasts(getattr(c, "shape", ()), shape):
        raise shape_error("C", f"{shape}, or what broadcasts to it", tuple(c.shape), _HINT)
    if out is not None and tuple(getattr(out, "shape", shape)) != shape:
        raise shape_error("D", f"{shape}: leading dimensions, M, N", tuple(out.shape), _HINT)
