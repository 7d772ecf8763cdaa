"""kronop: Kronecker-structured operations, described, planned, emitted, compiled and run."""

from kronop import compiler
from kronop.args.kron import KronMatmulArguments
from kronop.args.ksparse import KSparseArguments
from kronop.args.memory import get_allocated_size, get_memory_pool
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
    int32,
    int64,
    tfloat32,
)
from kronop.descriptions.epilogue import (
    FastLinearCombinationClamp,
    LinearCombination,
    LinearCombinationClamp,
    LinearCombinationGeneric,
    gelu,
    hardswish,
    leaky_relu,
    relu,
    sigmoid,
    silu,
    tanh,
)
from kronop.descriptions.kron import KronMatmulDescription, Side
from kronop.descriptions.ksparse import KSparseDescription
from kronop.descriptions.math_instruction import MathInstruction, MathOperation, OpClass
from kronop.descriptions.tensor import TensorDescription
from kronop.descriptions.tile import TileDescription
from kronop.errors import (
    ArgumentError,
    CompileError,
    DescriptionError,
    DeviceError,
    ElementTypeError,
    KronopError,
    OutOfMemoryError,
)
from kronop.functional import gekmm, gemkm, ksmm
from kronop.operation import KronMatmulOperation, KSparseOperation
from kronop.target import Target
from kronop.version import __version__

__all__ = [
    "ArgumentError",
    "ColumnMajor",
    "CompileError",
    "DataType",
    "DescriptionError",
    "DeviceError",
    "ElementTypeError",
    "FastLinearCombinationClamp",
    "KSparseArguments",
    "KSparseDescription",
    "KSparseOperation",
    "KronMatmulArguments",
    "KronMatmulDescription",
    "KronMatmulOperation",
    "KronopError",
    "Layout",
    "LinearCombination",
    "LinearCombinationClamp",
    "LinearCombinationGeneric",
    "MathInstruction",
    "MathOperation",
    "OpClass",
    "OutOfMemoryError",
    "RowMajor",
    "Side",
    "Target",
    "TensorDescription",
    "TileDescription",
    "__version__",
    "bfloat16",
    "compiler",
    "float16",
    "float32",
    "float64",
    "gekmm",
    "gelu",
    "gemkm",
    "get_allocated_size",
    "get_memory_pool",
    "hardswish",
    "int8",
    "int32",
    "int64",
    "ksmm",
    "leaky_relu",
    "relu",
    "sigmoid",
    "silu",
    "tanh",
    "tfloat32",
]
