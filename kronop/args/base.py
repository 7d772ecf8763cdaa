"""What the arguments of all families have in common: checks, binding, running, waiting."""

from __future__ import annotations

import abc
import contextlib
import copy
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, Self

from kronop.args import changes
from kronop.args.checks import check_overlap, check_scalars, check_writable, common_device
from kronop.args.device import check, cuda_driver, current
from kronop.args.host import host_threads, thread_count
from kronop.args.staging import Form, Placement, in_use
from kronop.args.storage import Kept, check_kept
from kronop.args.stream import stream_handle
from kronop.args.view import Device, TensorView
from kronop.artifacts import Launch
from kronop.descriptions.epilogue import EpilogueArguments
from kronop.errors import DeviceError, mismatch
from kronop.size import Size
from kronop.target import Target

Launcher = Callable[[int], None]


class KernelLike(Protocol):
    """A loaded kernel."""

    def bind(self, launch: Launch, device: int) -> Launcher:
        """A call that launches on the CUstream it is given (ignored on the host)."""
        ...


class Planned(Protocol):
    """What knows the launches of one plan."""

    def workspace_bytes(self, size: Any, threads: int, /) -> int: ...

    def launches(self, problem: Any) -> tuple[Launch, ...]: ...


class Places(Protocol):
    """Where kernels find operands (by their names) and workspace; see `Placement`."""

    def input(self, name: str, item: TensorView, form: Form | None) -> TensorView: ...

    def output(
        self, name: str, item: TensorView, form: Form | None, *, read: bool
    ) -> TensorView: ...

    def workspace(self, nbytes: int) -> int: ...


class OperationLike(Planned, Protocol):
    """What arguments need of an operation."""

    @property
    def description(self) -> Any: ...

    @property
    def target(self) -> Target: ...

    def epilogue_type(self, *scalars: float) -> EpilogueArguments: ...


