"""Convolutions on CPUs, against the sum over a filter's pixels."""

# Kinds of operands of trees are annotations that name no types.
# ruff: noqa: F821, UP037

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
from kronop.families.conv2d.description import Conv2dDescription, Conv2dProblem, convolved
from kronop.families.conv2d.size import Conv2dSize, shapes_of
from kronop.families.conv2d.vocabulary import Operator, TensorNHWC
from kronop.families.conv2d.x86 import choice
from kronop.families.conv2d.x86.depthwise_design import HostDepthwise
from kronop.machine import Feature
from kronop.target import Target
from tests import support

_HERE = Target.parse("x86")
# Plans for each width of vectors, compiled for less where the machine has less.
_TARGETS = (
    _HERE.baseline,
    dataclasses.replace(_HERE, vector_bytes=32, registers=16),
    _HERE,
)
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
    element: kronop.DataType, kind: Operator, tile: Any = None, epilogue: Any = None
) -> Conv2dDescription:
    epilogue = epilogue or support.linear(element)
    tensor = kronop.TensorDescription(element, TensorNHWC)
    return Conv2dDescription(
        conv_kind=kind,
        iterator_algorithm=None,
        math=tile.math_instruction if tile else kronop.MathInstruction.simt(element),
        tile=tile,
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


def _tile(math: Any, *shape: int) -> Any:
    return kronop.TileDescription(shape, 1, (1, 1, 1), math)


# Small blocks, so that small problems have several of them and several slabs.
@pytest.mark.spread(element=(*_ELEMENTS, kronop.int8), kind=tuple(Operator), target=_TARGETS)
def test_values(element: kronop.DataType, kind: Operator, target: Target) -> None:
    tile = _tile(kronop.MathInstruction.simt(element), 24, 192, 16)
    what = _description(element, kind, tile)
    (plan,) = choice.plans(what, target, 1, None)
    for at, size in enumerate(_SIZES):
        _check(plan, what, size, added=at % 2 == 1)


@pytest.mark.parametrize("kind", Operator)
def test_whole_blocks(kind: Operator) -> None:
    what = _description(kronop.float32, kind)
    (plan,) = choice.plans(what, _HERE, 1, None)
    for size in _SIZES:
        _check(plan, what, size, added=True)


@pytest.mark.skipif(not _HERE.has(Feature.tiles), reason="no AMX")
@pytest.mark.parametrize("kind", Operator)
@pytest.mark.parametrize("element", [kronop.bfloat16, kronop.int8])
def test_tiles(element: kronop.DataType, kind: Operator) -> None:
    what = _description(element, kind, _tile(kronop.MathInstruction.amx(element), 64, 96, 64))
    (plan,) = choice.plans(what, _HERE, 1, None)
    for at, size in enumerate(_SIZES):
        _check(plan, what, size, added=at % 2 == 1)


@kronop.epilogue_visitor
def reduced(accum: Any, beta: "scalar", c: "tensor", bias: "row") -> Any:
    d = kronop.relu(accum + bias) + beta * c
    row_sum = kronop.sum(d, axis="row")
    column_max = kronop.maximum(d, axis="column")
    return d, row_sum, column_max


@pytest.mark.parametrize("kind", [Operator.fprop, Operator.dgrad])
def test_trees(kind: Operator) -> None:
    """Rows of strided gradients are computed in another order."""
    element, random = kronop.float64, np.random.default_rng(1)
    sums = kronop.MathInstruction.simt(element)
    epilogue = reduced(element, 1, element, element)
    tensor = kronop.TensorDescription(element, TensorNHWC)
    operation = kronop.Conv2dOperation(
        kind, None, _HERE, _tile(sums, 24, 192, 16), tensor, tensor, tensor, None, epilogue
    )
    for size in _SIZES[:6:4]:
        shapes = [shapes_of(size)[name] for name in kind.tensors]
        a, b = (random.standard_normal(shape) for shape in shapes[:2])
        m, n, _ = kind.extents(size)
        c, bias = random.standard_normal(shapes[2]), random.standard_normal(n)
        results = {"row_sum": np.full(m, 77.0), "column_max": np.full(n, 77.0)}
        output_op = operation.epilogue_type(beta=2, c=c, bias=bias, **results)
        arguments = kronop.Conv2dArguments(operation, size, a, b, output_op=output_op)
        operation.run(arguments)
        d = np.maximum(convolved(kind, a, b, size).reshape(m, n) + bias, 0)
        d += 2 * c.reshape(m, n)
        wanted = {"row_sum": d.sum(1), "column_max": d.max(0)}
        # Of sums of some hundred numbers of about 1.
        np.testing.assert_allclose(arguments.D.reshape(m, n), d, rtol=0, atol=1e-11)
        for name, found in results.items():
            np.testing.assert_allclose(found, wanted[name], rtol=0, atol=1e-10)


# More pixels of a filter than are tabulated at once; more channels than an item has, and fewer than
# vectors have; strides, dilation and padding.
_DEPTHWISE = (
    Conv2dSize(2, 8, 9, 37, 37, 3, 3, pad_h=1, pad_w=1, groups=37),
    Conv2dSize(1, 12, 14, 3, 3, 9, 8, pad_h=4, pad_w=7, dilation_w=2, groups=3),
    Conv2dSize(1, 6, 7, 600, 600, 3, 2, stride_h=2, stride_w=2, pad_w=1, groups=600),
    Conv2dSize(2, 30, 29, 64, 64, 3, 3, pad_h=1, pad_w=1, groups=64, flipped=True),
)


@pytest.mark.spread(element=_ELEMENTS, kind=tuple(Operator), target=_TARGETS)
def test_depthwise(element: kronop.DataType, kind: Operator, target: Target) -> None:
    what = _description(element, kind)
    for at, size in enumerate(_DEPTHWISE):
        plans = choice.plans(what, target, 99, size)
        (plan,) = [it for it in plans if isinstance(it.steps[0].design, HostDepthwise)]
        assert plan is plans[0] or size.c < 16  # Vectors of few channels are not full.
        _check(plan, what, size, added=at % 2 == 1)
