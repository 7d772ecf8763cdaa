"""Problems as kernels with tensor maps take them: transposed, in parts, operands as maps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from kronop.artifacts import TensorMap
from kronop.descriptions.datatype import DataType
from kronop.descriptions.strided import StridedMatrix
from kronop.families.gemm.description import GemmProblem

# What addresses and strides of a mapped tensor are multiples of, in bytes.
GRANULE = 16


def transposed(item: StridedMatrix) -> StridedMatrix:
    """The matrix with rows for columns."""
    return replace(item, row=item.column, column=item.row)


def swapped(problem: GemmProblem) -> GemmProblem:
    """The problem of the transposed result, which is the product of B and A, both transposed."""
    z, bias = problem.z, problem.bias
    return replace(
        problem,
        m=problem.n,
        n=problem.m,
        a=transposed(problem.b),
        b=transposed(problem.a),
        y=transposed(problem.y),
        z=z and transposed(z),
        bias=bias and transposed(bias),
    )


def parts(problem: GemmProblem, source: int, output: int) -> Iterator[tuple[GemmProblem, int]]:
    """For each index of the outer dimensions of the batch, the problems along the last one, and
    their number; each problem alone where one of its strides is negative, which no map has.

    Args:
        source, output: bytes of an element.
    """
    operands = (problem.a, problem.b, problem.y)
    *outer, inner = problem.batch or (1,)
    if min(map(step_of, operands)) < 0:
        outer, inner = list(problem.batch), 1
    for at in itertools.product(*map(range, outer)):

        def moved(item: StridedMatrix, size: int, at: tuple[int, ...] = at) -> StridedMatrix:
            offset = sum(i * step for i, step in zip(at, item.batch, strict=False))
            own = item.batch if inner > 1 else ()
            return replace(item, pointer=item.pointer + offset * size, batch=own)

        part = replace(
            problem,
            a=moved(problem.a, source),
            b=moved(problem.b, source),
            y=moved(problem.y, output),
            z=problem.z and moved(problem.z, output),
        )
        yield part, inner


def step_of(item: StridedMatrix) -> int:
    """The stride of the batch's last dimension; 0 where there is no batch."""
    return item.batch[-1] if item.batch else 0


def strides_of(name: str, item: StridedMatrix | None) -> dict[str, int]:
    """An operand's members of the parameter struct: its address, and its strides."""
    item = item or StridedMatrix(pointer=0, row=0, column=0)
    return {
        name: item.pointer,
        f"{name}_row": item.row,
        f"{name}_column": item.column,
        f"{name}_batch": step_of(item),
    }


def tensor_map(
    item: StridedMatrix,
    extents: tuple[int, int, int],
    step: int,
    box: tuple[int, int],
    element: DataType,
    rounds: bool = False,
) -> TensorMap:
    """A map of an operand whose second axis has the stride `step`, and the third is the batch.

    A stride that nobody takes, or that repeats, is replaced by one that maps may have.
    """
    usual = -(-extents[0] * element.bytes // GRANULE) * GRANULE
    apart = step_of(item)
    return TensorMap(
        address=item.pointer,
        element=element.name,
        extents=extents,
        strides=(step * element.bytes or usual, apart * element.bytes or usual),
        box=box,
        rounds=rounds,
    )
