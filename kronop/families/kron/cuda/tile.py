"""The `kron_tile` pass, on the ordinary cores: the tile, its phases and its shared memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from kronop.artifacts import Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.epilogue import Epilogue
from kronop.emit.cuda import operands
from kronop.emit.cuda.contraction.design import offsets_bytes
from kronop.emit.design import ENDS, Constant, arrays, named
from kronop.families.kron.cuda.banks import Phase, TileLayout, padding
from kronop.families.kron.cuda.pass_design import (
    TiledPass,
    accept_sizes,
    reject_threads,
)
from kronop.families.kron.cuda.shapes import Shape, product, shrinking
from kronop.frozen import dataclass, derived
from kronop.machine import BLOCK_THREADS, THREAD_REGISTERS, WARP
from kronop.target import Target

MOST_FACTORS = 32
# A thread has all inputs of a digit in registers, and all outputs too if the digit is small.
MOST_CONTRACTED = 32
SMALL_DIGIT = 8
# A thread's elements of a run of small digits, by the accumulator: fewer 64-bit integers, because
# their products need further registers.
_SMALL_BLOCKS = {"float32": 64, "int32": 64, "float64": 32, "int64": 16}


@dataclass(frozen=True, kw_only=True)
class KronTile(TiledPass):
    """Rows x digits x columns of a block, and its threads.

    Attributes:
        pad_shift: an element of padding follows every 2^pad_shift elements; 0 for no padding. The
            value with the fewest bank conflicts is computed for a chosen tile (`banks.padding`).
        pad_adds: whether the padded address of a sum of two indices is the sum of their padded
            addresses; the kernel then adds compile-time offsets.
    """

    kernel = "kron_tile"
    kind = "tile"
    ends = ENDS

    rows: int
    columns: int
    threads: int
    pad_shift: int = 5
    pad_adds: bool = False

    def placed(self, epilogue: Epilogue | None) -> KronTile:
        shift, adds = padding(
            self.layout, self.phases, self.vectors, self.columns, self.work.accumulator
        )
        return replace(self, epilogue=epilogue, pad_shift=shift, pad_adds=adds)

    @property
    def vectors(self) -> tuple[int, int]:
        shape, ends = self.work.shape, self.work.ends
        if self.columns > 1:
            sizes = [self.columns] if ends.source_by_rows else [self.columns, shape.right]
            return (
                operands.widest_divisor(ends.source_alignment, sizes),
                operands.widest_divisor(ends.output_alignment, sizes),
            )
        x = operands.widest_divisor(ends.source_alignment, [shape.size_in])
        return x, operands.widest_divisor(ends.output_alignment, [shape.size_out])

    @derived
    def layout(self) -> TileLayout:
        """Offsets of the tile and the factors in shared memory."""
        factors, accumulator = self.work.shape.factors, self.work.accumulator
        slots = tuple(max(item) for item in factors)
        vector, chunk = operands.vector_of(accumulator), chunk_of(accumulator)
        pitches = tuple(
            operands.round_up(digit[1], vector if max(digit) <= SMALL_DIGIT else chunk)
            for digit in factors
        )
        sizes = [p * pitch for (p, _), pitch in zip(factors, pitches, strict=True)]
        row_stride = math.prod(slots) * self.columns
        return TileLayout(
            slots=slots,
            strides=tuple(
                self.columns * math.prod(slots[index + 1 :]) for index in range(len(slots))
            ),
            pitches=pitches,
            factor_elements=sum(sizes),
            row_stride=row_stride,
            elements=row_stride * self.rows,
        )

    @derived
    def shared_bytes(self) -> int:
        """Row offsets, factors and the padded tile."""
        layout = self.layout
        padded = layout.elements + (layout.elements >> self.pad_shift if self.pad_shift else 0)
        return (
            offsets_bytes(self.rows)
            + self._factor_bytes(layout)
            + padded * self.work.accumulator.bytes
        )

    def _factor_bytes(self, layout: TileLayout) -> int:
        size = layout.factor_elements * self.work.accumulator.bytes
        return operands.round_up(size, operands.VECTOR_BYTES)

    @derived
    def registers(self) -> int:
        """An upper estimate of the registers of a thread: elements, sums, addresses."""
        accumulator = self.work.accumulator
        chunk, words = chunk_of(accumulator), accumulator.bytes // 4
        wanted = 0
        for phase in _phases_of(self.work.shape.factors, accumulator):
            if phase.together == 0:
                wanted = max(wanted, (phase.block + 32) * words + 64)
            else:
                # NOTE: ptxas 13.4 spilled digits that are no powers of two below about 150
                # registers (for the addresses of padded elements), and the largest even at 168, so
                # more than 8 warps would leave too few.
                held = phase.together * (phase.block + chunk + 8) * words + 64
                odd = phase.block & (phase.block - 1) != 0
                large = phase.together * phase.block * words > 40
                wanted = max(wanted, held, (208 if large else 152) if odd else 0)
        return min(wanted, THREAD_REGISTERS)

    def blocks(self, target: Target) -> int:
        return operands.resident_blocks(self.threads, self.registers, self.shared_bytes, target)

    def status(self, target: Target) -> Status:
        shape = self.work.shape
        if len(shape.factors) > MOST_FACTORS:
            return Status.reject(
                f"{len(shape.factors)} factors in one pass, at most {MOST_FACTORS}"
            )
        largest = max(p for p, _ in shape.factors)
        if largest > MOST_CONTRACTED:
            return Status.reject(
                f"a digit of {largest} does not fit a thread's registers, at most {MOST_CONTRACTED}"
            )
        if not WARP <= self.threads <= BLOCK_THREADS:
            return reject_threads(self.threads)
        return accept_sizes(
            (self.rows, shape.size_in, self.columns),
            self.shared_bytes,
            self.threads,
            self.registers,
            target,
        )

    @derived
    def phases(self) -> tuple[Phase, ...]:
        """The phases in the order of execution, with their free axes at that time."""
        layout, factors = self.layout, self.work.shape.factors
        done: set[int] = set()
        result = []
        for phase in _phases_of(factors, self.work.accumulator):
            inside = range(phase.first, phase.end)
            axes = [(self.rows, layout.row_stride)]
            axes += [
                (digit[1] if index in done else digit[0], layout.strides[index])
                for index, digit in enumerate(factors)
                if index not in inside
            ]
            result.append(
                Phase(
                    first=phase.first,
                    end=phase.end,
                    together=phase.together,
                    block=phase.block,
                    axes=_collapse([*axes, (self.columns, 1)]),
                )
            )
            done |= set(inside)
        return tuple(result)

    def constants(self, target: Target) -> tuple[tuple[str, Constant], ...]:
        x_vector, y_vector = self.vectors
        return (
            ("kThreads", self.threads),
            ("kBlocks", self.blocks(target)),
            ("kXVector", x_vector),
            ("kYVector", y_vector),
            *named(self, "pad_shift pad_adds"),
            *self._tile_constants(),
            *_phase_constants(self.phases, self.work.accumulator),
        )

    def _tile_constants(self) -> tuple[tuple[str, Constant], ...]:
        """Sizes of the tile and offsets of its parts in shared memory."""
        shape, layout = self.work.shape, self.layout
        factors_at = offsets_bytes(self.rows)
        return (
            *named(self, "rows columns"),
            ("kContracted", tuple(p for p, _ in shape.factors)),
            ("kProduced", tuple(q for _, q in shape.factors)),
            ("kStride", layout.strides),
            ("kRowStride", layout.row_stride),
            ("kFactorPitch", layout.pitches),
            ("kFactorBytesAt", factors_at),
            ("kTileBytesAt", factors_at + self._factor_bytes(layout)),
        )


def chunk_of(accumulator: DataType) -> int:
    """Outputs of a large digit that a thread computes at a time."""
    return 32 // accumulator.bytes


def _phases_of(factors: Sequence[Shape], accumulator: DataType) -> list[Phase]:
    """The phases of a pass: runs of small digits share one; those that shrink X most go first."""
    phases: list[Phase] = []
    most = _SMALL_BLOCKS[accumulator.name]
    for index, digit in enumerate(factors):
        slots = max(digit)
        last = phases[-1] if phases else None
        if slots > SMALL_DIGIT:
            most_together = 2 if digit[0] & (digit[0] - 1) else 4
            together = max(1, min(most_together, 256 // (accumulator.bytes * digit[0])))
            phases.append(Phase(first=index, end=index + 1, together=together, block=digit[0]))
        elif last is not None and last.together == 0 and last.block * slots <= most:
            block = last.block * slots
            phases[-1] = Phase(first=last.first, end=index + 1, together=0, block=block)
        else:
            phases.append(Phase(first=index, end=index + 1, together=0, block=slots))
    return sorted(phases, key=lambda phase: shrinking(product(factors[phase.first : phase.end])))


def _collapse(axes: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Merges neighbouring axes where the outer one continues the inner one."""
    result: list[tuple[int, int]] = []
    for extent, stride in axes:
        if extent == 1:
            continue
        if result and result[-1][1] == extent * stride:
            result[-1] = (result[-1][0] * extent, stride)
        else:
            result.append((extent, stride))
    return tuple(result) or ((1, 0),)


def _phase_constants(
    phases: Sequence[Phase], accumulator: DataType
) -> tuple[tuple[str, Constant], ...]:
    """Constants with the digits and the free axes of each phase, concatenated over all phases."""
    ends = [0]
    for phase in phases:
        ends.append(ends[-1] + len(phase.axes))
    return (
        ("kChunk", chunk_of(accumulator)),
        *arrays(phases, "kPhase", "first end block together"),
        ("kPhaseAxis", tuple(ends)),
        ("kAxisExtent", tuple(extent for phase in phases for extent, _ in phase.axes)),
        ("kAxisStride", tuple(stride for phase in phases for _, stride in phase.axes)),
    )
