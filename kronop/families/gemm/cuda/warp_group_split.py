"""float32 operands split in two planes, for three TF32 products: gemm_split.cuh."""

from __future__ import annotations

from dataclasses import replace

from kronop.artifacts import Field, KernelSignature, Launch, Scalar, Status
from kronop.descriptions.datatype import float32
from kronop.descriptions.strided import Strided
from kronop.emit.cuda import operands
from kronop.emit.cuda.machine import memory_rate
from kronop.emit.design import (
    Instantiation,
    InWorkspace,
    Pipeline,
    Runnable,
    members,
    package_folder,
)
from kronop.families.gemm.cuda.warp_group_design import GemmWarpGroup
from kronop.families.gemm.cuda.warp_group_problem import PLANES, step_of
from kronop.families.gemm.description import GemmProblem
from kronop.families.gemm.size import GemmSize
from kronop.frozen import dataclass
from kronop.machine import MEASURED
from kronop.target import Target

_THREADS, _RESIDENT, _TILE = 256, 8, 32
# Elements of 16 bytes, to which lines are aligned; alignment of operands in bytes.
_LINE, _APART = 4, 256
# Bytes of planes; above, the problems of a batch are split and multiplied part by part.
_MOST_BYTES = 2**29
_NUMBERS = (
    *("lines", "depth", "pitch", "problems", "plane", "planes"),
    *("line", "along", "batch"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitProblem:
    """An operand of a strided batch, and the address of its planes.

    Attributes:
        matrix: the operand, with its lines as rows.
        lines, depth: its extents.
        problems: how many matrices there are.
        plane, apart: distances of a matrix's planes, and of the first planes of matrices.
    """

    matrix: Strided
    lines: int
    depth: int
    problems: int
    address: int
    plane: int
    apart: int

    @property
    def planes(self) -> Strided:
        """The planes of the first matrix; the batch stride leads to those of the next one."""
        batch = tuple(self.apart if step else 0 for step in self.matrix.batch)
        return Strided(pointer=self.address, strides=(pitch_of(self.depth), 1), batch=batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmSplit(InWorkspace):
    """A kernel that splits one operand."""

    threads = _THREADS
    shared_bytes = 4 * _TILE * (_TILE + 1)
    signature = KernelSignature(
        "GemmSplitParameters",
        (
            *(Field(name, Scalar.POINTER) for name in ("from", "to")),
            *(Field(name, Scalar.INT64) for name in _NUMBERS),
        ),
    )

    def __str__(self) -> str:
        return "float32 as two TF32 numbers each"

    def instantiation(self, target: Target) -> Instantiation:
        return Instantiation(
            header="gemm_split.cuh",
            parameters="kronop::GemmSplitParameters",
            types=(),
            constants=(("kThreads", _THREADS), ("kBlocks", _RESIDENT)),
            folders=(package_folder(__package__),),
        )

    def launches(self, problem: SplitProblem, target: Target) -> tuple[Launch, ...]:
        p, item = problem, problem.matrix
        values = {
            "from": item.pointer,
            "to": p.address,
            **members(p, "lines depth problems"),
            "pitch": pitch_of(p.depth),
            "plane": p.plane,
            "planes": p.apart,
            "line": item.row,
            "along": item.column,
            "batch": step_of(item),
        }
        tiles = operands.cover(p.lines, _TILE) * operands.cover(p.depth, _TILE) * p.problems
        return (operands.make_launch(self, min(tiles, _RESIDENT * target.cores), values),)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitProduct(Pipeline):
    """Splits both operands, and multiplies their planes, a part of a batch at a time."""

    split: GemmSplit
    product: GemmWarpGroup

    def __str__(self) -> str:
        return str(self.product)

    @property
    def parts(self) -> tuple[Runnable, ...]:
        return self.split, self.product

    def status(self, target: Target) -> Status:
        """The status of the product: any target with its kernel can split operands."""
        return self.product.status(target)

    def seconds(self, size: GemmSize, target: Target) -> float:
        """Modelled time: elements are read, written as two, and read again."""
        moved = (size.m + size.n) * size.k * size.batch * 3 * float32.bytes
        return self.product.seconds(size, target) + moved / memory_rate(target) + MEASURED.launch

    def workspace(self, size: GemmSize, target: Target, threads: int) -> int:
        """Bytes of the planes of problems that run at once, and then the product's workspace."""
        return _bytes_at_once(size) + self.product.workspace(size, target, threads)

    def launches(self, problem: GemmProblem, target: Target) -> tuple[Launch, ...]:
        own, most = self.product.oriented(problem), at_once(problem.size)
        behind = problem.workspace + _bytes_at_once(problem.size)
        found: list[Launch] = []
        for part in self.product.parts_of(own, most):
            read = replace(part, workspace=behind)
            if part.k:
                a, b = _operands(part)
                read = replace(read, a=a.planes, b=b.planes.transposed)
                found += (*self.launches_of(0, a, target), *self.launches_of(0, b, target))
            found += self.launches_of(1, self.product.oriented(read), target)
        return tuple(found)


def at_once(size: GemmSize) -> int:
    """How many problems are split before their products run: a batch reuses scratch memory part by
    part, and each part is long enough to be worth its launches."""
    return max(1, _MOST_BYTES // max(1, _bytes(size.m + size.n, size.k)))


def _bytes_at_once(size: GemmSize) -> int:
    """Bytes of the planes of both operands, of the problems that run at once."""
    return min(size.batch, at_once(size)) * _bytes(size.m + size.n, size.k) + _APART


def _bytes(lines: int, depth: int) -> int:
    """Bytes of the planes of so many lines."""
    return PLANES * lines * pitch_of(depth) * float32.bytes


def _operands(part: GemmProblem) -> tuple[SplitProblem, SplitProblem]:
    """A and B, with lines as rows, and consecutive addresses of their planes."""
    found, place = [], part.workspace
    for matrix, lines in ((part.a, part.m), (part.b.transposed, part.n)):
        problems, plane = part.problems if step_of(matrix) else 1, lines * pitch_of(part.k)
        found.append(
            SplitProblem(
                matrix=matrix,
                lines=lines,
                depth=part.k,
                problems=problems,
                address=place,
                plane=plane,
                apart=PLANES * plane,
            )
        )
        place += operands.round_up(_bytes(lines, part.k) * problems, _APART)
    return found[0], found[1]


def pitch_of(depth: int) -> int:
    """Elements from a line of planes to the next one."""
    return operands.round_up(depth, _LINE)
