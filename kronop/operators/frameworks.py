"""What operators need of NumPy, torch and CuPy: the few spellings that differ, and the checks.

The three have the same functions in their `linalg`, and take the same positional arguments.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from types import ModuleType

import numpy as np

from kronop.args.frameworks import check_strided
from kronop.errors import ArgumentError, ElementTypeError, converting
from kronop.families.kron.api import gekmm, gemkm
from kronop.families.kron.formed import narrowed, widened
from kronop.late import imported
from kronop.tensors import Scale, Tensor

_DECOMPOSED = ("float32", "float64")
# So many unknowns are substituted at once.
_ROWS = 64


def framework_of(tensor: object, name: str) -> ModuleType:
    """The module NumPy, torch or CuPy that a tensor is of; `name` is the tensor's in messages."""
    if isinstance(tensor, (np.ndarray, np.generic)):
        return np
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and isinstance(tensor, torch.Tensor):
        return torch
    if cupy is not None and isinstance(tensor, cupy.ndarray):
        return cupy
    raise ElementTypeError(
        name,
        expected="a tensor of NumPy, torch or CuPy",
        got=type(tensor).__name__,
        hint="to_dense() forms an operator's matrix"
        if hasattr(tensor, "to_dense")
        else "for example numpy.asarray(value, 'float64')",
    )


def is_torch(framework: ModuleType) -> bool:
    return framework.__name__ == "torch"


def products(framework: ModuleType) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """kronop's `gekmm` and `gemkm`, for torch those with gradients."""
    if not is_torch(framework):
        return gekmm, gemkm
    differentiable = imported("kronop.torch")
    return differentiable.gekmm, differentiable.gemkm


def check_alike(tensor: Tensor, name: str, other: Tensor, other_name: str) -> None:
    """Refuses a tensor that is not of the other's framework and element type or, of torch's, on
    another device or without strides."""
    framework, wanted = framework_of(tensor, name), framework_of(other, other_name)
    if framework is not wanted:
        raise ArgumentError(
            name,
            expected=f"a tensor of {wanted.__name__} as {other_name}",
            got=f"one of {framework.__name__}",
            hint="frameworks are not mixed: convert one of them",
        )
    if is_torch(framework):
        check_strided(tensor, name)
        if tensor.device != other.device:
            raise ArgumentError(
                f"device of {name}",
                expected=f"{other.device} as {other_name}",
                got=tensor.device,
                hint="move all tensors to one device",
            )
    if tensor.dtype != other.dtype:
        raise ElementTypeError(
            f"element type of {name}",
            expected=f"{other.dtype} as {other_name}",
            got=tensor.dtype,
            hint=converting(
                (tensor.dtype, other.dtype), "nothing is promoted: convert one of them"
            ),
        )


def batch_of(*shapes: Sequence[int]) -> tuple[int, ...]:
    """Leading dimensions, broadcast."""
    if not any(shapes):  # The usual case, which takes no time.
        return ()
    try:
        return np.broadcast_shapes(*map(tuple, shapes))
    except ValueError as error:
        raise ArgumentError(
            "leading dimensions",
            expected="some that broadcast",
            got=", ".join(str(tuple(shape)) for shape in shapes),
            hint="they are batches, as in matmul",
        ) from error


def check_decomposable(tensor: Tensor, name: str = "the factors") -> None:
    """Refuses element types that the libraries do not decompose."""
    kind = str(tensor.dtype).removeprefix("torch.")
    if kind not in _DECOMPOSED:
        raise ElementTypeError(
            f"element type of {name}",
            expected=f"one of {', '.join(_DECOMPOSED)} for solutions and decompositions",
            got=kind,
            hint=converting(kind, f"convert {name}; products take all of kronop's types"),
        )


def attempt(function: Callable[[Tensor], Tensor], matrix: Tensor) -> Tensor | None:
    """What the library's function gives, or None where it finds the matrix singular or not
    definite."""
    framework = framework_of(matrix, "the matrix")
    # torch has an error of its own; CuPy raises NumPy's.
    refusal = getattr(framework.linalg, "LinAlgError", np.linalg.LinAlgError)
    try:
        with _raising(framework):
            return function(matrix)
    except refusal:
        return None


