"""What can be compiled together with others: the part of an operation that this room knows."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from kronop.artifacts import Binary, Source
from kronop.target import Target


@runtime_checkable
class Compilable(Protocol):
    """The part of an operation that `add_module` uses.

    Example:
        >>> tensor = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> operation = kronop.KronMatmulOperation(
        ...     "x86", None, tensor, tensor, tensor, epilogue, factors=((4, 4), (4, 4))
        ... )
        >>> isinstance(operation, kronop.compiler.Compilable)
        True
        >>> [source.entry for source in operation.sources]
        ['kron_f32_4x4p2_...']
    """

    @property
    def target(self) -> Target:
        """What the sources are compiled for."""

    @property
    def sources(self) -> tuple[Source, ...]:
        """The texts of the kernels, one for each step."""

    def install(self, binaries: tuple[Binary, ...]) -> None:
        """Stores the binaries of `sources`, in their order."""
