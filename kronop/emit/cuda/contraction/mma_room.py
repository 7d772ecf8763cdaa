"""The tiles of a `contract_mma` block and of its warps, its shared memory and registers."""

from __future__ import annotations

import functools

from kronop.descriptions.datatype import DataType
from kronop.emit.cuda import operands
from kronop.emit.cuda.contraction import banks
from kronop.emit.cuda.contraction.banks import Pitch
from kronop.emit.cuda.contraction.design import ContractDesign, offsets_bytes
from kronop.emit.cuda.contraction.work import Contraction, Order
from kronop.frozen import dataclass, derived

# Contracted indices of an MMA step, and the rows and outputs of one MMA tile.
SLAB, ROWS, OUTPUTS = 16, 16, 8
# Measured with ptxas 13.4: registers of addresses and loops, besides sums and fragments.
_REGISTERS = 68
# Most pairs that a thread copies through registers at once: Pairs::kMost in contract_operands.cuh.
_MOST_PAIRS = 16


@functools.lru_cache(maxsize=1024)
def vectors_of(work: Contraction, lanes: int) -> tuple[int, int, int]:
    """The widest vectorised accesses to X, W and Y that the sizes allow; launches check strides."""

    def widest(order: Order, own: int, element: DataType) -> int:
        most = operands.vector_of(element)
        if order is Order.Rows:
            return most if work.run is None else operands.widest_divisor(most, [work.run])
        if order is Order.Own:
            return operands.widest_divisor(most, [own])
        if 1 < work.lanes == lanes:
            return operands.widest_divisor(most, [own * work.lanes])
        return operands.widest_divisor(most, [lanes, work.lanes])

    w = widest(work.w_order, work.contracted, work.source)
    if work.w_order is Order.Rows:
        w = operands.widest_divisor(operands.vector_of(work.source), [work.produced])
    return (
        widest(work.x_order, work.contracted, work.source),
        w,
        widest(work.y_order, work.produced, work.output),
    )


def tile_size(order: Order, lanes: int, own: int, wide: int, pitch: int) -> int:
    """Elements of an operand's tile in shared memory, like `Layout` in contract_operands.cuh."""
    return pitch * {Order.Own: lanes * wide, Order.Rows: lanes * own, Order.Lanes: wide}[order]