def _raising(framework: ModuleType) -> AbstractContextManager[None]:
    """In this block failures raise; CuPy goes on with what it has, unless it is told to raise."""
    if framework.__name__ != "cupy":
        return contextlib.nullcontext()
    # Of CuPy, which the matrix shows to be here.
    found: AbstractContextManager[None] = imported("cupyx").errstate(linalg="raise")
    return found


def inverse(matrix: Tensor, name: str) -> Tensor:
    """The inverse of a factor, or an error that names it."""
    return _invertible(framework_of(matrix, name).linalg.inv, matrix, name)


def solved(matrix: Tensor, b: Tensor, name: str) -> Tensor:
    """x of matrix @ x = b for columns b, by the library's LU decomposition, or an error."""
    solve = framework_of(matrix, name).linalg.solve
    if len(matrix.shape) > 2:
        matrix, b = _of_one_batch(matrix, b)
        return _invertible(lambda item: solve(item, b), matrix, name)
    # A batch of b is more columns of a single matrix, which is decomposed once.
    rows = b.reshape(math.prod(b.shape[:-2]), *b.shape[-2:]).swapaxes(0, 1)
    columns = rows.reshape(b.shape[-2], math.prod(b.shape) // b.shape[-2])
    x = _invertible(lambda item: solve(item, columns), matrix, name)
    return x.reshape(rows.shape).swapaxes(0, 1).reshape(b.shape)


def solve_triangular(matrix: Tensor, b: Tensor, *, upper: bool) -> Tensor:
    """x of matrix @ x = b. Only torch has a function for batches of triangles; for others it is
    substitution by blocks, most of which is products."""
    framework = framework_of(matrix, "the matrix")
    if is_torch(framework):
        return framework.linalg.solve_triangular(matrix, b, upper=upper)
    matrix, x = _of_one_batch(matrix, b)
    x = copied(x)
    starts = range(0, matrix.shape[-1], _ROWS)
    for at in reversed(starts) if upper else starts:
        own = slice(at, at + _ROWS)
        known = slice(at + _ROWS, None) if upper else slice(at)
        rest = x[..., own, :] - matrix[..., own, known] @ x[..., known, :]
        x[..., own, :] = framework.linalg.solve(matrix[..., own, own], rest)
    return x


def _of_one_batch(matrix: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Both with all leading dimensions: NumPy 1 takes fewer for vectors, CuPy takes no fewer."""
    expand = framework_of(matrix, "the matrix").broadcast_to
    lead = batch_of(matrix.shape[:-2], b.shape[:-2])
    return expand(matrix, (*lead, *matrix.shape[-2:])), expand(b, (*lead, *b.shape[-2:]))


def _invertible(function: Callable[[Tensor], Tensor], matrix: Tensor, name: str) -> Tensor:
    check_decomposable(matrix)
    found = attempt(function, matrix)
    if found is None:
        raise ArgumentError(
            name,
            expected="an invertible matrix",
            got="a singular one",
            hint="of symmetric factors solve(b, sigma2) adds sigma2 to the diagonal",
        )
    return found


def cholesky(matrix: Tensor) -> Tensor | None:
    """The lower factor L of L L^T, or None where the matrix is not positive definite."""
    return attempt(framework_of(matrix, "the matrix").linalg.cholesky, matrix)


def as_tensor(value: Scale, beside: Tensor, name: str) -> Tensor:
    """A number or tensor as a tensor of the framework, type and device of another one."""
    framework = framework_of(beside, name)
    _check_real(value, beside, name)
    if is_torch(framework):
        if isinstance(value, framework.Tensor):
            return value.to(device=beside.device, dtype=beside.dtype)
        _check_number(value, name)
        return framework.as_tensor(value, dtype=beside.dtype, device=beside.device)
    if not isinstance(value, framework.ndarray):
        _check_number(value, name)
    return framework.asarray(value, dtype=beside.dtype)


def as_scale(value: Scale, beside: Tensor, name: str = "the scale") -> Scale:
    """What an operator is multiplied by: a number of Python's own, which is rounded to no type of
    16 bits, or a tensor over the leading dimensions, of float32 beside such a type."""
    _check_real(value, beside, name)
    if isinstance(value, (np.generic, np.ndarray)) and not value.shape:
        value = value.item()
    return value if is_number(value) else as_tensor(value, widened(beside[..., :0]), name)


def _check_real(value: object, beside: Tensor, name: str) -> None:
    """Refuses complex values, and fractions beside whole numbers."""
    kind = str(getattr(value, "dtype", type(value).__name__))
    if "int" in str(beside.dtype) and "int" not in kind:
        raise ElementTypeError(
            name,
            expected=f"a whole number beside {beside.dtype}",
            got=kind,
            hint="convert the factors to float64",
        )
    if "complex" in kind:
        raise ElementTypeError(name, expected="real numbers", got=kind, hint="pass its real part")


def _check_number(value: object, name: str) -> None:
    if not isinstance(value, (int, float, np.integer, np.floating)):
        raise ElementTypeError(
            name,
            expected="a real number, or a tensor of the factors' framework",
            got=type(value).__name__,
            hint="pass a float",
        )


def is_number(value: object) -> bool:
    return isinstance(value, (int, float))


def times(x: Tensor, scale: Tensor, trailing: int) -> Tensor:
    """x times a number, or times a tensor over the dimensions in front of so many trailing ones:
    in x's type, of 16 bits by way of float32."""
    if is_number(scale):
        return x if scale == 1 else narrowed(widened(x) * scale, x)
    return narrowed(widened(x) * scale[(..., *[None] * trailing)], x)


def sign_of(scale: Scale) -> Scale:
    """1, 0 or -1, of a number or a tensor."""
    if is_number(scale):
        return (scale > 0) - (scale < 0)
    return framework_of(scale, "the scale").sign(scale)


def log_size(scale: Scale) -> Scale:
    """log |scale| of a number or a tensor, and -infinity for 0."""
    if is_number(scale):
        return math.log(abs(scale)) if scale else -math.inf
    return framework_of(scale, "the scale").log(abs(scale))


def without_gradient(tensor: Tensor) -> Tensor:
    """The tensor's values."""
    return tensor.detach() if hasattr(tensor, "detach") else tensor


def copied(tensor: Tensor) -> Tensor:
    return tensor.clone() if hasattr(tensor, "clone") else tensor.copy()


def without_autocast(beside: Tensor) -> AbstractContextManager[object]:
    """Products of torch tensors in this block keep their type."""
    if not is_torch(framework_of(beside, "the operator")):
        return contextlib.nullcontext()
    implicit = imported("kronop.torch.implicit")
    off: AbstractContextManager[object] = implicit.without_autocast(beside)
    return off


def turned(matrix: Tensor) -> Tensor:
    """The matrices transposed."""
    return matrix.swapaxes(-1, -2)


def diagonal(matrix: Tensor) -> Tensor:
    return matrix.diagonal(0, -2, -1)


def identity(order: int, beside: Tensor) -> Tensor:
    """An identity of a tensor's type, framework and device."""
    framework = framework_of(beside, "the matrix")
    place = {"device": beside.device} if is_torch(framework) else {}
    return framework.eye(order, dtype=beside.dtype, **place)


def taken(x: Tensor, index: Tensor) -> Tensor:
    """The rows of columns x (..., N, C) at the index (n,)."""
    if is_torch(framework_of(x, "x")):
        return x.index_select(-2, index)
    return x.take(index, -2)


def placed(x: Tensor, index: Tensor, order: int) -> Tensor:
    """Columns (..., N, C) that have the rows of x (..., n, C) at the index, and zeros elsewhere."""
    framework = framework_of(x, "x")
    shape = (*x.shape[:-2], order, x.shape[-1])
    if is_torch(framework):
        return x.new_zeros(shape).index_copy(-2, index, x)
    found = framework.zeros(shape, dtype=x.dtype)
    found[..., index, :] = x
    return found


def outer(vectors: Iterable[Tensor], combine: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """All combinations of the vectors' elements, those of the last one next to each other."""

    def both(left: Tensor, right: Tensor) -> Tensor:
        pairs = combine(left[..., :, None], right[..., None, :])
        return pairs.reshape(*pairs.shape[:-2], math.prod(pairs.shape[-2:]))

    return functools.reduce(both, vectors)
