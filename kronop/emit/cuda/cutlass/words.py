"""CUTLASS's words for kronop's element types, layouts and multiply-adds."""

from __future__ import annotations

from collections.abc import Mapping

from kronop.descriptions.datatype import (
    AnyLayout,
    InterleavedLayout,
    Layout,
    bfloat16,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    float64,
    int8,
    int32,
)
from kronop.descriptions.math_instruction import MathInstruction, MathOperation, OpClass

ELEMENTS = {
    float64: "double",
    float32: "float",
    float16: "cutlass::half_t",
    bfloat16: "cutlass::bfloat16_t",
    int32: "int32_t",
    int8: "int8_t",
}
# Those of CUTLASS 3.x.
HOPPER_ELEMENTS = {
    **ELEMENTS,
    float8_e4m3fn: "cutlass::float_e4m3_t",
    float8_e5m2: "cutlass::float_e5m2_t",
}
LAYOUTS: Mapping[AnyLayout, str] = {
    Layout.RowMajor: "cutlass::layout::RowMajor",
    Layout.ColumnMajor: "cutlass::layout::ColumnMajor",
    InterleavedLayout.ColumnMajorInterleaved32: "cutlass::layout::ColumnMajorInterleaved<32>",
    InterleavedLayout.RowMajorInterleaved32: "cutlass::layout::RowMajorInterleaved<32>",
}
CLASSES = {
    OpClass.Simt: "cutlass::arch::OpClassSimt",
    OpClass.TensorOp: "cutlass::arch::OpClassTensorOp",
}
_OPERATORS = {
    MathOperation.multiply_add: "cutlass::arch::OpMultiplyAdd",
    MathOperation.multiply_add_saturate: "cutlass::arch::OpMultiplyAddSaturate",
    MathOperation.multiply_add_fast_f32: "cutlass::arch::OpMultiplyAddFastF32",
    MathOperation.multiply_add_fast_f16: "cutlass::arch::OpMultiplyAddFastF16",
    MathOperation.multiply_add_fast_bf16: "cutlass::arch::OpMultiplyAddFastBF16",
}
_OF_BYTES = MathOperation.multiply_add_saturate


def operator_of(math: MathInstruction) -> str:
    """CUTLASS's name of the multiply-add; for int8, which has two names, one of them."""
    return _OPERATORS[_OF_BYTES if math.element_a is int8 else math.math_operation]
