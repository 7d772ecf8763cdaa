"""What all operations do: from a description and a target to a result.

This module alone connects the folders: it asks the emitter for a plan and the compiler for
kernels, and the arguments launch them.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar

from kronop import compiler, knobs
from kronop.args.base import Arguments
from kronop.args.device import default_device
from kronop.args.host import most_threads
from kronop.artifacts import Binary, Launch, Source
from kronop.core import gathering, remembered, winners
from kronop.core.described import arguments_of, description_from, signature_of
from kronop.core.family import Kind
from kronop.core.served import Served
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.scalars import EpilogueArguments
from kronop.descriptions.shared import integers
from kronop.descriptions.summed import bytes_beside
from kronop.descriptions.tensor import TensorDescription
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.emit.emitter import Emitter
from kronop.emit.plan import Plan
from kronop.emit.render import render
from kronop.emit.visiting import Visiting
from kronop.errors import ElementTypeError
from kronop.frozen import dataclass, derived
from kronop.late import imported
from kronop.size import problems, size_within
from kronop.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The shapes of X and Y with their batch dimensions, and the bytes of Y and scratch memory."""

    x_shape: tuple[int, ...]
    y_shape: tuple[int, ...]
    y_bytes: int
    workspace_bytes: int


class Description(Protocol):
    """What every description has. It is frozen; plans depend on it and on the target alone."""

    @property
    def Y(self) -> TensorDescription: ...

    @property
    def epilogue(self) -> Epilogue: ...

    def x_shape(self, rows: int) -> tuple[int, ...]: ...

    def y_shape(self, rows: int) -> tuple[int, ...]: ...

    def operands(self, rows: int) -> dict[str, Any]: ...


AnyDescription = TypeVar("AnyDescription", bound=Description)
AnyArguments = TypeVar("AnyArguments", bound=Arguments)


