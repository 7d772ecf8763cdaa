"""Costs around a kernel, as JSON: `python -m tests.perf.latency [--target x86|sm_90a]`.

Import, cold compile, warm load from compiled_cache.db, and the host time of a repeated run. With a
GPU target and no GPU only the compile is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

_CHILD = """
import time
begin = time.perf_counter()
import kronop
imported = time.perf_counter()
from kronop import compiler
if {target!r} != "x86" and compiler.cuda_devices():
    # Waking the driver costs every CUDA program the same; here it has a row of its own.
    from cuda.core import Device
    Device(0).set_current()
awake = time.perf_counter()
matrix = kronop.TensorDescription(kronop.float32, kronop.RowMajor, 4)
epilogue = kronop.LinearCombination(kronop.float32, 4, kronop.float32, kronop.float32)
operands = matrix, matrix, matrix, epilogue, [(8, 8)] * 4
operation = kronop.KronMatmulOperation({target!r}, None, *operands)
planned = time.perf_counter()
binaries = operation.binaries
compiled = time.perf_counter()
if operation.target.backend == "x86" or compiler.cuda_devices():
    for binary in binaries:
        compiler.load(binary, operation.target)
loaded = time.perf_counter()
print(imported - begin, awake - imported, planned - awake, compiled - planned, loaded - compiled)
print(binaries[0].origin.name)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="x86")
    parser.add_argument("--processes", type=int, default=5)
    options = parser.parse_args()
    result: dict[str, Any] = {"target": options.target, **_processes(options)}
    if _runnable(options.target):
        result |= _repeated(options.target)
    print(json.dumps(result, indent=2))


def _processes(options: Any) -> dict[str, float]:
    """Medians over fresh processes, in pairs with a new cache folder: cold, then warm."""
    cold, warm = [], []
    for _ in range(options.processes):
        with tempfile.TemporaryDirectory() as folder:
            cold.append(_child(options.target, folder, "COMPILED"))
            warm.append(_child(options.target, folder, "DISK"))
    return {
        "import_ms": _median([row[0] for row in warm]),
        "driver_ms": _median([row[1] for row in warm]),
        "plan_ms": _median([row[2] for row in warm]),
        "cold_compile_ms": _median([row[3] for row in cold]),
        "warm_load_ms": _median([row[3] + row[4] for row in warm]),
    }


def _child(target: str, folder: str, origin: str) -> list[float]:
    environment = os.environ | {"KRONOP_CACHE_DIR": folder, "CUDA_CACHE_DISABLE": "1"}
    command = [sys.executable, "-c", _CHILD.format(target=target)]
    words = subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment
    ).stdout.split()
    assert words[-1] == origin, words
    return [float(word) for word in words[:-1]]


def _median(seconds: list[float]) -> float:
    return round(statistics.median(seconds) * 1e3, 2)


def _runnable(target: str) -> bool:
    import kronop

    return kronop.Target.parse(target).backend == "x86" or bool(kronop.compiler.cuda_devices())


def _repeated(target: str) -> dict[str, float]:
    """Microseconds of host time of a repeated run, and of the one-line form, on tiny tensors."""
    import numpy as np

    import kronop

    matrix = kronop.TensorDescription(kronop.float32, kronop.RowMajor, 4)
    epilogue = kronop.LinearCombination(kronop.float32, 4, kronop.float32, kronop.float32)
    operation = kronop.KronMatmulOperation(
        target, None, matrix, matrix, matrix, epilogue, [(4, 4)] * 2
    )
    x = np.random.default_rng().standard_normal((4, 16)).astype(np.float32)
    factors: list[Any] = [x[:, :4].copy()] * 2
    if operation.target.backend == "cuda":
        import torch

        x, factors = (
            torch.tensor(x, device="cuda"),
            [torch.tensor(item, device="cuda") for item in factors],
        )
    arguments = kronop.KronMatmulArguments(operation=operation, X=x, factors=factors)
    run = _per_call(lambda: operation.run(arguments), arguments.sync)
    line = _per_call(lambda: kronop.gemkm(x, factors), arguments.sync)
    return {"repeated_run_us": run, "gemkm_us": line}


def _per_call(call: Any, finish: Any, rounds: int = 9, calls: int = 500) -> float:
    call()
    times = []
    for _ in range(rounds):
        finish()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - begin) / calls)
        finish()
    return round(statistics.median(times) * 1e6, 2)


if __name__ == "__main__":
    main()
