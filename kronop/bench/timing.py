"""Times of several libraries at the same work, and the reasons of those that have none."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from kronop.bench.arrays import Arrays
from kronop.bench.protocol import (
    SHORT_MS,
    Call,
    Clock,
    graph_milliseconds,
    keeping,
    medians,
    needs_flush,
    settle_seconds,
)
from kronop.bench.table import Table, microseconds, milliseconds
from kronop.errors import KronopError
from kronop.tensors import Tensor

LEAST_ROUNDS = 3
OUT_OF_MEMORY = "out of memory"
# Assumed host seconds of the first timed call, which only decides the number of rounds.
_PROBE_LEAD = 1e-3


class PeerUnavailableError(Exception):
    """A peer can't take part; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all cases of a run share; `repeats` are the most rounds of timing."""

    arrays: Arrays
    clock: Clock
    repeats: int


@dataclass(slots=True, kw_only=True)
class Timing:
    """The timing of one library; `reason` says why there is no time."""

    ms: float | None = None
    graph_ms: float | None = None
    error: float | None = None
    reason: str = ""


class AnyFloor(Protocol):
    """The least time that a call can take, and what it is of."""

    @property
    def ms(self) -> float: ...

    @property
    def bound(self) -> str: ...


SomeFloor = TypeVar("SomeFloor", bound=AnyFloor, covariant=True)


@dataclass(slots=True, kw_only=True)
class Measured(Generic[SomeFloor]):
    """The measurements of one case.

    Attributes:
        kronop: kronop's time and error; its `reason` says why the case failed.
        floor: the least possible time; None if the case failed.
        peers: the timings of other libraries by name.
    """

    dtype: str
    kronop: Timing = field(default_factory=Timing)
    floor: SomeFloor | None = None
    peers: dict[str, Timing] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The case, as lines below the table name it."""
        raise NotImplementedError

    @property
    def names(self) -> list[str]:
        """The cells of the table that say which case it is."""
        raise NotImplementedError

    @property
    def figures(self) -> list[str]:
        """The cells that say what was measured, unless the case failed."""
        raise NotImplementedError

    @property
    def share(self) -> float | None:
        """The share of the roofline that kronop reaches: floor over time."""
        return self.floor.ms / self.kronop.ms if self.floor and self.kronop.ms else None

    @property
    def times(self) -> list[str]:
        """The cells of kronop's times."""
        return [milliseconds(self.kronop.ms), microseconds(self.kronop.graph_ms)]

    def beside(self, peer: Timing) -> str:
        """A peer's cell: its time, and that time over kronop's."""
        if peer.ms is None or not self.kronop.ms:
            return "-"
        mark = "" if peer.error != float("inf") else " wrong"
        return f"{milliseconds(peer.ms)} ({peer.ms / self.kronop.ms:.2f}x){mark}"

    def as_json(self) -> dict[str, object]:
        """Everything that was measured."""
        raise NotImplementedError

    def row(self, table: Table) -> str:
        """A line of the table; for a failed case it gives the reason."""
        if self.floor is None or self.share is None:
            return table.failed(self.names, self.kronop.reason)
        return table.line([*self.names, *self.figures, *map(self.beside, self.peers.values())])


SomeMeasured = TypeVar("SomeMeasured", bound=Measured[AnyFloor])


def attempted(result: SomeMeasured, setting: Setting, measure: Callable[[], None]) -> SomeMeasured:
    """The result, which `measure` fills in; if that fails, it has the reason."""
    try:
        measure()
    except (KronopError, MemoryError, RuntimeError) as error:
        # torch raises RuntimeError for most failures, also if memory runs out.
        result.kronop.reason = first_line(error)
    setting.arrays.release()
    return result


def compared(
    name: str,
    result: Measured[AnyFloor],
    setting: Setting,
    calls_of: Callable[[], list[Call]],
    error_of: Callable[[Tensor], float],
) -> dict[str, list[Call]]:
    """{name: a peer's calls} after a check of its result; empty, with a reason in its timing, if
    the peer fails."""
    timing = result.peers[name] = Timing()
    try:
        calls = calls_of()
        if len(calls) > 1:
            calls = keeping(calls)
        timing.error = error_of(calls[0]())
    except Exception as error:  # A peer may fail in any way; the others are still timed.
        timing.reason = first_line(error)
        setting.arrays.release()
        return {}
    return {name: calls}


def time_together(
    variants: dict[str, list[Call]],
    result: Measured[AnyFloor],
    setting: Setting,
    *,
    moved: int,
    graph: bool,
    own: Container[str] = ("kronop",),
    counts: Mapping[str, int] | None = None,
) -> dict[str, float]:
    """The milliseconds of all variants; if not all of them fit in memory together, only of those in
    `own`. Fills in the result's timings.

    Args:
        moved: useful bytes of a call.
        graph: whether to time every call inside a CUDA graph too, not only short ones.
        counts: rounds of each variant; None for as many as the setting has.
    """
    timings = {"kronop": result.kronop, **result.peers}
    arrays, rounds = setting.arrays, setting.repeats if counts is None else counts
    flush = arrays.flush if needs_flush(moved) else None
    settle = settle_seconds(arrays.device, flush)
    try:
        times = medians(variants, setting.clock, rounds, flush, settle)
    except (MemoryError, RuntimeError) as error:
        others = [name for name in variants if name not in own]
        if not others:
            raise
        for name in others:
            timings[name].reason = f"when timed: {first_line(error)}"
            del variants[name]
        arrays.release()
        times = medians(variants, setting.clock, rounds, flush, settle)
    for name in times.keys() & timings.keys():
        repeats = setting.repeats if counts is None else counts[name]
        fill(timings[name], times[name], variants[name], setting, repeats, graph=graph)
    return times


def fill(
    timing: Timing, ms: float, calls: list[Call], setting: Setting, repeats: int, *, graph: bool
) -> None:
    """Fills in a measured time, and on a GPU that inside a CUDA graph, of short calls or of all."""
    timing.ms = ms
    if setting.arrays.device == "cuda" and (graph or ms < SHORT_MS):
        try:
            timing.graph_ms = graph_milliseconds(calls, repeats)
        except Exception as error:  # A peer may do things that CUDA can't capture.
            timing.reason = f"not captured: {first_line(error)}"


def probe(call: Call, clock: Clock, budget_ms: float) -> float:
    """Milliseconds of a call, to choose the number of rounds."""
    ms = clock.milliseconds(call, _PROBE_LEAD)
    if ms > budget_ms:  # This will be its only time, so the cost of a first call must not count.
        ms = clock.milliseconds(call, _PROBE_LEAD)
    return ms


def rounds_within(budget_ms: float, ms: float, most: int) -> int:
    """The number of rounds of a call of `ms` that together take about `budget_ms`."""
    return max(min(most, int(budget_ms / ms)), LEAST_ROUNDS)


def first_line(error: BaseException) -> str:
    """The reason of a failure, in one line."""
    if "OutOfMemory" in type(error).__name__ or isinstance(error, MemoryError):
        return OUT_OF_MEMORY
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def need(package: str) -> None:
    """Raises PeerUnavailableError unless the package is installed."""
    if importlib.util.find_spec(package) is None:
        raise PeerUnavailableError("not installed")
