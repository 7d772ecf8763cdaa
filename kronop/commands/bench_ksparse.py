"""Kronecker-sparse products of the paper's grid, with every algorithm of the layer."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping, Sequence

import kronop
from kronop.bench import (
    duration,
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
from kronop.bench.output import check_folders
from kronop.bench.patterns import Case, Pattern
from kronop.bench.protocol import clock_for
from kronop.bench.rows import Row
from kronop.descriptions.datatype import TENSOR_TYPES
from kronop.errors import ArgumentError, DeviceError
from kronop.progress import Progress

DTYPES = ("float32", "float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2", "int8")
# A CPU is timed with fewer rows: with the paper's, the grid's largest products take 10^12
# operations and more.
_BATCHES = {"cuda": patterns.BATCH, "cpu": 256}


# On two cores of an Intel Xeon with AVX-512, 20 cases took 132 s: 4 s each, and another 6 s for
# those whose dense matrix makes 1.4e11 operations. On an H100 five cases took 40 s, 9 s of them for
# 1.4e13 operations of that kind. So it is all algorithms' operations that count here.
_PACES = {"cpu": duration.Pace(4.2, 1.2e10), "cuda": duration.Pace(6, 2e12)}
_FEW = 60
EXAMPLES = {
    "bench ksparse --patterns 6,64,64,1 --dtype float32": "one pattern on this CPU",
    "bench ksparse --sample 60 --csv sample.csv": "60 patterns of the grid, kept in a file",
    "bench ksparse --summary sample.csv": "the figures of such a file",
}


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
    which.add_argument(
        "--patterns",
        nargs="+",
        metavar="SHAPE",
        help="these, not the grid: 6,64,64,1, or with rows 256:6,64,64,1",
    )
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
            "benchmark",
            expected="a time of every case",
            got=f"{len(failed)} without",
            hint="the summary says why",
        )


def _check(options: argparse.Namespace) -> None:
    if options.batch is not None:
        raise ArgumentError(
            "--batch",
            expected="--rows, as in all commands",
            got=f"--batch {options.batch}",
            hint=f"write --rows {options.batch}",
        )
    for name in ("repeats", "rows"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ArgumentError(f"--{name}", expected="at least 1", got=value, hint="see --help")
    narrow = [dtype for dtype in options.dtype if TENSOR_TYPES[dtype].bytes == 1]
    if options.backward and narrow:
        raise ArgumentError(
            "--backward",
            expected="types that have gradients",
            got=", ".join(narrow),
            hint="time them forward alone",
        )


def _existing(path: str) -> list[Row]:
    found = rows.read(path)
    if not found:
        raise ArgumentError(
            "--summary", expected="a CSV file with rows", got=path, hint="measure first"
        )
    return found


def _chosen(options: argparse.Namespace) -> list[tuple[int | None, Pattern]]:
    """(M or None, the pattern) of every product."""
    if options.patterns:
        return patterns.parse(options.patterns)
    return _without_rows(
        patterns.grid() if options.sample is None else patterns.sample(options.sample)
    )


def _without_rows(chosen: Sequence[Pattern]) -> list[tuple[int | None, Pattern]]:
    return [(None, pattern) for pattern in chosen]


def _cases(options: argparse.Namespace, chosen: Sequence[tuple[int | None, Pattern]]) -> list[Case]:
    return [
        Case(
            pattern=pattern,
            dtype=dtype,
            layout=layout,
            batch=options.rows or rows or _BATCHES[options.device],
            backward=options.backward,
        )
        for dtype in options.dtype
        for layout in options.layouts
        for rows, pattern in chosen
    ]


def _run(options: argparse.Namespace, known: Sequence[Row]) -> list[Row]:
    """The rows of the chosen cases, in order: known rows, and rows that are measured now."""
    cases, algorithms = _cases(options, _chosen(options)), list(dict.fromkeys(options.algorithms))
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
        warn_of_load(options.device)
        _announce(options, missing)
        setting = _prepare(options, arrays, list(missing))
        print(layer_report.columns(algorithms))
    with Progress(len(missing)) as progress:
        for case, names in missing.items():
            progress.begin(str(case))
            measured = layer_case.measure(case, names, setting, progress.tell)
            progress.advance()
            there |= {row.key: row for row in measured}
            if options.csv:
                rows.append(options.csv, measured)
            keys = [rows.key_of(device, case, name) for name in algorithms]
            if whole := [there[key] for key in keys if key in there]:
                progress.print(layer_report.line(whole))
            layer_case.settle(setting)
    return [there[rows.key_of(device, case, name)] for case in cases for name in algorithms]


def _announce(options: argparse.Namespace, missing: Mapping[Case, Sequence[str]]) -> None:
    seconds = _seconds(options, missing)
    is_grid = options.sample is None and options.patterns is None
    few = dict.fromkeys(_cases(options, _without_rows(patterns.sample(_FEW))), options.algorithms)
    shorter = f"--sample {_FEW} takes about {duration.text(_seconds(options, few))}"
    duration.announce(len(missing), "cases", seconds, shorter if is_grid else "")


def _seconds(options: argparse.Namespace, cases: Mapping[Case, Sequence[str]]) -> float:
    operations = (
        sum(case.operations / (case.pattern.density if name == "dense" else 1) for name in names)
        for case, names in cases.items()
    )
    return _PACES[options.device].of(operations, options.device)


def _prepare(options: argparse.Namespace, arrays: Arrays, cases: Sequence[Case]) -> Setting:
    if layers.OURS in options.algorithms:
        warm.compile_all(cases, options.device)
    clock = clock_for(options.device)
    ceilings = roofline.measure(arrays, clock, options.dtype)
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
