"""Calls from several threads share the CPUs."""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import kronop
from kronop import compiler
from kronop.artifacts import Language, Launch, Source
from kronop.compiler import host_kernel
from kronop.target import Target

_INCLUDE = Path(kronop.__file__).parent / "emit" / "x86" / "include"
# How often each share runs, then the OpenMP threads that ran them.
_PROBE = """
#include <omp.h>
#include "kronop_x86/parallel.hpp"
struct Parameters { long long* counts; long long shares; };
extern "C" int probe(const void* parameters, int alone) {
  const auto& p = *static_cast<const Parameters*>(parameters);
  const auto count = [&](long long share, long long first, long long end) {
    p.counts[share] += end - first;
    if (share == 0) p.counts[p.shares] = omp_get_num_threads();
  };
  kronop::share_out(p.shares, p.shares, alone != 0, count);
  return 0;
}
"""
Probe = Callable[[int], int]


@pytest.fixture
def probe(own_cache: None) -> Iterator[Probe]:
    """Runs so many shares, each of which has to run once; on how many threads they ran."""
    target = Target.parse("x86")
    if "-fopenmp" not in compiler.build._HOST_COMPILER.flags(target):
        pytest.skip("the compiler has no OpenMP")
    source = Source(
        entry="probe", text=_PROBE, language=Language.CXX, include_directories=(str(_INCLUDE),)
    )
    kernel = compiler.load(compiler.compile_sources([source], target)[0], target)

    def run(shares: int) -> int:
        counts = (ctypes.c_longlong * (shares + 1))()
        packed = struct.pack("Qq", ctypes.addressof(counts), shares)
        kernel.bind(Launch(step=0, parameters=packed))(0)
        assert list(counts[:shares]) == [1] * shares
        return counts[shares]

    crew = host_kernel._crew
    before = crew.cpus
    yield run
    crew.cpus, crew.calls, crew.threads = before, 0, 0


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
    crew = host_kernel._crew
    crew.cpus, crew.calls, crew.threads = 8, calls, threads
    assert probe(wanted) == taken
    assert (crew.calls, crew.threads) == (calls, threads)


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
