"""Operations whose epilogue is a visitor tree, cut in two: their sums, and the tree over sums."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, TypeVar

from kronop.descriptions.datatype import AnyLayout, DataType, Layout
from kronop.descriptions.epilogue import LinearCombination
from kronop.descriptions.strided import Strided
from kronop.descriptions.tensor import TensorDescription
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.frozen import dataclass
from kronop.size import round_up

_VECTOR_BYTES = 16
AnyDescription = TypeVar("AnyDescription", bound=Any)
# alpha and beta, with which the epilogue of `summed` leaves sums as they are.
UNCHANGED = (1, 0)
# A reduction is joined from parts of at least so many rows or columns, on every target.
LEAST_PART = 32
# What sums and parts begin at multiples of, in bytes.
ALIGNMENT = 256


def sums_alignment(sums: DataType) -> int:
    """Sums that rows of them are padded to, so that each row begins with a whole vector."""
    return _VECTOR_BYTES // sums.bytes


def summed(description: AnyDescription) -> AnyDescription:
    """The same operation with its sums as the result: of their own type, in the layout of Y, in
    lines that are padded to whole vectors."""
    sums = description.math.element_accumulator
    alignment = sums_alignment(sums)
    changed: AnyDescription = dataclasses.replace(
        description,
        Y=TensorDescription(sums, description.Y.layout, alignment),
        epilogue=LinearCombination(sums, alignment, sums, sums),
    )
    return changed


@dataclass(frozen=True, slots=True, kw_only=True)
class VisitProblem:
    """Sums that go through a visitor tree, with their memory.

    Attributes:
        m, n: rows and columns of the result.
        batch: extents of the batch dimensions, at most MOST_BATCH_DIMENSIONS.
        sums: of the accumulator's type.
        operands: those in memory, in the order of the tree.
        results: D, then the auxiliary results.
        scalars: in the order of the tree's parameters.
        workspace: pointer to `parts_bytes` bytes.
        threads: most threads that a host kernel may use.
    """

    m: int
    n: int
    batch: tuple[int, ...]
    sums: Strided
    operands: tuple[Strided, ...]
    results: tuple[Strided, ...]
    scalars: tuple[float, ...]
    workspace: int
    threads: int

    @property
    def problems(self) -> int:
        return math.prod(self.batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summed:
    """A problem of a family whose result are sums, and what becomes of them."""

    problem: Any
    visit: VisitProblem


def sums_bytes(sums: DataType, layout: AnyLayout, shape: tuple[int, ...]) -> int:
    """The most bytes that sums take, for a result of this layout and shape, (..., M, N)."""
    *lead, m, n = shape
    line, lines = (n, m) if layout is Layout.RowMajor else (m, n)
    pitch = round_up(line, sums_alignment(sums))
    return round_up(math.prod(lead) * lines * pitch * sums.bytes, ALIGNMENT)


def bytes_beside(epilogue: VisitorEpilogue, layout: AnyLayout, shape: tuple[int, ...]) -> int:
    """Bytes of workspace for sums, then for parts of reductions, besides what kernels need that
    compute the sums."""
    *lead, m, n = shape
    of_sums = sums_bytes(epilogue.element_accumulator, layout, shape)
    return of_sums + parts_bytes(epilogue, m, n, math.prod(lead))


def moved_bytes(epilogue: VisitorEpilogue) -> int:
    """Bytes that the pass moves for each sum; rows and columns are much less."""
    matrices = (item for item in epilogue.tree.in_memory if item.kind == "tensor")
    others = sum(epilogue.element_of(item).bytes for item in matrices)
    return epilogue.element_accumulator.bytes + epilogue.element_output.bytes + others


def parts_bytes(epilogue: VisitorEpilogue, m: int, n: int, problems: int) -> int:
    """Bytes in which the pass leaves parts of reductions, on any target."""
    return parts_of(epilogue, m, n, problems, (LEAST_PART, LEAST_PART))[1]


def parts_of(
    epilogue: VisitorEpilogue, m: int, n: int, problems: int, tile: tuple[int, int]
) -> tuple[tuple[int, ...], int]:
    """(where the parts of each result begin in the workspace, where they end), in bytes.

    Args:
        tile: rows and columns, of which there is a part each.
    """
    end, begins = 0, []
    for item in epilogue.tree.results:
        begins.append(end)
        if item.axis:
            parts = math.ceil(n / tile[1]) * m if item.axis == "row" else math.ceil(m / tile[0]) * n
            end += round_up(problems * parts * epilogue.element_epilogue.bytes, ALIGNMENT)
    return tuple(begins), end
