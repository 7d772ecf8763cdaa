"""A Kronecker product on this machine's CPU through the whole chain, checked against NumPy."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

import numpy as np

import kronop
from kronop.errors import ArgumentError
from kronop.tensors import NDArray

EXAMPLES = {
    "demo": "1024 rows",
    "demo --rows 16": "a smaller product",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=1024, help="rows of X (default 1024)")


def execute(options: argparse.Namespace) -> None:
    """Prints the plan, some of the result, its error, the time and where the kernel came from."""
    if options.rows < 1:
        raise ArgumentError("--rows", expected="at least 1", got=options.rows, hint="1024 is usual")
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
    count = len(operation.plan.steps)
    kernels = "one kernel" if count == 1 else f"{count} kernels"
    print(f"plan for {operation.target}: {kernels} for all factors (`kronop show kron 8^4` has it)")

    begin = time.perf_counter()
    kronop.compiler.add_module([operation])
    seconds = time.perf_counter() - begin
    (binary,) = operation.binaries
    print(f"kernel {binary.origin.value} in {seconds * 1e3:.1f} ms, by {binary.compiler}")

    arguments = kronop.KronMatmulArguments(
        operation=operation, X=x, factors=factors, Y=y, output_op=operation.epilogue_type(1.0, 0.0)
    )

    def run() -> None:
        operation.run(arguments)
        arguments.sync()

    run()
    reference = operation.description.reference(x, factors)
    error = np.linalg.norm(y - reference) / np.linalg.norm(reference)
    print(f"Y[0, :4] = {y[0, :4]}")
    print(f"relative error against float64: {error:.2e}")
    ours, theirs = _milliseconds(run), _milliseconds(lambda: _by_numpy(x, factors))
    print(f"time: {ours:.2f} ms; NumPy, factor by factor: {theirs:.2f} ms (medians of 5)")


def _by_numpy(x: NDArray, factors: Sequence[NDArray]) -> NDArray:
    """One matrix product for each factor, each of which brings another digit to the end."""
    for factor in reversed(factors):
        digits = x.reshape(len(x), -1, len(factor)) @ factor
        x = digits.swapaxes(1, 2).reshape(len(x), -1)
    return x


def _milliseconds(call: Callable[[], object]) -> float:
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return sorted(times)[2] * 1e3
