"""Gradients of filters by warp groups, whose sums are cut into slices: conv2d_add_slices.cuh."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any

from kronop.artifacts import Field, KernelSignature, Launch, Scalar, Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.strided import NOTHING, Strided
from kronop.emit.cuda import operands
from kronop.emit.cuda.machine import memory_rate
from kronop.emit.design import Design, Instantiation, Pipeline, Runnable, package_folder
from kronop.families.conv2d.cuda.warp_group_design import CHANNELS, Conv2dWarpGroup
from kronop.families.conv2d.description import Conv2dProblem
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.gemm.cuda.warp_group_problem import step_of
from kronop.families.gemm.cuda.warp_group_stored import scalars_of
from kronop.frozen import dataclass
from kronop.machine import MEASURED
from kronop.target import Target

_THREADS, _RESIDENT = 256, 5
# Threads that share the slices of a result, each of which has some slices at least.
_MOST_SHARES, _LEAST_OF_SHARE = 16, 4
# Slices have some slabs at least, and all of them so many bytes at most.
_LEAST_SLABS, _MOST_SLICES, _MOST_BYTES = 4, 256, 2**29
_NUMBERS = (
    *("slices", "shares", "groups", "m", "n", "channels", "filled", "pitch", "together"),
    *("y_row", "y_column", "y_batch", "z_row", "z_column", "z_batch"),
    *("bias_column", "bias_batch", "whole"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """The columns of slices that are columns of the result, in their order.

    Attributes:
        count, extent: so many runs, each of so many neighbours.
        apart: from the first of a run to that of the next one.
    """

    count: int
    extent: int
    apart: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicesProblem:
    """A convolution, and slices of its sums in the workspace.

    Attributes:
        summed: the size whose sums the slices are: that of the convolution, or of one whose groups
            are several of its groups.
        slices: how many there are.
    """

    problem: Conv2dProblem
    summed: Conv2dSize
    slices: int
    runs: Runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2dAddSlices(Design):
    """A kernel that adds up slices, and makes them results.

    Attributes:
        sums, output: types of the slices and of the results.
        vector: neighbours that a thread adds up; runs of columns have a multiple of them.
    """

    threads = _THREADS

    sums: DataType
    output: DataType
    epilogue: Epilogue
    vector: int

    def __str__(self) -> str:
        return "the sums of slices"

    @property
    def shared_bytes(self) -> int:
        return _THREADS * self.vector * self.sums.bytes

    @property
    def signature(self) -> KernelSignature:
        return KernelSignature(
            "Conv2dAddSlicesParameters",
            (
                *(Field(name, Scalar.POINTER) for name in ("sums", "y", "z", "bias")),
                *(Field(name, Scalar.INT64) for name in _NUMBERS),
                Field(
                    "scalars",
                    operands.scalar_kind(self.epilogue),
                    len(self.epilogue.scalar_names),
                ),
            ),
        )

    def instantiation(self, target: Target) -> Instantiation:
        return Instantiation(
            header="conv2d_add_slices.cuh",
            parameters=f"kronop::Conv2dAddSlicesParameters<{scalars_of(self.epilogue)}>",
            types=(("Output", self.output.cxx), ("Accumulator", self.sums.cxx)),
            constants=(
                ("kThreads", _THREADS),
                ("kBlocks", _RESIDENT),
                ("kVector", self.vector),
            ),
            folders=(package_folder(__package__),),
        )

    def launches(self, problem: SlicesProblem, target: Target) -> tuple[Launch, ...]:
        own, size = problem.problem, problem.problem.size
        y, z, bias = own.result, own.z or NOTHING, own.bias or NOTHING
        runs, n = problem.runs, problem.runs.count * problem.runs.extent
        count = size.k * n // self.vector
        shares = _shares_of(count, problem.slices, target)
        multiples = (y.row, step_of(y), y.pointer // self.output.bytes)
        values: dict[str, Any] = {
            "sums": own.workspace,
            **{name: item.pointer for name, item in (("y", y), ("z", z), ("bias", bias))},
            "slices": problem.slices,
            "shares": shares,
            "groups": size.groups,
            "m": size.filters,
            "n": n,
            "channels": runs.extent,
            "filled": runs.apart,
            "pitch": columns_of(problem.summed),
            "together": size.groups // problem.summed.groups,
            **{
                f"{name}_{of}": step
                for name, item in (("y", y), ("z", z))
                for of, step in (
                    ("row", item.row),
                    ("column", item.column),
                    ("batch", step_of(item)),
                )
            },
            "bias_column": bias.column,
            "bias_batch": step_of(bias),
            "whole": int(y.column == 1 and not any(item % self.vector for item in multiples)),
            "scalars": own.scalars,
        }
        blocks = operands.cover(count * shares, _THREADS)
        return (operands.make_launch(self, min(blocks, _RESIDENT * target.cores), values),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2dSlices(Pipeline):
    """Slices of the sums of a wgrad by warp groups, which are then added up."""

    product: Conv2dWarpGroup
    adding: Conv2dAddSlices

    def __str__(self) -> str:
        return f"slices of sums, {self.product}"

    @property
    def parts(self) -> tuple[Runnable, ...]:
        return self.product, self.adding

    def status(self, target: Target) -> Status:
        return self.product.status(target)

    def status_of(self, size: Conv2dSize) -> Status:
        """Whether the kernels serve convolutions of a size."""
        return self.product.status_of(size)

    def seconds(self, size: Conv2dSize, target: Target) -> float:
        """Modelled time; infinite where the kernels do not serve the size."""
        if not self.status_of(size):
            return math.inf
        return _seconds(self, size, slices_of(self, size, target), target)

    def workspace(self, size: Conv2dSize, target: Target, threads: int) -> int:
        """The sums of all slices."""
        return slices_of(self, size, target) * self.bytes_of_slice(size)

    def bytes_of_slice(self, size: Conv2dSize) -> int:
        return size.k * columns_of(size) * self.adding.sums.bytes

    def launches(self, problem: Conv2dProblem, target: Target) -> tuple[Launch, ...]:
        size = problem.size
        return self.launches_to(problem, size, runs_of(size, size.channels), target)

    def launches_to(
        self, problem: Conv2dProblem, size: Conv2dSize, runs: Runs, target: Target
    ) -> tuple[Launch, ...]:
        """The same with results of some of the columns, of a size whose groups are one or several
        of the problem's."""
        slices, columns = slices_of(self, size, target), columns_of(size)
        sums = Strided(
            pointer=problem.workspace, strides=(columns, 1), batch=(size.filters * columns,)
        )
        raw = replace(problem, size=size, z=None, bias=None, scalars=(1.0, 0.0))
        first = self.product.launches_to(raw, sums, slices, target)
        slicing = SlicesProblem(problem=problem, summed=size, slices=slices, runs=runs)
        return (*first, *self.launches_of(1, slicing, target))


