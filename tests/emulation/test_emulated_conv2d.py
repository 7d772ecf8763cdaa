"""Convolutions by blocks and warps, run on the CPU from the same headers, against the sum over a
filter's pixels. Values are so small that sums are exact in all types."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.descriptions.datatype import (
    FLOAT8,
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
from kronop.descriptions.epilogue import Epilogue, LinearCombination
from kronop.descriptions.math_instruction import MathInstruction, MathOperation, OpClass
from kronop.descriptions.strided import Strided
from kronop.emit.plan import Plan
from kronop.families.conv2d.cuda import choice
from kronop.families.conv2d.cuda.design import Conv2dBlocks
from kronop.families.conv2d.description import Conv2dDescription, Conv2dProblem, convolved
from kronop.families.conv2d.size import Conv2dSize, shapes_of
from kronop.families.conv2d.vocabulary import Operator, TensorNHWC
from kronop.families.gemm.cuda.gather import Access
from kronop.target import Target
from tests import support
from tests.emulation.emulator import Emulator

TARGET = dataclasses.replace(Target.parse("sm_90a"), cores=3)
# Odd extents, and results that end within a tile; strides and dilation; padding beyond the filter;
# groups, of one channel too; filters of one pixel; flipped; patches that torch would not have.
_ODD = (
    Conv2dSize(2, 7, 5, 3, 5, 3, 2, pad_h=1, pad_w=1),
    Conv2dSize(3, 9, 8, 4, 6, 3, 3, pad_h=1, pad_w=2, stride_h=2, stride_w=3, groups=2),
    Conv2dSize(1, 12, 11, 8, 4, 2, 3, pad_h=3, pad_w=4, dilation_h=3, dilation_w=2),
    Conv2dSize(1, 5, 6, 40, 33, 3, 3, pad_h=1, pad_w=1, flipped=True),
    Conv2dSize(2, 6, 7, 17, 35, 1, 1, stride_h=2, stride_w=2),
    Conv2dSize(1, 4, 5, 3, 3, 3, 3, pad_h=1, pad_w=1, groups=3),
    Conv2dSize(1, 6, 6, 3, 5, 3, 3, p=6, q=3, stride_w=2, dilation_h=2),
)
# Channels and filters are multiples of a vector, also those of a group.
_WHOLE = (
    Conv2dSize(2, 7, 5, 16, 32, 3, 2, pad_h=1, pad_w=1),
    Conv2dSize(3, 9, 8, 32, 64, 3, 3, pad_h=1, pad_w=2, stride_h=2, stride_w=3, groups=2),
    Conv2dSize(1, 12, 11, 80, 16, 2, 3, pad_h=3, pad_w=4, dilation_h=3, dilation_w=2, flipped=True),
)
_FEW = Conv2dSize(1, 5, 6, 16, 40, 2, 3, pad_h=1, stride_h=2, groups=2)


def _fast(element: DataType) -> MathInstruction:
    operation = getattr(MathOperation, f"multiply_add_fast_{element.short}")
    return MathInstruction((16, 8, 8), float32, float32, float32, OpClass.TensorOp, operation)


_T, _S = MathInstruction.tensor_op, MathInstruction.simt
_TF32 = MathInstruction(
    (16, 8, 8), float32, float32, float32, OpClass.TensorOp, MathOperation.multiply_add
)
_MATH = {
    **{f"tensor {it.short}": _T(it) for it in (float64, float16, bfloat16, int8, float8_e4m3fn)},
    "3xtf32": _T(float32),
    "tf32": _TF32,
    "fast f16": _fast(float16),
    **{f"simt {it.short}": _S(it) for it in (float64, float32, float16, int8, int64)},
}


def _tile(math: MathInstruction) -> kronop.TileDescription:
    if math.opcode_class is OpClass.Simt:
        return kronop.TileDescription([32, 32, 16], 2, [2, 1, 1], math)
    if math.element_a in FLOAT8:  # Of which more threads bring fewer elements each.
        return kronop.TileDescription([128, 64, 32], 3, [4, 2, 1], math)
    depth = 64 // min(math.element_a.bytes, 4)
    return kronop.TileDescription([64, 64, depth], 3, [2, 2, 1], math)


def _description(
    math: MathInstruction, kind: Operator, *, whole: bool, epilogue: Epilogue | None = None
) -> Conv2dDescription:
    element, output = math.element_a, result_type(math.element_a)
    sums = math.element_accumulator
    tensor = kronop.TensorDescription(element, TensorNHWC, 16 // element.bytes if whole else 1)
    return Conv2dDescription(
        conv_kind=kind,
        iterator_algorithm=None,
        math=math,
        tile=_tile(math),
        A=tensor,
        B=tensor,
        Y=kronop.TensorDescription(output, TensorNHWC),
        stride_support=None,
        epilogue=epilogue or LinearCombination(output, 1, sums, sums),
    )


class Kernel:
    """A plan of blocks and warps for a size, which runs emulated."""

    def __init__(
        self,
        folder: Path,
        what: Conv2dDescription,
        size: Conv2dSize,
        is_wanted: Callable[[Plan], bool] = lambda plan: isinstance(
            plan.steps[-1].design, Conv2dBlocks
        ),
    ) -> None:
        status = choice.supports(what, TARGET)
        assert status, status.reason
        self.what, self.size, self.kind = what, size, what.conv_kind
        plans = choice.plans(what, TARGET, 99, size)
        self.plan = next(filter(is_wanted, plans))
        self.random = np.random.default_rng(3)
        self._emulator = Emulator(self.plan, folder)
        self.gathered = self._emulator.gathered

    @property
    def design(self) -> Conv2dBlocks:
        found = self.plan.steps[0].design
        assert isinstance(found, Conv2dBlocks)
        return found

    def values(self, shape: tuple[int, ...], element: DataType) -> Any:
        """-1, 0 and 1 where addresses are multiples of 16."""
        values = self.random.integers(-1, 2, shape).astype(support.numpy_type(element))
        memory = np.zeros(values.nbytes + 16, np.uint8)
        start = -memory.ctypes.data % 16
        placed = memory[start : start + values.nbytes].view(values.dtype).reshape(shape)
        placed[...] = values
        return placed

    def check(self, *, added: bool = False, slices: int = 1, lines: int = 1, gap: int = 0) -> None:
        """Runs it on random operands, and compares every element of the result.

        Args:
            added: the result is 2 A * B - C + bias.
            lines: every one of B is the first of so many.
            gap: channels behind those of a pixel of the result, and of C.
        """
        size, kind, what = dataclasses.replace(self.size, slices=slices), self.kind, self.what
        shapes, output = [shapes_of(size)[of] for of in kind.tensors], what.Y.element
        a, b = (self.values(shape, what.A.element) for shape in shapes[:2])
        b = np.repeat(b, lines, axis=1)[:, ::lines] if lines > 1 else b
        *_, r, s, columns = shapes[2]
        wider = (*shapes[2][:-1], columns + gap)
        y = support.poison(wider, output)[..., :columns]
        z = self.values(wider, output)[..., :columns] if added else None
        bias = self.values((columns,), output) if added else None
        repeats = (r, s, 1) if kind is Operator.wgrad else (1,)
        row = None if bias is None else np.tile(bias, repeats)
        output_op = what.epilogue.epilogue_type(*((2, -1) if added else ()))
        self.run(
            Conv2dProblem(
                kind=kind,
                size=size,
                a=_strided(a),
                b=_strided(b),
                y=_strided(y),
                z=None if z is None else self._matrix(z),
                bias=None if row is None else _row(row, size.groups if len(repeats) == 1 else 0),
                scalars=output_op.scalars,
                threads=1,
            )
        )
        wide = [None if it is None else it.astype(np.float64) for it in (z, bias)]
        expected = what.reference(a, b, wide[0], output_op, wide[1], size)
        np.testing.assert_array_equal(y.astype(np.float64), expected.astype(np.float64))

    def run(self, problem: Conv2dProblem) -> None:
        workspace = np.full(self.plan.workspace_bytes(problem.size, 1) + 16, 255, np.uint8)
        start = workspace.ctypes.data + -workspace.ctypes.data % 16
        self.launches = self.plan.launches(dataclasses.replace(problem, workspace=start))
        self._emulator.run(self.launches)

    def _matrix(self, array: Any) -> Strided:
        """A tensor like the result as a matrix, for each group."""
        y = _strided(array)
        return Conv2dProblem(
            kind=self.kind, size=self.size, a=y, b=y, y=y, z=None, bias=None, scalars=(), threads=1
        ).result


def _strided(array: Any) -> Strided:
    steps = tuple(step // array.itemsize for step in array.strides)
    return Strided(pointer=array.ctypes.data, strides=steps)


def _row(array: Any, groups: int = 0) -> Strided:
    """A row, the same of all groups, or of so many in parts."""
    step = array.size // groups if groups else 0
    return Strided(pointer=array.ctypes.data, strides=(0, 1), batch=(step,))


@pytest.mark.spread(name=list(_MATH), kind=list(Operator), whole=[True, False])
def test_values(folder: Path, name: str, kind: Operator, whole: bool) -> None:
    what = _description(_MATH[name], kind, whole=whole)
    for at, size in enumerate(_WHOLE if whole else _ODD):
        kernel = Kernel(folder, what, size)
        if not kernel.gathered:
            kernel.check(added=at % 2 == 1)


@pytest.mark.parametrize("kind", Operator)
@pytest.mark.parametrize("name", ["tensor f16", "simt f32"])
def test_slices(folder: Path, name: str, kind: Operator) -> None:
    """Sums in slices, which begin within a row of pixels."""
    kernel = Kernel(folder, _description(_MATH[name], kind, whole=True), _WHOLE[0])
    if not kernel.gathered:
        kernel.check(added=True, slices=2)
        assert len(kernel.launches) == 2


def test_promises_are_those_of_a_group(folder: Path) -> None:
    """Tensors are aligned to 8 elements, of which a group has 4 in another tensor."""
    what = _description(_T(float16), Operator.dgrad, whole=True)
    kernel = Kernel(folder, what, _FEW)
    assert (kernel.design.wrapped.vector_a, kernel.design.wrapped.vector_b) == (4, 8)
    assert kernel.design.wrapped.access_a is Access.Spaced
    plain = dataclasses.replace(_FEW, c=18)
    assert kernel.design.seconds(plain, TARGET) == np.inf
    if not kernel.gathered:
        kernel.check()


@pytest.mark.parametrize("kind", [Operator.fprop, Operator.dgrad])
@pytest.mark.parametrize("name", ["tensor f16", "3xtf32", "simt f32"])
def test_groups_side_by_side(folder: Path, name: str, kind: Operator) -> None:
    """Several groups are one product, unless lines of filters have gaps."""
    size = Conv2dSize(2, 7, 5, 32, 64, 3, 2, pad_h=1, stride_w=2, groups=8)

    def joins(design: Any) -> bool:
        return isinstance(design, Conv2dBlocks) and design.together(size) > 1

    kernel = Kernel(folder, _description(_MATH[name], kind, whole=True), size, joins)
    if kernel.gathered:
        return
    kernel.check(added=True)
    kernel.check(lines=2)


_TREES = {
    "plain": kronop.epilogue_visitor(
        lambda accum, c, bias: (kronop.relu(accum + c) + bias, accum),
        kinds={"c": "tensor", "bias": "row"},
        results=("D", "sums"),
    ),
    "reducing": kronop.epilogue_visitor(
        lambda accum, c, bias: (accum + c + bias, kronop.maximum(accum, axis="row")),
        kinds={"c": "tensor", "bias": "row"},
        results=("D", "row_max"),
    ),
}


@pytest.mark.parametrize("tree", _TREES)
@pytest.mark.parametrize("name", ["tensor f16", "simt f32"])
def test_trees(folder: Path, name: str, tree: str) -> None:
    """Visitor trees see the result as a matrix."""
    math, kind, size = _MATH[name], Operator.dgrad, _ODD[-1]
    element = math.element_a
    epilogue = _TREES[tree](element, 1, math.element_accumulator, float32)
    kernel = Kernel(folder, _description(math, kind, whole=False, epilogue=epilogue), size)
    if kernel.gathered:
        return
    shapes = [shapes_of(size)[of] for of in kind.tensors]
    rows, columns, _ = kind.extents(size)
    a, b, c = (kernel.values(shape, element) for shape in (*shapes[:2], (rows, columns)))
    bias = kernel.values((columns,), element)
    y = support.poison(shapes[2], element)
    shape, kept = ((rows, columns), element) if tree == "plain" else ((rows,), float32)
    more = support.poison(shape, kept)
    kernel.run(
        Conv2dProblem(
            kind=kind,
            size=size,
            a=_strided(a),
            b=_strided(b),
            y=_strided(y),
            z=None,
            bias=None,
            visited=(
                dataclasses.replace(_strided(c), batch=(0,)),
                _row(bias),
                Strided(
                    pointer=more.ctypes.data,
                    strides=(columns, 1) if tree == "plain" else (1, 0),
                    batch=(0,),
                ),
            ),
            scalars=(),
            threads=1,
        )
    )
    wide = [it.astype(np.float64) for it in (a, b)]
    sums = convolved(kind, *wide, size).reshape(rows, columns)
    wanted = epilogue.evaluate(sums, {"c": c, "bias": bias})
    (first, second) = wanted.values()
    np.testing.assert_array_equal(y.reshape(rows, columns).astype(np.float64), first)
    np.testing.assert_array_equal(more.astype(np.float64), second)


@pytest.mark.parametrize("tree", _TREES)
@pytest.mark.parametrize("name", ["tensor f16", "simt f32"])
@pytest.mark.parametrize("size", [_ODD[1], _WHOLE[2]], ids=["odd", "flipped"])
def test_trees_of_filters(folder: Path, name: str, tree: str, size: Conv2dSize) -> None:
    """They have a row for each pixel of a filter."""
    math, kind = _MATH[name], Operator.wgrad
    element = math.element_a
    epilogue = _TREES[tree](element, 1, math.element_accumulator, float32)
    whole = not size.c % 16
    kernel = Kernel(folder, _description(math, kind, whole=whole, epilogue=epilogue), size)
    if kernel.gathered:
        return
    shapes = [shapes_of(size)[of] for of in kind.tensors]
    a, b, c = (kernel.values(shape, element) for shape in shapes)
    *lead, columns = shapes[2]
    bias = kernel.values((columns,), element)
    y = support.poison(shapes[2], element)
    of_rows = tree == "reducing"
    more = support.poison((*lead, 1) if of_rows else shapes[2], float32 if of_rows else element)

    def in_batch(array: Any) -> Strided:
        first, *taps, last = _strided(array).strides
        steps = (first, 0 if array.shape[-1] == 1 else last)
        batch = (size.filters * first, *taps)
        return Strided(pointer=array.ctypes.data, strides=steps, batch=batch)

    kernel.run(
        Conv2dProblem(
            kind=kind,
            size=size,
            a=_strided(a),
            b=_strided(b),
            y=_strided(y),
            z=None,
            bias=None,
            by_taps=True,
            visited=(
                in_batch(c),
                dataclasses.replace(_row(bias), batch=(0, 0, 0)),
                in_batch(more),
            ),
            scalars=(),
            threads=1,
        )
    )
    wide = [it.astype(np.float64) for it in (a, b)]
    matrices = [it.reshape(-1, columns) for it in (convolved(kind, *wide, size), c)]
    first, second = epilogue.evaluate(matrices[0], {"c": matrices[1], "bias": bias}).values()
    np.testing.assert_array_equal(y.reshape(-1, columns).astype(np.float64), first)
    np.testing.assert_array_equal(more.reshape(second.shape).astype(np.float64), second)
