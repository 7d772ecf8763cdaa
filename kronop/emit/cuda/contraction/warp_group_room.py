"""The warp groups of a `contract_warp_group` block, and the layout of its shared memory."""

from __future__ import annotations

import enum
import functools

from kronop.emit.cuda import operands
from kronop.emit.cuda.contraction import banks
from kronop.emit.cuda.contraction.design import ContractDesign
from kronop.emit.cuda.contraction.mma_room import vectors_of
from kronop.emit.cuda.contraction.work import Contraction, Order
from kronop.frozen import dataclass, derived

TEAM_ROWS, TEAM, _TEAM_WARPS = 64, 128, 4
# Warp groups of a block that multiply.
TEAMS = 2
# Results are stored part by part: most elements of one row of a part (over all lanes), and most
# bytes of a part.
_PART, _PART_BYTES = 64, 4096
_BARRIER, _ALIGNMENT = 8, 1024
# Most weights of a block that it packs itself, which saves the launch of a packing step.
_MOST_PACKED = 32768
# The fraction of the multiprocessors that must stay busy when the number of blocks is rounded down
# to a multiple of the parts of W.
_LEAST_BUSY = 0.9


class Weights(enum.Enum):
    """How a block gets its weights: resident in shared memory for all tiles, copied by threads with
    each stage, or as an image that was packed before and is copied with each stage."""

    Stay = "W stays"
    Staged = "W in stages"
    Images = "W in images"


def wants_packing(work: Contraction) -> bool:
    """Whether even contiguous weights have to be packed because the MMAs can't read their order."""
    return work.source.bytes > 2 or work.lanes > 1


@dataclass(frozen=True, kw_only=True)
class WarpGroupRoom(ContractDesign):
    """A block's tile and its shared memory. Of its four teams (warp groups), one copies, two
    multiply, and one stores.

    Attributes:
        team_m: rows of a team, in units of 64.
        n: outputs of a block.
        along_lanes, along_outputs: how many multiplying teams split the lanes, or the outputs; with
            1 for both, they split the rows.
        weights: how the block gets its weights.
        halves: whether shared memory has room for one half of the results at a time; otherwise for
            all of them.
    """

    threads = (TEAMS + 2) * TEAM

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
        """Whether the MMAs read X from shared memory, not from registers."""
        return self.work.source.bytes == 2 and self.lanes == 1

    @property
    def packs(self) -> bool:
        """Whether blocks pack the weights themselves: few weights, which need packing and stay in
        shared memory."""
        few = self.lanes * self.n * self.work.contracted <= _MOST_PACKED
        return self.resident and few and wants_packing(self.work)

    @property
    def packs_first(self) -> bool:
        """Whether a step before this one has to pack the weights, even contiguous ones."""
        return self.images or (wants_packing(self.work) and not self.packs)

    @property
    def vectors(self) -> tuple[int, int, int]:
        """As for every contraction; that of W is for loading weights that have to be packed."""
        x, _, y = vectors_of(self.work, self.lanes)
        return x, operands.vector_of(self.work.source), y

    @property
    def part_rows(self) -> int:
        """Rows of a part of the results: a warp's, or a team's if rows are contiguous in Y."""
        return TEAM_ROWS if self.work.y_order is Order.Rows else TEAM_ROWS // _TEAM_WARPS

    @derived
    def part_outputs(self) -> int:
        """Outputs of a part of the results: contiguous, and few enough for the registers of the
        storing threads."""
        return _part_outputs(self.part_rows, self.lanes, self.team_n, self.work.output.bytes)

    @property
    def parts(self) -> int:
        """How many parts a team's results are stored in."""
        return self.team_m * self.team_n // self.part_outputs

    @property
    def kept(self) -> int:
        """How many parts of a team's results shared memory holds at once."""
        return self.parts // 2 if self.halves else self.parts

    @derived
    def pitches(self) -> tuple[int, int]:
        """Leading dimensions in shared memory, of X and of the results."""
        work, lanes, part = self.work, self.lanes, self.part_outputs
        spread = work.source.bytes > 2
        run = {Order.Own: self.k, Order.Rows: self.m, Order.Lanes: self.k * lanes}[work.x_order]
        x = banks.pitch(run, work.x_order, lanes, self.team_lanes, work.source, spread)
        run = {Order.Own: part, Order.Rows: self.part_rows, Order.Lanes: part * lanes}[work.y_order]
        y = banks.deposit_pitch(run, work.y_order, lanes, self.team_lanes, work.output)
        return x.stride, y

    @property
    def x_bytes(self) -> int:
        """Bytes of X in a stage, rounded up to the alignment that W behind it needs."""
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
        """Bytes of W in a stage, rounded up likewise."""
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
        # The bias of two tiles.
        elements += 2 * self.n * self.lanes
        return operands.round_up(elements * work.output.bytes, operands.VECTOR_BYTES)

    @property
    def _units(self) -> int:
        """How many regions of the results are stored independently, each with its own barriers."""
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
        """Stages, W if it stays, the results to be stored, and barriers."""
        barriers = (2 * self.stages + 2 * self._units + 3) * _BARRIER
        return self.barriers_at + operands.round_up(barriers, operands.VECTOR_BYTES)

    def most_stages(self, counts: range, room: int) -> int:
        """An upper bound of the stages that fit in `room` bytes, at most the last of `counts`; it
        may be one too many."""
        stage = self.x_bytes + self.w_room + 2 * _BARRIER
        rest = self.shared_bytes - self.stages * stage
        # The barriers are rounded up to 16 bytes, so a further stage may need no more for its own.
        return min(counts[-1], (room - rest + operands.VECTOR_BYTES) // stage)

    def blocks_of(self, parts: int, rows: int, cores: int) -> int:
        """Blocks of a launch, with `parts` parts of W and `rows` row tiles of each: one block for
        each multiprocessor.

        If W is resident, there may be a few blocks fewer, so that each part of W has equally many:
        then the blocks of all parts read the same rows at the same time.
        """
        even = cores // parts * parts
        is_even = self.resident and even >= _LEAST_BUSY * cores
        return min(even if is_even else cores, parts * rows)


@functools.lru_cache(maxsize=1024)
def _part_outputs(rows: int, lanes: int, own: int, output_bytes: int) -> int:
    row = rows * lanes * output_bytes
    # Threads store 16-bit results of one lane to shared memory as pairs of matrices of 8 outputs.
    least = 16 if output_bytes == 2 and lanes == 1 else 8
    most = max(least, min(_PART // lanes, _PART_BYTES // row))
    return next(n for n in range(own, 0, -least) if own % n == 0 and n <= most)
