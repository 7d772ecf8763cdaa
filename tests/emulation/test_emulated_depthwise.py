"""Depthwise convolutions, run on the CPU from the same headers, against the sum over a filter's
pixels. Values are so small that sums are exact in all types."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kronop
from kronop.descriptions.activation import relu
from kronop.descriptions.datatype import (
    DataType,
    bfloat16,
    float8_e4m3fn,
    float16,
    float32,
    float64,
    int8,
    int64,
    result_type,
)
from kronop.descriptions.epilogue import Epilogue, LinearCombination, LinearCombinationGeneric
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.plan import Plan
from kronop.families.conv2d.cuda.depthwise_design import Conv2dDepthwise
from kronop.families.conv2d.description import Conv2dDescription
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.conv2d.vocabulary import Operator, TensorNHWC
from tests.emulation.test_emulated_conv2d import Kernel

_LAYER = Conv2dSize(2, 9, 11, 8, 8, 3, 3, pad_h=1, pad_w=1, groups=8)
# Strides, with and without dilation; padding beyond the filter; several filters of a channel; more
# channels than a block has; few, and odd ones; patches that torch would not have; flipped.
_SIZES = (
    _LAYER,
    replace(_LAYER, p=5, q=6, stride_h=2, stride_w=2),
    Conv2dSize(3, 9, 8, 16, 32, 3, 2, pad_h=1, pad_w=3, stride_h=2, stride_w=3, groups=16),
    Conv2dSize(1, 12, 11, 8, 8, 2, 3, pad_h=3, pad_w=4, dilation_h=3, dilation_w=2, groups=8),
    Conv2dSize(1, 9, 8, 8, 8, 3, 3, pad_h=2, stride_h=3, stride_w=2, dilation_h=2, groups=8),
    Conv2dSize(1, 3, 4, 272, 272, 3, 3, pad_h=1, pad_w=1, groups=272, flipped=True),
    Conv2dSize(2, 6, 7, 5, 15, 1, 1, stride_h=2, stride_w=2, groups=5),
    Conv2dSize(1, 6, 6, 3, 3, 3, 3, p=6, q=3, stride_w=2, dilation_h=2, groups=3),
    Conv2dSize(1, 8, 9, 8, 8, 7, 7, pad_h=3, pad_w=3, groups=8),
)


def _description(
    kind: Operator, element: DataType, *, epilogue: Epilogue | None = None, whole: bool = True
) -> Conv2dDescription:
    math, output = MathInstruction.simt(element), result_type(element)
    sums = math.element_accumulator
    tensor = kronop.TensorDescription(element, TensorNHWC, 16 // element.bytes if whole else 1)
    return Conv2dDescription(
        conv_kind=kind,
        iterator_algorithm=None,
        math=math,
        tile=None,
        A=tensor,
        B=tensor,
        Y=kronop.TensorDescription(output, TensorNHWC),
        stride_support=None,
        epilogue=epilogue or LinearCombination(output, 1, sums, sums),
    )


def _check(
    folder: Path, what: Conv2dDescription, size: Conv2dSize, *, tile: Any = None, **more: Any
) -> None:
    def is_wanted(plan: Plan) -> bool:
        design: Any = plan.steps[-1].design
        found = isinstance(design, Conv2dDepthwise)
        return found and (tile is None or (design.rows, design.columns, design.vector) == tile)

    kernel = Kernel(folder, what, size, is_wanted)
    if not kernel.gathered:
        kernel.check(**more)


@pytest.mark.parametrize("size", _SIZES, ids=str)
@pytest.mark.parametrize("kind", Operator)
def test_geometries(folder: Path, kind: Operator, size: Conv2dSize) -> None:
    whole = all(item % 8 == 0 for item in (size.c, size.k))
    added = _SIZES.index(size) % 2 == 0
    _check(folder, _description(kind, float16, whole=whole), size, added=added)


@pytest.mark.parametrize("element", [bfloat16, float8_e4m3fn, float32, float64, int8, int64])
@pytest.mark.parametrize("kind", Operator)
def test_types(folder: Path, kind: Operator, element: DataType) -> None:
    size = replace(_LAYER, c=16, k=16, groups=16)
    _check(folder, _description(kind, element), size, added=True)


@pytest.mark.parametrize("tile", [(1, 4, 8), (2, 4, 4), (1, 7, 2)])
@pytest.mark.parametrize("kind", Operator)
def test_tiles(folder: Path, kind: Operator, tile: tuple[int, int, int]) -> None:
    if kind is Operator.wgrad and tile[2] == 8:
        return  # Too many registers.
    _check(folder, _description(kind, float16), _LAYER, tile=tile, added=True)


@pytest.mark.parametrize("kind", Operator)
def test_filters_of_one_channel(folder: Path, kind: Operator) -> None:
    """Those of images of one channel, and of four each."""
    many = Conv2dSize(2, 7, 6, 1, 8, 3, 3, pad_h=1)
    few = Conv2dSize(2, 7, 6, 3, 12, 3, 3, pad_w=1, stride_h=2, groups=3)
    for size in (few, many) if kind is not Operator.dgrad else (few,):
        _check(folder, _description(kind, float32, whole=False), size, added=True)


@pytest.mark.parametrize("kind", [Operator.fprop, Operator.dgrad])
def test_results_with_gaps(folder: Path, kind: Operator) -> None:
    """Gaps with which no vectors are aligned, and others."""
    for gap in (1, 8):
        _check(folder, _description(kind, float16), _LAYER, added=True, gap=gap)


def test_slices(folder: Path) -> None:
    _check(folder, _description(Operator.wgrad, float16), _LAYER, slices=40, added=True)


@pytest.mark.parametrize("kind", Operator)
def test_an_activation(folder: Path, kind: Operator) -> None:
    epilogue = LinearCombinationGeneric(relu(float32), float16, 1, float32, float32)
    _check(folder, _description(kind, float16, epilogue=epilogue), _LAYER, added=True)
