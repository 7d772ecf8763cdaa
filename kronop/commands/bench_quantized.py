"""Quantized Kronecker products against the product followed by torch's quantization."""

from __future__ import annotations

import argparse

import kronop
from kronop.bench import quantized, shapes
from kronop.bench.arrays import arrays_for
from kronop.bench.duration import Pace, announce
from kronop.bench.load import warn_of_load
from kronop.bench.protocol import clock_for
from kronop.errors import ArgumentError, DeviceError
from kronop.progress import Progress

_SHAPES = {"cuda": ["4096:64^2", "4096:64,128"], "cpu": ["256:64^2", "256:64,128"]}


# The default cases took 39 s on two cores of an Intel Xeon with AVX-512, and 24 s on an H100.
_PACES = {"cpu": Pace(4, 9e8), "cuda": Pace(2.5, 4e11)}
EXAMPLES = {
    "bench quantized --shapes 256:64^2 --dtype float16": "one product on this CPU",
    "bench quantized --device cuda": "4096 rows on a GPU",
}


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--dtype", nargs="+", choices=quantized.DTYPES, default=list(quantized.DTYPES))
    add("--bits", nargs="+", type=int, choices=(4, 8), default=[4, 8])
    add("--shapes", nargs="+", metavar="SHAPE", help="rows and two factors, as 4096:64,128")
    add("--rows", nargs="+", type=int, default=[], metavar="M", help="instead of each shape's own")
    add("--repeats", type=int, default=15, help="rounds of timing (default 15)")


def execute(options: argparse.Namespace) -> None:
    """Prints a line for each case as soon as it is measured and checked.

    Raises:
        ArgumentError: options are invalid.
        DeviceError: some cases failed; the table says why.
    """
    problems = shapes.parse_all(options.shapes or _SHAPES[options.device], options.rows)
    _check(options, problems)
    cases = [(*item, bits) for item in _pairs(problems, options.dtype) for bits in options.bits]
    arrays = arrays_for(
        options.device, torch_for="bench quantized, whose peers are torch's products"
    )
    warn_of_load(options.device)
    work = (shape.operations for shape, *_ in cases)
    seconds = _PACES[options.device].of(work, options.device, options.repeats)
    announce(len(cases), "cases", seconds)
    setting = quantized.Setting(
        arrays=arrays, clock=clock_for(options.device), repeats=options.repeats
    )
    machine = {"kronop": kronop.__version__, **arrays.describe()}
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    print(quantized.columns(), flush=True)
    results: list[quantized.Result] = []
    with Progress(len(cases)) as progress:
        for shape, dtype, bits in cases:
            progress.begin(f"{shape.text} {dtype}, {bits} bits")
            progress.tell("compiling and timing")
            results.append(quantized.run(shape, dtype, bits, setting))
            progress.advance()
            progress.print(quantized.row(results[-1]))
    failed = [result.label for result in results if result.floor is None]
    if failed:
        raise DeviceError.of(
            "benchmark",
            expected=f"{len(results)} results",
            got=f"{len(results) - len(failed)}; {', '.join(failed)} failed",
            hint="the table says why",
        )


def _pairs(problems: list[shapes.Shape], dtypes: list[str]) -> list[tuple[shapes.Shape, str]]:
    return [(shape, dtype) for shape in problems for dtype in dict.fromkeys(dtypes)]


def _check(options: argparse.Namespace, problems: list[shapes.Shape]) -> None:
    if options.repeats < 1:
        raise ArgumentError.of(
            "--repeats", expected="at least 1", got=options.repeats, hint="15 is usual"
        )
    for shape in problems:
        if len(shape.factors) != 2:
            raise ArgumentError.of(
                "--shapes",
                expected="two factors, as torch's products are written for",
                got=shape.text,
                hint="for example 4096:64,128",
            )
        if 4 in options.bits and shape.output_columns % 2:
            raise ArgumentError.of(
                "--shapes",
                expected="an even number of columns for 4 bits, two for each byte",
                got=f"{shape.text}, which has {shape.output_columns}",
                hint="measure it with --bits 8",
            )
