"""kronop: Kronecker-structured operations, described, planned, emitted, compiled and run."""

from typing import TYPE_CHECKING

from kronop import doors as _doors
from kronop.descriptions.activation import gelu, hardswish, leaky_relu, relu, sigmoid, silu, tanh
from kronop.descriptions.datatype import (
    ColumnMajor,
    ColumnMajorInterleaved32,
    DataType,
    DataTypeSize,
    InterleavedLayout,
    Layout,
    RowMajor,
    RowMajorInterleaved32,
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
)
from kronop.descriptions.math_instruction import MathInstruction, MathOperation, OpClass
from kronop.descriptions.tensor import TensorDescription
from kronop.descriptions.tile import (
    EpilogueScheduleType,
    KernelScheduleType,
    TileDescription,
    TileSchedulerType,
)
from kronop.errors import (
    ArgumentError,
    CompileError,
    DescriptionError,
    DeviceError,
    ElementTypeError,
    KronopError,
    OutOfMemoryError,
)
from kronop.families import FAMILIES
from kronop.late import imported as _imported
from kronop.late import spec_of as _spec_of
from kronop.target import Target
from kronop.version import __version__

if TYPE_CHECKING:
    from kronop import compiler as compiler
    from kronop import linalg as linalg
    from kronop import torch as torch
    from kronop.args.device import device_cc as device_cc
    from kronop.args.memory import get_allocated_size as get_allocated_size
    from kronop.args.memory import get_memory_pool as get_memory_pool
    from kronop.core.tuning import tune as tune
    from kronop.core.tuning_report import TuningReport as TuningReport
    from kronop.core.warming import warmup as warmup
    from kronop.descriptions.tracing import EpilogueVisitTree as EpilogueVisitTree
    from kronop.descriptions.tracing import epilogue_visitor as epilogue_visitor
    from kronop.descriptions.tree_functions import exp as exp
    from kronop.descriptions.tree_functions import maximum as maximum
    from kronop.descriptions.tree_functions import minimum as minimum
    from kronop.descriptions.tree_functions import sum as sum
    from kronop.families import *  # noqa: F403
    from kronop.operators.conjugate_gradients import CGInfo as CGInfo
    from kronop.operators.conjugate_gradients import cg as cg
    from kronop.operators.kronecker import KroneckerOperator as KroneckerOperator
    from kronop.operators.kronecker_sum import KroneckerSum as KroneckerSum
    from kronop.operators.masked import MaskedOperator as MaskedOperator
    from kronop.operators.product_sum import KroneckerProductSum as KroneckerProductSum
    from kronop.operators.spectral import SpectralOperator as SpectralOperator
else:  # Checkers know the names above, and tell of others.

    def __getattr__(name: str) -> object:
        """Imports what is imported at its first use: a public name, or a module (`kronop.torch`).

        Raises:
            AttributeError: there is no such name, or a package that the module needs is missing;
                the message says which.
        """
        module = _later().get(name)
        if module is not None and module != f"kronop.{name}":
            value: object = getattr(_imported(module), name)
            globals()[name] = value
            return value
        is_module = name.isidentifier() and not name.startswith("_")
        if not is_module or _spec_of(f"kronop.{name}") is None:
            hint = f"; there is kronop.conv.{name}" if name.startswith("conv2d") else ""
            raise AttributeError(f"module 'kronop' has no attribute {name!r}{hint}")
        try:
            return _imported(f"kronop.{name}")
        except ImportError as error:
            raise AttributeError(
                f"module 'kronop' has no attribute {name!r} here: {error}"
            ) from error


_doors.card_at_hand.append(lambda: _imported("kronop.args.device").card_at_hand())
_doors.cutlass_missing.append(lambda: _imported("kronop.compiler.cutlass_headers").missing())
# Importing kronop is cheap, because it imports descriptions only. These names, which plan, compile
# and run, are imported when they are first used.
_LATER = {
    "CGInfo": "kronop.operators.conjugate_gradients",
    "EpilogueVisitTree": "kronop.descriptions.tracing",
    "KroneckerOperator": "kronop.operators.kronecker",
    "KroneckerProductSum": "kronop.operators.product_sum",
    "KroneckerSum": "kronop.operators.kronecker_sum",
    "MaskedOperator": "kronop.operators.masked",
    "SpectralOperator": "kronop.operators.spectral",
    "TuningReport": "kronop.core.tuning_report",
    "cg": "kronop.operators.conjugate_gradients",
    "compiler": "kronop.compiler",
    "device_cc": "kronop.args.device",
    "epilogue_visitor": "kronop.descriptions.tracing",
    "exp": "kronop.descriptions.tree_functions",
    "get_allocated_size": "kronop.args.memory",
    "get_memory_pool": "kronop.args.memory",
    "linalg": "kronop.linalg",
    "maximum": "kronop.descriptions.tree_functions",
    "minimum": "kronop.descriptions.tree_functions",
    "sum": "kronop.descriptions.tree_functions",
    "tune": "kronop.core.tuning",
    "warmup": "kronop.core.warming",
}
__all__ = [
    "ArgumentError",
    "ColumnMajor",
    "ColumnMajorInterleaved32",
    "CompileError",
    "DataType",
    "DataTypeSize",
    "DescriptionError",
    "DeviceError",
    "ElementTypeError",
    "EpilogueScheduleType",
    "FastLinearCombinationClamp",
    "InterleavedLayout",
    "KernelScheduleType",
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
    "RowMajorInterleaved32",
    "Target",
    "TensorDescription",
    "TileDescription",
    "TileSchedulerType",
    "__version__",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float16",
    "float32",
    "float64",
    "gelu",
    "hardswish",
    "int8",
    "int32",
    "int64",
    "leaky_relu",
    "relu",
    "sigmoid",
    "silu",
    "tanh",
    "tfloat32",
]


def _later() -> dict[str, str]:
    """The module of each public name that is imported at its first use."""
    return _LATER | {name: module for family in FAMILIES for name, module in family.exports.items()}


def __dir__() -> list[str]:
    return sorted({*__all__, *_later()})


# `from kronop import *` leaves Python's own `sum` as it is.
__all__.extend(name for name in _later() if name != "sum")
