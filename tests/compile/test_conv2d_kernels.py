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
from kronop.emit.plan import Plan
from kronop.emit.render import render
from kronop.families.conv2d.cuda import choice, warp_group_choice
from kronop.families.conv2d.cuda.depthwise_design import Conv2dDepthwise
from kronop.families.conv2d.cuda.design import Conv2dBlocks
from kronop.families.conv2d.cuda.folded import Conv2dFolded
from kronop.families.conv2d.cuda.joined import Conv2dJoined
from kronop.families.conv2d.cuda.warp_group_design import Conv2dWarpGroup
from kronop.families.conv2d.cuda.warp_group_slices import Conv2dSlices
from kronop.families.conv2d.cuda.widened import Conv2dWidened
from kronop.families.conv2d.description import Conv2dDescription
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.conv2d.vocabulary import Operator, TensorNHWC
from kronop.families.gemm.cuda.blocks import GemmDesign
from kronop.target import Target
from tests.compile.test_cuda_kernels import TARGETS, check, resources

_LAYER = Conv2dSize(64, 56, 56, 64, 64, 3, 3, pad_h=1, pad_w=1, stride_h=2, stride_w=2)
_DEEP_LAYER = Conv2dSize(64, 14, 14, 1024, 256, 1, 1)
_FIRST = Conv2dSize(64, 224, 224, 3, 64, 7, 7, pad_h=3, pad_w=3, stride_h=2, stride_w=2)
_GROUPED = Conv2dSize(64, 56, 56, 128, 128, 3, 3, pad_h=1, pad_w=1, groups=32)
_HOPPER = Target.parse("sm_90a")
# Element, whether tensor cores multiply, and bytes of spills at most.
_CASES = [(float16, True, 0), (float64, True, 48), (int8, True, 0), (float32, False, 0)]


@pytest.mark.spread(case=_CASES, kind=list(Operator), target=TARGETS, size=[_LAYER, _FIRST])
def test_spills(
    case: tuple[DataType, bool, int], kind: Operator, target: str, size: Conv2dSize
) -> None:
    """The first plan of blocks and warps for a layer, and for the first one of a network."""
    element, on_tensor_cores, spills = case
    math = (MathInstruction.tensor_op if on_tensor_cores else MathInstruction.simt)(element)
    alignment = 1 if size is _FIRST else 16 // element.bytes
    what = _description(kind, math, (alignment, alignment))
    plans = choice.plans(what, Target.parse(target), 99, size)
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
    """The first plan of the design for them; sums of bytes spill a little."""
    whole = 16 // element.bytes
    what = _description(kind, MathInstruction.tensor_op(element), (whole, whole))
    plans = choice.plans(what, Target.parse(target), 99, size)
    plan = next(it for it in plans if isinstance(it.steps[0].design, Conv2dDepthwise))
    check(plan, 128 if element is int8 else 0)


@pytest.mark.parametrize("kind", [Operator.fprop, Operator.wgrad])
def test_widened_images(kind: Operator) -> None:
    """The first plan for the first layer of a network. What multiplies is that of other layers."""
    plan = choice.plans(_widened_of(kind, float16), _HOPPER, 1, _FIRST)[0]
    assert isinstance(plan.pipeline, Conv2dWidened)
    _check_beside(plan)


def test_widened_images_of_two_planes() -> None:
    plans = choice.plans(_widened_of(Operator.fprop, float32), _HOPPER, 99, _FIRST)
    _check_beside(next(item for item in plans if isinstance(item.pipeline, Conv2dWidened)))


@pytest.mark.parametrize("kind", Operator)
def test_groups_side_by_side(kind: Operator) -> None:
    """The first plan for groups of four channels. What adds up slices spills a little."""
    what = _description(kind, MathInstruction.tensor_op(float16), (8, 8))
    plan = choice.plans(what, _HOPPER, 1, _GROUPED)[0]
    assert isinstance(plan.pipeline, Conv2dJoined)
    _check_beside(plan, 24 if kind is Operator.wgrad else 0)


def test_six_products() -> None:
    """Gradients in filters in float32 are of bfloat16 in threes, where copies can read them."""
    math = MathInstruction.tensor_op(float32)
    for size in (_LAYER, _DEEP_LAYER):
        plan, *_ = choice.plans(_description(Operator.wgrad, math, (4, 4)), _HOPPER, 1, size)
        product = next(it.design for it in plan.steps if isinstance(it.design, Conv2dWarpGroup))
        assert product.wrapped.converts
    plan, *_ = choice.plans(_widened_of(Operator.wgrad, float32), _HOPPER, 1, _FIRST)
    assert isinstance(plan.pipeline, Conv2dWidened)
    for alignments, target in (((2, 4), "sm_90a"), ((4, 4), "sm_80"), ((4, 4), "sm_100")):
        what = _description(Operator.wgrad, math, alignments)
        plan, *_ = choice.plans(what, Target.parse(target), 1, _LAYER)
        assert isinstance(plan.steps[0].design, Conv2dBlocks)


def test_spills_of_six_products() -> None:
    what = _description(Operator.wgrad, MathInstruction.tensor_op(float32), (4, 4))
    found = [it for it in warp_group_choice.designs(what, _HOPPER) if isinstance(it, Conv2dSlices)]
    assert len(found) == 4
    for design in found:
        steps = warp_group_choice.steps(what, _HOPPER, design)
        product, _ = render(Plan(target=_HOPPER, steps=steps, pipeline=design))
        assert resources(product, _HOPPER)[1] == 0


@pytest.mark.spread(case=_CASES, target=TARGETS)
def test_folded_columns(case: tuple[DataType, bool, int], target: str) -> None:
    """The plan of the gradient in the images of a network's first layer."""
    element, on_tensor_cores, _ = case
    math = (MathInstruction.tensor_op if on_tensor_cores else MathInstruction.simt)(element)
    what = _description(Operator.dgrad, math, (16 // element.bytes, 1))
    plan, *_ = choice.plans(what, Target.parse(target), 1, _FIRST)
    assert isinstance(plan.pipeline, Conv2dFolded)
    _check_beside(plan)


def _widened_of(kind: Operator, element: DataType) -> Conv2dDescription:
    """Of images that promise nothing, and gradients that do."""
    whole = 16 // element.bytes if kind is Operator.wgrad else 1
    return _description(kind, MathInstruction.tensor_op(element), (whole, 1))


def _check_beside(plan: Plan, spills: int = 0) -> None:
    """Asserts that no kernel but that of the product spills more bytes than that."""
    for source, step in zip(render(plan), plan.steps, strict=True):
        if not isinstance(step.design, (Conv2dWarpGroup, GemmDesign)):
            assert resources(source, plan.target)[1] <= spills, step


def _description(
    kind: Operator, math: MathInstruction, alignments: tuple[int, int]
) -> Conv2dDescription:
    element, sums = math.element_a, math.element_accumulator
    output = result_type(element)
    a, b = (TensorDescription(element, TensorNHWC, item) for item in alignments)
    return Conv2dDescription(
        conv_kind=kind,
        iterator_algorithm=None,
        math=math,
        tile=None,
        A=a,
        B=b,
        Y=TensorDescription(output, TensorNHWC),
        stride_support=None,
        epilogue=LinearCombination(output, 1, sums, sums),
    )


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
