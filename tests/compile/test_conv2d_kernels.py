"""Convolutions of blocks and warps through NVRTC, on both architectures: their spills."""

from __future__ import annotations

import pytest

from kronop.descriptions.datatype import (
    DataType,
    float16,
    float32,
    float64,
    int8,
    result_type,
)
from kronop.descriptions.epilogue import LinearCombination
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.tensor import TensorDescription
from kronop.emit.plan import Plan
from kronop.families.conv2d.cuda import choice
from kronop.families.conv2d.cuda.depthwise_design import Conv2dDepthwise
from kronop.families.conv2d.cuda.design import Conv2dBlocks
from kronop.families.conv2d.description import Conv2dDescription
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.conv2d.vocabulary import Operator, TensorNHWC
from kronop.target import Target
from tests.compile.test_cuda_kernels import TARGETS, check

_LAYER = Conv2dSize(64, 56, 56, 64, 64, 3, 3, pad_h=1, pad_w=1, stride_h=2, stride_w=2)
_FIRST = Conv2dSize(64, 224, 224, 3, 64, 7, 7, pad_h=3, pad_w=3, stride_h=2, stride_w=2)
# Element, whether tensor cores multiply, and bytes of spills at most.
_CASES = [(float16, True, 0), (float64, True, 48), (int8, True, 0), (float32, False, 0)]


@pytest.mark.spread(case=_CASES, kind=list(Operator), target=TARGETS, size=[_LAYER, _FIRST])
def test_spills(
    case: tuple[DataType, bool, int], kind: Operator, target: str, size: Conv2dSize
) -> None:
    """The first plan of blocks and warps for a layer, and for the first one of a network."""
    element, on_tensor_cores, spills = case
    promise = 1 if size is _FIRST else 16 // element.bytes
    plans = _plans(kind, element, on_tensor_cores, target, size, promise)
    check(next(it for it in plans if isinstance(it.steps[-1].design, Conv2dBlocks)), spills)


_SMALL = Conv2dSize(64, 112, 112, 32, 32, 3, 3, pad_h=1, pad_w=1, groups=32)
_STRIDED = Conv2dSize(
    64, 56, 56, 128, 128, 3, 3, pad_h=1, pad_w=1, stride_h=2, stride_w=2, groups=128
)
_DEEP = Conv2dSize(64, 14, 14, 512, 512, 5, 5, pad_h=2, pad_w=2, groups=512)
_WIDE = Conv2dSize(64, 14, 14, 384, 384, 7, 7, pad_h=3, pad_w=3, groups=384)
_DOUBLED = Conv2dSize(64, 28, 28, 64, 128, 3, 3, pad_h=1, pad_w=1, groups=64)


@pytest.mark.spread(
    element=[float16, float32, float64, int8],
    kind=list(Operator),
    target=TARGETS,
    size=[_SMALL, _STRIDED, _DEEP, _WIDE, _DOUBLED],
)
def test_depthwise(element: DataType, kind: Operator, target: str, size: Conv2dSize) -> None:
    """Depthwise layers are computed by the design for them; sums of bytes spill a little."""
    plan, *_ = _plans(kind, element, True, target, size, 16 // element.bytes)
    assert isinstance(plan.steps[0].design, Conv2dDepthwise)
    check(plan, 128 if element is int8 else 0)


def _plans(
    kind: Operator,
    element: DataType,
    on_tensor_cores: bool,
    target: str,
    size: Conv2dSize,
    promise: int,
) -> tuple[Plan, ...]:
    math = (MathInstruction.tensor_op if on_tensor_cores else MathInstruction.simt)(element)
    sums, output = math.element_accumulator, result_type(element)
    tensor = TensorDescription(element, TensorNHWC, promise)
    what = Conv2dDescription(
        conv_kind=kind,
        iterator_algorithm=None,
        math=math,
        tile=None,
        A=tensor,
        B=tensor,
        Y=TensorDescription(output, TensorNHWC),
        stride_support=None,
        epilogue=LinearCombination(output, 1, sums, sums),
    )
    return choice.plans(what, Target.parse(target), 99, size)
