"""What arguments need of operations, plans, kernels and memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kronop.args.staging import Form
from kronop.args.view import TensorView
from kronop.artifacts import Launch
from kronop.descriptions.scalars import EpilogueArguments
from kronop.target import Target

Launcher = Callable[[int], None]


class KernelLike(Protocol):
    """A loaded kernel."""

    def bind(self, launch: Launch, device: int) -> Launcher:
        """A function that launches on the CUstream it is given; host kernels ignore the stream."""
        ...


class Planned(Protocol):
    """A plan's workspace and launches, for a problem that is given."""

    def workspace_bytes(self, size: Any, threads: int, /) -> int: ...

    def launches(self, problem: Any) -> tuple[Launch, ...]: ...


class Places(Protocol):
    """Gives the memory in which kernels find operands (by name) and workspace: see `Placement`."""

    def input(self, name: str, item: TensorView, form: Form | None) -> TensorView: ...

    def output(
        self, name: str, item: TensorView, form: Form | None, *, read: bool
    ) -> TensorView: ...

    def workspace(self, nbytes: int) -> int: ...


class OperationLike(Planned, Protocol):
    """The part of an operation that its arguments use."""

    @property
    def description(self) -> Any: ...

    @property
    def target(self) -> Target: ...

    def epilogue_type(self, *scalars: float) -> EpilogueArguments: ...
