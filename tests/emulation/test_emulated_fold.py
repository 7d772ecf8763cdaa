"""Gradients in images of few channels, whose columns are folded, run on the CPU from the same
headers, against the sum over a filter's pixels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
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
from kronop.families.conv2d.cuda import folded
from kronop.families.conv2d.cuda.folded import Conv2dFolded
from kronop.families.conv2d.description import Conv2dDescription, Conv2dProblem
from kronop.families.conv2d.size import Conv2dSize, shapes_of
from kronop.families.conv2d.vocabulary import Operator, TensorNHWC
from kronop.families.gemm.cuda.blocks import GemmBlocks
from kronop.families.gemm.cuda.warp_group_design import GemmWarpGroup
from tests import support
from tests.emulation.test_emulated_conv2d import Kernel, _strided

_T, _S = MathInstruction.tensor_op, MathInstruction.simt
_FIRST = Conv2dSize(2, 19, 18, 3, 16, 7, 7, pad_h=3, pad_w=3, stride_h=2, stride_w=2)
# Strides with and without common divisors with dilation; padding beyond the filter; one pixel,
# some of which no tap meets; a line in several tiles; flipped; patches that torch would not have.
_SIZES = (
    _FIRST,
    Conv2dSize(2, 9, 8, 1, 8, 3, 2, pad_h=1, pad_w=3, stride_h=2, stride_w=3),
    Conv2dSize(1, 12, 11, 4, 8, 2, 3, pad_h=3, pad_w=4, dilation_h=3, dilation_w=2),
    Conv2dSize(1, 11, 13, 2, 24, 3, 3, stride_h=2, stride_w=4, dilation_h=2, dilation_w=6),
    Conv2dSize(3, 6, 7, 8, 40, 1, 1, stride_h=2, stride_w=2),
    Conv2dSize(1, 2, 300, 5, 8, 2, 5, pad_w=2, flipped=True),
    Conv2dSize(1, 6, 6, 3, 8, 3, 3, p=6, q=3, stride_w=2, dilation_h=2, flipped=True),
)


def _description(math: MathInstruction, epilogue: Epilogue | None = None) -> Conv2dDescription:
    element, output = math.element_a, result_type(math.element_a)
    sums = math.added_in
    return Conv2dDescription(
        conv_kind=Operator.dgrad,
        iterator_algorithm=None,
        math=math,
        tile=None,
        A=kronop.TensorDescription(element, TensorNHWC, 16 // element.bytes),
        B=kronop.TensorDescription(element, TensorNHWC),
        Y=kronop.TensorDescription(output, TensorNHWC),
        stride_support=None,
        epilogue=epilogue or LinearCombination(output, 1, sums, sums),
    )


def _kernel(
    folder: Path, what: Conv2dDescription, size: Conv2dSize, kind: Any = GemmBlocks
) -> Kernel:
    """The first plan whose product is of this kind."""

    def is_wanted(plan: Plan) -> bool:
        found = plan.pipeline
        return isinstance(found, Conv2dFolded) and isinstance(found.product.product, kind)

    return Kernel(folder, what, size, is_wanted)


@pytest.mark.parametrize("size", _SIZES, ids=str)
def test_geometries(folder: Path, size: Conv2dSize) -> None:
    kernel = _kernel(folder, _description(_S(float32)), size)
    if not kernel.gathered:
        kernel.check(added=_SIZES.index(size) % 2 == 0)


@pytest.mark.parametrize(
    "math",
    [*map(_T, (float16, bfloat16, float32, float64, int8, float8_e4m3fn)), _S(int64), _S(float16)],
    ids=str,
)
def test_types(folder: Path, math: MathInstruction) -> None:
    kernel = _kernel(folder, _description(math), _FIRST)
    if not kernel.gathered:
        kernel.check(added=True)


@pytest.mark.parametrize("element", [float16, float32])
def test_warp_groups(folder: Path, element: DataType) -> None:
    """Those that read gradients as they are, or as two planes."""
    kernel = _kernel(folder, _description(_T(element)), _FIRST, GemmWarpGroup)
    if not kernel.gathered:
        kernel.check(added=True)


def test_an_activation(folder: Path) -> None:
    epilogue = LinearCombinationGeneric(relu(float32), float16, 1, float32, float32)
    kernel = _kernel(folder, _description(_T(float16), epilogue), _FIRST)
    if not kernel.gathered:
        kernel.check(added=True)


def test_parts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images whose columns do not fit the workspace at once; the last part has fewer."""
    size = replace(_FIRST, n=5)
    kernel = _kernel(folder, _description(_T(float16)), size)
    if kernel.gathered:
        return
    found = kernel.plan.pipeline
    assert isinstance(found, Conv2dFolded)
    whole = found.workspace(size, kernel.plan.target, 1)
    monkeypatch.setattr(folded, "_MOST_BYTES", whole // 2)
    kernel.check(added=True)
    assert len(kernel.launches) == 1 + 2 * 3


@pytest.mark.parametrize("gaps", [(1, 0), (0, 1), (1, 1)], ids=str)
def test_gradients_with_gaps(folder: Path, gaps: tuple[int, int]) -> None:
    """Between images, and between lines: the product is a batch."""
    size = replace(_FIRST, n=3)
    kernel = _kernel(folder, _description(_S(float32)), size)
    if kernel.gathered:
        return
    p, q = size.p + gaps[0], size.q + gaps[1]
    shapes = shapes_of(size)
    a = kernel.values((size.n, p, q, size.k), float32)[:, : size.p, : size.q]
    b, y = kernel.values(shapes["filters"], float32), support.poison(shapes["images"], float32)
    output_op = kernel.what.epilogue.epilogue_type()
    kernel.run(
        Conv2dProblem(
            kind=Operator.dgrad,
            size=size,
            a=_strided(a),
            b=_strided(b),
            y=_strided(y),
            z=None,
            bias=None,
            scalars=output_op.scalars,
            threads=1,
        )
    )
    np.testing.assert_array_equal(y, kernel.what.reference(a, b, None, output_op, None, size))
