"""Convolutions on CPUs, against the sum over a filter's pixels."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import kronop
from kronop import compiler
from kronop.descriptions.strided import Strided
from kronop.emit.plan import Plan
from kronop.emit.render import render
from kronop.families.conv2d.description import (
    Conv2dDescription,
    Conv2dProblem,
    convolved,
    shapes_of,
)
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.conv2d.vocabulary import Operator, TensorNHWC
from kronop.families.conv2d.x86 import choice
from kronop.target import Target
from tests import support

_HERE = Target.parse("x86")
_ELEMENTS = (
    kronop.float64,
    kronop.float32,
    kronop.float16,
    kronop.bfloat16,
    kronop.int8,
    kronop.int32,
    kronop.int64,
)
# Odd extents; strides and dilation; padding beyond the filter; groups, of one channel too; filters
# of one pixel; flipped; more channels than are packed at once; parts of images that no patch has.
_SIZES = (
    Conv2dSize(2, 7, 5, 3, 5, 3, 2, pad_h=1, pad_w=1),
    Conv2dSize(3, 9, 8, 4, 6, 3, 3, pad_h=1, pad_w=2, stride_h=2, stride_w=3, groups=2),
    Conv2dSize(1, 12, 11, 8, 4, 2, 3, pad_h=3, pad_w=4, dilation_h=3, dilation_w=2),
    Conv2dSize(2, 6, 7, 17, 35, 1, 1),
    Conv2dSize(2, 6, 7, 17, 35, 1, 1, stride_h=2, stride_w=2),
    Conv2dSize(1, 5, 6, 40, 33, 3, 3, pad_h=1, pad_w=1, flipped=True),
    Conv2dSize(1, 3, 3, 300, 2, 2, 2, stride_h=2, pad_w=1, flipped=True),
    Conv2dSize(1, 8, 9, 37, 37, 3, 3, pad_h=1, pad_w=1, groups=37),
    Conv2dSize(2, 8, 9, 5, 10, 5, 3, pad_h=2, pad_w=1, stride_w=2, groups=5),
)


def _description(
    element: kronop.DataType, kind: Operator, epilogue: Any = None, math: Any = None
) -> Conv2dDescription:
    epilogue = epilogue or support.linear(element)
    tensor = kronop.TensorDescription(element, TensorNHWC)
    return Conv2dDescription(
        conv_kind=kind,
        iterator_algorithm=None,
        math=math or kronop.MathInstruction.simt(element),
        tile=None,
        A=tensor,
        B=tensor,
        Y=kronop.TensorDescription(epilogue.element_output, TensorNHWC),
        stride_support=None,
        epilogue=epilogue,
    )


def _strided(array: Any) -> Strided:
    steps = tuple(step // array.itemsize for step in array.strides)
    return Strided(pointer=array.ctypes.data, strides=steps)


def _matrix(array: Any, kind: Operator, size: Conv2dSize) -> Strided:
    """A tensor like the result as a matrix, for each group."""
    y = _strided(array)
    return Conv2dProblem(
        kind=kind, size=size, a=y, b=y, y=y, z=None, bias=None, scalars=(), threads=1
    ).result


def _run(plan: Plan, problem: Conv2dProblem) -> None:
    workspace = np.empty(plan.workspace_bytes(problem.size, problem.threads) + 64, np.uint8)
    start = workspace.ctypes.data + -workspace.ctypes.data % 64
    sources = render(plan)
    binaries = compiler.compile_sources(sources, plan.target)
    _, kernels = compiler.load_all(binaries, sources, plan.target)
    for launch in plan.launches(dataclasses.replace(problem, workspace=start)):
        kernels[launch.step].bind(launch)(0)


def _check(plan: Plan, what: Conv2dDescription, size: Conv2dSize, *, added: bool) -> None:
    random, kind = np.random.default_rng(3), what.conv_kind
    shapes = [shapes_of(size)[name] for name in kind.tensors]
    a, b = (support.random_array(random, shape, what.A.element) for shape in shapes[:2])
    output = what.Y.element
    y = support.poison(shapes[2], output)
    z = support.random_array(random, shapes[2], output) if added else None
    each = shapes[2][0] if kind is Operator.wgrad else shapes[2][3]
    columns = kind.extents(size)[1]
    bias = support.random_array(random, (columns,), output) if added and each == columns else None
    output_op = what.epilogue.epilogue_type(*((2, -1) if added else ()))
    problem = Conv2dProblem(
        kind=kind,
        size=size,
        a=_strided(a),
        b=_strided(b),
        y=_strided(y),
        z=None if z is None else _matrix(z, kind, size),
        bias=None
        if bias is None
        else Strided(pointer=bias.ctypes.data, strides=(0, 1), batch=(0,)),
        scalars=(output_op.alpha, output_op.beta),
        threads=2,
    )
    _run(plan, problem)
    value = what.reference(a, b, z, output_op, bias, size)
    if value.dtype.kind == "i":
        support.Expected(value, 0).check(y)
        return
    wide = [np.abs(item.astype(np.float64)) for item in (a, b)]
    magnitude, steps = convolved(kind, *wide, size), kind.extents(size)[2] + 1
    bound = support.error_bound(what, value, magnitude, steps, z, bias, output_op)
    support.Expected(value, bound).check(y)


@pytest.mark.parametrize("kind", Operator)
@pytest.mark.parametrize("element", _ELEMENTS)
def test_values(element: kronop.DataType, kind: Operator) -> None:
    what = _description(element, kind)
    (plan,) = choice.plans(what, _HERE, 1, None)
    for at, size in enumerate(_SIZES):
        _check(plan, what, size, added=at % 2 == 1)
