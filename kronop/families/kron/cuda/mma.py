"""The tile of a `kron_mma` pass: its phases on the tensor cores, its shared memory and registers.

The tile is in shared memory, with strides that avoid bank conflicts.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

from kronop.artifacts import Decision, Status
from kronop.emit.cuda import operands
from kronop.emit.cuda.contraction.design import offsets_bytes
from kronop.families.kron.cuda.mma_style import (
    MOST_CONTRACTED,
    MmaStyle,
    PlainAxis,
    parts_of,
    remembered,
)
from kronop.families.kron.cuda.pass_design import accept_sizes, reject_threads
from kronop.frozen import dataclass, derived
from kronop.machine import BLOCK_THREADS, WARP
from kronop.target import Target

_AHEAD_BYTES = 64

_judged = functools.lru_cache(maxsize=1 << 16)


class Axis(NamedTuple):
    """A free index of a phase: its extent, and its strides.

    The strides are in the tile, in rows, and, for a phase that accesses global memory itself, along
    the digits and in columns.
    """

    extent: int
    shared: int
    row: int = 0
    digit: int = 0
    column: int = 0


class MmaPhase(NamedTuple):
    """A phase that contracts one digit, or two: a warp's work at once, and the free axes.

    For one digit, a warp has `fiber_tiles` tiles of 16 fibers, a thread elements of `lanes` fibers.
    For two, a warp has `lanes` blocks of (`digit`, `other`), and contracts `digit` first.
    """

    digit: int
    other: int | None
    lanes: int
    neighbours: bool
    wgmma: bool
    axes: tuple[Axis, ...]

    @property
    def digits(self) -> tuple[int, ...]:
        return (self.digit,) if self.other is None else (self.digit, self.other)

    @property
    def fiber_tiles(self) -> int:
        return self.lanes // 2

    @property
    def at_once(self) -> int:
        """Fibers or blocks that a warp (with `wgmma`: a warp group) has at once."""
        return 64 if self.wgmma else self.lanes if self.other is not None else 16 * self.fiber_tiles

    @property
    def fibers(self) -> int:
        return math.prod(axis.extent for axis in self.axes)


@dataclass(frozen=True, kw_only=True)
class MmaTile(Decision):
    """Rows x digits x columns of a block, its threads, and the style of its phases.

    It does not depend on the position of the digits among the other digits of X.
    """

    style: MmaStyle
    rows: int
    columns: int
    threads: int

    def __hash__(self) -> int:
        return self._hash

    @derived
    def _hash(self) -> int:
        return hash((self.style, self.rows, self.columns, self.threads))

    @derived
    def strides(self) -> tuple[int, ...]:
        """Stride of each digit."""
        return self.style.strides(self.columns)[1:]

    @property
    def row_stride(self) -> int:
        return self.style.strides(self.columns)[0]

    @property
    def unit(self) -> bool:
        """Whether the last digit is contiguous."""
        return self.columns == 1

    @derived
    def powers(self) -> bool:
        """Whether all sizes are powers of two: the parts of an index are then bit fields, and
        adding indices has no carries between them."""
        rows, columns, threads = self.rows, self.columns, self.threads
        tiles = not (rows & (rows - 1) or columns & (columns - 1) or threads & (threads - 1))
        return tiles and self.style.powers

    @derived
    def registers(self) -> int:
        return self.style.registers(self.columns > 1)

    @property
    def offset_bytes(self) -> int:
        """Bytes of the row offsets of one of the tiles that are in flight."""
        return offsets_bytes(self.rows)

    @property
    def offset_tiles(self) -> int:
        """Tiles with row offsets in shared memory: the current one and the next; if these two may
        overlap, also the one after, which is already being loaded."""
        return 3 if self._may_exchange else 2

    @property
    def _may_exchange(self) -> bool:
        return self.rows == self.columns == 1 and self.style.exchanges

    @derived
    def shared_bytes(self) -> int:
        """Row offsets, factors, and the tile, which a single phase without staging does not
        need."""
        style = self.style
        elements = self.row_stride * self.rows
        meets = style.staged_in or style.staged_out or len(style.digits) - style.pairs > 1
        before = self.offset_tiles * self.offset_bytes + sum(style.factors_bytes())
        return before + style.spare_bytes + elements * style.element_bytes * meets * style.buffers

    def blocks(self, target: Target) -> int:
        """Blocks that a multiprocessor holds at once (occupancy)."""
        return operands.resident_blocks(self.threads, self.registers, self.shared_bytes, target)

    @_judged
    def status(self, target: Target) -> Status:
        """Whether `kron_mma` can run with this tile; there is no other such check."""
        status = self.style.status(self.columns, self.threads, target)
        if not status:
            return status
        digits = self.style.digits
        largest = max(p for p, _ in digits)
        if largest > MOST_CONTRACTED:
            return Status.reject(
                f"a digit of {largest} does not fit a thread's registers, at most {MOST_CONTRACTED}"
            )
        if not WARP <= self.threads <= BLOCK_THREADS or self.threads % WARP:
            return reject_threads(self.threads)
        size_in = math.prod(p for p, _ in digits)
        return accept_sizes(
            (self.rows, size_in, self.columns),
            self.shared_bytes,
            self.threads,
            self.registers,
            target,
        )

    @property
    @remembered
    def phases(self) -> tuple[MmaPhase, ...]:
        """The phases in the order of execution."""
        done: set[int] = set()
        result = []
        order = self.style.order()
        for place, digits in enumerate(order):
            reads = place == 0 and not self.style.staged_in
            writes = place == len(order) - 1 and not self.style.staged_out
            own = {digit for digit in digits if digit is not None}
            if writes:
                done |= own
            result.append(self._phase(*digits, done, inside=not (reads or writes)))
            done |= own
        return tuple(result)

    def _phase(self, digit: int, other: int | None, done: set[int], *, inside: bool) -> MmaPhase:
        """One phase; the digits in `done` were contracted before, and have their produced sizes."""
        style, strides = self.style, self.strides
        sizes = [q if index in done else p for index, (p, q) in enumerate(style.digits)]
        sizes[0] //= style.cluster
        axes = [(self.rows, self.row_stride, 1, 0, 0)]
        axes += [
            (size, strides[index], 0, 0 if inside else math.prod(sizes[index + 1 :]), 0)
            for index, size in enumerate(sizes)
            if index not in (digit, other)
        ]
        axes.append((self.columns, 1, 0, 0, 0 if inside else 1))
        unit = strides[digit] == 1
        collapsed = _collapse(style.fibers(axes, unit, self.columns))
        fibers = math.prod(axis.extent for axis in collapsed)
        lanes = style.lanes(digit, other, unit, fibers, self.threads // 32)
        return MmaPhase(
            digit=digit,
            other=other,
            lanes=lanes,
            neighbours=_neighbours(collapsed, (digit, other), strides, lanes),
            wgmma=other is None and style.uses_wgmma(style.digits[digit]),
            axes=collapsed,
        )

    @property
    def exchanged(self) -> int:
        """Fibers of the first phase in a chunk of the tile, or 0 if the two phases can't overlap.

        A chunk has all values of the digits of the first and of the last phase, and one value of
        each index between. The last phase of a tile reads a chunk, and the first phase of the next
        tile then overwrites it. Because the same warps do both, no barrier is needed.
        """
        digits = self.style.digits
        if not (self._may_exchange and len(self.style.order()) > 2 and self.powers):
            return 0
        first, last = self.phases[0], self.phases[-1]
        square = all(p == q for p, q in digits)
        if not square or max(last.digits) > min(first.digits) or first.wgmma != last.wgmma:
            return 0
        each = math.prod(digits[digit][0] for digit in last.digits)
        # A round of a warp must be a whole number of chunks in both phases: otherwise it would
        # overwrite elements that another warp has yet to read.
        tasks, crews = first.fibers // first.at_once, self.threads // (128 if first.wgmma else 32)
        if not tasks or first.at_once % each or last.fibers % (tasks * last.at_once):
            return 0
        return each if tasks % max(crews, 1) == 0 else 0

    @property
    def reads_ahead(self) -> bool:
        """Whether the phase that reads X has registers to load the next round's elements early."""
        style, phase = self.style, self.phases[0]
        elements = 2 * phase.lanes * math.prod(parts_of(style.digits[d][0]) for d in phase.digits)
        size = elements * style.copies * style.accumulator.bytes
        return not style.staged_in and size <= _AHEAD_BYTES

    def vector(self, alignment: int, produced: int) -> int:
        """Elements of one access to X, or to Y for `produced` == 1, by staging or by a phase."""
        style, strides = self.style, self.strides
        if style.staged_out if produced else style.staged_in:
            return self._staged_vector(alignment, produced)
        phase = self.phases[-1 if produced else 0]
        if strides[phase.digit] == 1:
            size = style.digits[phase.digit][produced]
            return operands.widest_divisor(min(alignment, style.widest(size)), [size])
        return math.gcd(alignment, phase.lanes) if phase.neighbours else 1

    def _staged_vector(self, alignment: int, produced: int) -> int:
        """Elements of one staging access between the tile and global memory."""
        run = self.style.digits[-1][produced] if self.unit else self.columns
        width = operands.widest_divisor(alignment, [run])
        piece = min(width, self.style.piece)
        outer = self.strides[:-1] if self.unit else self.strides
        fits = operands.widest_divisor(piece, [*outer, self.row_stride])
        return width if fits == piece else fits