@dataclass(frozen=True, kw_only=True)
class MmaRoom(ContractDesign):
    """The tiles of a block and of its warps.

    Attributes:
        lanes: lanes of a block: all of them, or as many as a vectorised access loads.
        warp_m, warp_n: a warp has 16 warp_m rows and 8 warp_n outputs of each of its lanes.
        warps: numbers of warps along lanes, rows, outputs and the contracted index.
    """

    warp_m: int
    warp_n: int
    warps: tuple[int, int, int, int]

    @derived
    def m(self) -> int:
        return self.warp_m * ROWS * self.warps[1]

    @derived
    def n(self) -> int:
        return self.warp_n * OUTPUTS * self.warps[2]

    @derived
    def threads(self) -> int:
        lanes, m, n, k = self.warps
        return 32 * lanes * m * n * k

    @derived
    def warp_lanes(self) -> int:
        return self.lanes // self.warps[0]

    @property
    def part(self) -> tuple[int, int]:
        """Rows and outputs of a part of the results; shared memory holds one part at a time."""
        if self.work.y_order is Order.Rows:
            return self.m, OUTPUTS * self.warps[2]
        return ROWS * self.warps[1], self.n

    def __str__(self) -> str:
        block = f"{self.lanes} lanes x {self.m} x {self.n} x {self.k}, {self.stages} stages"
        warps = " x ".join(map(str, self.warps))
        return f"{block}, {warps} warps of {self.warp_m * ROWS} x {self.warp_n * OUTPUTS}"

    @property
    def joins(self) -> bool:
        """Whether a block has all of several lanes, so that contiguous runs continue along the
        operand's own index."""
        return 1 < self.work.lanes == self.lanes

    @derived
    def vectors(self) -> tuple[int, int, int]:
        return vectors_of(self.work, self.lanes)

    @derived
    def pairs(self) -> tuple[bool, bool]:
        """Whether X and W are copied in pairs through registers if strides forbid vectors.

        An asynchronous copy moves at least four bytes, so 16-bit elements at odd addresses would
        have to be copied one by one. The code for pairs costs registers in every call, so it is
        left out if no call of the plan can need it.
        """
        work = self.work

        def needed(order: Order, vector: int) -> bool:
            if work.source.bytes != 2 or self.lanes > 1 or order is Order.Lanes:
                return False
            return vector == 1

        x, w, _ = self.vectors
        unknown = work.x_order is Order.Rows and work.run is None
        return needed(work.x_order, 1 if unknown else x), needed(work.w_order, w)

    @derived
    def pitches(self) -> tuple[Pitch, Pitch, Pitch]:
        """The pitches of X, W and the results in shared memory."""
        work, lanes = self.work, self.lanes
        spread = work.w_order is Order.Lanes

        def operand(order: Order, wide: int) -> Pitch:
            run = {Order.Own: self.k, Order.Rows: wide, Order.Lanes: self.k * lanes}[order]
            return banks.pitch(run, order, lanes, self.warp_lanes, work.source, spread)

        rows, outputs = self.part
        run = {Order.Own: outputs, Order.Rows: rows, Order.Lanes: outputs * lanes}[work.y_order]
        pairs = work.source.bytes == 1 and work.x_order is Order.Rows
        results = banks.results_pitch(run, work.y_order, lanes, work.accumulator, pairs)
        return operand(work.x_order, self.m), operand(work.w_order, self.n), results

    @derived
    def stage_elements(self) -> tuple[int, int]:
        """Elements of X and of W in a stage."""
        work, (x, w, _) = self.work, self.pitches
        return (
            tile_size(work.x_order, self.lanes, self.k, self.m, x.stride),
            tile_size(work.w_order, self.lanes, self.k, self.n, w.stride),
        )

    @derived
    def shared_bytes(self) -> int:
        """Row offsets, plus the larger of all stages and one part of the results."""
        stages = self.stages * sum(self.stage_elements) * self.work.source.bytes
        return offsets_bytes(self.m) + max(stages, self.results_bytes)

    @derived
    def results_bytes(self) -> int:
        """Bytes of one part of the results, times the warps that split the contracted index, each
        with its own partial sums."""
        work, (rows, outputs) = self.work, self.part
        size = tile_size(work.y_order, self.lanes, outputs, rows, self.pitches[2].stride)
        return size * work.accumulator.bytes * self.warps[3]

    @derived
    def registers(self) -> int:
        """An upper estimate of the registers of a thread: sums, fragments, and copies in flight."""
        work, lanes, m, n = self.work, self.warp_lanes, self.warp_m, self.warp_n
        splits = bool(work.splits)
        words = max(1, work.source.bytes // 4)
        sums = lanes * m * n * 4 * words
        if work.source.bytes <= 2:
            fragments = 2 * lanes * n + 4 * lanes
            # One vectorised load brings several contiguous lanes, unpacked into further registers.
            joins = Order.Lanes in (work.x_order, work.w_order)
            fragments += (4 * lanes + 8 * (work.source.bytes == 1)) * joins
        else:
            # Two MMAs of 8 contracted indices: W's fragments are split (X's only with one lane),
            # and a chain has its own sums.
            fragments = 4 * lanes * n * words * (1 + splits) + 8 * lanes * words
            # Unpacking several lanes takes further registers.
            fragments += (8 + 4 * n + 12 * (lanes > 1)) * splits
        x, w, _ = self.vectors
        pieces = 0
        for size, vector, paired in zip((self.m, self.n), (x, w), self.pairs, strict=True):
            elements = operands.cover(self.lanes * self.k * size, self.threads)
            always = paired and vector == 1
            pieces += min(elements, 2 * _MOST_PAIRS) if always else operands.cover(elements, vector)
        return sums + fragments + pieces + _REGISTERS
