"""How speeds are measured: rotating buffers, flushed caches, interleaved variants, medians.

A variant is a list of calls that do the same work on different buffers; they are called in turn, so
that no call finds its operands in a cache. Each round times every variant once, so that a machine
that warms up or slows down affects all of them alike.

On a CPU each compared library has threads of its own. When their work is done they spin for a while
in case there is more, on cores that the next variant needs. malloc is told to keep freed memory, so
that new results don't cost page faults; on a GPU torch's allocator does the same.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from kronop.machine import GPU_HERTZ

Call = Callable[[], Any]

# More than the largest cache of the machines that are timed.
ROTATED_BYTES = 256 << 20
MOST_SETS = 16
# Calls shorter than this are also timed inside a CUDA graph, because the launch from Python takes
# most of their time.
SHORT_MS = 0.05
# Longer than idle threads spin: OpenBLAS's for 27 ms at 2.5 GHz, OpenMP's for 10 or 15 ms.
_SPIN_SECONDS = 0.03
_GRAPH_CALLS = 20
# Options of glibc's mallopt.
_TRIM_THRESHOLD, _MOST_MAPPED = -1, -4
# The GPU spins for between these numbers of seconds while the host queues the timed calls.
_LEAST_LEAD, _MOST_LEAD = 1e-4, 5e-3


def keep_memory() -> None:
    """Tells glibc's malloc to keep freed memory; does nothing for other libraries.

    Otherwise each large result is made of new pages, which the system must clear first: torch's
    product of 128 blocks of 192 x 48 with 1568 columns took 74 ms, and 33 ms in kept memory.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MOST_MAPPED, 0)
        mallopt(_TRIM_THRESHOLD, -1)


class Clock(Protocol):
    """Times single calls."""

    def milliseconds(self, call: Call, lead: float) -> float:
        """The milliseconds of `call`, whose launch keeps the host busy for about `lead` seconds."""
        ...

    def wait(self) -> None:
        """Waits until all work that was started is done."""
        ...


class HostClock:
    """Wall time of calls that are done when they return."""

    def milliseconds(self, call: Call, lead: float) -> float:
        begin = time.perf_counter()
        call()
        return (time.perf_counter() - begin) * 1e3

    def wait(self) -> None:
        pass


class CudaClock:
    """Device time on torch's current stream, between two CUDA events."""

    def milliseconds(self, call: Call, lead: float) -> float:
        import torch

        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        # The GPU spins while the host launches, so that launch costs do not count as device time.
        seconds = min(max(2 * lead, _LEAST_LEAD), _MOST_LEAD)
        torch.cuda._sleep(int(seconds * GPU_HERTZ))
        begin.record()
        call()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end))

    def wait(self) -> None:
        import torch

        torch.cuda.synchronize()


def clock_for(device: str) -> Clock:
    """The clock of "cpu" or "cuda"."""
    return CudaClock() if device == "cuda" else HostClock()


def sets_for(bytes_per_call: int) -> int:
    """The number of sets of buffers to rotate: enough to exceed every cache, at most MOST_SETS."""
    return max(1, min(MOST_SETS, -(-ROTATED_BYTES // max(bytes_per_call, 1))))


def needs_flush(bytes_per_call: int) -> bool:
    """Whether even MOST_SETS sets of buffers fit in a cache."""
    return MOST_SETS * bytes_per_call < ROTATED_BYTES


def keeping(calls: Sequence[Call]) -> list[Call]:
    """The calls, each of which keeps its result until its next turn.

    Results then rotate among buffers, as operands do. A result that is freed at once would give its
    memory, which is in the caches, to the next call.
    """
    kept: list[object] = [None] * len(calls)

    def keep(index: int) -> object:
        kept[index] = None
        kept[index] = calls[index]()
        return kept[index]

    return [functools.partial(keep, index) for index in range(len(calls))]


def settle_seconds(device: str, flush: Call | None) -> float:
    """Seconds for which a variant runs untimed before each timed call, so that other libraries'
    threads stop spinning; 0 if there is a flush, which takes long enough itself."""
    return _SPIN_SECONDS if device == "cpu" and flush is None else 0.0


def medians(
    variants: Mapping[str, Sequence[Call]],
    clock: Clock,
    repeats: int | Mapping[str, int],
    flush: Call | None = None,
    settle: float = 0.0,
) -> dict[str, float]:
    """Median milliseconds of each variant; arguments as for `rounds`."""
    times = rounds(variants, clock, repeats, flush, settle)
    return {name: statistics.median(values) for name, values in times.items()}


def rounds(
    variants: Mapping[str, Sequence[Call]],
    clock: Clock,
    repeats: int | Mapping[str, int],
    flush: Call | None = None,
    settle: float = 0.0,
) -> dict[str, list[float]]:
    """Milliseconds of each variant in every round, after a warm-up.

    Args:
        variants: calls by name, one for each set of buffers.
        clock: the clock of the device that they run on.
        repeats: the number of rounds; every variant is timed once in each. If it is a mapping,
            each variant takes part in its own number of rounds only.
        flush: called, untimed, before each timed call; each variant must then have two calls.
        settle: seconds for which a variant runs untimed before each timed call, until the threads
            of other libraries sleep and its own are awake.
    """
    leads = {name: _warm_up(calls, clock) for name, calls in variants.items()}
    times: dict[str, list[float]] = {name: [] for name in variants}
    counts = dict.fromkeys(variants, repeats) if isinstance(repeats, int) else repeats
    for repeat in range(max(counts.values(), default=0)):
        for name, calls in variants.items():
            if repeat >= counts[name]:
                continue
            _run_for(settle, calls)
            if flush is not None:
                flush()
                # A flush also evicts code, and on a CPU the interpreter's data. The same work on
                # other buffers brings them back; without it a call of 9 us takes 26 to 54 us.
                calls[(repeat + 1) % len(calls)]()
            call = calls[repeat % len(calls)]
            times[name].append(clock.milliseconds(call, leads[name]))
    return times


def _run_for(seconds: float, calls: Sequence[Call]) -> None:
    end = time.perf_counter() + seconds
    for call in itertools.cycle(calls):
        if time.perf_counter() >= end:
            return
        call()


def _warm_up(calls: Sequence[Call], clock: Clock) -> float:
    """Runs every call of a variant once, because a first run may also prepare things; then returns
    the host's seconds of one more call."""
    for call in calls:
        call()
    clock.wait()
    begin = time.perf_counter()
    calls[-1]()
    seconds = time.perf_counter() - begin
    clock.wait()
    return seconds


def graph_milliseconds(calls: Sequence[Call], repeats: int, count: int = _GRAPH_CALLS) -> float:
    """Milliseconds of a call inside a replayed CUDA graph; its operands may be in the L2 cache.

    The graph has `count` calls, or one of each if there are more.

    Raises:
        RuntimeError: torch can't capture a call.
    """
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.current_stream().wait_stream(stream)
    count = max(count, len(calls))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for index in range(count):
            calls[index % len(calls)]()
    return medians({"graph": [graph.replay]}, CudaClock(), repeats)["graph"] / count
