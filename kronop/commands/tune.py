"""Measure the planner's candidates on this machine and keep the fastest for later runs."""

from __future__ import annotations

import argparse
import itertools
import math
from typing import Any

import kronop
from kronop.args.base import Arguments
from kronop.bench.arrays import Arrays, arrays_for
from kronop.commands.show import factors_of, integers
from kronop.descriptions.datatype import TENSOR_TYPES
from kronop.errors import ArgumentError, mismatch
from kronop.functional import kron_arguments
from kronop.functional_ksparse import ksparse_arguments


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("family", choices=("kron", "ksparse"))
    parser.add_argument(
        "shape",
        nargs="+",
        help="one or several: factors as 8x8,8x8,5x3 or 8^2,5x3 (kron), patterns as 6,64,64,1"
        " (ksparse)",
    )
    parser.add_argument(
        "--rows", type=int, nargs="+", default=[1024], help="M, one or several (default 1024)"
    )
    parser.add_argument(
        "--dtype",
        nargs="+",
        default=["float32"],
        choices=list(TENSOR_TYPES),
        help="one or several (default float32)",
    )
    parser.add_argument(
        "--target", default="x86", help="x86, or the GPU's: 80, 90, sm_80, sm_90a (default x86)"
    )
    parser.add_argument("--candidates", type=int, default=16, help="how many at most (default 16)")
    parser.add_argument("--left", action="store_true", help="kron: X on the right (gekmm)")
    parser.add_argument("--batch-last", action="store_true", help="ksparse: X is (a c d, B)")
    parser.add_argument("--quiet", action="store_true", help="draw no bar")


def execute(options: argparse.Namespace) -> None:
    target = kronop.Target.parse(options.target)
    device = "cuda" if target.backend == "cuda" else "cpu"
    arrays = arrays_for(device, asked=f"--target {options.target}")
    if min(options.rows) < 1:
        raise ArgumentError(
            mismatch(
                "--rows",
                expected="at least 1",
                got=min(options.rows),
                hint="there is no work in none",
            )
        )
    for shape, dtype, rows in itertools.product(options.shape, options.dtype, options.rows):
        arguments = _arguments(options, arrays, shape, dtype, rows)
        operation: Any = arguments.operation
        if operation.target != target:
            raise ArgumentError(
                mismatch(
                    "--target",
                    expected=f"{operation.target}, which tensors here run on",
                    got=options.target,
                    hint="tune on the machine that the kernels are for",
                )
            )
        print(
            kronop.tune(
                operation,
                arguments,
                candidates=options.candidates,
                progress=not options.quiet,
            )
        )


def _arguments(
    options: argparse.Namespace, arrays: Arrays, text: str, dtype: str, rows: int
) -> Arguments:
    """Those of the one-line forms, so that what is found serves them."""
    if options.family == "kron":
        side = kronop.Side.Left if options.left else kronop.Side.Right
        shapes = factors_of(text)
        factors = [arrays.random(shape, dtype) for shape in shapes]
        size = math.prod(shape[1 if options.left else 0] for shape in shapes)
        x_shape = (size, rows) if options.left else (rows, size)
        return kron_arguments(arrays.random(x_shape, dtype), factors, side)
    a, b, c, d = pattern = _pattern(text)
    features = a * c * d
    x_shape = (features, rows) if options.batch_last else (rows, features)
    x, weight = (arrays.random(shape, dtype) for shape in (x_shape, pattern))
    return ksparse_arguments(x, weight, (a, b, c, d), options.batch_last)


def _pattern(text: str) -> tuple[int, ...]:
    pattern = integers(text)
    if len(pattern) != 4:
        raise ArgumentError(mismatch("shape", expected="a,b,c,d", got=text, hint="see --help"))
    return pattern
