"""The base class of both designs of Kronecker matmuls on a CPU: their digits and launches."""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from kronop.artifacts import Field, KernelSignature, Launch, Scalar, Status
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS
from kronop.emit.design import Constant, arrays
from kronop.emit.x86.design import HostDesign, Values
from kronop.emit.x86.planning import scalar_fields, shares
from kronop.families.kron.description import KronProblem
from kronop.families.kron.x86.kron_parts import Digit, KronWork
from kronop.frozen import dataclass
from kronop.target import Target

MOST_SCRATCH = 1 << 28
# The imbalance (busiest thread over the average) above which all threads share every tile.
_UNEVEN = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class KronDesign(HostDesign):
    """A design whose one kernel contracts all digits.

    Attributes:
        digits: the digits; each is one factor, or several neighbours merged because that is faster.
        row_tile: most rows of X that a thread processes at once.
        has_teams: whether several threads may share a tile of rows.
    """

    package: ClassVar[str] = __package__
    parameters: ClassVar[str] = "KronParameters"
    has_teams: ClassVar[bool]

    work: KronWork
    digits: tuple[Digit, ...]

    if TYPE_CHECKING:

        @property
        def row_tile(self) -> int: ...

    @property
    def arguments(self) -> tuple[int, ...]:
        return (len(self.work.contractions),)

    @property
    def signature(self) -> KernelSignature:
        return _signature(len(self.work.contractions), scalar_fields(self.work.epilogue))

    @property
    def digit_constants(self) -> tuple[tuple[str, Constant], ...]:
        work, digits = self.work, self.digits
        factors = len(work.contractions)
        return (
            ("kFactorRows", tuple(p for p, _ in work.contractions)),
            ("kFactorColumns", tuple(q for _, q in work.contractions)),
            ("kDigitFactor", (*(digit.first for digit in digits), factors)),
            *arrays(digits, "k", "contracted produced"),
        )

    @abstractmethod
    def products(self) -> Iterator[tuple[int, int]]:
        """(results, contracted size) of each mode product."""

    @property
    def multiply_adds(self) -> int:
        return sum(results * contracted for results, contracted in self.products())

    @property
    @abstractmethod
    def row_multiple(self) -> int:
        """The rows of a tile are a multiple of this, if there are enough."""

    @property
    @abstractmethod
    def keeps_sums(self) -> bool:
        """Whether the epilogue returns sums unchanged if its scalars are (1, 0)."""

    def status(self, target: Target) -> Status:
        """Whether a thread's scratch memory is within the limit of all designs."""
        return self.scratch_status(MOST_SCRATCH)

    def scratch_status(self, most: int) -> Status:
        """Whether a thread needs at most `most` bytes of scratch memory."""
        size = self.shared_bytes
        if size <= most:
            return Status.accept()
        return Status.reject(f"takes {size} bytes of scratch in each thread, at most {most}")

    def threads_for(self, rows: int, threads: int) -> int:
        return shares(self.vector_work * rows, threads, threads)

    def launches(self, problem: KronProblem, target: Target) -> tuple[Launch, ...]:
        problem = problem.folded()
        row_tile, threads, together = self._split(problem)
        factors = problem.factors
        own: Values = {
            "row_tile": row_tile,
            "threads": threads,
            "together": int(together),
            # The epilogue would return the sums unchanged, so the kernel skips it.
            "plain": int(self.keeps_sums and tuple(problem.scalars) == (1, 0)),
            "batch": _padded(problem.batch, 1),
            "factors": [factor.pointer for factor in factors],
            "factor_row": [factor.row for factor in factors],
            "factor_column": [factor.column for factor in factors],
            "factor_batch": [item for factor in factors for item in _padded(factor.batch, 0)],
        }
        for name, matrix in (("x", problem.x), ("z", problem.z), ("y", problem.y)):
            own[f"{name}_batch"] = _padded(matrix.batch if matrix else (), 0)
        return (self.launch_with(problem, problem.all_rows, own),)

    def _split(self, problem: KronProblem) -> tuple[int, int, bool]:
        """(rows of a tile, threads, whether all threads work together on every tile).

        If tiles are few, they get smaller, so that every thread has equally many. If that still
        leaves threads idle, they share the blocks of each tile instead.
        """
        batch = math.prod(problem.batch)
        threads = self.threads_for(problem.all_rows, problem.threads)
        tiles = -(-problem.rows // self.row_tile)
        if batch == 1 and tiles % threads:
            tiles += threads - tiles % threads
        row_tile, multiple = -(-problem.rows // tiles), self.row_multiple
        row_tile = -(-row_tile // multiple) * multiple
        items = batch * -(-problem.rows // row_tile)
        busiest = -(-items // threads) * min(row_tile, problem.rows)
        is_uneven = threads > 1 and busiest * threads > _UNEVEN * problem.all_rows
        if self.has_teams and is_uneven:
            return min(self.row_tile, problem.rows), threads, True
        return row_tile, min(threads, items), False


@functools.cache
def _signature(factors: int, scalars: Field) -> KernelSignature:
    whole, batch = Scalar.INT64, MOST_BATCH_DIMENSIONS
    return KernelSignature(
        "KronParameters",
        (
            *(Field(name, Scalar.POINTER) for name in ("x", "z", "y", "workspace")),
            *(
                Field(name, whole)
                for name in ("rows", "row_tile", "threads", "together", "plain", "stream", "ahead")
            ),
            Field("batch", whole, batch),
            Field("x_strides", whole, 2),
            Field("x_batch", whole, batch),
            Field("z_strides", whole, 2),
            Field("z_batch", whole, batch),
            Field("y_strides", whole, 2),
            Field("y_batch", whole, batch),
            Field("slice", whole),
            Field("factors", Scalar.POINTER, factors),
            Field("factor_row", whole, factors),
            Field("factor_column", whole, factors),
            Field("factor_batch", whole, factors * batch),
            scalars,
        ),
    )


def _padded(values: Sequence[int], fill: int) -> list[int]:
    return [*values, *[fill] * (MOST_BATCH_DIMENSIONS - len(values))]
