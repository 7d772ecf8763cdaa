"""`supervisor`, with small programs in place of the random test's processes."""

from __future__ import annotations

import sys
import textwrap
import time

import pytest

from tests.fuzz.supervisor import Supervisor

_BEGIN = """
import json, os, signal, sys, time
place, start = int(sys.argv[1]), int(sys.argv[2])

def begin(index):
    tell(event="begin", case=f"7.{place}.{index}", about="a product")

def end(index, *troubles):
    case = f"7.{place}.{index}"
    tell(event="end", case=case, calls=3, troubles=troubles, styles={"kron_tile": 2})

def tell(**message):
    print(json.dumps(message), flush=True)

def fine(index):
    begin(index)
    end(index)
"""


class _Stopping(Supervisor):
    """A supervisor that stops as soon as its summary satisfies `until`."""

    until = staticmethod(lambda found: False)

    def _step(self) -> None:
        super()._step()
        if self.until(self.summary):
            self._end = -1e9


@pytest.fixture
def run(tmp_path):
    def call(body: str, until, processes: int = 1, seconds: float = 60.0, **options):
        program = tmp_path / "worker.py"
        program.write_text(_BEGIN + textwrap.dedent(body))

        def command(place: int, start: int, left: float) -> list[str]:
            return [sys.executable, "-S", str(program), str(place), str(start), str(left)]

        told: list[str] = []
        supervisor = _Stopping(command, processes, seconds, tell=told.append, **options)
        supervisor.until = until
        return supervisor.run(), told

    return call


def test_cases_calls_and_styles_of_all_processes_are_summed_up(run) -> None:
    body = "fine(0)\nend(1, 'wrong', 'wronger')\ntime.sleep(60)"
    found, told = run(body, lambda found: found.cases == 4, processes=2)
    assert (found.cases, found.calls, found.restarts) == (4, 12, 0)
    assert found.styles == {"kron_tile": 8}
    expected = [(f"7.{place}.1", what) for place in (0, 1) for what in ("wrong", "wronger")]
    assert sorted(found.bad) == sorted(expected)
    assert "BAD 7.0.1: wrong" in told


def test_a_process_that_dies_in_a_case_is_recorded_and_followed_by_another_one(run) -> None:
    body = """
    if start == 0:
        fine(0)
        begin(1)
        os.write(2, b"an illegal access")
        os.kill(os.getpid(), signal.SIGSEGV)
    fine(start)
    time.sleep(60)
    """
    found, _ = run(body, lambda found: found.cases == 2)
    ((case, trouble),) = found.bad
    assert case == "7.0.1"
    assert "status -11: an illegal access" in trouble
    assert (found.cases, found.restarts) == (2, 1)


def test_a_dead_context_ends_the_process_and_the_next_seed_goes_on(run) -> None:
    body = """
    begin(start)
    end(start, *["the context is dead"] * (start == 0))
    if start == 0:
        sys.exit(3)
    time.sleep(60)
    """
    found, _ = run(body, lambda found: found.cases == 2)
    assert found.bad == [("7.0.0", "the context is dead")]
    assert (found.cases, found.restarts) == (2, 1)


def test_a_process_that_had_its_share_is_followed_without_a_word(run) -> None:
    found, _ = run("fine(start)\nif start > 1: time.sleep(60)", lambda found: found.cases == 3)
    assert (found.cases, found.bad, found.restarts) == (3, [], 0)


def test_a_case_that_hangs_is_ended_and_recorded(run) -> None:
    body = "begin(start)\nif start: end(start)\ntime.sleep(60)"
    found, _ = run(body, lambda found: found.cases, case_seconds=0.3)
    assert found.bad == [("7.0.0", "hangs: ended after 0 s")]
    assert found.cases == 1


def test_a_process_that_does_not_start_is_given_up(run) -> None:
    began = time.monotonic()
    found, _ = run("sys.exit('no such module')", lambda found: False)
    assert time.monotonic() - began < 20
    ((name, trouble),) = found.bad
    assert name == "process 0"
    assert "no such module" in trouble


def test_the_time_is_kept(run) -> None:
    body = "fine(start)\nbegin(start + 1)\ntime.sleep(60)"
    began = time.monotonic()
    found, _ = run(body, lambda found: False, seconds=0.2, grace_seconds=0.2)
    assert time.monotonic() - began < 20
    assert found.bad == []