def _neighbours(
    axes: Sequence[Axis], digits: Sequence[int | None], strides: Sequence[int], lanes: int
) -> bool:
    """Whether the fibers of a thread are neighbours in memory, so that one aligned vector access
    has them all."""
    own = [strides[digit] for digit in digits if digit is not None]
    last = axes[-1]
    aligned = all(
        step % lanes == 0 for axis in axes[:-1] for step in (axis.shared, axis.digit, axis.column)
    )
    return (
        all(stride != 1 and stride % lanes == 0 for stride in own)
        and aligned
        and last.shared == 1
        and last.extent % lanes == 0
    )


def _collapse(axes: Sequence[PlainAxis]) -> tuple[Axis, ...]:
    """Merges neighbouring axes where, for all strides, the outer one continues the inner one."""
    result: list[PlainAxis] = []
    for axis in axes:
        extent, *steps = axis
        if extent == 1:
            continue
        if result and all(
            own == extent * other for own, other in zip(result[-1][1:], steps, strict=True)
        ):
            result[-1] = (result[-1][0] * extent, *axis[1:])
        else:
            result.append(axis)
    return tuple(
        Axis(extent=extent, shared=shared, row=row, digit=along, column=column)
        for extent, shared, row, along, column in result or [(1, 0, 0, 0, 0)]
    )
