"""Times of several libraries at the same work, and the reasons of those that have none."""

from __future__ import annotations

import importlib.util
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from kronop.bench.arrays import Arrays
from kronop.bench.protocol import (
    SHORT_MS,
    Call,
    Clock,
    graph_milliseconds,
    medians,
    needs_flush,
    settle_seconds,
)

LEAST_ROUNDS = 3
OUT_OF_MEMORY = "out of memory"
# Assumed host seconds of the first timed call, which only decides the number of rounds.
_PROBE_LEAD = 1e-3


class PeerUnavailableError(Exception):
    """A peer can't take part; the message says why."""


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


SomeFloor = TypeVar("SomeFloor", bound=AnyFloor)


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
    def share(self) -> float | None:
        """The share of the roofline that kronop reaches: floor over time."""
        return self.floor.ms / self.kronop.ms if self.floor and self.kronop.ms else None


def time_together(
    variants: dict[str, list[Call]],
    timings: Mapping[str, Timing],
    own: Container[str],
    arrays: Arrays,
    clock: Clock,
    repeats: int | Mapping[str, int],
    *,
    moved: int,
    graph: bool,
) -> dict[str, float]:
    """The milliseconds of all variants; if not all of them fit in memory together, only of those in
    `own`. Fills in `timings`, by name.

    Args:
        moved: useful bytes of a call.
        graph: whether to time every call inside a CUDA graph too, not only short ones.
    """
    flush = arrays.flush if needs_flush(moved) else None
    settle = settle_seconds(arrays.device, flush)
    try:
        times = medians(variants, clock, repeats, flush, settle)
    except (MemoryError, RuntimeError) as error:
        others = [name for name in variants if name not in own]
        if not others:
            raise
        for name in others:
            timings[name].reason = f"when timed: {first_line(error)}"
            del variants[name]
        arrays.release()
        times = medians(variants, clock, repeats, flush, settle)
    for name in times.keys() & timings.keys():
        timing, ms = timings[name], times[name]
        timing.ms = ms
        if arrays.device == "cuda" and (graph or ms < SHORT_MS):
            rounds = repeats if isinstance(repeats, int) else repeats[name]
            try:
                timing.graph_ms = graph_milliseconds(variants[name], rounds)
            except Exception as error:  # A peer may do things that CUDA can't capture.
                timing.reason = f"not captured: {first_line(error)}"
    return times


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
