"""Matrix products of blocks and warps through NVRTC, on both architectures: their spills."""

from __future__ import annotations

import pytest

from kronop import GemmOperationUniversal, compiler, epilogue_visitor, maximum
from kronop.descriptions.datatype import (
    ColumnMajor,
    DataType,
    Layout,
    RowMajor,
    bfloat16,
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
from kronop.families.gemm.cuda import choice
from kronop.families.gemm.cuda.blocks import GemmBlocks
from kronop.families.gemm.description import GemmDescription
from kronop.target import Target
from tests.compile.test_cuda_kernels import TARGETS, check
from tests.emit import cases
from tests.pycutlass_programs import PROGRAMS

sums_and_maxima = epilogue_visitor(
    lambda accum: (accum, maximum(accum, axis="row")), results=("D", "row_max")
)

_Case = tuple[DataType, bool, Layout, int]

_CASES: list[_Case] = [
    (float16, True, ColumnMajor, 8),
    (float16, True, RowMajor, 1),
    (float64, True, ColumnMajor, 2),
    (int8, True, RowMajor, 16),
    (float32, False, RowMajor, 4),
    (float16, False, ColumnMajor, 8),
]
# Three products of TF32 take all registers of a thread. Bytes of spills and stack, at most.
_SPILLED: list[tuple[_Case, str, bool, int]] = [
    ((float32, True, RowMajor, 4), "sm_80", False, 0),
    ((float32, True, RowMajor, 4), "sm_90a", False, 180),
    ((float32, True, RowMajor, 1), "sm_80", False, 160),
    ((float32, True, RowMajor, 1), "sm_90a", False, 180),
    ((float32, True, RowMajor, 1), "sm_90a", True, 160),
]


@pytest.mark.spread(case=_CASES, target=TARGETS)
def test_no_spills(case: _Case, target: str) -> None:
    """The first plan of blocks and warps for large products."""
    check(_plan(case, target))


@pytest.mark.parametrize(("case", "target", "tree", "spills"), _SPILLED)
def test_float32_on_tensor_cores_spills_little(
    case: _Case, target: str, tree: bool, spills: int
) -> None:
    check(_plan(case, target, tree=tree), spills)


@pytest.mark.parametrize(("number", "target"), [(22, "sm_80"), (26, "sm_90a")])
def test_rounded_operands_leave_room_for_64_by_64_sums_of_a_warp(number: int, target: str) -> None:
    """Sums, and the 16-bit operands of two steps; the rest is a tree's stack."""
    described = PROGRAMS[number].description(target)
    check(GemmOperationUniversal(**described, visitor=True).plan, 24)


@pytest.mark.parametrize("alignment", [8, 1])
def test_trees_without_operands(alignment: int) -> None:
    """NVRTC reads code for operands that g++, with which kernels are emulated, passes over."""
    matrix = TensorDescription(bfloat16, RowMajor, alignment)
    epilogue = sums_and_maxima(bfloat16, 1, float32, float32)
    operation = GemmOperationUniversal(
        "sm_90a", None, matrix, matrix, matrix, epilogue, visitor=True
    )
    for source in operation.sources:
        assert source.entry in compiler.assembly(source, operation.target)


def _plan(case: _Case, target: str, *, tree: bool = False) -> Plan:
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
        epilogue=(cases.TREE if tree else LinearCombination)(output, 1, sums, sums),
        visitor=tree,
    )
    plans = choice.plans(what, Target.parse(target), 99, None)
    return next(plan for plan in plans if isinstance(plan.steps[-1].design, GemmBlocks))
