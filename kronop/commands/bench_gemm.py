"""Matrix products, with biases and activations, against torch's and their floors."""

from __future__ import annotations

import argparse

from kronop.bench import gemm, run, torch_case
from kronop.bench.duration import Pace
from kronop.errors import ArgumentError
from kronop.families.gemm.command import size_of

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
    torch_case.configure(
        parser,
        [*_DTYPES["cuda"], "float8_e5m2"],
        "M x N x K as 1024x2048x64; a batch of 8 as 8x1024x2048x64",
        "none, bias, or an activation behind a bias (default none)",
    )


def execute(options: argparse.Namespace) -> None:
    """Prints a line for each case as soon as it is measured and checked.

    Raises:
        ArgumentError: options are invalid.
        DeviceError: some cases failed; the table says why.
    """
    run.check(options, options.json)
    cases = _cases(options)
    peers = "bench gemm, which compares with torch's products"
    work = [case.operations for case in cases]
    run.beside_torch(options, cases, work, gemm.measure, _PACES, gemm.TABLE, peers)


def _cases(options: argparse.Namespace) -> list[gemm.Result]:
    """Of all sizes, types and epilogues; integers have no activations."""
    sizes = [size_of(text) for text in options.shapes or _SHAPES[options.device]]
    found = [
        gemm.Result(size=size, dtype=dtype, epilogue=epilogue)
        for size in sizes
        for dtype in dict.fromkeys(options.dtype or _DTYPES[options.device])
        for epilogue in dict.fromkeys(options.activation)
        if dtype != "int8" or epilogue in ("none", "bias")
    ]
    if not found:
        raise ArgumentError(
            "--activation",
            expected="none or bias for int8",
            got=" ".join(options.activation),
            hint="activations are computed in floating point",
        )
    return found
