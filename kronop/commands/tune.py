"""Measure the planner's candidates on this machine and keep the fastest for later runs."""

from __future__ import annotations

import argparse
import functools
import itertools
from typing import Any

import kronop
from kronop.bench.arrays import arrays_for
from kronop.bench.duration import announce
from kronop.commands import family_options
from kronop.core.command import DEFAULT_ROWS
from kronop.cpus import cpu_count
from kronop.descriptions.datatype import TENSOR_TYPES
from kronop.errors import ArgumentError

# Of a core, to compile it; measuring takes little beside that.
_SECONDS_OF_A_KERNEL = 2
EXAMPLES = {
    "tune kron 1024:8^5": "the fastest here, from 1024 to 2047 rows",
    "tune kron 8^5 64,64 --rows 64 4096 --dtype float32 float64": "eight products, one by one",
    "tune ksparse 6,64,64,1 --target cuda": "on this machine's GPU",
}
_ENDINGS = ("", " --candidates 4")


def configure(parser: argparse.ArgumentParser) -> None:
    examples = family_options.examples_of("tune", *_ENDINGS)
    family_options.add(parser, examples, _configure, several="one or several: ")


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rows",
        type=int,
        nargs="+",
        help=f"M, or images, one or several (default: that of the shape, or {DEFAULT_ROWS})",
    )
    parser.add_argument(
        "--dtype",
        nargs="+",
        default=["float32"],
        choices=list(TENSOR_TYPES),
        help="one or several (default float32)",
    )
    parser.add_argument(
        "--target", default="x86", help="x86, or the GPU's: cuda, 80, sm_80, ... (default x86)"
    )
    parser.add_argument("--candidates", type=int, default=16, help="how many at most (default 16)")
    parser.add_argument("--quiet", action="store_true", help="draw no bar")


def _announce(options: argparse.Namespace, count: int) -> None:
    if not options.quiet:
        kernels = count * options.candidates
        announce(count, "operations", kernels * _SECONDS_OF_A_KERNEL / cpu_count())


def execute(options: argparse.Namespace) -> None:
    family = family_options.chosen(options)
    target = kronop.Target.parse(options.target)
    device = "cuda" if target.backend == "cuda" else "cpu"
    arrays = arrays_for(device, asked=f"--target {options.target}")
    counts = options.rows or [None]
    if options.rows and min(options.rows) < 1:
        raise ArgumentError(
            "--rows", expected="at least 1", got=min(options.rows), hint="there is no work in none"
        )
    cases = [*itertools.product(options.shape, options.dtype, counts)]
    _announce(options, len(cases))
    for shape, dtype, rows in cases:
        # The arguments that the one-line functions would make, so that these use the result.
        tensor = functools.partial(arrays.random, dtype=dtype)
        arguments = family.arguments(options, shape, rows, tensor)
        operation: Any = arguments.operation
        if operation.target.name != target.name:
            raise ArgumentError(
                "--target",
                expected=f"{operation.target}, which tensors here run on",
                got=options.target,
                hint="tune on the machine that the kernels are for",
            )
        # The first line of a report names the operation: here it is told before it is tuned.
        print(repr(operation), flush=True)
        report = kronop.tune(
            operation,
            arguments,
            candidates=options.candidates,
            progress=not options.quiet,
        )
        print(str(report).partition("\n")[2], flush=True)
