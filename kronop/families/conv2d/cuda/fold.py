"""Columns that become images of few channels: conv2d_fold.cuh."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from kronop.artifacts import Field, KernelSignature, Launch, Scalar
from kronop.descriptions.datatype import DataType
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.strided import NOTHING
from kronop.emit.cuda import operands
from kronop.emit.design import Design, Instantiation, package_folder
from kronop.families.conv2d.description import Conv2dProblem
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.gemm.cuda.warp_group_stored import scalars_of
from kronop.frozen import dataclass
from kronop.target import Target

_THREADS, _RESIDENT = 256, 4
# Pixels, results and taps are counted in 32 bits.
_MOST = 2**31 - 1
_AXES = ("pixels", "results", "taps", "pad", "stride", "apart", "step", "back")
_NUMBERS = ("pitch", "across", "tiles", "y_row", "y_column", "z_row", "z_column", "bias_column")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldProblem:
    """A dgrad whose columns are known.

    Attributes:
        problem: the dgrad, of some images.
        columns: the address of their columns.
        pitch: columns of a line of taps.
    """

    problem: Conv2dProblem
    columns: int
    pitch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2dFold(Design):
    """A kernel that folds columns into images.

    Attributes:
        sums, output: types of the columns and of the images.
    """

    threads = _THREADS
    shared_bytes = 16384

    sums: DataType
    output: DataType
    epilogue: Epilogue

    def __str__(self) -> str:
        return "the sums of columns that meet a pixel"

    @property
    def signature(self) -> KernelSignature:
        return KernelSignature(
            "Conv2dFoldParameters",
            (
                *(Field(name, Scalar.POINTER) for name in ("columns", "y", "z", "bias")),
                *(Field(name, Scalar.INT64) for name in ("images", "channels")),
                *(Field(name, Scalar.INT64, 2) for name in _AXES),
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
            header="conv2d_fold.cuh",
            parameters=f"kronop::Conv2dFoldParameters<{scalars_of(self.epilogue)}>",
            types=(("Output", self.output.cxx), ("Accumulator", self.sums.cxx)),
            constants=(("kThreads", _THREADS), ("kBlocks", _RESIDENT)),
            folders=(package_folder(__package__),),
        )

    def reasons(self, size: Conv2dSize, pitch: int) -> Iterator[str]:
        """Why it does not fold columns of such lines of taps, if there are reasons."""
        if self._most_across(size, pitch) < 1:
            yield (
                f"{size.s} taps of {size.c} channels, {size.dilation_w} apart; a block has no room"
                " for the columns that meet a pixel"
            )
        reach = max(
            size.h + size.pad_h + (size.r - 1) * size.dilation_h,
            size.w + size.pad_w + (size.s - 1) * size.dilation_w,
        )
        if max(reach, size.n * size.h * size.w) > _MOST:
            yield f"more than {_MOST} pixels, which kernels count in 32 bits"

    def _most_across(self, size: Conv2dSize, pitch: int) -> int:
        """The most pixels of a tile; below 1 if there is no room for one. A tile of so many pixels
        meets a result for each stride between its first and its last tap."""
        room = self.shared_bytes // (pitch * self.sums.bytes)
        return room * size.stride_w - (size.s - 1) * size.dilation_w

    def launches(self, problem: FoldProblem, target: Target) -> tuple[Launch, ...]:
        own, size = problem.problem, problem.problem.size
        y, z, bias = own.result, own.z or NOTHING, own.bias or NOTHING
        most = self._most_across(size, problem.pitch)
        tiles = operands.cover(size.w, most)
        strides, apart = (size.stride_h, size.stride_w), (size.dilation_h, size.dilation_w)
        common = tuple(map(math.gcd, strides, apart))
        values: dict[str, Any] = {
            "columns": problem.columns,
            **{name: item.pointer for name, item in (("y", y), ("z", z), ("bias", bias))},
            "images": size.n,
            "channels": size.c,
            "pixels": (size.h, size.w),
            "results": (size.p, size.q),
            "taps": (size.r, size.s),
            "pad": (size.pad_h, size.pad_w),
            "stride": strides,
            "apart": apart,
            "step": tuple(each // of for each, of in zip(strides, common, strict=True)),
            "back": tuple(each // of for each, of in zip(apart, common, strict=True)),
            "pitch": problem.pitch,
            # All tiles of a line have about as many.
            "across": operands.cover(size.w, tiles),
            "tiles": tiles,
            "y_row": y.row,
            "y_column": y.column,
            "z_row": z.row,
            "z_column": z.column,
            "bias_column": bias.column,
            "scalars": own.scalars,
        }
        blocks = min(size.n * size.h * tiles, _RESIDENT * target.cores)
        return (operands.make_launch(self, blocks, values),)
