"""Depthwise convolutions on GPUs: the candidate tiles, and their step."""

from __future__ import annotations

import math
from collections.abc import Iterator

from kronop.descriptions.visitor import VisitorEpilogue
from kronop.emit.cuda import operands
from kronop.emit.plan import Step
from kronop.families.conv2d.cuda.depthwise_design import Conv2dDepthwise
from kronop.families.conv2d.cuda.depthwise_thread import channels_read
from kronop.families.conv2d.description import Conv2dDescription
from kronop.families.conv2d.floors import convolution_step
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.conv2d.vocabulary import Operator
from kronop.target import Target

# Rows and columns of a thread's results; bytes of its channels, as sums.
_TILES = ((2, 4), (1, 4), (2, 2), (1, 7), (2, 7), (1, 1))
_TILES_OF_WGRAD = ((1, 4), (1, 7), (2, 4), (1, 2))
_VECTOR_BYTES = (16, 32, 8, 4)
# Sums of elements of 16 bits: conversions of more bytes than that take too many registers.
_OF_HALVES = 32
# Filters of a channel whose gradients a thread reads.
_MOST_FILTERS = 4


def designs(what: Conv2dDescription, target: Target, size: Conv2dSize) -> Iterator[Conv2dDepthwise]:
    """The designs for a size, if its groups have one channel each."""
    many = what.conv_kind is Operator.dgrad and size.filters > _MOST_FILTERS
    is_plain = what.tile is None and not isinstance(what.epilogue, VisitorEpilogue)
    if size.channels != 1 or many or not is_plain:
        return
    for vector in _vectors(what, size):
        for tile in _TILES_OF_WGRAD if what.conv_kind is Operator.wgrad else _TILES:
            design = _of(what, size, vector, tile)
            if design.serves(size):
                yield design


def _of(
    what: Conv2dDescription, size: Conv2dSize, vector: int, tile: tuple[int, int]
) -> Conv2dDepthwise:
    kind = what.conv_kind
    source = what.B if kind is Operator.wgrad else what.A
    most = operands.vector_of(source.element)
    read = channels_read(kind, vector, size.filters)
    return Conv2dDepthwise.of_tile(
        size,
        tile,
        kind=kind,
        source=what.A.element,
        output=what.Y.element,
        sums=what.math.added_in,
        epilogue=what.epilogue,
        vector=vector,
        read_width=math.gcd(source.alignment, read, most),
        result_width=math.gcd(what.A.alignment, vector, most) if kind is Operator.wgrad else 1,
    )


def _vectors(what: Conv2dDescription, size: Conv2dSize) -> Iterator[int]:
    """Numbers of channels of a thread: multiples or divisors of the filters of a channel, which
    the promises of the tensors cover; one, of few bytes, if there is no other."""
    kind, found = what.conv_kind, set[int]()
    channels = size.c if kind is Operator.dgrad else size.k
    promise = min(
        it.alignment for it in ((what.A, what.B) if kind is Operator.wgrad else (what.A,))
    )
    for nbytes in _VECTOR_BYTES:
        if nbytes == _OF_HALVES and what.A.element.bytes != 2:
            continue
        count = max(1, nbytes // what.math.added_in.bytes)
        read = channels_read(kind, count, size.filters)
        fits = channels % count == 0 and (read == 1 or promise % min(read, count) == 0)
        together = count % size.filters == 0 or size.filters % count == 0
        if count == 1 and found and what.A.element.bytes < 8:
            return
        if fits and (together or kind is Operator.dgrad) and count not in found:
            found.add(count)
            yield count


def steps(what: Conv2dDescription, target: Target, design: Conv2dDepthwise) -> tuple[Step, ...]:
    kinds = f"{what.conv_kind.name}_{what.A.element.short}_{what.epilogue.name}"
    step = convolution_step(
        f"conv2d_depthwise_{kinds}_{design.shape}_{target.arch}",
        what,
        design,
        multiplied=None,
        sums=design.sums,
    )
    return (step,)
