"""Convolutions of groups of few channels by warp groups: several groups as one, whose filters are
zeros at the channels of other groups.

Copies of pixels bring whole lines of channels, and tensor cores multiply them as fast as they come:
the products with zeros cost little.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

from kronop.artifacts import Launch, Status
from kronop.descriptions.strided import Strided
from kronop.emit.cuda import operands
from kronop.emit.cuda.machine import memory_rate
from kronop.emit.design import Pipeline, Runnable
from kronop.families.conv2d.cuda.spread import Conv2dSpread, SpreadProblem
from kronop.families.conv2d.cuda.warp_group_design import Conv2dWarpGroup
from kronop.families.conv2d.cuda.warp_group_slices import Conv2dSlices, runs_of
from kronop.families.conv2d.cuda.warp_group_split import Conv2dSplit
from kronop.families.conv2d.description import Conv2dProblem
from kronop.families.conv2d.groups import wider
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.conv2d.vocabulary import Operator
from kronop.families.gemm.cuda.warp_group_problem import GRANULE
from kronop.frozen import dataclass
from kronop.machine import MEASURED
from kronop.target import Target

# Alignment of spread filters.
_APART = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2dJoined(Pipeline):
    """Convolves several groups as one: with spread filters, or, of wgrad, to slices of which only
    the sums of a group's own channels are results."""

    spread: Conv2dSpread
    inner: Conv2dWarpGroup | Conv2dSplit | Conv2dSlices

    def __str__(self) -> str:
        return f"groups side by side, {self.inner}"

    @property
    def product(self) -> Conv2dWarpGroup:
        return self.inner.product

    @property
    def _sliced(self) -> bool:
        """Whether results are added up from slices, as those of wgrad are."""
        return self.product.kind is Operator.wgrad

    @property
    def parts(self) -> tuple[Runnable, ...]:
        return (self.inner,) if self._sliced else (self.spread, self.inner)

    def status(self, target: Target) -> Status:
        return self.inner.status(target)

    def status_of(self, size: Conv2dSize) -> Status:
        """Whether the kernels serve convolutions of a size."""
        own = Status.first_of(self._reasons(size))
        return own and self.inner.status_of(self._inner(size))

    def _reasons(self, size: Conv2dSize) -> Iterator[str]:
        if size.channels == 1:
            yield "groups of one channel, which kernels of their own keep apart"
        if self._together(size) == 1:
            yield f"groups of {self._deep(size)} channels, which copies of pixels bring as they are"
        spread = size.channels * self._together(size) * self.spread.element.bytes
        if spread % GRANULE:
            yield f"groups of {spread} bytes; tensor maps have rows of multiples of {GRANULE}"
        vector = cast("Conv2dSlices", self.inner).adding.vector if self._sliced else 1
        if size.channels % vector:
            yield f"groups of {size.channels} channels; slices are added up {vector} at once"

    def seconds(self, size: Conv2dSize, target: Target) -> float:
        """Modelled time."""
        if not self.status_of(size):
            return math.inf
        product = self.inner.seconds(self._inner(size), target)
        spread = 2 * self._filter_bytes(size) / memory_rate(target)
        return product + spread + (len(self.parts) - 1) * MEASURED.launch

    def workspace(self, size: Conv2dSize, target: Target, threads: int) -> int:
        """Spread filters, and then the workspace of what multiplies them."""
        return self._filter_bytes(size) + self.inner.workspace(self._inner(size), target, threads)

    def launches(self, problem: Conv2dProblem, target: Target) -> tuple[Launch, ...]:
        size, place, together = problem.size, problem.workspace, self._together(problem.size)
        joined = self._inner(size)
        if self._sliced:
            inner = cast("Conv2dSlices", self.inner)
            return inner.launches_to(problem, joined, runs_of(joined, size.channels), target)
        channels = joined.channels
        filters = Strided(
            pointer=place,
            strides=(size.r * size.s * channels, size.s * channels, channels, 1),
        )
        own = replace(
            problem,
            size=joined,
            b=filters,
            z=problem.z and wider(problem.z, together),
            bias=problem.bias and wider(problem.bias, together),
            workspace=place + self._filter_bytes(size),
        )
        spread = SpreadProblem(item=problem.b, size=size, together=together, address=place)
        return (*self.launches_of(0, spread, target), *self.launches_of(1, own, target))

    def _deep(self, size: Conv2dSize) -> int:
        """Channels of a group, of what copies of pixels bring."""
        return size.filters if self.product.kind is Operator.dgrad else size.channels

    def _together(self, size: Conv2dSize) -> int:
        """The fewest groups whose channels are whole blocks; all if none are."""
        counts = (count for count in range(1, size.groups) if size.groups % count == 0)
        block, deep = self.product.block, self._deep(size)
        return next((count for count in counts if count * deep % block == 0), size.groups)

    def _inner(self, size: Conv2dSize) -> Conv2dSize:
        """The convolution of joined groups."""
        return replace(size, groups=size.groups // self._together(size))

    def _filter_bytes(self, size: Conv2dSize) -> int:
        if self._sliced:
            return 0
        count = size.k * size.r * size.s * self._inner(size).channels
        return operands.round_up(count * self.spread.element.bytes, _APART)
