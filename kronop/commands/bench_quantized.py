"""Quantized Kronecker products against the product followed by torch's quantization."""

from __future__ import annotations

import argparse

import kronop
from kronop.bench import quantized, shapes
from kronop.bench.arrays import arrays_for
from kronop.bench.load import warn_of_load
from kronop.bench.output import Progress
from kronop.bench.protocol import clock_for
from kronop.errors import ArgumentError, DeviceError, mismatch

_SHAPES = {"cuda": ["4096:64^2", "4096:64,128"], "cpu": ["256:64^2", "256:64,128"]}


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--dtype", nargs="+", choices=quantized.DTYPES, default=list(quantized.DTYPES))
    add("--bits", nargs="+", type=int, choices=(4, 8), default=[4, 8])
    add("--shapes", nargs="+", metavar="SHAPE", help="rows and two factors, as 4096:64,128")
    add("--repeats", type=int, default=15, help="rounds of timing (default 15)")


def execute(options: argparse.Namespace) -> None:
    """Prints a line for each case as soon as it is measured and checked.

    Raises:
        ArgumentError: options are invalid.
        DeviceError: some cases failed; the table says why.
    """
    problems = shapes.parse_all(options.shapes or _SHAPES[options.device], [])
    _check(options, problems)
    arrays = arrays_for(
        options.device, torch_for="bench quantized, whose peers are torch's products"
    )
    warn_of_load(options.device)
    setting = quantized.Setting(
        arrays=arrays, clock=clock_for(options.device), repeats=options.repeats
    )
    machine = {"kronop": kronop.__version__, **arrays.describe()}
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    print(quantized.columns(), flush=True)
    cases = [(*item, bits) for item in _pairs(problems, options.dtype) for bits in options.bits]
    results: list[quantized.Result] = []
    for shape, dtype, bits in cases:
        progress = Progress(f"{len(results) + 1}/{len(cases)} {shape.text} {dtype} {bits}")
        progress.tell("compiling and timing")
        results.append(quantized.run(shape, dtype, bits, setting))
        progress.clear()
        print(quantized.row(results[-1]), flush=True)
    failed = [result.label for result in results if result.floor is None]
    if failed:
        raise DeviceError(
            mismatch(
                "benchmark",
                expected=f"{len(results)} results",
                got=f"{len(results) - len(failed)}; {', '.join(failed)} failed",
                hint="the table says why",
            )
        )


def _pairs(problems: list[shapes.Shape], dtypes: list[str]) -> list[tuple[shapes.Shape, str]]:
    return [(shape, dtype) for shape in problems for dtype in dict.fromkeys(dtypes)]


def _check(options: argparse.Namespace, problems: list[shapes.Shape]) -> None:
    if options.repeats < 1:
        raise ArgumentError(
            mismatch("--repeats", expected="at least 1", got=options.repeats, hint="15 is usual")
        )
    for shape in problems:
        if len(shape.factors) != 2:
            raise ArgumentError(
                mismatch(
                    "--shapes",
                    expected="two factors, as torch's products are written for",
                    got=shape.text,
                    hint="for example 4096:64,128",
                )
            )
        if 4 in options.bits and shape.output_columns % 2:
            raise ArgumentError(
                mismatch(
                    "--shapes",
                    expected="an even number of columns for 4 bits, two for each byte",
                    got=f"{shape.text}, which has {shape.output_columns}",
                    hint="measure it with --bits 8",
                )
            )
