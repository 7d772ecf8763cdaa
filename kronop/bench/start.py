"""Times a new process until it has results: import, plan, kernel, first and second call."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kronop.bench.shapes import Shape
from kronop.errors import DeviceError

_PLACE = Path(__file__).parents[2]
# The program that is timed. It imports nothing of kronop before the clock runs. The CUDA context
# costs every program the same, so it has a row of its own.
_CHILD = """
import json, sys, time
target, factors, rows, dtype, device = json.loads(sys.argv[1])
last, took = time.perf_counter(), {}
def lap(name):
    global last
    now = time.perf_counter()
    took[name], last = (now - last) * 1e3, time.perf_counter()
import numpy
lap("NumPy")
if device == "cuda":
    import torch
    torch.zeros(1, device="cuda").item()
    lap("torch, CUDA context")
import kronop
operation, arguments = kronop.KronMatmulOperation, kronop.KronMatmulArguments
lap("import kronop")
element = getattr(kronop, dtype)
matrix = kronop.TensorDescription(element)
sums = kronop.MathInstruction.simt(element).element_accumulator
epilogue = kronop.LinearCombination(element, 1, sums, sums)
operation = operation(target, None, matrix, matrix, matrix, epilogue, factors)
plan = operation.plan_for(rows)
lap("plan")
operation.serve(plan)
lap("compile or load")
columns = operation.sizes(rows).x_shape[-1]
if device == "cuda":
    make = lambda *shape: torch.ones(shape, dtype=getattr(torch, dtype), device="cuda")
else:
    make = lambda *shape: numpy.ones(shape, dtype)
x, matrices = make(rows, columns), [make(*shape) for shape in factors]
lap("")
call = arguments(operation=operation, X=x, factors=matrices)
operation.run(call)
call.sync()
lap("first call")
operation.run(call)
call.sync()
lap("second call")
took.pop("")
print(json.dumps(took))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Milliseconds of each part: medians over processes.

    Attributes:
        cold: times with an empty cache.
        warm: times with the cache of an earlier process that did the same.
    """

    cold: dict[str, float]
    warm: dict[str, float]


def measure(
    shape: Shape,
    dtype: str,
    target: str,
    device: str,
    processes: int,
    ended: Callable[[], object],
) -> Start:
    """Times `processes` pairs of a cold and a warm process; each pair has a cache of its own.

    `ended` is called after each process.

    Raises:
        DeviceError: a process failed.
    """
    cold: list[dict[str, float]] = []
    warm: list[dict[str, float]] = []
    for _ in range(processes):
        with tempfile.TemporaryDirectory() as folder:
            for laps in (cold, warm):
                laps.append(_laps(shape, dtype, target, device, folder))
                ended()
    return Start(cold=_medians(cold), warm=_medians(warm))


def _laps(shape: Shape, dtype: str, target: str, device: str, folder: str) -> dict[str, float]:
    asked = json.dumps([target, shape.factors, shape.rows, dtype, device])
    # The child must import this package, not one in the current folder.
    places = [str(_PLACE), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-P", "-c", _CHILD, asked],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "KRONOP_CACHE_DIR": folder, "PYTHONPATH": os.pathsep.join(places)},
    )
    if done.returncode != 0:
        raise DeviceError(
            "benchmark",
            expected=f"a process that computes {shape.text}",
            got=(done.stderr.strip().splitlines() or ["nothing"])[-1],
            hint="run such a call by itself",
        )
    laps: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return laps


def _medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def lines(start: Start) -> list[str]:
    """The parts as a table, with the sum of kronop's own parts until the first result."""
    rows = [(name, start.cold[name], start.warm[name]) for name in start.cold]
    ours = ("import kronop", "plan", "compile or load", "first call")
    cold, warm = (sum(taken[name] for name in ours) for taken in (start.cold, start.warm))
    rows.append(("to the first result", cold, warm))
    return [
        f"{'ms':<22}{'cold':>10}{'warm':>10}",
        *(f"{name:<22}{cold:>10.2f}{warm:>10.2f}" for name, cold, warm in rows),
    ]
