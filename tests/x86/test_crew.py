"""Calls from several threads share the CPUs."""

from __future__ import annotations

import ctypes
import itertools
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kronop
from kronop import compiler
from kronop.artifacts import Language, Launch, Source
from kronop.compiler import host_kernel
from kronop.cpus import cpu_count
from kronop.target import Target

_INCLUDE = Path(kronop.__file__).parent / "emit" / "x86" / "include"
# How often each share runs, then the OpenMP threads that ran them. A list tells what time it is to
# the thread that calls.
_PROBE = """
#include <time.h>
static int clock_of_test(clockid_t, timespec* time);
#define clock_gettime clock_of_test
#include "kronop_x86/parallel.hpp"
struct Parameters { long long* counts; long long shares; long long meet; const long long* times; };
static const long long* times;
static int clock_of_test(clockid_t, timespec* time) {
  const long long value = omp_get_thread_num() == 0 ? *times++ : 0;
  *time = {value / 1000000000, value % 1000000000};
  return 0;
}
extern "C" int probe(const void* parameters, int alone) {
  const auto& p = *static_cast<const Parameters*>(parameters);
  times = p.times;
  const auto count = [&](long long share, long long first, long long end) {
    p.counts[share] += end - first;
    if (share == 0) p.counts[p.shares] = omp_get_num_threads();
  };
  if (!p.meet) {
    kronop::share_out(p.shares, p.shares, alone != 0, count);
    return 0;
  }
  kronop::as_team(p.shares, alone != 0, [&](long long share, long long shares) {
    for (long long i = share; i < p.shares; i += shares) count(i, i, i + 1);
    if (shares > 1) kronop::wait_for_team();
  });
  return 0;
}
"""
_MILLISECOND = 10**6
Probe = Callable[..., int]


@pytest.fixture
def probe(own_cache: None) -> Iterator[Probe]:
    """Runs so many shares, each of which has to run once; on how many threads they ran.

    `spans`: milliseconds from `begun` on until the thread that calls is at work, is done, and comes
    back; of five, the second ends and the third is its wait for the others in the middle.
    """
    target = Target.parse("x86")
    if "-fopenmp" not in compiler.build._HOST_COMPILER.flags(target):
        pytest.skip("the compiler has no OpenMP")
    source = Source(
        entry="probe", text=_PROBE, language=Language.CXX, include_directories=(str(_INCLUDE),)
    )
    kernel = compiler.load(compiler.compile_sources([source], target)[0], target)

    def run(shares: int, spans: Sequence[float] = (0,) * 5, begun: float = 0) -> int:
        counts = (ctypes.c_longlong * (shares + 1))()
        moments = [int(moment * _MILLISECOND) for moment in itertools.accumulate((begun, *spans))]
        times = (ctypes.c_longlong * len(moments))(*moments)
        addresses = ctypes.addressof(counts), ctypes.addressof(times)
        packed = struct.pack("QqqQ", addresses[0], shares, len(spans) == 5, addresses[1])
        kernel.bind(Launch(step=0, parameters=packed))(0)
        assert list(counts[:shares]) == [1] * shares
        return counts[shares]

    yield run
    _assemble(cpu_count())


def _assemble(cpus: int) -> Any:
    """The crew of a process that has run nothing, on so many CPUs."""
    crew = host_kernel._crew
    crew.cpus = crew.punctual = crew.latest = cpus
    crew.calls = crew.threads = crew.balance = crew.pause = crew.resumption = 0
    return crew


@pytest.mark.parametrize(
    ("calls", "threads", "wanted", "taken"),
    [
        (0, 0, 1, 1),
        (0, 0, 5, 5),
        (0, 0, 12, 8),  # Never more than there are CPUs.
        (1, 1, 12, 7),  # Those that the other call has left,
        (1, 8, 12, 4),  # and at least half where there are two,
        (3, 20, 12, 2),
        (3, 20, 1, 1),
        (9, 8, 12, 1),  # or one.
    ],
)
def test_a_call_takes_what_others_have_left(
    probe: Probe, calls: int, threads: int, wanted: int, taken: int
) -> None:
    crew = _assemble(8)
    crew.calls, crew.threads = calls, threads
    assert probe(wanted) == taken
    assert (crew.calls, crew.threads) == (calls, threads)


