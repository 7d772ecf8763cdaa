"""Distances, kernel matrices, their products and gradients, against rooflines and libraries."""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Mapping, Sequence
from types import ModuleType

from kronop.bench import report, roofline, run
from kronop.bench.arrays import Arrays
from kronop.bench.case import DTYPES
from kronop.bench.distances import case, gradient, matmul, matrix, peers
from kronop.bench.distances.problem import Problem
from kronop.bench.duration import Pace
from kronop.bench.protocol import clock_for
from kronop.errors import ArgumentError
from kronop.families.distance.command import kernel_names

# Modules with the CASES and SHAPES that are measured by default, with PEERS, and with `problem_of`.
_KINDS: Mapping[str, ModuleType] = {"matrix": matrix, "gradient": gradient, "matmul": matmul}

# On two cores of an Intel Xeon with AVX-512, a case of 2000x2000x3 took 5 to 21 s, one of
# 2000x2000x32 14 to 43 s, one of `matmul` 6 to 9 s and one of `gradient` 3 to 5 s. On an H100 the
# default cases took 198 s, those of `matmul` 5 to 9 s each and those of `gradient` 4 s. What takes
# long is timed in few rounds, so that a GPU's rate is high.
_PACES = {
    "matrix": {"cpu": Pace(12.5, 8e7), "cuda": Pace(7, 6e12)},
    "matmul": {"cpu": Pace(6, 3e8), "cuda": Pace(7, 6e12)},
    "gradient": {"cpu": Pace(3, 3e8), "cuda": Pace(4, 6e12)},
}
EXAMPLES = {
    "bench distance --shapes 500x500x16 --cases 1.3 gaussian": "a norm and a kernel on this CPU",
    "bench distance matmul --shapes 2000x2000x16x1": "a kernel matrix times a column",
    "bench distance --device cuda --json gpu.jsonl": "on a GPU",
}


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("kind", nargs="?", choices=tuple(_KINDS), default="matrix", help="(default matrix)")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--dtype", nargs="+", choices=DTYPES, default=["float32"])
    add(
        "--shapes",
        nargs="+",
        metavar="SHAPE",
        help="MxNxK: M points against N points of K features; OxNxKxM, MxNxKxC for the other kinds",
    )
    add("--scale", type=float, default=1.0, help="multiplies numbers of points (default 1)")
    add(
        "--cases",
        nargs="+",
        metavar="CASE",
        help="norms or kernels: 1.3 2/expanded inf/symmetric gaussian;"
        f" kernels are {', '.join(kernel_names())}; of gradients powers",
    )
    add("--peers", nargs="*", choices=peers.NAMES, help="default: all for this")
    add("--repeats", type=int, default=15, help="rounds of timing at most (default 15)")
    add("--json", metavar="FILE", help="write a line of JSON for each case")


def execute(options: argparse.Namespace) -> None:
    """Prints a line for each case as soon as it is measured.

    Raises:
        ArgumentError: options are invalid.
        DeviceError: some cases failed; the table says why.
    """
    _check(options)
    problems = _problems(options)
    works = [problem.work(units=False) for problem in problems]
    operations = [work.arithmetic + work.products for work in works]
    setting = _setting(options, run.prepare(options, operations, _PACES[options.kind]))
    machine = report.machine_of(setting.arrays)
    print(report.head(setting.ceilings, machine))
    ceilings = report.ceilings_json(setting.ceilings)
    run.write_line(options.json, {"machine": machine, "ceilings": ceilings}, "w")
    trials: list[run.Trial[case.Result]] = [
        (
            f"{problem.label} {problem.case} {problem.dtype}",
            functools.partial(case.run, problem, setting),
        )
        for problem in problems
    ]
    run.check_all_ran(run.measure(trials, case.TABLE.beside(setting.peers), options.json))


def _setting(options: argparse.Namespace, arrays: Arrays) -> case.Setting:
    clock = clock_for(options.device)
    return case.Setting(
        arrays=arrays,
        clock=clock,
        ceilings=roofline.measure(arrays, clock, options.dtype),
        peers=tuple(dict.fromkeys(_peers(options))),
        repeats=options.repeats,
    )


def _check(options: argparse.Namespace) -> None:
    run.check(options, options.json)
    if not 0 < options.scale < math.inf:
        raise ArgumentError("--scale", expected="above 0", got=options.scale, hint="1 is usual")


def _peers(options: argparse.Namespace) -> Sequence[str]:
    usual: Sequence[str] = _KINDS[options.kind].PEERS[options.device]
    return usual if options.peers is None else options.peers


def _problems(options: argparse.Namespace) -> list[Problem]:
    kind = _KINDS[options.kind]
    shapes = options.shapes or kind.SHAPES[options.device]
    return [
        kind.problem_of(case, shape, options.scale, dtype)
        for dtype in options.dtype
        for shape in shapes
        for case in options.cases or kind.CASES
    ]
