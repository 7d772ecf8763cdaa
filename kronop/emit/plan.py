"""Plan and Step: what will be launched, decided before any text is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kronop.artifacts import KernelSignature
from kronop.descriptions.epilogue import Epilogue
from kronop.target import Target

Constant = int | bool | tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One kernel: the template that it instantiates and what it is expected to cost.

    Attributes:
        entry: name of the kernel, short and readable in a profiler.
        header: the header to include, as in the quoted include.
        template: the function template, `kronop::kron_tile`; its only argument is the trait struct.
        parameters: C++ name of the parameter struct in that header.
        types: alias -> C++ type, in the trait struct.
        constants: name -> value, in the trait struct; a tuple becomes an array.
        signature: ABI of the parameter struct.
        epilogue: the functor to render; None for steps whose results stay in the workspace.
        threads: threads of a block; 0 on the host.
        shared_bytes: dynamic shared memory of a block, or scratch of one host thread.
        bytes_per_row: memory traffic per row of X that is unavoidable in this step.
        operations_per_row: multiplications and additions per row of X.
        note: what this step does, for `print(plan)`.
        package: the Python package whose folder the header is in; empty for kronop's shared ones.
        launch: name -> value of what only the packing of parameters needs, not the kernel's text.
    """

    entry: str
    header: str
    template: str
    parameters: str
    types: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, Constant], ...]
    signature: KernelSignature
    epilogue: Epilogue | None
    threads: int
    shared_bytes: int
    bytes_per_row: int
    operations_per_row: int
    note: str
    launch: tuple[tuple[str, Constant], ...] = ()
    package: str = ""

    def constant(self, name: str) -> Constant:
        """A constant of the kernel or of its launch."""
        return dict((*self.constants, *self.launch))[name]

    def __str__(self) -> str:
        intensity = self.operations_per_row / max(self.bytes_per_row, 1)
        constants = ", ".join(f"{name}={value}" for name, value in self.constants)
        return (
            f"{self.entry}: {self.note}\n"
            f"    {self.threads or 'host'} threads, {self.shared_bytes} bytes on chip,"
            f" {self.bytes_per_row} bytes and {self.operations_per_row} operations per row"
            f" ({intensity:.1f} per byte)\n"
            f"    {constants}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The steps of one operation on one target, in launch order.

    Attributes:
        target: where it runs.
        steps: at least one.
        rejected: (candidate, reason) of what was considered and not taken.
    """

    target: Target
    steps: tuple[Step, ...]
    rejected: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return "\n".join(
            [f"plan for {self.target}: {_count(self.steps)}", *(f"  {step}" for step in self.steps)]
        )

    def explain(self) -> str:
        """The plan, and the candidates that lost with the reason."""
        return "\n".join(
            [str(self), *(f"  rejected {name}: {reason}" for name, reason in self.rejected)]
        )


def _count(steps: Sequence[Step]) -> str:
    return "1 step" if len(steps) == 1 else f"{len(steps)} steps"