class Operation(Generic[AnyDescription, AnyArguments]):
    """A described operation for one target, compiled when needed or by `compiler.add_module`.

    Attributes:
        description: the frozen description.
        target: the target that it is compiled for.
        plan: the steps for many rows, printable. Problems of few rows, and tuned operations, may
            run another plan: `plan_for` gives it.
    """

    kind: ClassVar[Kind]

    def __init_subclass__(cls, *, kind: Kind | None = None, **more: Any) -> None:
        """`kind`: the kind of operation that the class is; None to inherit it."""
        super().__init_subclass__(**more)
        if kind is not None:
            cls.kind = kind
            cls.__signature__ = signature_of(kind)  # type: ignore[attr-defined]

    def __init__(self, *described: Any, **by_name: Any) -> None:
        given = arguments_of(type(self), described, by_name)
        self.target = Target.parse(given.pop("target"))
        emitter = self.kind.emitter(self.target)
        self.description: AnyDescription = description_from(self.kind, emitter, self.target, given)
        if isinstance(self.description.epilogue, VisitorEpilogue) and not self.kind.visits:
            emitter = Visiting.of(emitter)
        self._emitter = emitter
        self.plan = _plan(emitter, self.description, self.target)
        self._binaries: tuple[Binary, ...] | None = None
        self._plans: dict[tuple[int, int, int | None], Plan] = {}
        # Keyed by id(plan), because hashing a plan is slow. Each value holds its plan, so an id is
        # never reused by another plan.
        self._served: dict[int, Served] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(step.entry for step in self.plan.steps)})"

    def epilogue_type(self, *scalars: float, **operands: Any) -> EpilogueArguments:
        """The run-time scalars of the epilogue: alpha, beta, then those of the activation.

        Those of a visitor tree, its operands and its results have names: see
        `VisitorEpilogue.epilogue_type`.
        """
        return self.description.epilogue.epilogue_type(*scalars, **operands)

    @derived
    def sources(self) -> tuple[Source, ...]:
        """One translation unit for each step."""
        return render(self.plan)

    def emit(self) -> str:
        """The emitted source text of all steps."""
        return "\n".join(source.text for source in self.sources)

    def sizes(self, rows: int, batch: Sequence[int] = ()) -> Sizes:
        """Shapes and bytes for M (the batch size, for Kronecker-sparse) of `rows`.

        Args:
            rows: M, at least 0.
            batch: further leading dimensions of X and Y, each at least 0.

        The scratch memory of a host operation grows with the number of threads. `workspace_bytes`
        assumes the larger of OpenMP's number and, if torch is imported, torch's. A run takes no
        more than that.
        """
        rows, *lead = integers("batch", (rows, *integers("batch", batch)))
        size = self._size(rows)
        what, y_shape = self.description, (*lead, *self.description.y_shape(size))
        workspace = self.workspace_bytes(size.times(problems(lead)), most_threads())
        if isinstance(what.epilogue, VisitorEpilogue) and not self.kind.visits:
            workspace += bytes_beside(what.epilogue, what.Y.layout, y_shape)
        return Sizes(
            x_shape=(*lead, *self.description.x_shape(size)),
            y_shape=y_shape,
            y_bytes=math.prod(y_shape) * what.Y.element.bytes,
            workspace_bytes=workspace,
        )

    def _size(self, size: Any) -> Any:
        """A size, or what a user gave for it, as a `Size` of this kind: a number of rows, or the
        extents in a tuple."""
        if isinstance(size, Arguments):
            raise ElementTypeError(
                "size",
                expected="a number of rows, or the size of arguments",
                got=type(size).__name__,
                hint="pass their attribute: arguments.size",
            )
        kind: Any = self.kind.size
        size = size_within(size, kind)
        if isinstance(size, kind):
            return size
        return kind(*size) if isinstance(size, (tuple, list)) else kind(size)

    def workspace_bytes(self, rows: Any, threads: int) -> int:
        """Bytes of scratch memory for a size: rows in all (M times the batch).

        The bytes are enough for both the tuned and the untuned plan. Sums that wait for a visitor
        tree come besides: see `sizes`.
        """
        size = self._size(rows)
        plans = (self.plan, self.plan_for(size))
        return max(plan.workspace_bytes(size, threads) for plan in plans)

    def plan_for(self, rows: Any, device: int | None = None) -> Plan:
        """The plan that runs for a size: the fastest that `kronop.tune` found, else the planner's.

        The planner plans for the size's bucket: for rows, the power of two at or below them. For
        most sizes that is `plan`.

        Args:
            rows: the size: `arguments.size`, PyCUTLASS's problem size, or rows in all, M times the
                batch (of a matrix product, one number for M, N and K).
            device: index of the GPU. None means the current GPU, or no tuned plan if there is no
                GPU. Not used on x86.

        Raises:
            ArgumentError: the number of rows is negative.
        """
        size = self._size(rows)
        if self.target.backend == "x86":
            device = 0
        elif device is None and compiler.cuda_devices():
            device = default_device().index
        slot = (winners.generation(), size.bucket(), device)
        plan = self._plans.get(slot)
        if plan is None:
            plan = winners.recall(self.description, self._emitter, self.target, size, device)
            # Reuse an equal plan's object: `_served` is keyed by id, so its kernels load once.
            known = (self.plan, *self._plans.values())
            made = (plan.steps, plan.pipeline)
            plan = next((item for item in known if (item.steps, item.pipeline) == made), plan)
            self._plans[slot] = plan
        return plan

    def candidates(self, count: int, rows: Any = None) -> tuple[Plan, ...]:
        """Up to `count` plans worth measuring for about that size (None means many rows).

        The first one is the plan that runs without tuning.
        """
        size = None if rows is None else self._size(rows)
        return self._emitter.candidates(self.description, self.target, count, size)

    def launches(self, problem: Any) -> tuple[Launch, ...]:
        """The kernel calls of `plan` that compute `problem`, which has results, in order."""
        return self.plan.launches(problem)

    @property
    def binaries(self) -> tuple[Binary, ...]:
        """The compiled steps; the first access compiles them or reads them from the cache."""
        if self._binaries is None:
            compiler.add_module([self])
        assert self._binaries is not None
        return self._binaries

    def install(self, binaries: tuple[Binary, ...]) -> None:
        """Stores the compiled steps; called by `compiler.add_module`."""
        self._binaries = binaries

    def run(self, arguments: AnyArguments, stream: object = None) -> None:
        """Launches the operation on `arguments` and returns at once on a GPU.

        Args:
            arguments: arguments that were made for this operation.
            stream: a CUDA stream (of torch, CuPy or cuda-core, or a handle); None for the current
                one of the tensors' framework. Not used on x86.
        """
        if getattr(arguments, "operation", None) is not self:
            raise ElementTypeError(
                "run",
                expected=f"arguments made for {self!r}",
                got=repr(arguments),
                hint="build them with operation=this operation",
            )
        if arguments.launchers is not None:
            arguments.run((), stream)
            return
        plan = self.plan_for(arguments.size, arguments.device.index)
        if not gathering.note(self, plan):
            served = self.serve(plan)
            arguments.run(served.kernels, stream, served)

    def serve(self, plan: Plan) -> Served:
        """One of the operation's plans with its kernels; the first call compiles and loads them.

        Raises:
            CompileError: a compiler is missing or refused a source.
            DeviceError: a kernel does not load on this machine.
        """
        served = self._served.get(id(plan))
        if served is None:
            gathering.before_loading()
            own = plan is self.plan
            sources = self.sources if own else render(plan)
            binaries = self.binaries if own else compiler.compile_sources(sources, self.target)
            binaries, kernels = compiler.load_all(binaries, sources, self.target)
            if own:
                self.install(binaries)  # `load_all` recompiles damaged binaries.
            served = self._served[id(plan)] = Served(plan, kernels)
        return served

    def export(
        self,
        folder: Any,
        *,
        name: str | None = None,
        rows: Sequence[Any] | None = None,
        threads: Sequence[int] | None = None,
        **more: Any,
    ) -> Path:
        """Writes the operation to a folder, as a library for C and C++ that needs no Python.

        For a CPU there are a header, a shared and a static library; for a GPU a header, and a C
        source that holds the binaries and needs the CUDA driver alone. Files for CMake and
        pkg-config are beside them. Operands are dense, of the layouts that the operation describes.

        Args:
            folder: where to; it is made if it is not there. An earlier export of the same
                operation there, for the same target, is replaced.
            name: what the library is called, and its functions begin with; None for the kind's own.
                No keyword, nor a name of a system's headers and libraries, nor kronop's.
            rows: the sizes to plan for. If the rows of X and Y are independent and contiguous,
                other numbers of rows run in parts, of which each is the largest of these that is
                left: with 1 among them, any number. Else they are all that the library runs.
                None for the powers of two up to 65536. Of a matrix product or of distances, the
                extents (m, n, k), which have to be given; of a convolution, problem sizes.
            threads: on a CPU, the numbers of threads to plan for; a run takes the largest that
                OpenMP has. None for the powers of two up to 64.
            more: further arguments of the operation's arguments class, whose values are fixed in
                the library: `kernel=`, for distances.

        Returns:
            The folder.

        Raises:
            ArgumentError: a name, a size or an argument that does not fit; a folder that can't be
                written, or has another operation's export of this name.
            DescriptionError: the operation can't be exported.
            CompileError: a compiler is missing or refused a source.
        """
        # Imported late, because few programs export.
        imported("kronop.core.export.api")
        from kronop.core.export.api import export

        return export(self, folder, name=name, rows=rows, threads=threads, **more)


@functools.lru_cache(maxsize=1024)
def _plan(emitter: Emitter, description: Any, target: Target) -> Plan:
    plan = remembered.plan(description, emitter, target)
    if knobs.current().debug >= 3:
        print(plan.explain(), file=sys.stderr)
    return plan


AnyOperation: TypeAlias = Operation[Any, Any]
"""An operation of any kind."""
