"""Loads binaries that may be damaged, and compiles the damaged ones again."""

from __future__ import annotations

from collections.abc import Sequence

from kronop.artifacts import Binary, Origin, Source
from kronop.compiler.build import compile_sources, drop
from kronop.compiler.images import BrokenImageError
from kronop.compiler.loading import Kernel, load
from kronop.target import Target


def load_all(
    binaries: Sequence[Binary], sources: Sequence[Source], target: Target
) -> tuple[tuple[Binary, ...], tuple[Kernel, ...]]:
    """(the binaries, the kernels in them), of `binaries` that were compiled from `sources`.

    A binary that does not load is dropped from memory and compiled_cache.db, and its source is
    compiled once more unless the binary was compiled just now.

    Args:
        binaries: what `compile_sources` gave for `sources`.
        sources: the texts of the kernels, as `operation.sources`.
        target: what they were compiled for.

    Raises:
        DeviceError: as for `load`.
        CompileError: the compiler refuses a source that is compiled once more.

    Example:
        >>> tensor = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> operation = kronop.KronMatmulOperation(
        ...     "x86", None, tensor, tensor, tensor, epilogue, factors=((4, 4), (4, 4))
        ... )
        >>> sources, target = operation.sources, operation.target
        >>> binaries = kronop.compiler.compile_sources(sources, target)
        >>> binaries, kernels = kronop.compiler.load_all(binaries, sources, target)
        >>> [kernel.entry for kernel in kernels]
        ['kron_f32_4x4p2_...']
    """
    pairs = zip(binaries, sources, strict=True)
    loaded = [_load(binary, source, target) for binary, source in pairs]
    return tuple(binary for binary, _ in loaded), tuple(kernel for _, kernel in loaded)


def _load(binary: Binary, source: Source, target: Target) -> tuple[Binary, Kernel]:
    try:
        return binary, load(binary, target)
    except BrokenImageError:
        drop(binary)
        if binary.origin is Origin.COMPILED:
            raise
    (binary,) = compile_sources([source], target)
    try:
        return binary, load(binary, target)
    except BrokenImageError:
        drop(binary)
        raise
