"""Keeps the processes of the random test running until the time is over, and sums up."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

# The command line of a process, given its place, its first case and its seconds.
Command = Callable[[int, int, float], list[str]]

_PROGRESS = 15.0
# After so many failures in a row before the first case, a process is not started again.
_MOST_STARTS = 3
_TAIL = 1500


@dataclass(slots=True)
class Summary:
    """The results of all processes.

    Attributes:
        cases, calls: how many cases and calls have ended.
        bad: (name of the case, what was wrong) for each failure.
        restarts: how many processes were started in place of one that had died.
        styles: how many steps of each style were run.
    """

    cases: int = 0
    calls: int = 0
    bad: list[tuple[str, str]] = field(default_factory=list)
    restarts: int = 0
    styles: Counter[str] = field(default_factory=Counter)


class _Process:
    """One process, its place among the others, and what it is doing."""

    def __init__(
        self, place: int, start: int, arguments: list[str], messages: queue.Queue[Any]
    ) -> None:
        self.place, self.next = place, start
        self.case, self.since = "", time.monotonic()
        self.has_begun = False
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._child = subprocess.Popen(
            arguments,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        threading.Thread(target=self._read, args=(messages,), daemon=True).start()

    def _read(self, messages: queue.Queue[Any]) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            with contextlib.suppress(ValueError):
                messages.put((self, json.loads(line)))
        messages.put((self, None))

    def status(self) -> int:
        """Waits for the process to end; its exit status."""
        return self._child.wait()

    def kill(self) -> None:
        """Kills the process and the compilers that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)

    def tail(self) -> str:
        """The end of its output on standard error."""
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - _TAIL))
        return self._errors.read().decode(errors="replace").strip()


class Supervisor:
    """Runs processes side by side.

    Args:
        command: the command line of a process.
        processes: how many processes run at the same time.
        seconds: how long they run.
        case_seconds: a case that takes longer than this counts as hanging.
        grace_seconds: how much later than `seconds` the last cases may end.
        tell: prints a line.
    """

    def __init__(
        self,
        command: Command,
        processes: int,
        seconds: float,
        *,
        case_seconds: float = 300.0,
        grace_seconds: float = 20.0,
        tell: Callable[[str], None] = print,
    ) -> None:
        self._command, self._count = command, processes
        self._case_seconds, self._grace, self._tell = case_seconds, grace_seconds, tell
        self._begin = time.monotonic()
        self._end = self._begin + seconds
        self._messages: queue.Queue[Any] = queue.Queue()
        self._running: dict[int, _Process] = {}
        self._failed_starts: Counter[int] = Counter()
        self.summary = Summary()

    def run(self) -> Summary:
        """Runs until the time is over. Cases that still run after the grace time are killed, which
        does not count as a failure."""
        for place in range(self._count):
            self._start(place, 0)
        told = self._begin
        try:
            while self._running and time.monotonic() < self._end + self._grace:
                self._step()
                if time.monotonic() - told >= _PROGRESS:
                    told = time.monotonic()
                    self._tell(self._progress())
        finally:
            for process in self._running.values():
                process.kill()
        return self.summary

    def _start(self, place: int, start: int) -> None:
        left = self._end - time.monotonic()
        arguments = self._command(place, start, max(0.0, left))
        self._running[place] = _Process(place, start, arguments, self._messages)

    def _step(self) -> None:
        """Handles one message if there is one, then kills processes whose case hangs."""
        try:
            process, message = self._messages.get(timeout=0.2)
        except queue.Empty:
            self._end_what_hangs()
            return
        if message is None:
            self._ended(process)
        elif message["event"] == "begin":
            process.case, process.since, process.has_begun = message["case"], time.monotonic(), True
            process.next = int(message["case"].rpartition(".")[2]) + 1
        else:
            process.case = ""
            self.summary.cases += 1
            self.summary.calls += message["calls"]
            self.summary.styles.update(message["styles"])
            for trouble in message["troubles"]:
                self._bad(message["case"], trouble)
        self._end_what_hangs()

    def _bad(self, case: str, trouble: str) -> None:
        self.summary.bad.append((case, trouble))
        self._tell(f"BAD {case}: {trouble}")

    def _end_what_hangs(self) -> None:
        for process in self._running.values():
            if process.case and time.monotonic() - process.since > self._case_seconds:
                self._bad(process.case, f"hangs: ended after {self._case_seconds:.0f} s")
                process.case = ""
                process.kill()

    def _ended(self, process: _Process) -> None:
        """Records the case in which a process died, and starts another one with the next case."""
        status = process.status()
        del self._running[process.place]
        if process.case:
            self._bad(process.case, f"its process ended with status {status}: {process.tail()}")
        elif status and not process.has_begun:
            self._failed_starts[process.place] += 1
            if self._failed_starts[process.place] >= _MOST_STARTS:
                self._bad(f"process {process.place}", f"does not start: {process.tail()}")
                return
        if process.has_begun:
            self._failed_starts[process.place] = 0
        if time.monotonic() < self._end:
            self.summary.restarts += bool(status)
            self._start(process.place, process.next)

    def _progress(self) -> str:
        seconds, found = time.monotonic() - self._begin, self.summary
        return (
            f"{seconds:6.0f} s: {found.cases} cases, {found.calls} calls, {len(found.bad)} bad,"
            f" {found.restarts} restarts"
        )
