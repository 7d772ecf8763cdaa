"""Element types and layouts: the vocabulary of tensors."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType

from kronop.frozen import dataclass, derived


@dataclass(frozen=True)
class DataType:
    """An element type: `kronop.float32`, `kronop.int8` and so on.

    tfloat32 exists only inside a tensor core; tensors have all the others. The 8-bit floats are
    those of Micikevicius et al., "FP8 formats for deep learning" (2022, arXiv 2209.05433).

    Attributes:
        name: the name in NumPy and torch, if they have the type.
        bits: width of one element in memory.
        kind: "float" or "int".
        cxx: the spelling in kronop's headers, the same on every target.

    Example:
        >>> kronop.float16.bits, kronop.float16.bytes, kronop.float16.short
        (16, 2, 'f16')
        >>> kronop.float8_e4m3fn.kind, kronop.int8.kind
        ('float', 'int')
    """

    name: str
    bits: int
    kind: str
    cxx: str

    @derived
    def bytes(self) -> int:
        """Width of one element in memory."""
        return self.bits // 8

    @property
    def short(self) -> str:
        """The short name in kernel names, such as f32, bf16, tf32, e4m3, s8."""
        if self in FLOAT8:
            return self.cxx.removeprefix("kronop::float_").removesuffix("_t")
        prefix = {"bfloat16": "bf", "tfloat32": "tf"}.get(
            self.name, "f" if self.kind == "float" else "s"
        )
        return f"{prefix}{self.bits}"

    def __repr__(self) -> str:
        return f"kronop.{self.name}"


float64 = DataType("float64", 64, "float", "double")
float32 = DataType("float32", 32, "float", "float")
tfloat32 = DataType("tfloat32", 32, "float", "kronop::tfloat32_t")
float16 = DataType("float16", 16, "float", "kronop::half_t")
bfloat16 = DataType("bfloat16", 16, "float", "kronop::bfloat16_t")
# "fn", as in torch and ml_dtypes: finite values up to 448 and NaN, but no infinities.
float8_e4m3fn = DataType("float8_e4m3fn", 8, "float", "kronop::float_e4m3_t")
float8_e5m2 = DataType("float8_e5m2", 8, "float", "kronop::float_e5m2_t")
int64 = DataType("int64", 64, "int", "kronop::int64_t")
int32 = DataType("int32", 32, "int", "kronop::int32_t")
int8 = DataType("int8", 8, "int", "kronop::int8_t")

# Operands of Kronecker-sparse products and of matrix products have these types; results are wider.
FLOAT8 = (float8_e4m3fn, float8_e5m2)
# The types a tensor can have; tfloat32 exists only inside a tensor core.
_OF_TENSORS = (float64, float32, float16, bfloat16, *FLOAT8, int64, int32, int8)
TENSOR_TYPES = {item.name: item for item in _OF_TENSORS}
DataTypeSize: Mapping[DataType, int] = MappingProxyType(
    {item: item.bits for item in (*_OF_TENSORS, tfloat32)}
)
"""Bits, not bytes, of an element of each type: PyCUTLASS's name for what `DataType.bits` says."""
RESULT_TYPES = {name: item for name, item in TENSOR_TYPES.items() if item not in FLOAT8}


def result_type(element: DataType) -> DataType:
    """The default element type of a product of tensors of `element`.

    It is int32 for int8, and bfloat16, which has the range of float32 sums, for 8-bit floats.
    """
    if element in FLOAT8:
        return bfloat16
    return int32 if element == int8 else element


class AnyLayout(enum.Enum):
    """A base of layouts: those below, and those that families declare for tensors of their own.

    Of a family's, the last axis is contiguous.
    """

    def __repr__(self) -> str:
        return f"kronop.{self.name}"

    @property
    def elements(self) -> tuple[DataType, ...]:
        """The element types that tensors of this layout may have."""
        return tuple(TENSOR_TYPES.values())


class Layout(AnyLayout):
    """Which index of a matrix is contiguous in memory.

    RowMajor: the last one, as in NumPy's order "C"; ColumnMajor: the one before it, as in "F".

    Example:
        >>> kronop.RowMajor is kronop.Layout.RowMajor
        True
        >>> kronop.TensorDescription(kronop.float32, kronop.ColumnMajor).layout
        kronop.ColumnMajor
    """

    RowMajor = "row-major"
    ColumnMajor = "column-major"


RowMajor = Layout.RowMajor
ColumnMajor = Layout.ColumnMajor


class InterleavedLayout(AnyLayout):
    """How a matrix of int8, or one of its products, lies in memory as panels of 32 rows or columns.

    A panel of ColumnMajorInterleaved32 has 32 columns and is as high as the matrix; the 32 elements
    of each of its rows are contiguous. An M x K matrix is an array of K/32 x M x 32: the element in
    row m and column k is at [k // 32][m][k % 32].

    A panel of RowMajorInterleaved32 has 32 rows and is as wide as the matrix; the 32 elements of
    each of its columns are contiguous. A K x N matrix is an array of K/32 x N x 32: the element in
    row k and column n is at [k // 32][n][k % 32].

    Example:
        >>> a = np.arange(4 * 64).reshape(4, 64).astype(np.int8)  # M x K
        >>> panels = a.reshape(4, 2, 32).swapaxes(0, 1)  # as ColumnMajorInterleaved32
        >>> panels.shape, bool(panels[37 // 32, 3, 37 % 32] == a[3, 37])
        ((2, 4, 32), True)
        >>> kronop.ColumnMajorInterleaved32
        kronop.ColumnMajorInterleaved32
    """

    ColumnMajorInterleaved32 = "panels of 32 columns"
    RowMajorInterleaved32 = "panels of 32 rows"

    @property
    def elements(self) -> tuple[DataType, ...]:
        return INTERLEAVED_TYPES


ColumnMajorInterleaved32 = InterleavedLayout.ColumnMajorInterleaved32
RowMajorInterleaved32 = InterleavedLayout.RowMajorInterleaved32
# Rows or columns of a panel; types of operands and results that are interleaved.
INTERLEAVE, INTERLEAVED_TYPES = 32, (int8, int32)