class Arguments(abc.ABC):
    """Tensors and scalars of one call, checked once and run as often as wished.

    The memory that the tensors have when the arguments are built is what every run reads and
    writes; it is kept alive. What gives a tensor other memory (`x.data = ...`) does not move the
    arguments. Memory that is freed, cut or moved under its tensors (a torch storage's `resize_`,
    `ndarray.resize(refcheck=False)`) is refused by the next run: build the arguments again.

    Threads may share arguments: their runs follow each other, since they share scratch memory. In
    the middle of a run, its own thread can't run them again (in a signal's handler). On a GPU, runs
    on different streams follow each other too where there is scratch memory; the order in which
    they read and write the tensors is the caller's to see to. So is that of replays of a CUDA graph
    which has captured a run.

    Attributes:
        operation: what they are arguments of.
        Y: the result's tensor, the caller's own or a new one.
        launchers: one call per launch; None until bound, empty where there is nothing to do.
    """

    Y: Any
    launchers: tuple[Launcher, ...] | None = None
    _source_is_result: bool

    def __init__(self, operation: OperationLike, output_op: EpilogueArguments | None) -> None:
        self.operation = operation
        self.output_op = check_scalars(operation, output_op)
        self._is_host = operation.target.backend == "x86"
        # Held by whoever uses the scratch memory. A signal's handler in the middle of that gets it
        # too, and is told by the flag: it would overwrite what the run that it interrupts needs.
        self._lock, self._in_use = threading.RLock(), False
        self._steps: tuple[Launcher, ...] | None = None
        self._placement: Placement | None = None
        self._count_change: Callable[[tuple[Any]], None] | None = None
        self._kept: tuple[Kept, ...] = ()
        self._stream = 0
        self._ran = False

    def _settle(self, views: Mapping[str, TensorView]) -> None:
        """Fixes device, framework and threads from the operands; the first one leads."""
        self._device = common_device(self.operation.target, views)
        leader = next(iter(views.values()))
        self._framework = leader.framework
        self._threads = host_threads(leader.framework) if self._is_host else thread_count()

    def _take_result(self, Y: Any, views: Mapping[str, TensorView]) -> None:
        """Accepts the caller's Y: it can be written, and shares memory with Z at most."""
        self.Y = Y
        check_writable(views["Y"])
        inputs = {name: item for name, item in views.items() if name not in ("Z", "Y")}
        check_overlap(views["Y"], inputs, views.get("Z") if self.output_op.beta else None)

    @property
    @abc.abstractmethod
    def size(self) -> Size:
        """What of these arguments may vary between runs of one operation."""

    @property
    def rows(self) -> Any:
        """The size, where that is rows: M (the batch, for Kronecker-sparse) times the batch."""
        return self.size

    @abc.abstractmethod
    def _problem(self, places: Places, workspace: int) -> Any:
        """The problem over memory that kernels can reach."""

    def launches(self, planned: Planned, places: Places) -> tuple[Launch, ...]:
        """The kernel calls over the memory of `places`; none where there is nothing to do."""
        if not self.size:
            return ()
        workspace = places.workspace(planned.workspace_bytes(self.size, self._threads))
        return planned.launches(self._problem(places, workspace))

    def bind(self, kernels: Sequence[KernelLike], planned: Planned | None = None) -> None:
        """Allocates, computes the launches and prepares them, anew where that was done before.

        Args:
            kernels: in the order of the steps.
            planned: whose kernels they are where it is not the operation's own plan.

        Raises:
            OutOfMemoryError: no room for workspace or copies; nothing is kept then.
            DeviceError: no GPU, or a kernel that does not load.
        """
        with self._lock, self._use():
            self._bind(kernels, planned or self.operation)

    @property
    def device(self) -> Device:
        """Where kernels run."""
        return self._device

    @property
    def framework(self) -> str:
        """Whose tensor X is: "numpy", "torch", "cupy" or "dlpack"."""
        return self._framework

    @property
    def stream(self) -> int:
        """Handle of the stream of the last run; 0 before there was one."""
        return self._stream

    @property
    def accumulates(self) -> bool:
        """Whether a run reads what an earlier one wrote: Z is Y and beta is not 0."""
        return self._source_is_result

    def unbound(self) -> Self:
        """A twin with the same tensors and scalars that has not been bound."""
        twin = copy.copy(self)
        twin._lock, twin._in_use = threading.RLock(), False
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
        self._count_change = changes.counter(self.Y)
        # The last one: who finds steps finds all of the above.
        self._steps = (*placement.before, *launchers, *placement.after)
        return self._steps

    def run(
        self, kernels: Sequence[KernelLike], stream: Any = None, planned: Planned | None = None
    ) -> None:
        """Launches everything on `stream`; binds first where needed. Does not wait.

        Args:
            kernels, planned: as for `bind`.
            stream: None for the current stream of X's framework, a handle, or a stream object.
                Host operations ignore it and are done when this returns. As with torch's and
                CuPy's own operations, their allocators do not know of a stream that is not the
                tensors' own: keep the arguments until its work is done, or call `record_stream`.

        Raises:
            ArgumentError: a tensor's memory is no longer what the arguments were built on.
            DeviceError: this thread is in the middle of a run of these arguments.
        """
        with self._lock:
            if self._in_use:
                raise self._reentered()
            self._in_use = True
            try:  # As in `_use`, which would take a third of the time of a small run.
                steps = self._steps
                if steps is None:
                    steps = self._bind(kernels, planned or self.operation)
                check_kept(self._kept)
                if self._count_change is not None:
                    self._count_change((self.Y,))
                if self._is_host:
                    for step in steps:
                        step(0)
                    return
                self._run_on_gpu(steps, stream_handle(stream, self._framework, self._device.index))
            finally:
                self._in_use = False

    @contextlib.contextmanager
    def _use(self) -> Iterator[None]:
        """For whoever holds the lock: refuses a thread that interrupts itself."""
        if self._in_use:
            raise self._reentered()
        self._in_use = True
        try:
            yield
        finally:
            self._in_use = False

    def _reentered(self) -> DeviceError:
        return DeviceError(
            mismatch(
                f"arguments of {self.operation!r}",
                expected="no run in the middle of another one by the same thread",
                got="one, as by a signal's handler",
                hint="let the handler build arguments of its own, or set a flag and run later",
            )
        )

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
        """Waits for the last run's stream, then brings results back to host tensors."""
        if self._is_host or not self._ran:
            return
        placement = self._placement
        if placement is None or not placement.fetch:
            self._wait()  # Without the lock: other threads may go on launching.
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
                if self._count_change is not None:  # Now host tensors change, not when it ran.
                    self._count_change((self.Y,))

    def _wait(self) -> None:
        with current(self._device.index):
            check(cuda_driver().cuStreamSynchronize(self._stream), "waiting for the stream")
