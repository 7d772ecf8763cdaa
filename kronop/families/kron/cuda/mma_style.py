"""Styles of a `kron_mma` pass: how its phases contract the digits, whatever the tile sizes.

Each phase contracts one digit, or a pair of digits, on the tensor cores.
"""

from __future__ import annotations

import functools
import itertools
from typing import ClassVar

from kronop.artifacts import Decision, Status
from kronop.descriptions.datatype import DataType, float32
from kronop.emit.cuda import operands
from kronop.families.kron.cuda.shapes import Shape, product, shrinking
from kronop.frozen import dataclass, derived
from kronop.machine import SHARED_BYTES_PER_CYCLE, THREAD_REGISTERS, Feature
from kronop.target import Target

# A warp has 16 whole fibers of a digit in registers.
MOST_CONTRACTED = 128
MOST_DIGITS = 16
LEAST_OF_WGMMA = 32
HELD_FACTOR_BYTES = 64
# Measured with ptxas 13.4: registers of addresses and loops, if all sizes are powers of two, if
# some are not, and in addition for long digits; and the fraction of the estimate down to which
# ptxas can be limited without spills.
_REGISTERS_PLAIN, _REGISTERS_OTHERS, _REGISTERS_LONG = 56, 80, 32
_REGISTERS_SHARE = 0.72

# Cache for functions of a style: thousands of tiles share some dozen styles.
remembered = functools.lru_cache(maxsize=4096)

# A free index of a phase, before neighbouring ones are collapsed: (extent, stride in the tile, in
# rows, along the digits, in columns).
PlainAxis = tuple[int, int, int, int, int]


