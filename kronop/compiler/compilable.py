"""What can be compiled together with others: the part of an operation that this room knows."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from kronop.artifacts import Binary, Source
from kronop.target import Target


@runtime_checkable
class Compilable(Protocol):
    """The part of an operation that `add_module` uses."""

    @property
    def target(self) -> Target: ...

    @property
    def sources(self) -> tuple[Source, ...]: ...

    def install(self, binaries: tuple[Binary, ...]) -> None:
        """Stores the binaries of `sources`, in their order."""
