"""Convolutions of blocks and warps through NVRTC, on both architectures: their spills."""

from __future__ import annotations

import pytest

import kronop
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
from kronop.families.conv2d.cuda import choice
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
    math = (MathInstruction.tensor_op if on_tensor_cores else MathInstruction.simt)(element)
    sums, output = math.element_accumulator, result_type(element)
    tensor = TensorDescription(element, TensorNHWC, 1 if size is _FIRST else 16 // element.bytes)
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
    plans = choice.plans(what, Target.parse(target), 99, size)
    check(next(it for it in plans if isinstance(it.steps[-1].design, Conv2dBlocks)), spills)


_TREE = kronop.epilogue_visitor(
    lambda accum, c, scale: (accum * scale + c, kronop.maximum(accum, axis="row")),
    kinds={"c": "tensor", "scale": "column"},
    results=("D", "row_max"),
)


@pytest.mark.spread(target=TARGETS, element=[float16, float32])
def test_trees_of_filters(target: str, element: DataType) -> None:
    """A problem of the batch shifts the patches of images. Reductions take some of the stack."""
    math = (MathInstruction.tensor_op if element is float16 else MathInstruction.simt)(element)
    tensor = TensorDescription(element, TensorNHWC, 16 // element.bytes)
    what = Conv2dDescription(
        conv_kind=Operator.wgrad,
        iterator_algorithm=None,
        math=math,
        tile=None,
        A=tensor,
        B=tensor,
        Y=tensor,
        stride_support=None,
        epilogue=_TREE(element, 1, float32, float32),
    )
    check(choice.plans(what, Target.parse(target), 1, _LAYER)[0], 48)
