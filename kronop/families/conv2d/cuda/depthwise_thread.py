"""The threads of depthwise convolutions on GPUs: what each holds and does."""

from __future__ import annotations

import math

from kronop.descriptions.datatype import DataType
from kronop.descriptions.epilogue import Epilogue
from kronop.emit.cuda import operands
from kronop.emit.cuda.machine import ordinary_products
from kronop.families.conv2d.vocabulary import Operator
from kronop.frozen import dataclass
from kronop.machine import ISSUED
from kronop.target import Target

THREADS, LANES = 128, 32
"""Threads of a block, and those that share a chunk of channels at most."""
# Registers besides those of operands and sums.
_REGISTERS = 52
# Sums of a thread of wgrad, in registers of 4 bytes.
_MOST_SUMS = 80
# Taps of a filter, and pixels of a patch, of which all rows are unrolled: filters then stay in
# registers from tile to tile. wgrad always unrolls.
_UNROLLED_TAPS, _UNROLLED_PIXELS = 9, 45
# Instructions of a thread besides multiply-adds: for a load with its address and bounds, a result
# and each of its channels, and a tile.
_OF_LOAD, _OF_RESULT, _OF_CHANNEL, _OF_TILE = 4, 14, 3, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthwiseThread:
    """Some channels of neighbouring results.

    Attributes:
        kind: what is computed.
        source, output, sums: types of the operands, of the result and of sums.
        taps, strides, dilations: of the filter, along H and W.
        multiplier: filters of a channel.
        vector: channels of a thread.
        read_width, result_width: neighbouring channels that are loaded at once: of the images, or
            results, that are read with a border; of wgrad's gradients.
        rows, columns: results of a thread.
    """

    kind: Operator
    source: DataType
    output: DataType
    sums: DataType
    epilogue: Epilogue
    taps: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    multiplier: int
    vector: int
    read_width: int
    result_width: int
    rows: int
    columns: int

    @property
    def shared_bytes(self) -> int:
        if self.kind is Operator.wgrad:
            return THREADS * max(1, self.taps[1] * self.vector) * self.sums.bytes
        return math.prod(self.taps) * LANES * self._filters * self.sums.bytes

    @property
    def registers(self) -> int:
        """An estimate of the registers of a thread."""
        words, across = self.sums.bytes // 4, self._pixels(1)
        results = self.rows * self.columns * self.vector
        if self.kind is Operator.wgrad:
            held = results + self._tap_rows * self.taps[1] * self.vector
        else:
            held = results + min(self.taps[1], self.columns) * self._filters * self.rows
        # A byte takes a whole register on its way to the type of sums.
        loaded = 4 if self.source.bytes == 1 else self.source.bytes
        brought = across * self._read * (loaded + self.sums.bytes) // 4
        # Without conversions, compilers have loads of two rows of wgrad in flight.
        brought *= 2 if self.kind is Operator.wgrad and self.source is self.sums else 1
        return words * held + brought + across + _REGISTERS

    @property
    def _read(self) -> int:
        """Channels that a thread reads of a pixel."""
        return channels_read(self.kind, self.vector, self.multiplier)

    @property
    def _filters(self) -> int:
        """Filters of a thread."""
        return self._read if self.kind is Operator.dgrad else self.vector

    @property
    def _tap_rows(self) -> int:
        """Rows of a filter whose sums a thread of wgrad has; 0 if there are too many."""
        if self.kind is not Operator.wgrad:
            return self.taps[0]
        each = self.taps[1] * self.vector * self.sums.bytes // 4
        most = min(self.taps[0], _MOST_SUMS // each)
        return most and operands.cover(self.taps[0], operands.cover(self.taps[0], most))

    @property
    def _parts(self) -> int:
        return operands.cover(self.taps[0], max(1, self._tap_rows))

    @property
    def _unrolled(self) -> bool:
        if self.kind is Operator.wgrad:
            return True
        pixels = self._pixels(0) * self._pixels(1)
        return math.prod(self.taps) <= _UNROLLED_TAPS and pixels <= _UNROLLED_PIXELS

    def _pixels(self, axis: int) -> int:
        """Pixels of a patch along an axis."""
        results = (self.rows, self.columns)[axis]
        taps = self.taps[1] if axis else self._tap_rows
        reach, step = (taps - 1) * self.dilations[axis], self.strides[axis]
        if self.kind is Operator.dgrad:
            return operands.cover(reach, step) + (results - 1) // step + 1
        return (results - 1) * step + reach + 1

    def _instructions(self, target: Target) -> float:
        """Those of a thread for a tile."""
        results = self.rows * self.columns
        steps = math.prod(self.strides) if self.kind is Operator.dgrad else 1
        products = self._tap_rows * self.taps[1] * results * self._filters / steps
        converts = self.source is not self.sums
        slow = ISSUED / ordinary_products(target, self.sums.kind, self.sums.bytes)
        reads = self._pixels(0) * self._pixels(1)
        loads = reads * (self._read / self.read_width * _OF_LOAD + converts * self._read)
        ends = results * (_OF_RESULT + self.vector * _OF_CHANNEL)
        return products * slow + loads + ends + _OF_TILE


def channels_read(kind: Operator, vector: int, multiplier: int) -> int:
    """Channels that belong to a vector of the result, of what is read with a border."""
    return vector * multiplier if kind is Operator.dgrad else max(1, vector // multiplier)
