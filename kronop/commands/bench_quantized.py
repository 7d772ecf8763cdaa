"""Quantized Kronecker products against the product followed by torch's quantization."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from kronop.bench import quantized, run, shapes
from kronop.bench.duration import Pace
from kronop.errors import ArgumentError

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
    run.check(options)
    _check(options, problems)
    cases = [
        quantized.Result(shape=shape, dtype=dtype, bits=bits)
        for shape in problems
        for dtype in dict.fromkeys(options.dtype)
        for bits in options.bits
    ]
    work = [case.shape.operations for case in cases]
    peers = "bench quantized, whose peers are torch's products"
    way, table = quantized.measure, quantized.TABLE
    run.beside_torch(options, cases, work, way, _PACES, table, peers, noted=False)


def _check(options: argparse.Namespace, problems: Sequence[shapes.Shape]) -> None:
    for shape in problems:
        if len(shape.factors) != 2:
            raise ArgumentError(
                "--shapes",
                expected="two factors, as torch's products are written for",
                got=shape.text,
                hint="for example 4096:64,128",
            )
        if 4 in options.bits and shape.output_columns % 2:
            raise ArgumentError(
                "--shapes",
                expected="an even number of columns for 4 bits, two for each byte",
                got=f"{shape.text}, which has {shape.output_columns}",
                hint="measure it with --bits 8",
            )
