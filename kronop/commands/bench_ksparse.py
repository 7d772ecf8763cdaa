"""Kronecker-sparse products of the paper's grid, with every algorithm of the layer."""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Sequence

import kronop
from kronop.bench import (
    layer_case,
    layer_report,
    layers,
    patterns,
    plot,
    report,
    roofline,
    rows,
    summary,
    warm,
)
from kronop.bench.arrays import Arrays, arrays_for
from kronop.bench.layer_case import Setting
from kronop.bench.load import warn_of_load
from kronop.bench.output import Progress, check_folders
from kronop.bench.patterns import Case
from kronop.bench.protocol import clock_for
from kronop.bench.rows import Row
from kronop.descriptions.datatype import TENSOR_TYPES
from kronop.errors import ArgumentError, DeviceError, mismatch

DTYPES = ("float32", "float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2", "int8")
# A CPU is timed with fewer rows: with the paper's, the grid's largest products take 10^12
# operations and more.
_BATCHES = {"cuda": patterns.BATCH, "cpu": 256}


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--dtype", nargs="+", choices=DTYPES, default=["float32", "float16"])
    add("--layouts", nargs="+", choices=patterns.LAYOUTS, default=list(patterns.LAYOUTS))
    add("--algorithms", nargs="+", choices=layers.ALGORITHMS, default=list(layers.ALGORITHMS))
    add("--rows", type=int, metavar="M", help="rows of X (default: 25088, on a CPU 256)")
    add("--batch", help=argparse.SUPPRESS)  # What --rows was called.
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--sample", type=int, metavar="N", help="only N patterns of the grid")
    which.add_argument("--patterns", nargs="+", metavar="a,b,c,d", help="these, not the grid")
    which.add_argument("--summary", metavar="FILE.csv", help="measure nothing: tell what is there")
    add("--backward", action="store_true", help="time forward + backward")
    add("--repeats", type=int, default=15, help="rounds of timing at most (default 15)")
    add("--csv", metavar="FILE.csv", help="add what is measured; what is there is not repeated")
    add("--plot", metavar="FILE.png", help="draw speed-ups over intensity (needs matplotlib)")


def execute(options: argparse.Namespace) -> None:
    """Prints a line for each case as soon as it is measured, then the summary.

    Raises:
        ArgumentError: options are invalid, or the file to summarize has no rows.
        DeviceError: the GPU stopped answering, or a case has no time for kronop.
    """
    check_folders(options.csv, options.plot)
    if options.plot:
        plot.check(options.plot)
    if options.summary:
        _conclude(options, _existing(options.summary))
        return
    _check(options)
    known = rows.read(options.csv) if options.csv else []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse .* support is in beta")
        found = _run(options, known)
    print()
    _conclude(options, found)
    failed = [row for row in found if row.algorithm == layers.OURS and row.ms is None]
    if failed:
        raise DeviceError(
            mismatch(
                "benchmark",
                expected="a time of every case",
                got=f"{len(failed)} without",
                hint="the summary says why",
            )
        )


def _check(options: argparse.Namespace) -> None:
    if options.batch is not None:
        raise ArgumentError(
            mismatch(
                "--batch",
                expected="--rows, as in all commands",
                got=f"--batch {options.batch}",
                hint=f"write --rows {options.batch}",
            )
        )
    for name in ("repeats", "rows"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ArgumentError(
                mismatch(f"--{name}", expected="at least 1", got=value, hint="see --help")
            )
    narrow = [dtype for dtype in options.dtype if TENSOR_TYPES[dtype].bytes == 1]
    if options.backward and narrow:
        raise ArgumentError(
            mismatch(
                "--backward",
                expected="types that have gradients",
                got=", ".join(narrow),
                hint="time them forward alone",
            )
        )


def _existing(path: str) -> list[Row]:
    found = rows.read(path)
    if not found:
        raise ArgumentError(
            mismatch("--summary", expected="a CSV file with rows", got=path, hint="measure first")
        )
    return found


def _cases(options: argparse.Namespace) -> list[Case]:
    if options.patterns:
        chosen = patterns.parse(options.patterns)
    else:
        chosen = patterns.grid() if options.sample is None else patterns.sample(options.sample)
    batch = options.rows or _BATCHES[options.device]
    return [
        Case(pattern=p, dtype=dtype, layout=layout, batch=batch, backward=options.backward)
        for dtype in options.dtype
        for layout in options.layouts
        for p in chosen
    ]


def _run(options: argparse.Namespace, known: Sequence[Row]) -> list[Row]:
    """The rows of the chosen cases, in order: known rows, and rows that are measured now."""
    cases, algorithms = _cases(options), list(dict.fromkeys(options.algorithms))
    arrays = arrays_for(options.device, torch_for="bench ksparse, which times torch's layers")
    device = str(arrays.describe()["device"])
    there = {row.key: row for row in known}
    missing = {
        case: names
        for case in cases
        if (names := [a for a in algorithms if rows.key_of(device, case, a) not in there])
    }
    print(f"{len(cases)} cases, {len(cases) - len(missing)} of them measured before", flush=True)
    if missing:
        setting = _prepare(options, arrays, list(missing))
        print(layer_report.columns(algorithms))
    began = time.monotonic()
    for index, (case, names) in enumerate(missing.items()):
        progress = Progress(f"{index + 1}/{len(missing)}{_left(began, index, missing)} {case}")
        measured = layer_case.measure(case, names, setting, progress.tell)
        progress.clear()
        there |= {row.key: row for row in measured}
        if options.csv:
            rows.append(options.csv, measured)
        keys = [rows.key_of(device, case, name) for name in algorithms]
        if whole := [there[key] for key in keys if key in there]:
            print(layer_report.line(whole), flush=True)
        layer_case.settle(setting)
    return [there[rows.key_of(device, case, name)] for case in cases for name in algorithms]


def _left(began: float, done: int, missing: dict[Case, list[str]]) -> str:
    """The estimated time that the remaining cases take, for the progress line."""
    if not done:
        return ""
    minutes = (time.monotonic() - began) / done * (len(missing) - done) / 60
    return f", {minutes:.0f} min left" if minutes >= 1 else ""


def _prepare(options: argparse.Namespace, arrays: Arrays, cases: Sequence[Case]) -> Setting:
    warn_of_load(options.device)
    progress = Progress("preparing")
    if layers.OURS in options.algorithms:
        warm.compile_all(cases, options.device, progress.tell)
    progress.tell("ceilings: copy and matrix products")
    clock = clock_for(options.device)
    ceilings = roofline.measure(arrays, clock, options.dtype)
    progress.clear()
    machine = arrays.describe()
    print(report.head(ceilings, {"kronop": kronop.__version__, **machine}))
    return Setting(
        arrays=arrays,
        clock=clock,
        ceilings=ceilings,
        repeats=options.repeats,
        device=str(machine["device"]),
        versions=f"kronop {kronop.__version__} torch {machine['torch']}",
    )


def _conclude(options: argparse.Namespace, found: Sequence[Row]) -> None:
    for item in summary.summaries(found):
        print(summary.text(item))
    if options.plot:
        plot.save_gains(options.plot, found)
