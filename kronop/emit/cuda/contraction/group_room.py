"""What a block of `contract_group` holds: its teams, and where everything lies in shared memory."""

from __future__ import annotations

import enum
import functools

from kronop.emit.cuda import operands
from kronop.emit.cuda.contraction import banks
from kronop.emit.cuda.contraction.design import ContractDesign
from kronop.emit.cuda.contraction.mma import vectors_of
from kronop.emit.cuda.contraction.work import Contraction, Order
from kronop.frozen import dataclass, derived

TEAM_ROWS, TEAM, _TEAM_WARPS = 64, 128, 4
# Teams that multiply.
TEAMS = 2
# Results of one row of a part that leaves at once, in elements of all lanes, and bytes of a part.
_PART, _PART_BYTES = 64, 4096
_BARRIER, _ALIGNMENT = 8, 1024
# Weights of a block up to which it packs them itself, and a launch before it is saved.
_MOST_PACKED = 32768


class Weights(enum.Enum):
    """How weights come to products."""

    Stay = "W stays"
    Staged = "W in stages"
    Images = "W in images"


def wants_packing(work: Contraction) -> bool:
    """Whether contiguous weights are in no order for products."""
    return work.source.bytes > 2 or work.lanes > 1


@dataclass(frozen=True, kw_only=True)
class GroupRoom(ContractDesign):
    """What a block takes, by teams of 128 threads: one copies, two multiply, one stores.

    Attributes:
        team_m: how many times 64 rows a team has.
        n: outputs.
        along_lanes, along_outputs: teams that share rows and have lanes or outputs of their own;
            the others have rows of their own.
        weights: whether W stays in shared memory, or comes with each stage: by copies of threads,
            or as an image that was packed before.
        halves: whether there is room in shared memory for one half of the results at a time; else
            for all of them.
    """

    n: int
    team_m: int
    along_lanes: int
    weights: Weights
    along_outputs: int = 1
    halves: bool = False

    @property
    def resident(self) -> bool:
        return self.weights is Weights.Stay

    @property
    def images(self) -> bool:
        return self.weights is Weights.Images

    @derived
    def along_rows(self) -> int:
        return TEAMS // (self.along_lanes * self.along_outputs)

    @derived
    def m(self) -> int:
        return TEAM_ROWS * self.team_m * self.along_rows

    @derived
    def team_n(self) -> int:
        return self.n // self.along_outputs

    @property
    def threads(self) -> int:
        return (TEAMS + 2) * TEAM

    @derived
    def team_lanes(self) -> int:
        return self.lanes // self.along_lanes

    def __str__(self) -> str:
        along = "lanes" if self.along_lanes > 1 else "outputs" if self.along_outputs > 1 else "rows"
        teams = f"{TEAMS} teams along {along}"
        block = f"{self.lanes} lanes x {self.m} x {self.n} x {self.k}, {self.stages} stages"
        results = ", results in halves" if self.halves else ""
        return f"{block}, {teams}, {self.weights.value}{results}"

    @property
    def direct(self) -> bool:
        """Whether X is multiplied from shared memory as it lies there."""
        return self.work.source.bytes == 2 and self.lanes == 1

    @property
    def packs(self) -> bool:
        """Whether blocks pack weights themselves: few, that stay, and are in no order for
        products."""
        few = self.lanes * self.n * self.work.contracted <= _MOST_PACKED
        return self.resident and few and wants_packing(self.work)

    @property
    def vectors(self) -> tuple[int, int, int]:
        """Of weights those that are read to be packed."""
        x, _, y = vectors_of(self.work, self.lanes)
        return x, operands.vector_of(self.work.source), y

    @property
    def part_rows(self) -> int:
        """Rows of a part of the results: a warp's, or a team's where memory has rows side by
        side."""
        return TEAM_ROWS if self.work.y_order is Order.Rows else TEAM_ROWS // _TEAM_WARPS

    @derived
    def part_outputs(self) -> int:
        """Outputs of a part: one run of memory, and few enough for the registers of who stores
        it."""
        return _part_outputs(self.part_rows, self.lanes, self.team_n, self.work.output.bytes)

    @property
    def parts(self) -> int:
        """Of a team's results."""
        return self.team_m * self.team_n // self.part_outputs

    @property
    def kept(self) -> int:
        """Parts of a team's results that have room in shared memory."""
        return self.parts // 2 if self.halves else self.parts

    @derived
    def pitches(self) -> tuple[int, int]:
        """From one run of X and of the results to the next in shared memory."""
        work, lanes, part = self.work, self.lanes, self.part_outputs
        spread = work.source.bytes > 2
        run = {Order.Own: self.k, Order.Rows: self.m, Order.Lanes: self.k * lanes}[work.x_order]
        x = banks.pitch(run, work.x_order, lanes, self.team_lanes, work.source, spread)
        run = {Order.Own: part, Order.Rows: self.part_rows, Order.Lanes: part * lanes}[work.y_order]
        y = banks.deposit_pitch(run, work.y_order, lanes, self.team_lanes, work.output)
        return x.stride, y

    @property
    def x_bytes(self) -> int:
        """Bytes of X in a stage; what follows starts where products want it."""
        work = self.work
        if self.direct:
            size = self.k * self.m
        else:
            runs = {
                Order.Own: self.lanes * self.m,
                Order.Rows: self.lanes * self.k,
                Order.Lanes: self.m,
            }
            size = self.pitches[0] * runs[work.x_order]
        return operands.round_up(size * work.source.bytes, _ALIGNMENT)

    @property
    def w_room(self) -> int:
        """The same of W."""
        return 0 if self.resident else operands.round_up(self._w_bytes, _ALIGNMENT)

    @property
    def _w_bytes(self) -> int:
        work = self.work
        return work.terms * self.lanes * self.k * self.n * work.source.bytes

    @property
    def _results_bytes(self) -> int:
        work, rows = self.work, self.part_rows
        runs = {
            Order.Own: self.lanes * rows,
            Order.Rows: self.lanes * self.part_outputs,
            Order.Lanes: rows,
        }
        elements = self._units * self.kept * self.pitches[1] * runs[work.y_order]
        # What is added to results: of two tiles.
        elements += 2 * self.n * self.lanes
        return operands.round_up(elements * work.output.bytes, operands.VECTOR_BYTES)

    @property
    def _units(self) -> int:
        """Results that are stored apart from others."""
        return TEAMS // self.along_lanes * TEAM_ROWS // self.part_rows

    @property
    def results_at(self) -> int:
        kept = operands.cover(self.work.contracted, self.k) * self._w_bytes
        return self.stages * (self.x_bytes + self.w_room) + (kept if self.resident else 0)

    @property
    def barriers_at(self) -> int:
        return self.results_at + self._results_bytes

    @derived
    def shared_bytes(self) -> int:
        """Stages, W where it stays, results on their way, and barriers."""
        barriers = (2 * self.stages + 2 * self._units + 3) * _BARRIER
        return self.barriers_at + operands.round_up(barriers, operands.VECTOR_BYTES)

    def most_stages(self, counts: range, room: int) -> int:
        """How many stages so many bytes may hold, at most the last of `counts`: an upper bound,
        which may be one too many."""
        stage = self.x_bytes + self.w_room + 2 * _BARRIER
        rest = self.shared_bytes - self.stages * stage
        # Barriers end at whole accesses, with or without one more.
        return min(counts[-1], (room - rest + operands.VECTOR_BYTES) // stage)


@functools.lru_cache(maxsize=1024)
def _part_outputs(rows: int, lanes: int, own: int, output_bytes: int) -> int:
    row = rows * lanes * output_bytes
    # 16-bit results of one lane leave registers as pairs of matrices of 8 outputs.
    least = 16 if output_bytes == 2 and lanes == 1 else 8
    most = max(least, min(_PART // lanes, _PART_BYTES // row))
    return next(n for n in range(own, 0, -least) if own % n == 0 and n <= most)
