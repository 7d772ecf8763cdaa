"""float32 operands split in two planes, for three TF32 products: gemm_split.cuh."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kronop.artifacts import Field, KernelSignature, Launch, Scalar
from kronop.descriptions.datatype import float32
from kronop.descriptions.strided import StridedMatrix
from kronop.emit.cuda import operands
from kronop.emit.design import Instantiation, InWorkspace, package_folder
from kronop.families.gemm.cuda.group_problem import step_of, transposed
from kronop.families.gemm.description import GemmProblem
from kronop.families.gemm.size import GemmSize
from kronop.frozen import dataclass
from kronop.target import Target

PLANES = 2
_THREADS, _RESIDENT, _TILE = 256, 8, 32
# Elements of 16 bytes, in multiples of which lines begin; bytes in multiples of which operands do.
_LINE, _APART = 4, 256
# Bytes of planes, beyond which the problems of a batch are split in turns.
_MOST_BYTES = 2**29
SIGNATURE = KernelSignature(
    "GemmSplitParameters",
    (
        Field("from", Scalar.POINTER),
        Field("to", Scalar.POINTER),
        *(
            Field(name, Scalar.INT64)
            for name in ("lines", "depth", "pitch", "problems", "line", "along", "batch")
        ),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmSplit(InWorkspace):
    """A kernel that splits one operand; it runs for each of both."""

    @property
    def threads(self) -> int:
        return _THREADS

    @property
    def shared_bytes(self) -> int:
        return 4 * _TILE * (_TILE + 1)

    @property
    def signature(self) -> KernelSignature:
        return SIGNATURE

    def instantiation(self, target: Target) -> Instantiation:
        return Instantiation(
            header="gemm_split.cuh",
            template="kronop::gemm_split",
            parameters="kronop::GemmSplitParameters",
            types=(),
            constants=(("kThreads", _THREADS), ("kBlocks", _RESIDENT)),
            folders=(package_folder("kronop.families.gemm.cuda"),),
        )

    def launches(
        self, index: int, target: Target, problem: GemmProblem, count: int
    ) -> Iterator[Launch]:
        """Those of A and of B."""
        for item, lines, to in _places(problem, count):
            problems = count if step_of(item) else 1
            values = {
                "from": item.pointer,
                "to": to,
                "lines": lines,
                "depth": problem.k,
                "pitch": _pitch(problem.k),
                "problems": problems,
                "line": item.row,
                "along": item.column,
                "batch": step_of(item),
            }
            tiles = operands.cover(lines, _TILE) * operands.cover(problem.k, _TILE) * problems
            yield Launch(
                parameters=SIGNATURE.pack(values),
                grid=(min(tiles, _RESIDENT * target.cores), 1, 1),
                block=(_THREADS, 1, 1),
                shared_bytes=self.shared_bytes,
            )


def workspace_bytes(size: GemmSize) -> int:
    """Bytes of the planes of both operands, of the problems that run at once."""
    problems = min(size.batch, at_once(size.m, size.n, size.k))
    return problems * _bytes(size.m + size.n, size.k) + _APART


def at_once(m: int, n: int, k: int) -> int:
    """How many problems are split before their products run: a batch takes scratch memory in
    turns, of which each is long enough to be worth its launches."""
    return max(1, _MOST_BYTES // max(1, _bytes(m + n, k)))


def _bytes(lines: int, depth: int) -> int:
    """Those of the planes of so many lines."""
    return PLANES * lines * _pitch(depth) * float32.bytes


def planes(problem: GemmProblem, count: int) -> GemmProblem:
    """The problem whose operands are planes in the workspace: the stride of their batch is that
    from one plane to the next."""
    (_, m, to_a), (_, n, to_b) = _places(problem, count)
    pitch = _pitch(problem.k)

    def plane(pointer: int, lines: int) -> StridedMatrix:
        return StridedMatrix(pointer=pointer, row=pitch, column=1, batch=(lines * pitch,))

    return replace(problem, a=plane(to_a, m), b=transposed(plane(to_b, n)))


def _places(problem: GemmProblem, count: int) -> tuple[tuple[StridedMatrix, int, int], ...]:
    """(the operand with lines as rows, the lines, where its planes are) of A and of B."""
    a, b, start = problem.a, transposed(problem.b), problem.workspace
    taken = _bytes(problem.m, problem.k) * (count if step_of(a) else 1)
    return (a, problem.m, start), (b, problem.n, start + operands.round_up(taken, _APART))


def _pitch(depth: int) -> int:
    return operands.round_up(depth, _LINE)
