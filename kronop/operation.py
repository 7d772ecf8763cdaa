"""What all operations do: a description, a target, and the way from there to a result.

This is the only module that knows every folder: it asks the table of emitters for a plan, the
compiler for kernels, and lets arguments launch them.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kronop import compiler, knobs, winners
from kronop.args.base import most_threads
from kronop.args.device import default_device
from kronop.args.kron import KronMatmulArguments
from kronop.args.ksparse import KSparseArguments
from kronop.args.ksparse_chain import KSparseChainArguments
from kronop.args.ksparse_gradient import KSparseGradientArguments
from kronop.artifacts import Binary, Launch, Source
from kronop.descriptions.epilogue import EpilogueArguments
from kronop.descriptions.kron import KronMatmulDescription, KronProblem
from kronop.descriptions.ksparse import KSparseDescription, KSparseProblem
from kronop.descriptions.ksparse_chain import KSparseChainDescription, KSparseChainProblem
from kronop.descriptions.ksparse_gradient import KSparseGradientDescription, KSparseGradientProblem
from kronop.descriptions.tile import whole
from kronop.emit.emitter import Emitter
from kronop.emit.plan import Plan
from kronop.emit.render import render
from kronop.emit.table import EMITTERS
from kronop.errors import ArgumentError, DescriptionError, ElementTypeError, mismatch
from kronop.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What a problem takes: shapes of X and of Y with their batch dimensions, and bytes."""

    x_shape: tuple[int, ...]
    y_shape: tuple[int, ...]
    y_bytes: int
    workspace_bytes: int


_Described = (
    KronMatmulDescription
    | KSparseDescription
    | KSparseChainDescription
    | KSparseGradientDescription
)
AnyDescription = TypeVar("AnyDescription", bound=_Described)
AnyProblem = TypeVar(
    "AnyProblem",
    bound=KronProblem | KSparseProblem | KSparseChainProblem | KSparseGradientProblem,
)
AnyArguments = TypeVar(
    "AnyArguments",
    bound=KronMatmulArguments | KSparseArguments | KSparseChainArguments | KSparseGradientArguments,
)


@dataclass(frozen=True, slots=True)
class Served(Generic[AnyProblem]):
    """A plan whose kernels are loaded: what arguments are bound to."""

    plan: Plan
    emitter: Emitter[Any, AnyProblem]
    kernels: tuple[compiler.Kernel, ...]

    def workspace_bytes(self, rows: int, threads: int) -> int:
        return self.emitter.workspace_bytes(self.plan, rows, threads)

    def launches(self, problem: AnyProblem) -> tuple[Launch, ...]:
        return self.emitter.launches(self.plan, problem)


