"""PyCUTLASS's words for matrix products: sizes, modes with their numbers, the order of tiles."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from typing import Any

from kronop.descriptions.tile import whole
from kronop.errors import ArgumentError, ElementTypeError
from kronop.frozen import dataclass
from kronop.size import extent_of


class Extent(int):
    """An int that gives itself where it is called: extents are fields in kronop, and methods in
    PyCUTLASS.

    Example:
        >>> size = kronop.gemm.GemmCoord(300, 100, 200)
        >>> size.m, size.m()
        (300, 300)
    """

    __slots__ = ()

    def __call__(self) -> int:
        return int(self)


@dataclass(frozen=True, slots=True)
class GemmCoord:
    """The extents of a product: A is M x K, B is K x N, C and D are M x N.

    PyCUTLASS's programs call them, as in `size.m()`; `size.m` is the same number.

    Raises:
        ArgumentError: an extent is not an integer of at least 0.

    Example:
        >>> kronop.gemm.GemmCoord(300, 100, 200)
        GemmCoord(m=300, n=100, k=200)
    """

    m: Extent
    n: Extent
    k: Extent

    def __init__(self, m: int, n: int, k: int) -> None:
        given = {"m": m, "n": n, "k": k}
        take_extents(self, given, "kronop.gemm.GemmCoord(M, N, K) takes three integers")


@dataclass(frozen=True, slots=True)
class MatrixCoord:
    """Rows and columns, of a tile for example.

    Raises:
        ArgumentError: one is not an integer of at least 0.

    Example:
        >>> kronop.MatrixCoord(4, 128)
        MatrixCoord(row=4, column=128)
    """

    row: Extent
    column: Extent

    def __init__(self, row: int, column: int) -> None:
        given = {"row": row, "column": column}
        take_extents(self, given, "kronop.MatrixCoord(rows, columns) takes two integers")


def check_word(name: str, value: object, kinds: Any, *, optional: bool = False) -> None:
    """Raises ElementTypeError unless a value is a word of an enumeration, or of a union of some; or
    None, where that is for any."""
    if isinstance(value, kinds) or (optional and value is None):
        return
    every = getattr(kinds, "__args__", (kinds,))
    words = ", ".join(word.name for kind in every for word in kind)
    raise ElementTypeError(
        name,
        expected=f"one of {words}{', or None' if optional else ''}",
        got=repr(value),
        hint=f"these are kronop's {' and '.join(kind.__name__ for kind in every)}",
    )


def take_extents(taker: object, given: Mapping[str, object], hint: str) -> None:
    for name, value in given.items():
        object.__setattr__(taker, name, Extent(extent_of(f"extent {name}", value, hint)))


class Mode(enum.Enum):
    """What a run of a `GemmOperationUniversal` computes.

    Attributes:
        Gemm: one product; with `split_k_slices` above 1, slices of the sum run side by side. On
            GPUs their sums go to scratch memory, and a second launch adds them up, in their order.
        GemmSplitKParallel: the same.
        Batched: `batch` products of matrices that are equally far apart in memory.
        Array: `batch` products of matrices anywhere in memory.

    Example:
        >>> [mode.name for mode in kronop.gemm.Mode]
        ['Gemm', 'GemmSplitKParallel', 'Batched', 'Array']
    """

    Gemm = "gemm"
    GemmSplitKParallel = "split-k parallel"
    Batched = "batched"
    Array = "array"


class Swizzle(enum.Enum):
    """The order in which blocks of a GPU take tiles of the result: the number of tiles along N that
    are taken before the next ones along M, so that blocks that run together share operands in the
    level-2 cache. CPUs and designs with an order of their own take no notice.

    Example:
        >>> kronop.IdentitySwizzle4, kronop.IdentitySwizzle4.width
        (kronop.IdentitySwizzle4, 4)
    """

    IdentitySwizzle1 = 1
    IdentitySwizzle2 = 2
    IdentitySwizzle4 = 4
    IdentitySwizzle8 = 8
    BatchedIdentitySwizzle = 0

    def __repr__(self) -> str:
        return f"kronop.{self.name}"

    @property
    def width(self) -> int:
        """Tiles along N that are taken together."""
        return max(self.value, 1)


class SchedulerMode(enum.Enum):
    """Where it is decided which block computes which tile of which product of a group.

    Example:
        >>> [mode.name for mode in kronop.SchedulerMode]
        ['Device', 'Host']
    """

    Device = "device"
    Host = "host"


IdentitySwizzle1 = Swizzle.IdentitySwizzle1
IdentitySwizzle2 = Swizzle.IdentitySwizzle2
IdentitySwizzle4 = Swizzle.IdentitySwizzle4
IdentitySwizzle8 = Swizzle.IdentitySwizzle8
BatchedIdentitySwizzle = Swizzle.BatchedIdentitySwizzle


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A mode with its numbers."""

    mode: Mode
    slices: int
    batch: int


def check_mode(mode: object, slices: object, batch: object) -> Checked:
    """The mode, where its numbers are whole and belong to it.

    Raises:
        ElementTypeError: it is no mode.
        ArgumentError: there are slices of a batch, a batch in a mode of one product, or a number
            that is not a positive integer.
    """
    if not isinstance(mode, Mode):
        raise ElementTypeError(
            "gemm_mode",
            expected=f"one of {', '.join(f'kronop.gemm.Mode.{item.name}' for item in Mode)}",
            got=repr(mode),
            hint="for example kronop.gemm.Mode.Gemm",
        )
    numbers: dict[str, Any] = {"split_k_slices": whole(slices), "batch": whole(batch)}
    batched = mode in (Mode.Batched, Mode.Array)
    for name, value in numbers.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ArgumentError(
                name, expected="a positive integer", got=repr(value), hint="1 for none"
            )
        if value != 1 and batched == (name == "split_k_slices"):
            others = "Gemm or GemmSplitKParallel" if batched else "Batched or Array"
            raise ArgumentError(
                f"{name} in mode {mode.name}",
                expected="1",
                got=value,
                hint=f"take gemm_mode=kronop.gemm.Mode.{others}",
            )
    return Checked(mode=mode, slices=numbers["split_k_slices"], batch=numbers["batch"])


def refuse_lists(given: Mapping[str, object], mode: Checked) -> None:
    """Raises ElementTypeError for a list of matrices, in a mode of tensors."""
    for name, item in given.items():
        if isinstance(item, (list, tuple)):
            raise ElementTypeError(
                f"{name} in mode {mode.mode.name}",
                expected="a tensor of NumPy, torch or CuPy, or one with __dlpack__",
                got=type(item).__name__,
                hint="lists of matrices are for gemm_mode=kronop.gemm.Mode.Array",
            )


def check_batch(lead: tuple[int, ...], mode: Checked) -> None:
    """Raises ArgumentError if the leading dimensions of A and B are not those of the mode."""
    if mode.slices > 1 and math.prod(lead) > 1:
        raise ArgumentError(
            "split_k_slices",
            expected="1, because A or B has leading dimensions",
            got=mode.slices,
            hint="a batch has blocks enough",
        )
    if mode.batch != 1 and math.prod(lead) != mode.batch:
        raise ArgumentError(
            "batch",
            expected=f"{math.prod(lead)}, as many products as A and B hold",
            got=mode.batch,
            hint="leave it out, or pass tensors (batch, M, K) and (batch, K, N), or flat ones"
            " with a problem_size",
        )
