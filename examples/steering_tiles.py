"""A product described, planned, steered by tiles, and then tuned by the clock.

1024 rows are multiplied by four 8 x 8 factors: once as the planner wants it, and then as two tile
descriptions say. Each plan is printed, run, timed, and compared with the reference in float64. A
tile that no kernel has is refused. Last, `kronop.tune` measures the planner's three best candidates
for 256 rows and keeps the fastest (`kronop cache list` shows it, `kronop cache clear` forgets it).

    pip install -e .
    python examples/steering_tiles.py [--rows 1024]

It takes ten seconds, and prints (on two cores of an Intel Xeon; plans and times differ)

    1024 rows on x86-amx
    tile None: Whole 4*3*2*1 by 1 (digits by lanes), 64 rows
      2.15 ms, error 1.0e-07
    tile [16, 512, 4]: Whole 4*3*2 by 4, then Trail 1 by 128 (digits by lanes), 16 rows
      2.48 ms, error 1.0e-07
    ...
    tile [16, 4, 4]: KronMatmulDescription on x86-amx: Tile_N is 4, but a state holds 8 elements ...

    KronMatmulOperation(kron_f32_8x8p4_amx)
    256 rows (kept for 256 to 511) on Intel(R) Xeon(R) Processor
      0      0.4555 ms    1.00 *   X times 4 factors: Whole 4*3*2*1 by 1 (digits by lanes), 64 rows
      ...
    the planner's choice ranks 1 of 3; it stays (* runs from now on)

docs/tutorials/steering.md goes through the words of a plan.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import kronop

FLOAT = kronop.float32
FACTORS = [(8, 8)] * 4
MATH = kronop.MathInstruction.simt(FLOAT)
ROW = kronop.TensorDescription(FLOAT, kronop.RowMajor, 4)  # Aligned to 4 elements.
EPILOGUE = kronop.LinearCombination(FLOAT, 4, FLOAT, FLOAT)


def described(threadblock_shape: list[int] | None) -> kronop.KronMatmulOperation:
    tile = None
    if threadblock_shape is not None:
        tile = kronop.TileDescription(threadblock_shape, 1, [1, 1, 1], MATH)
    return kronop.KronMatmulOperation("x86", tile, ROW, ROW, ROW, EPILOGUE, factors=FACTORS)


def what_runs(operation: kronop.KronMatmulOperation) -> str:
    """The plan's line for its step, without the kernel's name."""
    step = str(operation.plan).splitlines()[1]
    return step.partition(": X times 4 factors: ")[2]


def bound(
    operation: kronop.KronMatmulOperation, rows: int
) -> tuple[kronop.KronMatmulArguments, np.ndarray]:
    """Arguments of so many rows, and what their Y should be."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, 8**4)).astype(np.float32)
    factors = [rng.standard_normal(shape).astype(np.float32) for shape in FACTORS]
    arguments = kronop.KronMatmulArguments(operation=operation, X=x, factors=factors)
    return arguments, operation.description.reference(x, factors)


def milliseconds(
    operation: kronop.KronMatmulOperation, arguments: kronop.KronMatmulArguments
) -> float:
    """The fastest of some runs after two that are not counted."""
    times = []
    for _ in range(12):
        begin = time.perf_counter()
        operation.run(arguments)
        times.append(time.perf_counter() - begin)
    return 1e3 * min(times[2:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1024)
    rows = parser.parse_args().rows

    shapes = [None, [16, 512, 4], [16, 64, 4]]
    operations = [described(shape) for shape in shapes]
    kronop.compiler.add_module(operations)  # All of their kernels at once.
    print(f"{rows} rows on {operations[0].target}")
    for shape, operation in zip(shapes, operations, strict=True):
        arguments, expected = bound(operation, rows)
        taken = milliseconds(operation, arguments)
        error = np.linalg.norm(arguments.Y - expected) / np.linalg.norm(expected)
        assert error < 1e-6
        print(f"tile {shape}: {what_runs(operation)}\n  {taken:.2f} ms, error {error:.1e}")

    try:
        described([16, 4, 4])
    except kronop.DescriptionError as refused:
        print(f"tile [16, 4, 4]: {refused}")

    print()
    untuned = operations[0]
    arguments, _ = bound(untuned, 256)
    print(kronop.tune(untuned, arguments, candidates=3, progress=False))


if __name__ == "__main__":
    main()
