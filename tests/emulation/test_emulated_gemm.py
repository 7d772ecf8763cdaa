"""Matrix products by ordinary cores and by tensor cores of warps, run on the CPU from the same
headers, against the reference."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.descriptions.activation import silu
from kronop.descriptions.datatype import (
    FLOAT8,
    ColumnMajor,
    DataType,
    Layout,
    RowMajor,
    bfloat16,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    float64,
    int8,
    int32,
    result_type,
    tfloat32,
)
from kronop.descriptions.epilogue import (
    Epilogue,
    LinearCombination,
    LinearCombinationClamp,
    LinearCombinationGeneric,
)
from kronop.descriptions.math_instruction import MathInstruction, MathOperation, OpClass
from kronop.descriptions.strided import Strided
from kronop.families.gemm.cuda import choice
from kronop.families.gemm.description import GemmDescription, GemmProblem
from kronop.families.gemm.size import GemmSize
from kronop.target import Target
from tests import support
from tests.emulation.emulator import Emulator

_TARGET = replace(Target.parse("sm_90a"), cores=3)
_R, _C = RowMajor, ColumnMajor
_PAIRS = ((_R, _C), (_R, _R), (_C, _C), (_C, _R))
_FAST = {
    float16: MathOperation.multiply_add_fast_f16,
    bfloat16: MathOperation.multiply_add_fast_bf16,
}
# The largest relative error of a product of operands that are rounded to this type.
_ROUNDING = {None: 0.0, tfloat32: 2.0**-10, float16: 2.0**-10, bfloat16: 2.0**-7}


def tensor_op(
    element: DataType,
    shape: tuple[int, int, int] = (16, 8, 8),
    sums: DataType = float32,
    operation: MathOperation = MathOperation.multiply_add,
) -> MathInstruction:
    return MathInstruction(shape, element, element, sums, OpClass.TensorOp, operation)


@dataclass(frozen=True)
class Case:
    """An instruction, and what it rounds operands to."""

    math: MathInstruction
    rounded: DataType | None = None


_T, _S = MathInstruction.tensor_op, MathInstruction.simt
_CASES = {
    "f64": Case(_T(float64)),
    "3xtf32": Case(_T(float32)),
    "tf32": Case(tensor_op(float32), tfloat32),
    "tfloat32": Case(tensor_op(tfloat32), tfloat32),
    "fast f16": Case(tensor_op(float32, operation=_FAST[float16]), float16),
    "fast bf16": Case(tensor_op(float32, operation=_FAST[bfloat16]), bfloat16),
    "f16": Case(_T(float16)),
    "f16 sums": Case(tensor_op(float16, (16, 8, 16), float16)),
    "simt f16 sums": Case(MathInstruction(None, float16, float16, float16)),
    "bf16": Case(tensor_op(bfloat16, (16, 8, 16))),
    "s8": Case(_T(int8)),
    "e4m3": Case(_T(float8_e4m3fn)),
    "e5m2": Case(_T(float8_e5m2)),
    **{f"simt {item.short}": Case(_S(item)) for item in support.ELEMENTS},
    **{f"simt {item.short}": Case(_S(item)) for item in FLOAT8},
}
_MMA = [name for name in _CASES if not name.startswith("simt")]
_SIMT = [name for name in _CASES if name.startswith("simt")]


def tile_of(math: MathInstruction) -> kronop.TileDescription:
    """A small tile, in lines of 64 bytes along k, of 8-bit floats one step alone; of ordinary cores
    of 16 elements."""
    if math.opcode_class is OpClass.Simt:
        return kronop.TileDescription([32, 32, 16], 2, [2, 1, 1], math)
    if math.math_operation is MathOperation.multiply_add_fast_bf16:
        return kronop.TileDescription([128, 128, 32], 3, [2, 2, 1], math)  # PyCUTLASS's programs'
    depth = 32 if math.element_a in FLOAT8 else 64 // min(math.element_a.bytes, 4)
    return kronop.TileDescription([64, 64, depth], 3, [2, 2, 1], math)


class Kernel:
    """A plan that runs emulated."""

    def __init__(
        self,
        folder: Path,
        case: Case,
        layouts: tuple[Layout, Layout] = (_R, _R),
        *,
        full: bool = True,
        epilogue: Epilogue | None = None,
        output: DataType | None = None,
        tile: kronop.TileDescription | None = None,
        swizzle: Any = kronop.IdentitySwizzle1,
        target: Target = _TARGET,
    ) -> None:
        math = case.math
        element = float32 if math.element_a is tfloat32 else math.element_a
        sums, output = math.element_accumulator, output or result_type(element)
        self.element, self.case, self.layouts, self.full = element, case, layouts, full
        self.vector = 16 // element.bytes if full else 1
        a, b = (kronop.TensorDescription(element, item, self.vector) for item in layouts)
        self.what = GemmDescription(
            math=math,
            tile=tile or tile_of(math),
            A=a,
            B=b,
            Y=kronop.TensorDescription(output),
            epilogue=epilogue or LinearCombination(output, 1, sums, sums),
            swizzling_functor=swizzle,
        )
        status = choice.supports(self.what, target)
        assert status, status.reason
        (self.plan,) = choice.plans(self.what, target, 1, None)
        self.random = np.random.default_rng(5)
        self._emulator = Emulator(self.plan, folder)
        self.gathered = self._emulator.gathered

    def values(self, *shape: int, element: DataType | None = None) -> Any:
        element = element or self.element
        if element.kind == "int":
            return self.random.integers(-9, 10, shape).astype(support.numpy_type(element))
        return (self.random.integers(-15, 16, shape) / 8).astype(support.numpy_type(element))

    def check(
        self,
        sizes: tuple[int, int, int],
        *,
        batch: tuple[tuple[int, ...], tuple[int, ...]] = ((), ()),
        scalars: tuple[float, ...] = (1, 0),
        bias: bool = False,
        y_layout: str = "rows",
        in_place: bool = False,
        slices: int = 1,
    ) -> Any:
        """Runs a problem with random operands, and compares every element of the result."""
        m, n, k = sizes
        a = self.placed(self.values(*batch[0], m, k), self.layouts[0])
        b = self.placed(self.values(*batch[1], k, n), self.layouts[1])
        lead, output = np.broadcast_shapes(*batch), self.what.Y.element
        y = _placed_result(support.poison((*lead, m, n), output), y_layout)
        z = y if in_place else self.values(*lead, m, n, element=output)
        if in_place:
            y[...] = self.values(*lead, m, n, element=output)
        source = z.copy() if scalars[1] else None
        added = self.values(n, element=output) if bias else None
        self.run(a, b, y, z if scalars[1] else None, added, scalars, slices)
        self.compare(a, b, y, source, added, scalars)
        return y

    def placed(self, array: Any, layout: Layout) -> Any:
        """The values in the layout: in lines of whole vectors or, without a promise, apart and
        backwards."""
        lines = array if layout is _R else array.swapaxes(-1, -2)
        *lead, count, length = lines.shape
        if self.full:
            room = np.zeros((*lead, count, -(-length // self.vector) * self.vector), array.dtype)
            room = _aligned(room)[..., :length]
        else:
            room = np.zeros((*lead, count, 3 * length + 1), array.dtype)[..., ::-3][..., :length]
        room[...] = lines
        return room if layout is _R else room.swapaxes(-1, -2)

    def run(
        self, a: Any, b: Any, y: Any, z: Any, bias: Any, scalars: tuple[float, ...], slices: int
    ) -> None:
        lead, (m, n), k = y.shape[:-2], y.shape[-2:], a.shape[-1]
        size = GemmSize(m, n, k, math.prod(lead), slices)
        workspace = np.full(self.plan.workspace_bytes(size, 1) + 16, 255, np.uint8)
        problem = GemmProblem(
            m=m,
            n=n,
            k=k,
            batch=lead,
            a=_matrix(a, lead),
            b=_matrix(b, lead),
            y=_matrix(y, lead),
            z=None if z is None else _matrix(z, lead),
            bias=None if bias is None else _matrix(np.broadcast_to(bias, (1, n)), ()),
            scalars=self.what.epilogue.epilogue_type(*scalars).scalars,
            threads=1,
            slices=slices,
            workspace=workspace.ctypes.data + -workspace.ctypes.data % 16,
        )
        self.launches = self.plan.launches(problem)
        self._emulator.run(self.launches)

    def compare(
        self, a: Any, b: Any, y: Any, source: Any, bias: Any, scalars: tuple[float, ...]
    ) -> None:
        """Each sum has as many roundings as products, those of operands, and the epilogue's."""
        what, output = self.what, self.what.epilogue.epilogue_type(*scalars)
        wide = [None if item is None else _wide(item) for item in (source, bias)]
        expected = what.reference(_wide(a), _wide(b), wide[0], output, wide[1])
        if expected.dtype.kind == "i":
            np.testing.assert_array_equal(y.astype(np.int64), expected)
            return
        size = abs(scalars[0]) * (np.abs(_wide(a)) @ np.abs(_wide(b)))
        ordinary = what.math.opcode_class is OpClass.Simt
        unit = support.unit(what.math.added_in if ordinary else what.math.element_accumulator)
        error = ((a.shape[-1] + 4) * unit + _ROUNDING[self.case.rounded]) * size
        for item in wide:
            error = error + 4 * unit * np.abs(scalars[1] or 1) * (
                0 if item is None else np.abs(item)
            )
        error = 1.2 * error + 2 * support.unit(what.Y.element) * np.abs(expected) + 1e-30
        wrong = ~(np.abs(_wide(y) - expected) <= error)
        assert not wrong.any(), f"{wrong.sum()} of {wrong.size}, first {np.argwhere(wrong)[0]}"


