"""Speeds of Kronecker-sparse products: `python -m tests.perf.speeds --device cuda`.

JSON lines: the median time, the floor of one pass over memory at this run's copy speed, the time
of torch's way to the same result, and the relative error against float64. Kronecker products are
timed by `python -m kronop bench kron`.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
from typing import Any

import torch

import kronop
from kronop.args.device import target_of_device
from kronop.args.view import CPU, Device
from kronop.bench.arrays import TorchArrays
from kronop.bench.protocol import clock_for, medians, needs_flush, sets_for
from kronop.bench.roofline import copy_bandwidth

_KSPARSE = [
    (1, 192, 48, 2),
    (2, 48, 192, 4),
    (6, 64, 64, 1),
    (1, 768, 192, 2),
    (4, 256, 256, 4),
    (1, 1024, 256, 8),
    (1, 256, 1024, 4),
    (64, 96, 96, 4),
]
_BATCH = {"cuda": 25088, "cpu": 1568}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--dtype",
        nargs="+",
        choices=("float32", "float64", "float16", "bfloat16"),
        default=["float32", "float64"],
    )
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    arrays, clock = TorchArrays(options.device), clock_for(options.device)
    bandwidth = copy_bandwidth(arrays, clock)
    print(json.dumps({"copy_bytes_per_second": bandwidth, **arrays.describe()}), flush=True)
    for dtype in options.dtype:
        for pattern in _KSPARSE:
            for batch_last in (False, True):
                row = _measure(arrays, dtype, pattern, batch_last, options.repeats)
                row["one_pass_ms"] = row.pop("bytes") / bandwidth * 1e3
                print(json.dumps(row), flush=True)
                arrays.release()


def _measure(
    arrays: TorchArrays, dtype: str, pattern: tuple[int, ...], batch_last: bool, repeats: int
) -> dict[str, Any]:
    a, b, c, d = pattern
    rows = _BATCH[arrays.device]
    element = getattr(kronop, dtype)
    bytes_moved = (rows * a * d * (b + c) + a * b * c * d) * element.bytes
    sets = range(sets_for(bytes_moved))
    inner, outer = ((rows, a * c * d), (rows, a * b * d))
    if batch_last:
        inner, outer = inner[::-1], outer[::-1]
    xs = [arrays.random(inner, dtype) for _ in sets]
    ys = [arrays.poisoned(outer, dtype) for _ in sets]
    weights = arrays.random(pattern, dtype)
    operation = _operation(arrays.device, element, pattern, batch_last)
    calls = []
    for x, y in zip(xs, ys, strict=True):
        arguments = kronop.KSparseArguments(operation=operation, X=x, W=weights, Y=y)
        calls.append(functools.partial(operation.run, arguments))
    calls[0]()
    expected = _bmm(arrays.double(xs[0]), arrays.double(weights), batch_last)
    error = arrays.error(ys[0], expected)
    del expected
    variants = {
        "kronop": calls,
        "bmm": [functools.partial(_bmm, x, weights, batch_last) for x in xs],
    }
    flush = arrays.flush if needs_flush(bytes_moved) else None
    times = medians(variants, clock_for(arrays.device), repeats, flush)
    return {
        "pattern": pattern,
        "batch_last": batch_last,
        "dtype": dtype,
        **{f"{name}_ms": value for name, value in times.items()},
        "error": error,
        "bytes": bytes_moved,
    }


def _bmm(x: torch.Tensor, weights: torch.Tensor, batch_last: bool) -> torch.Tensor:
    """Permute, one batched product, permute back."""
    a, b, c, d = weights.shape
    blocks = weights.permute(0, 3, 1, 2).reshape(a * d, b, c)
    if batch_last:
        rows = x.shape[1]
        packed = x.reshape(a, c, d, rows).transpose(1, 2).reshape(a * d, c, rows)
        return (
            torch.bmm(blocks, packed)
            .reshape(a, d, b, rows)
            .transpose(1, 2)
            .reshape(a * b * d, rows)
        )
    rows = x.shape[0]
    packed = x.reshape(rows, a, c, d).permute(1, 3, 0, 2).reshape(a * d, rows, c)
    result = torch.bmm(packed, blocks.transpose(1, 2))
    return result.reshape(a, d, rows, b).permute(2, 0, 3, 1).reshape(rows, a * b * d)


def _operation(
    device: str, element: kronop.DataType, pattern: tuple[int, ...], batch_last: bool
) -> kronop.KSparseOperation:
    a, b, c, d = pattern
    compute = kronop.MathInstruction.simt(element).element_accumulator
    sizes = (_BATCH[device],) if batch_last else (a * b * d, a * c * d)
    width = math.gcd(*sizes, 16 // element.bytes)
    matrix = kronop.TensorDescription(element, kronop.RowMajor, width)
    epilogue = kronop.LinearCombination(element, width, compute, compute)
    W = kronop.TensorDescription(element)
    place = CPU if device == "cpu" else Device("cuda", torch.cuda.current_device())
    target = target_of_device(place)
    return kronop.KSparseOperation(target, None, matrix, W, matrix, epilogue, pattern, batch_last)


if __name__ == "__main__":
    main()
