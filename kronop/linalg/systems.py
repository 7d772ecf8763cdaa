"""Reads and checks the tensors of a call, and says what there is to solve."""

from __future__ import annotations

import math

from kronop.args.frameworks import view
from kronop.args.overlap import overlaps, overlaps_itself
from kronop.args.strides import broadcast_shapes
from kronop.args.view import TensorView
from kronop.errors import ArgumentError, ElementTypeError
from kronop.frozen import dataclass
from kronop.tensors import Tensor

_TYPES = ("float32", "float64")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SquareProblem:
    """The matrices of a call.

    Attributes:
        tensor: the caller's tensor (..., N, N).
        a: its memory.
        overwrite: whether its memory may be used.
    """

    tensor: Tensor
    a: TensorView
    overwrite: bool

    @property
    def order(self) -> int:
        return self.a.shape[-1]

    @property
    def batch(self) -> tuple[int, ...]:
        return self.a.shape[:-2]

    @property
    def count(self) -> int:
        return math.prod(self.batch)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class System:
    """The matrices of a call and the right-hand sides beside them.

    Attributes:
        square: the matrices.
        tensor: the caller's right-hand sides, (..., N, C) or (N,).
        b: their memory.
        overwrite: whether the solution goes there.
        batch: the leading dimensions of both, broadcast.
    """

    square: SquareProblem
    tensor: Tensor
    b: TensorView
    overwrite: bool
    batch: tuple[int, ...]

    @property
    def vector(self) -> bool:
        return len(self.b.shape) == 1

    @property
    def columns(self) -> int:
        return 1 if self.vector else self.b.shape[-1]

    @property
    def count(self) -> int:
        return math.prod(self.batch)

    @property
    def shared(self) -> bool:
        """Whether one matrix serves all right-hand sides: it is then factored once."""
        return self.square.count == 1


def read_square(a: Tensor, overwrite: bool) -> SquareProblem:
    """Checks the matrices of a call.

    Raises:
        ArgumentError: they are no square matrices, or their memory can't be overwritten.
        ElementTypeError: a is no tensor of NumPy, torch or CuPy, or of another element type.
    """
    item = _read(a, "a")
    if len(item.shape) < 2 or item.shape[-1] != item.shape[-2]:
        raise ArgumentError(
            "shape of a",
            expected="square matrices (..., N, N)",
            got=item.shape,
            hint="pass as many rows as columns",
        )
    if overwrite:
        _check_writable(item, "a")
    return SquareProblem(tensor=a, a=item, overwrite=overwrite)


def read_system(a: Tensor, b: Tensor, overwrite_a: bool, overwrite_b: bool) -> System:
    """Checks matrices and right-hand sides.

    Raises:
        ArgumentError, ElementTypeError: as `read_square`, for either tensor or for both together.
    """
    square, item = read_square(a, overwrite_a), _read(b, "b")
    _check_alike(square.a, item)
    batch = broadcast_shapes((("a", square.batch), ("b", _batch_of(square, item))))
    system = System(square=square, tensor=b, b=item, overwrite=overwrite_b, batch=batch)
    if overwrite_b:
        _check_writable(item, "b")
        _check_holds_solution(system)
    if (overwrite_a or overwrite_b) and overlaps(square.a, item):
        raise ArgumentError(
            "a and b",
            expected="separate memory, where one of them is overwritten",
            got="tensors that overlap",
            hint="pass a copy, or overwrite neither",
        )
    return system


def _read(tensor: Tensor, name: str) -> TensorView:
    # Before the view, whose message would name all types that a product can have.
    given = getattr(tensor, "dtype", None)
    known = str(getattr(given, "name", given)).removeprefix("torch.")
    if given is not None and known not in _TYPES:
        raise ElementTypeError(
            f"element type of {name}",
            expected=" or ".join(_TYPES),
            got=given,
            hint="complex matrices are not supported; convert integers and 16-bit floats",
        )
    item = view(tensor, name, "torch.linalg.solve and eigh")
    if item.framework == "dlpack":
        raise ElementTypeError(
            name,
            expected="a tensor of NumPy, torch or CuPy",
            got=f"{type(tensor).__name__}",
            hint="convert it with from_dlpack of one of them",
        )
    return item


def _check_alike(a: TensorView, b: TensorView) -> None:
    if a.element != b.element:
        raise ElementTypeError(
            "element type of b",
            expected=f"that of a, {a.element!r}",
            got=repr(b.element),
            hint="convert one of them",
        )
    if (a.framework, a.device) != (b.framework, b.device):
        raise ArgumentError(
            "b",
            expected=f"a {a.framework} tensor on {a.device}, as a is",
            got=f"one of {b.framework} on {b.device}",
            hint="move one of them",
        )


def _batch_of(square: SquareProblem, b: TensorView) -> tuple[int, ...]:
    """The leading dimensions of the right-hand sides, whose other extents are checked."""
    vector = len(b.shape) == 1 and not square.batch
    if not vector and len(b.shape) < 2:
        raise ArgumentError(
            "shape of b",
            expected=f"columns (..., {square.order}, C), or ({square.order},) beside one"
            " matrix without leading dimensions",
            got=b.shape,
            hint="pass b[..., None] for one right-hand side",
        )
    rows = b.shape[0] if vector else b.shape[-2]
    if rows != square.order:
        raise ArgumentError(
            "rows of b",
            expected=f"{square.order}, as a of shape {square.a.shape} has",
            got=f"{rows} in shape {b.shape}",
            hint="right-hand sides are columns: (..., N, C)",
        )
    return () if vector else b.shape[:-2]


def _check_writable(item: TensorView, name: str) -> None:
    if not item.writable or overlaps_itself(item):
        raise ArgumentError(
            f"memory of {name}",
            expected="writable memory of which each element is one of its own",
            got=f"shape {item.shape} with strides {item.strides}"
            + ("" if item.writable else ", read-only"),
            hint=f"pass a copy, or leave overwrite_{name} out",
        )


def _check_holds_solution(system: System) -> None:
    if not system.vector and system.b.shape[:-2] != system.batch:
        raise ArgumentError(
            "leading dimensions of b, into which the solution goes",
            expected=system.batch,
            got=system.b.shape[:-2],
            hint="pass a b of this shape, or leave overwrite_b out",
        )