@dataclass(frozen=True, kw_only=True)
class MmaStyle(Decision):
    """How the phases of a tile contract its digits.

    `staged_in`: X is copied into the tile before the first phase; otherwise that phase reads X from
    global memory. `staged_out`: the same for Y and the last phase. The last `pairs` pairs of
    neighbouring digits are contracted in one phase each. The blocks of a `cluster` divide a tile
    along its first digit, which is then contracted last. With `wgmma`, four warps together
    multiply a digit of 32 or more. With `splits`, each operand is split in two: its rounded value
    and the remainder.
    """

    # Bytes before the tile in shared memory; elements of a staging access to the tile; and how many
    # registers of the accumulator's size an element takes.
    spare_bytes: ClassVar[int] = 0
    piece: ClassVar[int] = 4
    copies: ClassVar[int] = 1

    digits: tuple[Shape, ...]
    accumulator: DataType
    splits: bool
    staged_in: bool
    staged_out: bool
    pairs: int = 0
    cluster: int = 1
    wgmma: bool = False

    def __hash__(self) -> int:
        return self._hash

    @derived
    def _hash(self) -> int:
        flags = self.staged_in, self.staged_out, self.wgmma
        return hash((self.digits, self.pairs, self.cluster, flags))

    @property
    def buffers(self) -> int:
        """Tile buffers of a block: with two, one is filled while the other one is contracted."""
        return 1

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of the tile."""
        return self.accumulator.bytes

    @property
    def exchanges(self) -> bool:
        """Whether the first phase of the next tile may overlap with the last one of this tile."""
        return not (self.staged_in or self.staged_out or self.cluster > 1)

    def widest(self, size: int) -> int:
        """Most elements of a phase's access to global memory along a contiguous digit of this
        size."""
        return 2

    def uses_wgmma(self, digit: Shape) -> bool:
        return self.wgmma and digit[0] >= LEAST_OF_WGMMA

    @derived
    def powers(self) -> bool:
        """Whether all digits are powers of two."""
        return all(size & (size - 1) == 0 for digit in self.digits for size in digit)

    @remembered
    def strides(self, columns: int) -> tuple[int, ...]:
        """Strides in the tile: of its rows, then of each digit. The columns, or without columns
        the last digit, are contiguous."""
        strides: list[int] = []
        stride, count = columns, len(self.digits)
        banks = SHARED_BYTES_PER_CYCLE // self.accumulator.bytes
        for index in reversed(range(count)):
            # In a phase of two digits, the lanes of a warp access 8 values of the first digit.
            paired = (count - index) % 2 == 0 and count - index <= 2 * self.pairs
            outer = paired and strides[-1] > 1
            strides.append(_apart(stride, banks // 8 if outer else banks // 4, banks))
            slots = max(self.digits[index])
            if index == 0 and self.cluster > 1:
                # The last phase of a cluster writes to global memory, so the tile needs room only
                # for this block's inputs of the first digit.
                slots = self.digits[0][0] // self.cluster
            # A thread accesses two elements of a contiguous digit: the second must not belong to
            # the next fiber.
            stride = strides[-1] * (operands.round_up(slots, 2) if strides[-1] == 1 else slots)
        return (stride, *reversed(strides))

    @remembered
    def order(self) -> tuple[tuple[int, int | None], ...]:
        """(digit, the digit paired with it or None) of each phase in order: pairs go first."""
        last = len(self.digits) - 1
        paired = [(last - 2 * index, last - 2 * index - 1) for index in range(self.pairs)]
        single = sorted(
            range(len(self.digits) - 2 * self.pairs),
            key=lambda d: (self.cluster > 1 and d == 0, shrinking(self.digits[d]), -d),
        )
        return (*paired, *((digit, None) for digit in single))

    def held(self, digit: int, other: int | None, unit: bool) -> int:
        """How many fibers (or blocks of two digits) a thread has, at most a vector of 16 bytes.

        `unit`: whether the digit is contiguous in the tile.
        """
        parts = parts_of(self.digits[digit][0])
        if other is None:
            return 4 if self.accumulator.bytes == 4 and parts <= 2 else 2
        parts *= parts_of(self.digits[other][0])
        most = (8 if unit else 4) if parts == 1 else 4 if parts <= 4 else 1
        # An MMA has 16 produced indices: two blocks share it if the digit has 8 or fewer.
        least = 2 if self.digits[digit][1] <= 8 else 1
        return max(least, most * 4 // self.accumulator.bytes)

    def lanes(self, digit: int, other: int | None, unit: bool, fibers: int, warps: int) -> int:
        """`held`, for a phase of `fibers` fibers that `warps` warps divide."""
        return self.held(digit, other, unit)

    def fibers(self, axes: list[PlainAxis], unit: bool, columns: int) -> list[PlainAxis]:
        """The free axes of a phase in units of its warps' iterations."""
        return axes

    @remembered
    def registers(self, columns: bool) -> int:
        """An estimate of a thread's registers: fibers, fragments of factors, sums, addresses."""
        wanted = max(
            self.digit_registers(digit) if other is None else self._pair_registers(digit, other)
            for digit, other in self.order()
        )
        # Sizes that are no powers of two take more index arithmetic.
        others = _REGISTERS_PLAIN if self.powers else _REGISTERS_OTHERS
        # NOTE: at P = 64 three blocks of 168 registers a thread spilled a little and took 0.85 ms;
        # two blocks of 240 took 0.74 ms.
        most = max(p for p, _ in self.digits)
        long = parts_of(most) >= 8
        share = _REGISTERS_SHARE if most <= (64 if self.wgmma else 32) else 1.0
        held = round(share * (wanted + others + _REGISTERS_LONG * long))
        return min(THREAD_REGISTERS, held + self._spare_registers(columns))

    def _spare_registers(self, columns: bool) -> int:
        """Further registers. NOTE: NVRTC 13.0 spilled 4 to 130 bytes without them."""
        spare = 4 * columns + 24 * (self.accumulator.bytes == 8)
        if self.pairs and not self.powers:
            spare += 32 if any(q > p for p, q in self.digits) else 24
        if self.wgmma and len(set(self.digits)) > 1:
            spare += 4 if self.powers else 16
        alone = not (self.staged_in or self.pairs or self.wgmma)
        if alone and len(self.digits) > 3 and min(p for p, _ in self.digits) > 8:
            spare += 56
        return spare

    def digit_registers(self, index: int) -> int:
        """Registers for the fibers, the sums and the factor of a phase of one digit."""
        words, (p, q) = self.accumulator.bytes // 4, self.digits[index]
        fiber_tiles, at_once = self.register_tile(index)
        parts = parts_of(p) * parts_of(q)
        fragment = 2 * words * (1 + self.splits)
        held = (parts_of(p) + 1 + self.splits) * 4 * fiber_tiles * words
        sums = at_once * fiber_tiles * 4 * words * (1 + self.splits)
        factor = fragment * (parts if parts * fragment * 4 <= HELD_FACTOR_BYTES else at_once)
        return held + sums + factor

    def register_tile(self, index: int) -> tuple[int, int]:
        """(tiles of 16 fibers of a warp, parts of 8 produced indices that it sums up at once)."""
        p, q = self.digits[index]
        fiber_tiles = self.held(index, None, False) // 2
        return fiber_tiles, min(parts_of(q), (2 if parts_of(p) > 8 else 4) // fiber_tiles)

    def _pair_registers(self, digit: int, other: int) -> int:
        words = self.accumulator.bytes // 4
        (p1, q1), (p2, q2) = self.digits[digit], self.digits[other]
        lanes = self.held(digit, other, True)
        sets = lanes // 2 if q1 <= 8 else lanes
        held = lanes * parts_of(p1) * parts_of(p2) * 2
        sums = sets * parts_of(q2) * 4 + parts_of(p2) * 8 * (1 + self.splits)
        return (held + sums + 8 * (1 + self.splits)) * words

    def factor_bytes(self, digit: Shape) -> int:
        """Bytes of one factor in shared memory, in the order in which threads read it."""
        elements = parts_of(digit[0]) * parts_of(digit[1]) * 32 * 2 * (1 + self.splits)
        return elements * self.accumulator.bytes

    def _left_factor_bytes(self, digit: Shape) -> int:
        """`factor_bytes` of the digit that a pair contracts first, 16 produced indices at once."""
        p, q = digit
        elements = 4 * (1 + (self.splits and q > 8))
        return parts_of(p) * operands.cover(q, 16) * 32 * elements * self.accumulator.bytes

    @remembered
    def factors_bytes(self) -> tuple[int, ...]:
        """Bytes of each digit's factor in shared memory."""
        first = {digit for digit, other in self.order() if other is not None}

        def size(index: int, digit: Shape) -> int:
            if index in first:
                return self._left_factor_bytes(digit)
            if self.uses_wgmma(digit):
                digit = (digit[0], operands.round_up(digit[1], 64 if digit[1] > 32 else 32))
            return self.factor_bytes(digit)

        return tuple(size(index, digit) for index, digit in enumerate(self.digits))

    def status(self, columns: int, threads: int, target: Target) -> Status:
        """Whether the kernel has this style; the tile checks shared memory and registers."""
        if len(self.digits) > MOST_DIGITS:
            return Status.reject(f"{len(self.digits)} factors in one pass, at most {MOST_DIGITS}")
        return self._accept_cluster(target) and self._accept_warp_groups(threads, target)

    def _accept_warp_groups(self, threads: int, target: Target) -> Status:
        if not self.wgmma:
            return Status.accept()
        if not target.has(Feature.warp_groups) or self.accumulator is not float32:
            return Status.reject(
                f"{target} has no products of warp fiber_tiles for {self.accumulator}"
            )
        if threads % 128:
            return Status.reject(f"{threads} threads are no whole warp groups")
        return Status.accept()

    def _accept_cluster(self, target: Target) -> Status:
        if self.cluster == 1:
            return Status.accept()
        if not target.has(Feature.clusters):
            return Status.reject(f"{target} has no clusters of blocks; use a cluster of 1")
        if self.staged_in or self.staged_out or len(self.digits) <= max(1, 2 * self.pairs):
            return Status.reject(
                "the first digit of a cluster's tile goes from memory to memory alone"
            )
        if self.digits[0][0] % self.cluster:
            return Status.reject(
                f"{self.cluster} blocks do not share a digit of {self.digits[0][0]} evenly"
            )
        return Status.accept()


def parts_of(size: int) -> int:
    """MMAs along an index of this size."""
    return operands.cover(size, 8)


@remembered
def runs_of(factors: tuple[Shape, ...], merged: int) -> tuple[int, ...]:
    """How many neighbouring factors are merged into each digit: as many as keep the digit within
    `merged`."""
    runs: list[int] = []
    p, q = 0, 0
    for contracted, produced in factors:
        if runs and max(p * contracted, q * produced) <= merged:
            runs[-1] += 1
            p, q = p * contracted, q * produced
        else:
            runs.append(1)
            p, q = contracted, produced
    return tuple(runs)


@remembered
def digits_of(factors: tuple[Shape, ...], runs: tuple[int, ...]) -> tuple[Shape, ...]:
    """The digits that the factors are merged into."""
    ends = [sum(runs[:index]) for index in range(len(runs) + 1)]
    return tuple(product(factors[first:end]) for first, end in itertools.pairwise(ends))


def _apart(stride: int, step: int, banks: int) -> int:
    """`stride`, or a little more: an odd multiple of `step` banks, so that a warp that accesses 4
    multiples of the stride and 8 neighbours at each has no bank conflicts.

    It is unchanged if the padding would exceed a quarter of it.
    """
    if stride < banks // 4 or stride % 4:
        return stride
    wanted = range(stride, stride + banks + 1, min(step, 4))
    padded = next(s for s in wanted if s % step == 0 and s // step % 2 == 1)
    return padded if padded <= 1.25 * stride else stride