@pytest.mark.parametrize(
    ("spans", "balance"),
    [
        ((0, 0.1, 0), 0.1),
        ((0.3, 0.1, 0.5), 0.1),  # Less than a scheduler's slice.
        ((0, 9, 8), 1),
        ((0, 9, 10), None),
        ((10, 9, 0), None),
        ((0, 4, 8, 5, 0), 1),
        ((0, 4, 10, 5, 0), None),
        ((3, 4, 4, 5, 3), None),
    ],
)
def test_threads_are_late_where_waiting_takes_longer_than_work(
    probe: Probe, spans: Sequence[float], balance: float | None
) -> None:
    crew = _assemble(4)
    assert probe(4, spans) == 4
    assert crew.punctual == (2 if balance is None else 4)
    assert crew.balance == (balance or 0) * _MILLISECOND
    assert (crew.pause > 0) == (balance is None)


def test_work_in_time_pays_for_a_wait(probe: Probe) -> None:
    crew = _assemble(2)
    assert probe(2, (0, 300, 0)) == 2
    assert crew.balance == 50 * _MILLISECOND
    for left in (30, 10):
        assert probe(2, (0, 1, 21)) == 2
        assert (crew.punctual, crew.balance) == (2, left * _MILLISECOND)
    assert probe(2, (0, 1, 21)) == 2
    assert (crew.punctual, crew.balance) == (1, 0)


def test_calls_take_fewer_threads_until_none_is_late(probe: Probe) -> None:
    crew, late = _assemble(8), (0, 1, 10)
    assert probe(8, late, begun=100) == 8
    assert (crew.punctual, crew.pause) == (4, 40 * _MILLISECOND)
    assert probe(3, begun=150) == 3
    assert probe(8, begun=150) == 4
    assert probe(8, late, begun=150) == 4
    assert (crew.punctual, crew.pause) == (2, 80 * _MILLISECOND)
    # After the pause of 161 + 80.
    assert [probe(8, begun=begun) for begun in (240, 242, 243, 244, 245)] == [2, 4, 4, 8, 8]
    assert probe(8, late, begun=300) == 8
    assert (crew.punctual, crew.pause) == (4, 160 * _MILLISECOND)
    assert probe(8, begun=2000) == 8
    assert probe(8, late, begun=2001) == 8
    assert (crew.punctual, crew.pause) == (4, 40 * _MILLISECOND)


def test_a_call_that_starts_threads_is_not_judged(probe: Probe) -> None:
    crew, late = _assemble(8), (0, 1, 10)
    crew.latest = 4
    assert probe(8, late) == 8
    assert (crew.punctual, crew.pause) == (8, 0)
    assert probe(8, late) == 8
    assert crew.punctual == 4


def test_a_pause_is_a_second_at_most(probe: Probe) -> None:
    crew = _assemble(2)
    assert probe(2, (0, 1, 700)) == 2
    assert (crew.punctual, crew.pause) == (1, 1000 * _MILLISECOND)
    assert [probe(2, begun=1700), probe(2, begun=1702)] == [1, 2]


def test_nobody_is_left_in_the_crew() -> None:
    """After calls from more threads than there are CPUs, which all have the right result."""
    factors = [np.random.default_rng(1).standard_normal((8, 8)) for _ in range(3)]
    xs = np.random.default_rng(2).standard_normal((6, 256, 512))
    expected = np.stack([kronop.gemkm(x, factors) for x in xs])
    found = np.full((6, 20, *expected.shape[1:]), np.nan)

    def work(index: int) -> None:
        for turn in range(20):
            kronop.gemkm(xs[index], factors, out=found[index, turn])

    threads = [threading.Thread(target=work, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.array_equal(found, np.broadcast_to(expected[:, None], found.shape))
    assert (host_kernel._crew.calls, host_kernel._crew.threads) == (0, 0)
