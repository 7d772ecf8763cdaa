"""What the arguments of all families have in common: checks, binding, running, waiting."""

from __future__ import annotations

import abc
import copy
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any, ClassVar, Self

from kronop.args import changes
from kronop.args.checks import check_scalars, description_of
from kronop.args.device import check, cuda_driver, current
from kronop.args.operands import TakesOperands
from kronop.args.protocols import KernelLike, Launcher, OperationLike, Places, Planned
from kronop.args.staging import Placement, in_use
from kronop.args.storage import Kept, check_kept
from kronop.args.stream import stream_handle
from kronop.args.turns import TakesTurns
from kronop.args.view import Device
from kronop.artifacts import Launch
from kronop.descriptions.scalars import EpilogueArguments
from kronop.size import Size
from kronop.tensors import Tensor


class Arguments(TakesOperands, TakesTurns, abc.ABC):
    """Tensors and scalars of one call, checked once and run as often as wished.

    Every run reads and writes the memory that the tensors had when the arguments were built; the
    arguments keep it alive. Giving a tensor other memory later (`x.data = ...`) has no effect on
    the arguments. If the memory itself is freed, shrunk or moved (a torch storage's `resize_`,
    `ndarray.resize(refcheck=False)`), the next run refuses it: build the arguments again.

    Threads may share arguments: their runs take turns, because they use the same scratch memory. A
    run can't be interrupted by another one of the same thread (in a signal handler). On a GPU, runs
    on different streams also wait for each other if there is scratch memory. The caller has to
    order their accesses to the tensors, and the replays of a CUDA graph that captured a run.

    Attributes:
        describes, made_for: the class of descriptions of the operations that they are for, and the
            name of the class of these, unless it is that of descriptions.
        sized: the argument that takes the size, where shapes leave some of it open; "" for none.
        operation: the operation that they were made for.
        Y: the tensor of the result, given by the caller or made here.
        launchers: one function per launch; None until bound, empty if there is nothing to do.
    """

    describes: ClassVar[type]
    made_for: ClassVar[str] = ""
    sized: ClassVar[str] = ""
    launchers: tuple[Launcher, ...] | None = None
    _source_is_result: bool

    def __init__(
        self,
        operation: OperationLike,
        output_op: EpilogueArguments | None = None,
        **tensors: Any,
    ) -> None:
        """`tensors`: those of `operands`, unless a family accepts them when it knows more."""
        if unknown := tensors.keys() - {item.name for item in self.operands}:
            raise TypeError(f"{type(self).__name__} takes no argument {min(unknown)!r}")
        self._description = description_of(operation, self.describes, self.made_for)
        self.operation = operation
        self.output_op = check_scalars(operation, output_op)
        self._is_host = operation.target.backend == "x86"
        self._begin_anew()
        self._steps: tuple[Launcher, ...] | None = None
        self._placement: Placement | None = None
        self._count_change: Callable[[tuple[Tensor, ...]], None] | None = None
        self._written: tuple[Tensor, ...] = ()
        self._kept: tuple[Kept, ...] = ()
        self._stream = 0
        self._ran = False
        if tensors:
            self._accept(**tensors)

    @property
    @abc.abstractmethod
    def size(self) -> Size:
        """The extents of these arguments that may vary between runs of one operation."""

    @property
    def rows(self) -> Any:
        """The size, if it is a number of rows (M times the batch dimensions).

        For Kronecker-sparse operations M is the batch size.
        """
        return self.size

    @property
    def _is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.size

    @abc.abstractmethod
    def _problem(self, places: Places, workspace: int) -> Any:
        """The problem, with operands at the places that kernels can reach."""

    def share_among(self, threads: int) -> None:
        """Plans for this number of host threads, in place of the framework's own."""
        self._threads = threads

    def launches(self, planned: Planned, places: Places) -> tuple[Launch, ...]:
        """The kernel calls over the memory of `places`; empty if there is nothing to do."""
        return () if self._is_empty else self._launched(planned, places)

    def _launched(self, planned: Planned, places: Places) -> tuple[Launch, ...]:
        """The kernel calls of arguments that are not empty."""
        needed = self._needed(planned)
        if self._tree is not None:
            return self._tree.launches(self, planned, places, needed)
        return planned.launches(self._problem(places, places.workspace(needed)))

    def _needed(self, planned: Planned) -> int:
        """Bytes of workspace."""
        return planned.workspace_bytes(self.size, self._threads)

    def bind(self, kernels: Sequence[KernelLike], planned: Planned | None = None) -> None:
        """Allocates memory and prepares the launches, in place of any that were prepared before.

        Args:
            kernels: one kernel per step, in the order of the steps.
            planned: the plan of these kernels; None for the operation's own plan.

        Raises:
            OutOfMemoryError: no room for workspace or copies; the arguments stay as they were.
            DeviceError: there is no GPU, a kernel does not load, or this thread is in the middle
                of a run of these arguments.
        """
        with self._lock, self._use():
            self._bind(kernels, planned or self.operation)

    @property
    def device(self) -> Device:
        """The device on which the kernels run."""
        return self._device

    @property
    def framework(self) -> str:
        """The framework of X, one of "numpy", "torch", "cupy" and "dlpack"."""
        return self._framework

    @property
    def stream(self) -> int:
        """The handle of the stream of the last run; 0 before the first run."""
        return self._stream

    @property
    def results(self) -> tuple[Tensor, ...]:
        """The tensors that a run writes, the result, then auxiliary results of a visitor tree."""
        return (self.Y,) if self._tree is None else (self.Y, *self._tree.results)

    @property
    def accumulates(self) -> bool:
        """Whether a run reads what an earlier one wrote, because Z is Y and beta is not 0, or a
        result of a visitor tree is one of its operands."""
        return self._source_is_result if self._tree is None else self._tree.reads_result

    def unbound(self) -> Self:
        """A copy with the same tensors and scalars that is not bound."""
        twin = copy.copy(self)
        twin._begin_anew()
        twin.launchers = twin._steps = twin._placement = None
        twin._kept = ()
        twin._ran = False
        return twin

    def _bind(self, kernels: Sequence[KernelLike], planned: Planned) -> tuple[Launcher, ...]:
        placement = Placement(self._device)
        launchers = tuple(
            kernels[launch.step].bind(launch, self._device.index)
            for launch in self.launches(planned, placement)
        )
        self._placement = placement
        self._kept = tuple(placement.kept)
        self.launchers = launchers
        self._written = changes.counted(self.results)
        self._count_change = changes.counter(self._written[0]) if self._written else None
        # `_steps` is set last, because `run` takes it as the sign that everything above is set.
        self._steps = (*placement.before, *launchers, *placement.after)
        return self._steps

    def run(
        self, kernels: Sequence[KernelLike], stream: Any = None, planned: Planned | None = None
    ) -> None:
        """Launches everything on `stream` without waiting for it; binds first if needed.

        Args:
            kernels, planned: as for `bind`.
            stream: None for the current stream of X's framework, a handle, or a stream object.
                Host operations ignore it and are done when this returns. If it is not the stream
                that the tensors were allocated on, their framework's allocator does not know that
                it uses them (as with torch's and CuPy's own operations): keep the arguments until
                its work is done, or call `record_stream`.

        Raises:
            ArgumentError: a tensor's memory was freed, moved or shrunk after the arguments were
                built.
            DeviceError: this thread is in the middle of a run of these arguments.
        """
        with self._lock:
            if self._runner:
                raise self._reentered()
            self._runner = get_ident()
            # What `_use` does, written out: its context manager takes a third of a small run.
            try:
                steps = self._steps
                if steps is None:
                    steps = self._bind(kernels, planned or self.operation)
                check_kept(self._kept)
                if self._count_change is not None:
                    self._count_change(self._written)
                if self._is_host:
                    for step in steps:
                        step(0)
                    return
                self._run_on_gpu(steps, stream_handle(stream, self._framework, self._device.index))
            finally:
                self._runner = 0

    def _run_on_gpu(self, steps: tuple[Launcher, ...], handle: int) -> None:
        self._stream, self._ran = handle, True
        placement = self._placement
        if placement is None or not placement.buffers:
            for step in steps:
                step(handle)
            return
        with in_use(placement.buffers, handle):
            for step in steps:
                step(handle)
            placement.fresh = True

    def sync(self) -> None:
        """Waits for the last run's stream, then copies results to host tensors."""
        if self._is_host or not self._ran:
            return
        placement = self._placement
        if placement is None or not placement.fetch:
            self._wait()  # Without the lock, so that other threads can launch meanwhile.
            return
        with self._lock, self._use():
            if placement.fresh:
                with in_use(placement.buffers, self._stream):
                    for step in placement.fetch:
                        step(self._stream)
            self._wait()
            if placement.fresh:
                for finish in placement.scatter:
                    finish()
                placement.fresh = False
                if self._count_change is not None:  # The host tensor changes here, not in `run`.
                    self._count_change(self._written)

    def _wait(self) -> None:
        with current(self._device.index):
            check(cuda_driver().cuStreamSynchronize(self._stream), "waiting for the stream")
