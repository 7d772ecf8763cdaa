"""Convolutions of few channels by warp groups: as products of patches that are contiguous, once
their images are widened."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

from kronop.artifacts import Launch, Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.strided import Strided
from kronop.emit.cuda import operands
from kronop.emit.cuda.machine import memory_rate
from kronop.emit.design import Pipeline, Runnable
from kronop.families.conv2d.cuda.warp_group_design import Conv2dWarpGroup
from kronop.families.conv2d.cuda.warp_group_slices import Conv2dSlices, Runs
from kronop.families.conv2d.cuda.widen import Conv2dWiden, WidenProblem
from kronop.families.conv2d.description import Conv2dProblem
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.conv2d.vocabulary import Operator
from kronop.families.gemm.cuda.warp_group_problem import GRANULE, LINE_BYTES, PLANES
from kronop.frozen import dataclass
from kronop.machine import MEASURED
from kronop.target import Target

# Alignment of what is widened, and the most bytes of widened images.
_APART, _MOST_BYTES = 256, 2**30
_MOST = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2dWidened(Pipeline):
    """Widens images, and filters of a fprop, and convolves with filters of one pixel.

    Such a pixel of widened images is all that a filter covers: images whose pixels overlap in
    memory.
    """

    widen: Conv2dWiden
    inner: Conv2dWarpGroup | Conv2dSlices

    def __str__(self) -> str:
        return f"widened images, {self.inner}"

    @property
    def product(self) -> Conv2dWarpGroup:
        return self.inner.product

    @property
    def parts(self) -> tuple[Runnable, ...]:
        return self.widen, self.inner

    def status(self, target: Target) -> Status:
        return self.inner.status(target)

    def status_of(self, size: Conv2dSize) -> Status:
        """Whether the kernels serve convolutions of a size."""
        own = Status.first_of(self._reasons(size))
        return own and self.inner.status_of(self._inner(size))

    def _reasons(self, size: Conv2dSize) -> Iterator[str]:
        line = size.c * self.widen.element.bytes
        if not size.c or (line >= LINE_BYTES and line % GRANULE == 0):
            yield f"C = {size.c}; copies of pixels have whole lines as they are"
            return
        yield from self.widen.reasons(size.c, size.s, size.dilation_w)
        if size.groups > 1:
            yield "groups, whose channels are not all that a filter meets"
        if size.dilation_h > 1:
            yield f"lines {size.dilation_h} apart, with others between them"
        if size.flipped and self._kind is Operator.wgrad:
            yield "filters from the last pixel to the first, which slices do not have"
        reach = (size.q - 1) * size.stride_w + (size.s - 1) * size.dilation_w
        if (max(reach, size.w) + size.pad_w + 1) * size.c > _MOST:
            yield f"lines of more than {_MOST} elements, which kernels count in 32 bits"
        if (count := self._image_bytes(size)) > _MOST_BYTES:
            yield f"widened images of {count} bytes; they may have {_MOST_BYTES}"

    def seconds(self, size: Conv2dSize, target: Target) -> float:
        """Modelled time: images are read, and written widened."""
        if not self.status_of(size):
            return math.inf
        read = size.n * size.h * size.w * size.c * self.widen.element.bytes
        moved = (read + self._image_bytes(size)) / memory_rate(target)
        launches = 1 if self._kind is Operator.wgrad else 2
        product = self.inner.seconds(self._inner(size), target)
        return product + moved + launches * MEASURED.launch

    def workspace(self, size: Conv2dSize, target: Target, threads: int) -> int:
        """Widened images and filters, and then the workspace of what multiplies them."""
        behind = self._image_bytes(size) + self._filter_bytes(size)
        return behind + self.inner.workspace(self._inner(size), target, threads)

    def launches(self, problem: Conv2dProblem, target: Target) -> tuple[Launch, ...]:
        size, place = problem.size, problem.workspace
        filters = place + self._image_bytes(size)
        own = replace(problem, size=self._inner(size), workspace=filters + self._filter_bytes(size))
        images = self._patches(size, place)
        if self._kind is Operator.wgrad:
            sliced = cast("Conv2dSlices", self.inner)
            widened = self.launches_of(0, self._images(problem.b, size, place), target)
            runs = Runs(count=size.r, extent=size.s * size.c, apart=self._pitch(size))
            added = sliced.launches_to(replace(own, b=images), own.size, runs, target)
            return (*widened, *(replace(item, step=item.step + 1) for item in added))
        own_filters = turned(problem.b, size, self.widen.element)
        b = self._filters(size, filters)
        return (
            *self.launches_of(0, self._images(problem.a, size, place), target),
            *self.launches_of(0, as_images(own_filters, size, filters, self._pitch(size)), target),
            *self.launches_of(1, replace(own, a=images, b=b), target),
        )

    @property
    def _kind(self) -> Operator:
        return self.product.kind

    @property
    def _planes(self) -> int:
        return PLANES if self.widen.split else 1

    def _pitch(self, size: Conv2dSize) -> int:
        """Elements of a line of a widened column, or filter."""
        return self._column(size)[1]

    def _column(self, size: Conv2dSize) -> tuple[int, int]:
        """Lines of a widened column, from the first filter's first to the last one's last, and
        elements of each.

        Patches begin at lines of the cache, unless that takes half as much memory again, or more
        than there may be. NOTE: copies of pixels took 172 us where they began anywhere, 106 of as
        many from lines on: 64 x 224^2 x 3, filters of 7 x 7, strides of 2, float16, an H200.
        """
        met, lines = size.s * size.c, max(0, (size.p - 1) * size.stride_h + size.r)
        least, line = (lines, self.widen.pitch(met)), LINE_BYTES // self.widen.element.bytes
        step = line // math.gcd(line, size.stride_h)  # Of pitches of whole lines of the cache.
        pitch = self.widen.pitch(operands.round_up(met, step))
        whole = operands.round_up(lines, line // math.gcd(line, pitch)), pitch
        fits = self._bytes_of(size, whole) <= _MOST_BYTES
        return whole if fits and 2 * math.prod(whole) <= 3 * math.prod(least) else least

    def _inner(self, size: Conv2dSize) -> Conv2dSize:
        """The convolution of widened images."""
        channels = size.r * self._pitch(size)
        return Conv2dSize(size.n, size.p, size.q, channels, size.k, 1, 1, slices=size.slices)

    def _patches(self, size: Conv2dSize, address: int) -> Strided:
        """Widened images, with a pixel for each of the results."""
        lines, pitch = self._column(size)
        column = lines * pitch
        strides = (size.q * column, size.stride_h * pitch, column, 1)
        return Strided(pointer=address, strides=strides)

    def _images(self, item: Strided, size: Conv2dSize, address: int) -> WidenProblem:
        lines, pitch = self._column(size)
        return WidenProblem(
            item=item,
            images=size.n,
            height=size.h,
            width=size.w,
            channels=size.c,
            lines=lines,
            columns=size.q,
            first_h=-size.pad_h,
            first_w=-size.pad_w,
            stride_w=size.stride_w,
            taps=size.s,
            apart=size.dilation_w,
            pitch=pitch,
            address=address,
        )

    def _filters(self, size: Conv2dSize, address: int) -> Strided:
        """Widened filters, of one pixel; of split values with an axis of planes in front."""
        each = size.r * self._pitch(size)
        planes = (size.k * each,) if self.widen.split else ()
        return Strided(pointer=address, strides=(*planes, each, each, each, 1))

    def _image_bytes(self, size: Conv2dSize) -> int:
        return self._bytes_of(size, self._column(size))

    def _bytes_of(self, size: Conv2dSize, column: tuple[int, int]) -> int:
        count = size.n * size.q * math.prod(column) * self._planes
        return operands.round_up(count * self.widen.element.bytes, _APART)

    def _filter_bytes(self, size: Conv2dSize) -> int:
        if self._kind is Operator.wgrad:
            return 0
        count = size.k * size.r * self._pitch(size) * self._planes
        return operands.round_up(count * self.widen.element.bytes, _APART)


def turned(filters: Strided, size: Conv2dSize, element: DataType) -> Strided:
    """Filters in the order in which images are met: flipped ones from their last pixel on."""
    if not size.flipped:
        return filters
    k, r, s, c = filters.strides
    last = ((size.r - 1) * r + (size.s - 1) * s) * element.bytes
    return Strided(pointer=filters.pointer + last, strides=(k, -r, -s, c))


def as_images(item: Strided, size: Conv2dSize, address: int, pitch: int) -> WidenProblem:
    """Filters as images: a column of each meets all of a line."""
    return WidenProblem(
        item=item,
        images=size.k,
        height=size.r,
        width=size.s,
        channels=size.c,
        lines=size.r,
        columns=1,
        first_h=0,
        first_w=0,
        stride_w=1,
        taps=size.s,
        apart=1,
        pitch=pitch,
        address=address,
    )
