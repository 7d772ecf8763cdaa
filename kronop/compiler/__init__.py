"""From source text to loaded kernels: NVRTC, nvcc, the host's C++ compiler, and their cache.

Example:
    >>> matrix = kronop.TensorDescription(kronop.float32)
    >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
    >>> operation = kronop.KronMatmulOperation(
    ...     "x86", None, matrix, matrix, matrix, epilogue, factors=[(8, 8)] * 2
    ... )
    >>> kronop.compiler.add_module([operation])  # compiles, and keeps, what the cache has not
    >>> all(binary.image for binary in operation.binaries)
    True
"""

from kronop.compiler.build import (
    add_module,
    assembly,
    compile_groups,
    compile_sources,
    default_cache,
    forget,
    nvcc,
    nvrtc,
)
from kronop.compiler.cache import Cache
from kronop.compiler.compilable import Compilable
from kronop.compiler.cuda_kernel import cuda_devices
from kronop.compiler.healing import load_all
from kronop.compiler.inspection import disassemble
from kronop.compiler.loading import Kernel, load
from kronop.compiler.rows import Entry, Record

__all__ = [
    "Cache",
    "Compilable",
    "Entry",
    "Kernel",
    "Record",
    "add_module",
    "assembly",
    "compile_groups",
    "compile_sources",
    "cuda_devices",
    "default_cache",
    "disassemble",
    "forget",
    "load",
    "load_all",
    "nvcc",
    "nvrtc",
]
__dir__ = __all__.copy  # What completes is public.
