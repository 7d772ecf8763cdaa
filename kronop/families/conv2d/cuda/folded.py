"""Gradients in images of few channels: columns of a plain matrix product, which are then folded."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from kronop.artifacts import Launch, Status
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.strided import Strided
from kronop.emit.cuda import operands
from kronop.emit.cuda.machine import memory_rate
from kronop.emit.design import Pipeline, Runnable
from kronop.families.conv2d.cuda.fold import Conv2dFold, FoldProblem
from kronop.families.conv2d.cuda.widen import Conv2dWiden
from kronop.families.conv2d.cuda.widened import as_images, turned
from kronop.families.conv2d.description import Conv2dProblem
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.gemm.cuda.blocks import GemmBlocks
from kronop.families.gemm.cuda.warp_group_design import GemmWarpGroup
from kronop.families.gemm.cuda.warp_group_split import SplitProduct
from kronop.families.gemm.description import GemmProblem
from kronop.families.gemm.size import GemmSize
from kronop.frozen import dataclass
from kronop.machine import MEASURED
from kronop.target import Target

AnyProduct = GemmBlocks | GemmWarpGroup | SplitProduct
# Alignment of what is in the workspace, and the most bytes of columns that it holds at once.
_APART, _MOST_BYTES = 256, 2**30
# More channels fill tiles of gathered products, which need no columns in memory.
_MOST_CHANNELS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2dFolded(Pipeline):
    """Multiplies gradients of the results by filters, and folds the columns into images.

    Filters are widened first: a line of taps of all channels, and zeros behind it up to whole
    pieces, so that rows of filters and of columns are aligned. Many images run in parts.
    """

    widen: Conv2dWiden
    product: AnyProduct
    fold: Conv2dFold

    def __str__(self) -> str:
        return f"columns that are folded into images, {self.product}"

    @property
    def parts(self) -> tuple[Runnable, ...]:
        return self.widen, self.product, self.fold

    @property
    def _identity(self) -> Epilogue:
        found = self.product.product.epilogue
        assert found is not None
        return found

    def status(self, target: Target) -> Status:
        return self.product.status(target)

    def status_of(self, size: Conv2dSize) -> Status:
        """Whether the kernels serve convolutions of a size."""
        return Status.first_of(self._reasons(size))

    def _reasons(self, size: Conv2dSize) -> Iterator[str]:
        if not 0 < size.c <= _MOST_CHANNELS:
            yield f"C = {size.c}; columns are folded of 1 to {_MOST_CHANNELS} channels"
            return
        if size.groups > 1:
            yield "groups, whose columns are several products"
        if not size.k or not size.p * size.q:
            yield "no columns"
        yield from self.widen.reasons(size.c, size.s, 1)
        yield from self.fold.reasons(size, self._pitch(size))
        if (count := self._bytes_of_image(size)) > _MOST_BYTES:
            yield f"an image's columns have {count} bytes; they may have {_MOST_BYTES}"

    def seconds(self, size: Conv2dSize, target: Target) -> float:
        """Modelled time: columns are written and read, images written."""
        if not self.status_of(size):
            return math.inf
        most = self._at_once(size)
        times, rest = divmod(size.n, most)
        product = times * self.product.seconds(self._product(size, most), target)
        if rest:
            product += self.product.seconds(self._product(size, rest), target)
        moved = size.n * self._bytes_of_image(size)
        moved += size.n * size.h * size.w * size.c * self.fold.output.bytes
        launches = operands.cover(size.n, most) + 1
        return product + moved / memory_rate(target) + launches * MEASURED.launch

    def workspace(self, size: Conv2dSize, target: Target, threads: int) -> int:
        """Columns, widened filters, and the workspace of the product."""
        most = self._at_once(size)
        product = max(
            self.product.workspace(self._product(size, count), target, threads)
            for count in {most, size.n % most}
        )
        return self._bytes_of_columns(size) + self._filter_bytes(size) + product

    def launches(self, problem: Conv2dProblem, target: Target) -> tuple[Launch, ...]:
        size, most = problem.size, self._at_once(problem.size)
        filters = problem.workspace + self._bytes_of_columns(size)
        own = turned(problem.b, size, self.widen.element)
        found = [*self.launches_of(0, as_images(own, size, filters, self._pitch(size)), target)]
        for first in range(0, size.n, most):
            part = self._images(problem, first, min(most, size.n - first))
            columns = FoldProblem(problem=part, columns=problem.workspace, pitch=self._pitch(size))
            found += self.launches_of(1, self._columns(part, filters), target)
            found += self.launches_of(2, columns, target)
        return tuple(found)

    def _images(self, problem: Conv2dProblem, first: int, count: int) -> Conv2dProblem:
        """The problem of so many images."""
        size, output = problem.size, self.fold.output
        pixels = first * size.h * size.w
        y, z = (
            item and replace(item, pointer=item.pointer + pixels * row * output.bytes)
            for item, row in (
                (problem.y, problem.y.strides[2]),
                (problem.z, problem.z.row if problem.z else 0),
            )
        )
        assert y is not None
        a = problem.a.pointer + first * problem.a.strides[0] * self.widen.element.bytes
        return replace(
            problem,
            size=replace(size, n=count),
            a=replace(problem.a, pointer=a),
            y=y,
            z=z,
        )

    def _columns(self, part: Conv2dProblem, filters: int) -> GemmProblem:
        """The matrix product of gradients and filters, a batch if gradients are no matrix."""
        size, n = part.size, self._count(part.size)
        lead, (rows, row) = _matrix(part)
        shape = (size.n, size.p)[:lead]
        steps = tuple(math.prod(shape[at + 1 :]) * rows * n for at in range(lead))
        return GemmProblem(
            m=rows,
            n=n,
            k=size.k,
            batch=shape,
            a=replace(part.a, strides=(row, part.a.strides[3]), batch=part.a.strides[:lead]),
            b=Strided(pointer=filters, strides=(n, 1), batch=(0,) * lead),
            y=Strided(pointer=part.workspace, strides=(n, 1), batch=steps),
            z=None,
            bias=None,
            scalars=self._identity.epilogue_type().scalars,
            threads=part.threads,
            workspace=filters + self._filter_bytes(size),
        )

    def _product(self, size: Conv2dSize, images: int) -> GemmSize:
        return GemmSize(images * size.p * size.q, self._count(size), size.k)

    def _pitch(self, size: Conv2dSize) -> int:
        """Columns of a line of taps."""
        return self.widen.pitch(size.s * size.c)

    def _count(self, size: Conv2dSize) -> int:
        """Columns of a pixel of the results."""
        return size.r * self._pitch(size)

    def _bytes_of_image(self, size: Conv2dSize) -> int:
        return size.p * size.q * self._count(size) * self.fold.sums.bytes

    def _bytes_of_columns(self, size: Conv2dSize) -> int:
        return operands.round_up(self._at_once(size) * self._bytes_of_image(size), _APART)

    def _at_once(self, size: Conv2dSize) -> int:
        """Images whose columns the workspace holds."""
        return max(1, min(size.n, _MOST_BYTES // max(1, self._bytes_of_image(size))))

    def _filter_bytes(self, size: Conv2dSize) -> int:
        count = size.k * self._count(size) * self.widen.element.bytes
        return operands.round_up(count, _APART)


def _matrix(part: Conv2dProblem) -> tuple[int, tuple[int, int]]:
    """How many of the gradients' first axes are a batch, and of its matrices the rows and their
    stride: as many axes as one index reaches."""
    size, (n, p, q, _) = part.size, part.a.strides
    rows, row = size.q, q
    for lead, extent, step in ((1, size.p, p), (0, size.n, n)):
        if extent > 1 and rows > 1 and step != rows * row:
            return lead + 1, (rows, row)
        row = step if rows == 1 and extent > 1 else row
        rows *= extent
    return 0, (rows, row)