def _shares_of(count: int, slices: int, target: Target) -> int:
    """How many threads share the slices of a result, if there are so many results (or vectors of
    them): as many as the GPU has at once. Always a divisor of a block's threads."""
    shares = 1
    while (
        2 * shares <= _MOST_SHARES
        and 2 * shares * _LEAST_OF_SHARE <= slices
        and 2 * shares * count <= _RESIDENT * _THREADS * target.cores
    ):
        shares *= 2
    return shares


def runs_of(size: Conv2dSize, channels: int) -> Runs:
    """The columns of so many channels of each tap."""
    apart = operands.round_up(size.channels, CHANNELS)
    return Runs(count=size.r * size.s, extent=channels, apart=apart)


def columns_of(size: Conv2dSize) -> int:
    """Columns of a slice: channels of each tap, in whole blocks."""
    return size.r * size.s * operands.round_up(size.channels, CHANNELS)


def _seconds(design: Conv2dSlices, size: Conv2dSize, slices: int, target: Target) -> float:
    results = size.k * size.r * size.s * size.channels * design.adding.output.bytes
    moved = slices * design.bytes_of_slice(size) + results
    product = design.product.seconds_of_slices(size, slices, target)
    return product + moved / memory_rate(target) + MEASURED.launch


@functools.lru_cache(maxsize=1024)
def slices_of(design: Conv2dSlices, size: Conv2dSize, target: Target) -> int:
    """The number of slices with the least modelled time; at least as many as the size asks for."""
    slabs = operands.cover(size.n * size.p * size.q, design.product.wrapped.slab)
    most = min(
        _MOST_SLICES,
        slabs // _LEAST_SLABS,
        _MOST_BYTES // max(1, design.bytes_of_slice(size)),
    )
    # One slice if there are no pixels: its sums are zeros.
    least = max(1, min(size.slices, slabs))
    counts = range(least, max(least, most) + 1)
    return min(counts, key=lambda count: _seconds(design, size, count, target))
