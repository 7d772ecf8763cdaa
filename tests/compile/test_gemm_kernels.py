"""Matrix products of blocks and warps through NVRTC: no spills, both architectures."""

from __future__ import annotations

import pytest

from kronop.descriptions.datatype import (
    ColumnMajor,
    DataType,
    Layout,
    RowMajor,
    float16,
    float32,
    float64,
    int8,
    result_type,
)
from kronop.descriptions.epilogue import LinearCombination
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.tensor import TensorDescription
from kronop.families.gemm.cuda.blocks import GemmBlocks
from kronop.families.gemm.cuda.emitter import CudaEmitter
from kronop.families.gemm.description import GemmDescription
from kronop.target import Target
from tests.compile.test_cuda_kernels import TARGETS, check

_CASES = [
    (float16, True, ColumnMajor, 8),
    (float16, True, RowMajor, 1),
    (float32, True, RowMajor, 4),
    (float64, True, ColumnMajor, 2),
    (int8, True, RowMajor, 16),
    (float32, False, RowMajor, 4),
    (float16, False, ColumnMajor, 8),
]


@pytest.mark.spread(case=_CASES, target=TARGETS)
def test_no_spills(case: tuple[DataType, bool, Layout, int], target: str) -> None:
    """The first plan of blocks and warps for large products."""
    element, on_tensor_cores, layout, alignment = case
    instruction = MathInstruction.tensor_op if on_tensor_cores else MathInstruction.simt
    math, output = instruction(element), result_type(element)
    sums = math.element_accumulator
    operand = TensorDescription(element, layout, alignment)
    what = GemmDescription(
        math=math,
        tile=None,
        A=operand,
        B=operand,
        Y=TensorDescription(output),
        epilogue=LinearCombination(output, 1, sums, sums),
    )
    plans = CudaEmitter().candidates(what, Target.parse(target), 99)
    check(next(plan for plan in plans if isinstance(plan.steps[-1].design, GemmBlocks)))
