"""float32 images and filters split in two planes, for convolutions of three TF32 products:
gemm_split.cuh."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

from kronop.artifacts import Launch, Status
from kronop.descriptions.datatype import float32
from kronop.descriptions.strided import Strided
from kronop.emit.cuda import operands
from kronop.emit.cuda.machine import memory_rate
from kronop.emit.design import Pipeline, Runnable
from kronop.families.conv2d.cuda.warp_group_design import Conv2dWarpGroup
from kronop.families.conv2d.description import Conv2dProblem
from kronop.families.conv2d.size import Conv2dSize, shapes_of
from kronop.families.conv2d.vocabulary import Operator
from kronop.families.gemm.cuda.warp_group_problem import PLANES
from kronop.families.gemm.cuda.warp_group_split import GemmSplit, SplitProblem, pitch_of
from kronop.frozen import dataclass
from kronop.machine import MEASURED
from kronop.target import Target

# Alignment of planes, in bytes.
_APART = 256
# The order of the axes of split filters (K, R, S, C): the last one is summed over.
_ORDERS = {Operator.fprop: (0, 1, 2, 3), Operator.dgrad: (1, 2, 3, 0)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2dSplit(Pipeline):
    """Splits both operands of fprop or dgrad, then gathers from their planes."""

    split: GemmSplit
    product: Conv2dWarpGroup

    def __str__(self) -> str:
        return str(self.product)

    @property
    def parts(self) -> tuple[Runnable, ...]:
        return self.split, self.product

    def status(self, target: Target) -> Status:
        return self.product.status(target)

    def status_of(self, size: Conv2dSize) -> Status:
        """Whether the kernels serve convolutions of a size."""
        return self.product.status_of(self._read(size))

    def _read(self, size: Conv2dSize) -> Conv2dSize:
        """The same convolution of only those pixels that filters of one pixel read."""
        is_pixel = (size.r, size.s, size.pad_h, size.pad_w) == (1, 1, 0, 0)
        inside = (size.p - 1) * size.stride_h < size.h and (size.q - 1) * size.stride_w < size.w
        if self._kind is not Operator.fprop or not (is_pixel and inside):
            return size
        return replace(size, h=size.p, w=size.q, stride_h=1, stride_w=1)

    def seconds(self, size: Conv2dSize, target: Target) -> float:
        """Modelled time: elements are read, written as two, and read again."""
        size = self._read(size)
        shapes = shapes_of(size)
        moved = sum(math.prod(shapes[of]) for of in self._kind.tensors[:2]) * 3 * float32.bytes
        return self.product.seconds(size, target) + moved / memory_rate(target) + MEASURED.launch

    def workspace(self, size: Conv2dSize, target: Target, threads: int) -> int:
        """The planes of both operands, and then the product's workspace."""
        size = self._read(size)
        return self._bytes(size) + self.product.workspace(size, target, threads)

    def launches(self, problem: Conv2dProblem, target: Target) -> tuple[Launch, ...]:
        size, place = self._read(problem.size), problem.workspace
        if size != problem.size:
            n, h, w, c = problem.a.strides
            reached = (n, h * problem.size.stride_h, w * problem.size.stride_w, c)
            problem = replace(problem, size=size, a=replace(problem.a, strides=reached))
        shapes, planes = shapes_of(size), []
        found: list[Launch] = []
        for item, of, order in zip(
            (problem.a, problem.b), self._kind.tensors, self._orders, strict=False
        ):
            extents = tuple(shapes[of][axis] for axis in order)
            ordered = replace(item, strides=tuple(item.strides[axis] for axis in order))
            for part in split_problems(ordered, extents, place):
                found += self.launches_of(0, part, target)
            planes.append(_planes(extents, place))
            place += _bytes(extents)
        images, filters = planes
        # Planes are behind the images of the first one, and an axis of filters; lines of filters
        # are the first axis of a product's.
        a = replace(images, strides=images.strides[1:])
        plane, *steps = filters.strides
        if self._kind is Operator.dgrad:
            r, s, c, k = steps
            steps = [c, r, s, k]
        b = replace(filters, strides=(plane, *steps))
        own = replace(problem, a=a, b=b, workspace=problem.workspace + self._bytes(size))
        return (*found, *self.launches_of(1, own, target))

    @property
    def _kind(self) -> Operator:
        return self.product.kind

    @property
    def _orders(self) -> tuple[tuple[int, ...], ...]:
        """The order of the axes of the planes of both operands."""
        return (0, 1, 2, 3), _ORDERS[self._kind]

    def _bytes(self, size: Conv2dSize) -> int:
        """Bytes of the planes of both operands."""
        shapes = shapes_of(size)
        return sum(
            _bytes(tuple(shapes[of][axis] for axis in order))
            for of, order in zip(self._kind.tensors, self._orders, strict=False)
        )


def _bytes(extents: tuple[int, ...]) -> int:
    """Bytes of the planes of an operand."""
    *lead, depth = extents
    count = PLANES * math.prod(lead) * pitch_of(depth) * float32.bytes
    return operands.round_up(count, _APART)


def _planes(extents: tuple[int, ...], address: int) -> Strided:
    """The planes of an operand, with an axis for the two in front."""
    *lead, depth = extents
    steps = [pitch_of(depth)]
    for extent in reversed(lead):
        steps.append(steps[-1] * extent)
    return Strided(pointer=address, strides=(*reversed(steps), 1))


def split_problems(item: Strided, extents: tuple[int, ...], address: int) -> Iterator[SplitProblem]:
    """What splits a tensor of four axes into planes without gaps: of lines along the last axis,
    those of as many axes at once as strides allow."""
    *lead, depth = extents
    axes: list[tuple[int, int]] = []  # Extents and strides, of which no two follow each other.
    for extent, stride in zip(lead, item.strides, strict=False):
        if axes and axes[-1][1] == extent * stride:
            axes[-1] = (axes[-1][0] * extent, stride)
        elif extent > 1:
            axes.append((extent, stride))
    axes = [(1, 0)] * (2 - len(axes)) + axes
    *outer, (problems, step), (lines, line) = axes
    pitch = pitch_of(depth)
    each = problems * lines * pitch
    for index, place in enumerate(itertools.product(*(range(extent) for extent, _ in outer))):
        offset = sum(at * stride for at, (_, stride) in zip(place, outer, strict=True))
        yield SplitProblem(
            matrix=Strided(
                pointer=item.pointer + offset * float32.bytes,
                strides=(line, item.strides[-1]),
                batch=(step,),
            ),
            lines=lines,
            depth=depth,
            problems=problems,
            address=address + index * each * float32.bytes,
            plane=math.prod(lead) * pitch,
            apart=lines * pitch,
        )
