"""What the commands of all families' benchmarks do alike: checks, a line for each case, files."""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kronop.bench import report
from kronop.bench.arrays import Arrays, arrays_for
from kronop.bench.duration import Pace, announce
from kronop.bench.load import warn_of_load
from kronop.bench.output import check_folders
from kronop.bench.protocol import clock_for
from kronop.bench.table import Table
from kronop.bench.timing import AnyFloor, Measured, Setting, SomeMeasured, attempted
from kronop.errors import ArgumentError, DeviceError
from kronop.progress import Progress

Trial = tuple[str, Callable[[Callable[[str], None]], SomeMeasured]]
"""A case's name and how it is measured: by a function of what tells what is being done."""


def check(options: argparse.Namespace, *files: str | None) -> None:
    """Checks the number of repeats and the output files before anything is measured."""
    if options.repeats < 1:
        raise ArgumentError(
            "--repeats", expected="at least 1", got=options.repeats, hint="15 is usual"
        )
    check_folders(*files)


def prepare(
    options: argparse.Namespace,
    operations: Sequence[float],
    paces: Mapping[str, Pace],
    torch_for: str = "",
) -> Arrays:
    """The arrays of the device, after a warning if that is busy, and how long the run takes.

    Args:
        operations: of each case.
        paces: by device.
        torch_for: as of `arrays_for`.
    """
    arrays = arrays_for(options.device, torch_for=torch_for)
    warn_of_load(options.device)
    seconds = paces[options.device].of(operations, options.device, options.repeats)
    announce(len(operations), "cases", seconds)
    return arrays


def measure(
    trials: Sequence[Trial[SomeMeasured]],
    table: Table,
    lines: str | None = None,
    *,
    noted: bool = True,
) -> list[SomeMeasured]:
    """Measures the cases, and prints a line for each as soon as it is measured.

    Args:
        lines: a file that gets a line of JSON for each case.
        noted: whether notes follow the table.
    """
    print(table.heading(), flush=True)
    results: list[SomeMeasured] = []
    with Progress(len(trials)) as progress:
        for name, measured in trials:
            progress.begin(name)
            results.append(measured(progress.tell))
            progress.advance()
            progress.print(results[-1].row(table))
            if lines:
                write_line(lines, results[-1].as_json())
    for note in report.notes(results) if noted else ():
        print(note)
    return results


def beside_torch(
    options: argparse.Namespace,
    cases: Sequence[SomeMeasured],
    operations: Sequence[float],
    way: Callable[[SomeMeasured, Setting], None],
    paces: Mapping[str, Pace],
    table: Table,
    peers: str,
    *,
    noted: bool = True,
) -> None:
    """Measures cases whose peers are functions of torch, and prints a line for each.

    Args:
        operations, paces: as of `prepare`.
        way: measures a case and fills in its result.
        peers: the benchmark and what it is beside, for the message that torch is missing.
        noted: as of `measure`.

    Raises:
        DeviceError: some cases failed; the table says why.
    """
    arrays, lines = prepare(options, operations, paces, peers), getattr(options, "json", None)
    setting = Setting(arrays=arrays, clock=clock_for(options.device), repeats=options.repeats)
    machine = report.machine_of(arrays)
    print(report.machine_text(machine))
    write_line(lines, {"machine": machine}, "w")

    def trial(case: SomeMeasured, tell: Callable[[str], None]) -> SomeMeasured:
        tell("compiling and timing")
        return attempted(case, setting, lambda: way(case, setting))

    trials = [(case.label, functools.partial(trial, case)) for case in cases]
    check_all_ran(measure(trials, table, lines, noted=noted))


def write_line(path: str | None, line: Mapping[str, object], mode: str = "a") -> None:
    """Writes a line of JSON, if there is a file to write."""
    if path:
        with Path(path).open(mode) as stream:
            stream.write(json.dumps(line, allow_nan=False) + "\n")


def check_all_ran(results: Sequence[Measured[AnyFloor]]) -> None:
    """Raises DeviceError if some cases failed."""
    failed = [result.label for result in results if result.floor is None]
    if failed:
        raise DeviceError(
            "benchmark",
            expected=f"{len(results)} results",
            got=f"{len(results) - len(failed)}; {', '.join(failed)} failed",
            hint="the table says why",
        )