class Operation(Generic[AnyDescription, AnyProblem, AnyArguments]):
    """A described operation for one target, compiled when needed or by `compiler.add_module`.

    Attributes:
        description: the frozen description.
        target: what it is made for.
        plan: the steps for many rows, printable; `plan_for` has those that run for some rows, which
            may be others where they are few or the operation was tuned.
    """

    def __init__(self, target: object, description: AnyDescription) -> None:
        self.description = description
        self.target = Target.parse(target)
        self.plan = _plan(description, self.target)
        self._emitter: Emitter[AnyDescription, AnyProblem] = emitter_of(
            type(description), self.target
        )
        self._binaries: tuple[Binary, ...] | None = None
        self._plans: dict[tuple[int, int, int | None], Plan] = {}
        # By identity, for a plan is long to hash; what is served keeps its plan alive.
        self._served: dict[int, Served[AnyProblem]] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(step.entry for step in self.plan.steps)})"

    def epilogue_type(self, *scalars: float) -> EpilogueArguments:
        """The run-time scalars of the epilogue: alpha, beta, then those of the activation."""
        return self.description.epilogue.epilogue_type(*scalars)

    @functools.cached_property
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
            batch: further leading dimensions of X and Y.

        The scratch memory of a host operation grows with the threads. What is given is for the
        larger of OpenMP's number and that of torch where it is imported; a run takes no more.
        """
        rows, *lead = integers("batch", (rows, *integers("batch", batch)))
        for size in (rows, *lead):
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise ArgumentError(
                    mismatch(
                        "sizes",
                        expected="integers of at least 0",
                        got=repr(size),
                        hint="count rows from 0",
                    )
                )
        y_shape = (*lead, *self.description.y_shape(rows))
        return Sizes(
            x_shape=(*lead, *self.description.x_shape(rows)),
            y_shape=y_shape,
            y_bytes=math.prod(y_shape) * self.description.Y.element.bytes,
            workspace_bytes=self.workspace_bytes(rows * math.prod(lead), most_threads()),
        )

    def workspace_bytes(self, rows: int, threads: int) -> int:
        """Bytes of scratch memory for `rows` rows in all (M times the batch), tuned or not."""
        plans = (self.plan, self.plan_for(rows))
        return max(self._emitter.workspace_bytes(plan, rows, threads) for plan in plans)

    def plan_for(self, rows: int, device: int | None = None) -> Plan:
        """What runs for `rows` rows in all: what `kronop.tune` found to be fastest, else what the
        planner takes for so many (or a power of two below): mostly `plan`.

        Args:
            rows: M times the batch.
            device: index of the GPU; None for the current one, without a GPU for none. Not used on
                x86.

        Raises:
            ArgumentError: fewer than no rows.
        """
        if rows < 0:
            raise ArgumentError(
                mismatch("rows", expected="at least 0", got=rows, hint="count all rows of X")
            )
        if self.target.backend == "x86":
            device = 0
        elif device is None and compiler.cuda_devices():
            device = default_device().index
        slot = (winners.generation(), winners.bucket(rows), device)
        plan = self._plans.get(slot)
        if plan is None:
            plan = winners.recall(self.description, self._emitter, self.target, rows, device)
            # The kernels of equal plans are loaded once.
            known = (self.plan, *self._plans.values())
            plan = next((item for item in known if item.steps == plan.steps), plan)
            self._plans[slot] = plan
        return plan

    def candidates(self, count: int, rows: int | None = None) -> tuple[Plan, ...]:
        """Up to `count` plans worth measuring for about `rows` rows (None: for many); the first is
        what runs for them untuned."""
        return self._emitter.candidates(self.description, self.target, count, rows)

    def launches(self, problem: AnyProblem) -> tuple[Launch, ...]:
        """The kernel calls of `plan` that compute `problem`, in order."""
        return self._emitter.launches(self.plan, problem)

    @property
    def binaries(self) -> tuple[Binary, ...]:
        """The compiled steps; compiles or reads the cache when first asked."""
        if self._binaries is None:
            compiler.add_module([self])
        assert self._binaries is not None
        return self._binaries

    def install(self, binaries: tuple[Binary, ...]) -> None:
        """Takes the compiled steps; called by `compiler.add_module`."""
        self._binaries = binaries

    def run(self, arguments: AnyArguments, stream: object = None) -> None:
        """Launches the operation on `arguments` and returns at once on a GPU.

        Args:
            arguments: of this operation.
            stream: a CUDA stream (of torch, CuPy or cuda-core, or a handle); None for the current
                one of the tensors' framework. Not used on x86.
        """
        if getattr(arguments, "operation", None) is not self:
            raise ElementTypeError(
                mismatch(
                    "run",
                    expected=f"arguments made for {self!r}",
                    got=repr(arguments),
                    hint="build them with operation=this operation",
                )
            )
        if arguments.launchers is None:
            served = self.serve(self.plan_for(arguments.rows, arguments.device.index))
            arguments.run(served.kernels, stream, served)
        else:
            arguments.run((), stream)

    def serve(self, plan: Plan) -> Served[AnyProblem]:
        """One of the operation's plans with its kernels, compiled and loaded when first asked.

        Raises:
            CompileError: a compiler is missing or refused a source.
            DeviceError: a kernel does not load here.
        """
        served = self._served.get(id(plan))
        if served is None:
            own = plan is self.plan
            sources = self.sources if own else render(plan)
            binaries = self.binaries if own else compiler.compile_sources(sources, self.target)
            binaries, kernels = compiler.load_all(binaries, sources, self.target)
            if own:
                self.install(binaries)  # What was damaged has been compiled anew.
            served = self._served[id(plan)] = Served(plan, self._emitter, kernels)
        return served


def emitter_of(family: type, target: Target) -> Emitter[Any, Any]:
    """What plans descriptions of a family for a target.

    Raises:
        DescriptionError: there is no kernel of that family for it.
    """
    found = EMITTERS.get((family, target.backend))
    if found is None:
        targets = sorted({backend for kind, backend in EMITTERS if kind is family})
        raise DescriptionError(
            mismatch(
                f"target of a {family.__name__.removesuffix('Description')}Operation",
                expected=f"one of {', '.join(targets)}",
                got=target.name,
                hint="no kernel of that family is there for this target",
            )
        )
    return found


@functools.lru_cache(maxsize=1024)
def _plan(description: _Described, target: Target) -> Plan:
    emitter = emitter_of(type(description), target)
    status = emitter.supports(description, target)
    if not status:
        raise DescriptionError(f"{type(description).__name__} on {target}: {status.reason}")
    plan = emitter.plan(description, target)
    if knobs.current().debug >= 3:
        print(plan.explain(), file=sys.stderr)
    return plan


def integers(name: str, values: Any) -> Any:
    """A tuple of Python's own integers, where the items are integers of any kind."""
    try:
        return tuple(map(whole, values))
    except TypeError:
        raise ElementTypeError(
            mismatch(
                name, expected="a sequence of integers", got=repr(values), hint="give every size"
            )
        ) from None
