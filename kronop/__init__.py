"""kronop: Kronecker-structured operations, described, planned, emitted, compiled and run."""

import importlib
from typing import TYPE_CHECKING

from kronop.descriptions.datatype import (
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
from kronop.descriptions.ksparse_chain import KSparseChainDescription
from kronop.descriptions.ksparse_gradient import KSparseGradientDescription
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
from kronop.target import Target
from kronop.version import __version__

if TYPE_CHECKING:
    from kronop import compiler
    from kronop.args.kron import KronMatmulArguments
    from kronop.args.ksparse import KSparseArguments
    from kronop.args.ksparse_chain import KSparseChainArguments
    from kronop.args.ksparse_gradient import KSparseGradientArguments
    from kronop.args.memory import get_allocated_size, get_memory_pool
    from kronop.families import (
        KronMatmulOperation,
        KSparseChainOperation,
        KSparseGradientOperation,
        KSparseOperation,
    )
    from kronop.functional import gekmm, gemkm
    from kronop.functional_ksparse import ksmm
    from kronop.gradients import weight_gradient
    from kronop.tuning import TuningReport, tune

# Describing is cheap to import; what plans, compiles and runs is imported when it is first named.
_LATER = {
    "KSparseArguments": "kronop.args.ksparse",
    "KSparseChainArguments": "kronop.args.ksparse_chain",
    "KSparseChainOperation": "kronop.families",
    "KSparseGradientArguments": "kronop.args.ksparse_gradient",
    "KSparseGradientOperation": "kronop.families",
    "KSparseOperation": "kronop.families",
    "KronMatmulArguments": "kronop.args.kron",
    "TuningReport": "kronop.tuning",
    "tune": "kronop.tuning",
    "KronMatmulOperation": "kronop.families",
    "compiler": "kronop.compiler",
    "gekmm": "kronop.functional",
    "gemkm": "kronop.functional",
    "get_allocated_size": "kronop.args.memory",
    "get_memory_pool": "kronop.args.memory",
    "ksmm": "kronop.functional_ksparse",
    "weight_gradient": "kronop.gradients",
}

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
    "KSparseChainArguments",
    "KSparseChainDescription",
    "KSparseChainOperation",
    "KSparseDescription",
    "KSparseGradientArguments",
    "KSparseGradientDescription",
    "KSparseGradientOperation",
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
    "TuningReport",
    "__version__",
    "bfloat16",
    "compiler",
    "float8_e4m3fn",
    "float8_e5m2",
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
    "tune",
    "weight_gradient",
]


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module 'kronop' has no attribute {name!r}")
    module = importlib.import_module(_LATER[name])
    value: object = module if name == "compiler" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
