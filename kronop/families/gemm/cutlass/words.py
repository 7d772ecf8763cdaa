"""CUTLASS's words for kronop's element types, layouts and multiply-adds."""

from __future__ import annotations

from collections.abc import Mapping

from kronop.descriptions.datatype import (
    INTERLEAVE,
    DataType,
    InterleavedLayout,
    Layout,
    bfloat16,
    float16,
    float32,
    float64,
    int8,
    int32,
)
from kronop.descriptions.math_instruction import MathOperation, OpClass

ELEMENTS = {
    float64: "double",
    float32: "float",
    float16: "cutlass::half_t",
    bfloat16: "cutlass::bfloat16_t",
    int32: "int32_t",
    int8: "int8_t",
}
AnyLayout = Layout | InterleavedLayout
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
OPERATORS = {
    MathOperation.multiply_add: "cutlass::arch::OpMultiplyAdd",
    MathOperation.multiply_add_saturate: "cutlass::arch::OpMultiplyAddSaturate",
    MathOperation.multiply_add_fast_f32: "cutlass::arch::OpMultiplyAddFastF32",
    MathOperation.multiply_add_fast_f16: "cutlass::arch::OpMultiplyAddFastF16",
    MathOperation.multiply_add_fast_bf16: "cutlass::arch::OpMultiplyAddFastBF16",
}
# Layouts of A, B and of C and D of an interleaved product. Its epilogue stores eight neighbouring
# results of a thread, which come from every second pair of columns: columns of B are expected in
# another order (`place_of_column`).
INTERLEAVED = (
    InterleavedLayout.ColumnMajorInterleaved32,
    InterleavedLayout.RowMajorInterleaved32,
    InterleavedLayout.ColumnMajorInterleaved32,
)
FLIPPED: Mapping[AnyLayout, Layout] = {
    Layout.RowMajor: Layout.ColumnMajor,
    Layout.ColumnMajor: Layout.RowMajor,
}


def place_of_column(column: int) -> int:
    """Where a column of B is among the columns of an interleaved product's operand.

    As CUTLASS's `reorder_column`: of 32 columns, four threads own eight each, two of each of the
    four instructions that have eight columns.
    """
    panel, within = divmod(column, INTERLEAVE)
    thread, owned = divmod(within, 8)
    instruction, pair = divmod(owned, 2)
    return panel * INTERLEAVE + instruction * 8 + thread * 2 + pair


def sums_added_in(accumulator: DataType) -> DataType:
    """The type in which the sums of slices are added up: float32 for float16."""
    return float32 if accumulator is float16 else accumulator
