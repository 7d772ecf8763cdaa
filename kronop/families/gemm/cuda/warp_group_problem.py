"""Problems in the form of kernels with tensor maps: in parts, operands as maps."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from dataclasses import replace

from kronop.descriptions.datatype import DataType
from kronop.descriptions.strided import NOTHING, Strided
from kronop.emit.cuda import operands
from kronop.errors import ArgumentError
from kronop.families.gemm.description import GemmProblem
from kronop.tensor_map import TensorMap

# Alignment of addresses and strides of a mapped tensor, in bytes.
GRANULE = 16
# Bytes of a row of an operand, or of results, in shared memory.
LINE_BYTES = 128
# Planes of float32 as two TF32 numbers.
PLANES = 2
# The largest extent: kernels count in 32 bits, and tiles begin before their ends.
MOST = 2**31 - 2**16


def check_extents(problem: GemmProblem) -> None:
    """Raises ArgumentError if an extent of a part exceeds the kernels' 32-bit counts."""
    extents = (problem.m, problem.n, problem.k, problem.problems)
    if max(extents) > MOST:
        raise ArgumentError(
            "extents of a product by warp groups",
            expected=f"at most {MOST}",
            got=max(extents),
            hint="leave the tile to the planner, or compute the product in parts",
        )


def parts(
    problem: GemmProblem, source: int, output: int, most: int = MOST, visited: tuple[int, ...] = ()
) -> Iterator[GemmProblem]:
    """Strided batches of one dimension (or none): along the longest dimension of the batch, for
    each index of the others. Along dimensions with negative strides of A, B or Y, which no map has,
    each problem is alone. A part is its own only part.

    Args:
        source, output: bytes of an element.
        most: the largest number of problems.
        visited: bytes of an element of each operand and auxiliary result of a visitor tree.
    """
    axis = _longest(problem)
    starts = [range(0, size, most if at == axis else 1) for at, size in enumerate(problem.batch)]
    for start in itertools.product(*starts):
        count = 1 if axis is None else min(most, problem.batch[axis] - start[axis])
        own = slice(axis, axis + 1) if axis is not None and count > 1 else slice(0)

        def moved(
            item: Strided, size: int, start: tuple[int, ...] = start, own: slice = own
        ) -> Strided:
            offset = sum(map(operator.mul, start, item.batch))
            return replace(item, pointer=item.pointer + offset * size, batch=item.batch[own])

        yield replace(
            problem,
            batch=(count,) if count > 1 else (),
            a=moved(problem.a, source),
            b=moved(problem.b, source),
            y=moved(problem.y, output),
            z=problem.z and moved(problem.z, output),
            visited=tuple(map(moved, problem.visited, visited)),
        )


def _longest(problem: GemmProblem) -> int | None:
    """The longest dimension of the batch along which maps of A, B and Y may step."""
    forward = [
        (size, axis)
        for axis, size in enumerate(problem.batch)
        if min(item.batch[axis] for item in (problem.a, problem.b, problem.y)) >= 0
    ]
    return max(forward)[1] if forward else None


def step_of(item: Strided) -> int:
    """The batch stride of a part; 0 if there is none."""
    return item.batch[-1] if item.batch else 0


def strides_of(name: str, item: Strided | None) -> dict[str, int]:
    """An operand's members of the parameter struct: its address, and its strides."""
    item = item or NOTHING
    return {
        name: item.pointer,
        f"{name}_row": item.row,
        f"{name}_column": item.column,
        f"{name}_batch": step_of(item),
    }


def tensor_map(
    item: Strided,
    extents: tuple[int, int, int],
    step: int,
    box: tuple[int, int, int],
    element: DataType,
    rounds: bool,
) -> TensorMap:
    """A map of an operand whose second axis has the stride `step`, and the third is the batch.

    A stride that is never used, or that is 0, is replaced by one that maps may have.
    """
    usual = operands.round_up(extents[0] * element.bytes, GRANULE)
    apart = step_of(item)
    return TensorMap(
        address=item.pointer,
        element=element.name,
        element_bytes=element.bytes,
        extents=extents,
        strides=(step * element.bytes or usual, apart * element.bytes or usual),
        box=box,
        rounds=rounds,
    )
