"""Matrix products, with biases and activations, against torch's and their floors."""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import kronop
from kronop.bench import gemm, report
from kronop.bench.arrays import arrays_for
from kronop.bench.duration import Pace, announce
from kronop.bench.load import warn_of_load
from kronop.bench.output import check_folders
from kronop.bench.protocol import clock_for
from kronop.errors import ArgumentError, DeviceError
from kronop.families.gemm.command import size_of
from kronop.families.gemm.size import GemmSize
from kronop.progress import Progress

_SHAPES = {
    "cuda": ["8192x8192x8192", "4096x4096x4096", "16384x4096x1024"],
    "cpu": ["1024x1024x1024", "1000x999x501", "64x64x64"],
}
_DTYPES = {
    "cuda": ["bfloat16", "float16", "float32", "float64", "int8", "float8_e4m3fn"],
    "cpu": ["float32", "float64", "bfloat16", "int8"],
}


# The default cases took 39 s on two cores of an Intel Xeon with AVX-512 and AMX, 34 s on an H100.
_PACES = {"cpu": Pace(2.5, 2e9), "cuda": Pace(1.2, 7e11)}
EXAMPLES = {
    "bench gemm --shapes 256x256x256 --dtype float32": "one product on this CPU, in seconds",
    "bench gemm --activation none gelu --json cpu.jsonl": "three shapes, with and without gelu",
    "bench gemm --device cuda --dtype bfloat16 float16": "on a GPU",
}


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--dtype", nargs="+", choices=[*_DTYPES["cuda"], "float8_e5m2"])
    add(
        "--shapes",
        nargs="+",
        metavar="SHAPE",
        help="M x N x K as 1024x2048x64; a batch of 8 as 8x1024x2048x64",
    )
    add(
        "--activation",
        nargs="+",
        choices=gemm.EPILOGUES,
        default=["none"],
        help="none, bias, or an activation behind a bias (default none)",
    )
    add("--repeats", type=int, default=15, help="rounds of timing (default 15)")
    add("--json", metavar="FILE", help="write a line of JSON for each case")


def execute(options: argparse.Namespace) -> None:
    """Prints a line for each case as soon as it is measured and checked.

    Raises:
        ArgumentError: options are invalid.
        DeviceError: some cases failed; the table says why.
    """
    _check(options)
    cases = _cases(options)
    arrays = arrays_for(
        options.device, torch_for="bench gemm, which compares with torch's products"
    )
    warn_of_load(options.device)
    work = (2 * size.batch * size.m * size.n * size.k for size, *_ in cases)
    seconds = _PACES[options.device].of(work, options.device, options.repeats)
    announce(len(cases), "cases", seconds)
    setting = gemm.Setting(arrays=arrays, clock=clock_for(options.device), repeats=options.repeats)
    machine = {"kronop": kronop.__version__, **arrays.describe()}
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    print(gemm.columns(), flush=True)
    _write(options.json, {"machine": machine}, "w")
    results: list[gemm.Result] = []
    with Progress(len(cases)) as progress:
        for size, dtype, epilogue in cases:
            progress.begin(f"{size.told()} {dtype} {epilogue}")
            progress.tell("compiling and timing")
            results.append(gemm.run(size, dtype, epilogue, setting))
            progress.advance()
            progress.print(gemm.row(results[-1]))
            _write(options.json, gemm.as_json(results[-1]), "a")
    for note in report.notes(results):
        print(note)
    _check_all_ran(results)


def _check(options: argparse.Namespace) -> None:
    if options.repeats < 1:
        raise ArgumentError.of(
            "--repeats", expected="at least 1", got=options.repeats, hint="15 is usual"
        )
    check_folders(options.json)


def _cases(options: argparse.Namespace) -> list[tuple[GemmSize, str, str]]:
    """Sizes, types and epilogues; integers have no activations."""
    sizes = [size_of(text) for text in options.shapes or _SHAPES[options.device]]
    kinds = dict.fromkeys(options.dtype or _DTYPES[options.device])
    found = [
        case
        for case in itertools.product(sizes, kinds, dict.fromkeys(options.activation))
        if case[1] != "int8" or case[2] in ("none", "bias")
    ]
    if not found:
        raise ArgumentError.of(
            "--activation",
            expected="none or bias for int8",
            got=" ".join(options.activation),
            hint="activations are computed in floating point",
        )
    return found


def _write(name: str | None, line: Any, mode: str) -> None:
    if name:
        with Path(name).open(mode) as stream:
            stream.write(json.dumps(line, allow_nan=False) + "\n")


def _check_all_ran(results: Sequence[gemm.Result]) -> None:
    failed = [result.label for result in results if result.floor is None]
    if failed:
        raise DeviceError.of(
            "benchmark",
            expected=f"{len(results)} results",
            got=f"{len(results) - len(failed)}; {', '.join(failed)} failed",
            hint="the table says why",
        )
