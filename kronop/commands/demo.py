"""A Kronecker product on this machine's CPU through the whole chain, checked against NumPy."""

from __future__ import annotations

import argparse
import time

import numpy as np

import kronop
from kronop.errors import ArgumentError, mismatch


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=1024, help="rows of X (default 1024)")


def execute(options: argparse.Namespace) -> None:
    """Prints the plan, some of the result, its error, the time and where the kernel came from."""
    if options.rows < 1:
        raise ArgumentError(
            mismatch("--rows", expected="at least 1", got=options.rows, hint="1024 is usual")
        )
    factors_of = [(8, 8)] * 4
    random = np.random.default_rng(0)
    x = random.standard_normal((options.rows, 8**4), np.float32)
    factors = [random.standard_normal(shape, np.float32) for shape in factors_of]
    y = np.full_like(x, np.nan)

    matrix = kronop.TensorDescription(kronop.float32, kronop.RowMajor, 4)
    epilogue = kronop.LinearCombination(kronop.float32, 4, kronop.float32, kronop.float32)
    operation = kronop.KronMatmulOperation(
        "x86", None, matrix, matrix, matrix, epilogue, factors_of
    )
    print(f"X is {x.shape}, float32; Y = X (F1 x F2 x F3 x F4) with four factors of 8 x 8")
    print(operation.plan)

    begin = time.perf_counter()
    kronop.compiler.add_module([operation])
    seconds = time.perf_counter() - begin
    (binary,) = operation.binaries
    print(f"kernel {binary.origin.value} in {seconds * 1e3:.1f} ms, by {binary.compiler}")

    arguments = kronop.KronMatmulArguments(
        operation=operation, X=x, factors=factors, Y=y, output_op=operation.epilogue_type(1.0, 0.0)
    )
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        operation.run(arguments)
        arguments.sync()
        times.append(time.perf_counter() - begin)
    reference = operation.description.reference(x, factors)
    error = np.linalg.norm(y - reference) / np.linalg.norm(reference)
    print(f"Y[0, :4] = {y[0, :4]}")
    print(f"relative error against float64: {error:.2e}")
    print(f"time: {sorted(times)[2] * 1e3:.2f} ms (median of 5)")
