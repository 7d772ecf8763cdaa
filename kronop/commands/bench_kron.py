"""Kronecker products timed against their roofline and against what else is installed."""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Sequence
from pathlib import Path

from kronop.bench import case, peers, plot, report, roofline, run, shapes
from kronop.bench.arrays import Arrays
from kronop.bench.duration import Pace
from kronop.bench.protocol import clock_for

# The default cases took 128 s on two cores of an Intel Xeon with AVX-512, and 88 s on an H100.
_PACES = {"cpu": Pace(5, 9e8), "cuda": Pace(2.5, 4e11)}
EXAMPLES = {
    "bench kron --shapes 256:8^3 --dtype float32": "one product on this CPU, in seconds",
    "bench kron --shapes 8^5 --rows 1 256 --json cpu.json": "in two types, kept for `bench plot`",
    "bench kron --device cuda --dtype float16 --plot roof.png": "twelve on a GPU, and a picture",
}


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--dtype", nargs="+", choices=case.DTYPES, default=["float32", "float64"])
    add("--shapes", nargs="+", metavar="SHAPE", help="rows:factors as 1024:8^5 16:4x3^2,7")
    add("--rows", nargs="+", type=int, default=[], metavar="M", help="instead of each shape's own")
    add("--passes", choices=case.PASSES, default="fit", help="of the floor (default: what fits)")
    add("--peers", nargs="*", choices=peers.NAMES, default=list(peers.NAMES))
    add(
        "--graph",
        action="store_true",
        help="replay every case in a CUDA graph, not only short ones",
    )
    add("--repeats", type=int, default=15, help="rounds of timing (default 15)")
    add("--json", metavar="FILE", help="write everything that was measured")
    add("--plot", metavar="FILE.png", help="draw the roofline (needs matplotlib)")


def execute(options: argparse.Namespace) -> None:
    """Prints a line for each case as soon as it is measured.

    Raises:
        DeviceError: some cases failed; the table says why.
    """
    problems = shapes.parse_all(options.shapes or shapes.DEFAULTS[options.device], options.rows)
    run.check(options, options.json, options.plot)
    if options.plot:
        plot.check(options.plot)
    cases = [(shape, dtype) for dtype in options.dtype for shape in problems]
    arrays = run.prepare(options, [shape.operations for shape, _ in cases], _PACES)
    setting, machine = _setting(options, arrays), report.machine_of(arrays)
    print(report.head(setting.ceilings, machine))
    trials: list[run.Trial[case.Result]] = [
        (f"{shape.text} {dtype}", functools.partial(case.run, shape, dtype, setting))
        for shape, dtype in cases
    ]
    results = run.measure(trials, case.TABLE.beside(setting.peers))
    _write(options, results, setting.ceilings, machine)
    run.check_all_ran(results)


def _setting(options: argparse.Namespace, arrays: Arrays) -> case.Setting:
    clock = clock_for(options.device)
    return case.Setting(
        arrays=arrays,
        clock=clock,
        ceilings=roofline.measure(arrays, clock, options.dtype),
        peers=tuple(dict.fromkeys(options.peers)),
        repeats=options.repeats,
        passes=options.passes,
        graph=options.graph,
    )


def _write(
    options: argparse.Namespace,
    results: Sequence[case.Result],
    ceilings: roofline.Ceilings,
    machine: report.Told,
) -> None:
    if options.json:
        told = {
            "machine": machine,
            "repeats": options.repeats,
            "ceilings": report.ceilings_json(ceilings),
            "cases": [result.as_json() for result in results],
        }
        Path(options.json).write_text(json.dumps(told, indent=2, allow_nan=False) + "\n")
    if options.plot:
        title = f"Kronecker products on {machine['device']}"
        plot.save(options.plot, results, ceilings, title)