def _wide(array: Any) -> Any:
    return np.asarray(array).astype(np.int64 if array.dtype.kind == "i" else np.float64)


def _aligned(array: Any) -> Any:
    """The array where addresses are multiples of 16."""
    memory = np.zeros(array.nbytes + 16, np.uint8)
    start = -memory.ctypes.data % 16
    return memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)


def _placed_result(array: Any, layout: str) -> Any:
    if layout == "columns":
        return _placed_result(array.swapaxes(-1, -2).copy(), "rows").swapaxes(-1, -2)
    if layout == "apart":
        room = np.full((*array.shape[:-1], 2 * array.shape[-1]), array.flat[0], array.dtype)
        return room[..., ::2]
    placed = _aligned(array)
    placed[...] = array
    return placed


def _matrix(array: Any, lead: tuple[int, ...]) -> Strided:
    array = np.broadcast_to(array, (*lead, *array.shape[-2:]))
    *batch, row, column = (stride // array.itemsize for stride in array.strides)
    return Strided(pointer=array.ctypes.data, strides=(row, column), batch=tuple(batch))


def _check_all(kernel: Kernel) -> None:
    """Ragged and whole sizes, nothing to sum, batches, results in all layouts, slices, NaN."""
    kernel.check((64, 64, 64))
    kernel.check((67, 35, 53), y_layout="columns", scalars=(2, -1), bias=True)
    kernel.check((5, 70, 150), y_layout="apart", scalars=(2, 1), in_place=True)
    kernel.check((3, 2, 0), scalars=(2, 3), bias=True)
    kernel.check((6, 9, 5), batch=((2, 1, 2), (3, 1)))
    kernel.check((33, 40, 200), slices=3, scalars=(1, 2), in_place=True)
    assert len(kernel.launches) == 2
    if kernel.element.kind == "float":
        _check_nan(kernel)


def _check_nan(kernel: Kernel) -> None:
    """That NaN stays in its row or column."""
    a, b = _wide(kernel.values(35, 21)), _wide(kernel.values(21, 37))
    a[3, 20], b[7, 36] = np.nan, np.nan
    kind = support.numpy_type(kernel.element)
    pairs = zip((a, b), kernel.layouts, strict=True)
    a, b = (kernel.placed(item.astype(kind), layout) for item, layout in pairs)
    y = _placed_result(support.poison((35, 37), kernel.what.Y.element), "rows")
    kernel.run(a, b, y, None, None, (1, 0), 1)
    is_nan = np.zeros(y.shape, bool)
    is_nan[3], is_nan[:, 36] = True, True
    np.testing.assert_array_equal(np.isnan(_wide(y)), is_nan)


@pytest.mark.spread(name=[*_MMA, "f16", "bf16", "s8", "f64", "3xtf32", "e4m3"], layouts=_PAIRS)
def test_tensor_cores(folder: Path, name: str, layouts: tuple[Layout, Layout]) -> None:
    kernel = Kernel(folder, _CASES[name], layouts)
    if not kernel.gathered:
        _check_all(kernel)


@pytest.mark.spread(name=["f16", "f16 sums"], layouts=_PAIRS[:2])
def test_turing(folder: Path, name: str, layouts: tuple[Layout, Layout]) -> None:
    """Its tensor cores multiply float16 alone, 8 contracted indices at a time."""
    kernel = Kernel(folder, _CASES[name], layouts, target=Target.parse("sm_75"))
    if not kernel.gathered:
        _check_all(kernel)


@pytest.mark.spread(name=["f16", "s8", "f64", "tf32", "fast f16", "e5m2"], layouts=_PAIRS)
def test_any_strides(folder: Path, name: str, layouts: tuple[Layout, Layout]) -> None:
    kernel = Kernel(folder, _CASES[name], layouts, full=False)
    if not kernel.gathered:
        _check_all(kernel)


@pytest.mark.spread(name=_SIMT, layouts=_PAIRS, whole=[True, False])
def test_ordinary_cores(
    folder: Path, name: str, layouts: tuple[Layout, Layout], whole: bool
) -> None:
    kernel = Kernel(folder, _CASES[name], layouts, full=whole)
    if not kernel.gathered:
        _check_all(kernel)


_EPILOGUES = {
    "silu": LinearCombinationGeneric(silu(float32), float16, 1, float32, float32),
    "wider": LinearCombination(float64, 1, float32, float32),
    "clamp": LinearCombinationClamp(int8, 1, int32, int32),
}
_BANDS = {
    "silu": kronop.IdentitySwizzle2,
    "wider": kronop.IdentitySwizzle4,
    "clamp": kronop.IdentitySwizzle8,
}


@pytest.mark.parametrize("name", _EPILOGUES)
def test_epilogues(folder: Path, name: str) -> None:
    """An activation, and results that are wider and narrower than sums; tiles in bands, of which
    the last one is smaller."""
    epilogue = _EPILOGUES[name]
    case = _CASES["s8" if name == "clamp" else "f16"]
    kernel = Kernel(
        folder,
        case,
        epilogue=epilogue,
        output=epilogue.element_output,
        tile=kronop.TileDescription([32, 64, 64], 2, [1, 2, 1], case.math),
        swizzle=_BANDS[name],
    )
    if kernel.gathered:
        return
    for y_layout in ("rows", "columns"):
        kernel.check((70, 650, 40), scalars=(2, 1), bias=True, y_layout=y_layout)
    kernel.check((70, 64, 264), slices=2, scalars=(1, 1), bias=True, in_place=True)


def test_slices_are_chosen_for_long_sums(folder: Path) -> None:
    kernel = Kernel(folder, _CASES["f16"], swizzle=kronop.BatchedIdentitySwizzle)
    if kernel.gathered:
        return
    kernel.check((16, 32, 3000))
    assert len(kernel.launches) == 2
    kernel.check((16, 32, 64))
    assert len(kernel.launches) == 1
