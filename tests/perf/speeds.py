"""Speeds of both families on common shapes: `python -m tests.perf.speeds --device cuda`.

JSON lines: the median time, the floor of one pass over memory at this run's copy speed, the time
of torch's way to the same result, and the relative error against float64.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

import torch

import kronop
from tests.perf import protocol

_KRON = {
    "cuda": [
        (1024, 8, 5),
        (1024, 8, 6),
        (1024, 16, 4),
        (1024, 16, 5),
        (1024, 32, 3),
        (1024, 32, 4),
        (1024, 64, 2),
        (1024, 64, 3),
        (1024, 128, 2),
        (1024, 128, 3),
        (16, 8, 8),
        (16, 64, 4),
    ],
    "cpu": [
        (1024, 8, 4),
        (256, 8, 5),
        (1024, 16, 3),
        (64, 16, 4),
        (256, 32, 3),
        (1024, 64, 2),
        (16, 64, 3),
        (256, 128, 2),
        (16, 8, 6),
        (100, 5, 5),
    ],
}
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
    parser.add_argument("--family", choices=("kron", "ksparse"), action="append")
    parser.add_argument(
        "--dtype", choices=("float32", "float64", "float16", "bfloat16"), action="append"
    )
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    families = options.family or ["kron", "ksparse"]
    names = options.dtype or ["float32", "float64"]
    size = (1 << 30) if options.device == "cuda" else (64 << 20)
    bandwidth = protocol.copy_bandwidth(options.device, size)
    _print(
        {
            "copy_bytes_per_second": bandwidth,
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
        }
    )
    for name in names:
        dtype = getattr(torch, name)
        if "kron" in families:
            for rows, p, n in _KRON[options.device]:
                _print(_kron(options, dtype, rows, [(p, p)] * n, bandwidth))
        if "ksparse" in families:
            for pattern in _KSPARSE:
                for batch_last in (False, True):
                    _print(_ksparse(options, dtype, pattern, batch_last, bandwidth))


def _print(row: dict[str, Any]) -> None:
    print(json.dumps(row), flush=True)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # What torch keeps for later, kronop's workspaces could not use.


def _kron(
    options: Any, dtype: torch.dtype, rows: int, shapes: list[tuple[int, int]], bandwidth: float
) -> dict[str, Any]:
    columns = 1
    for p, _ in shapes:
        columns *= p
    bytes_moved = 2 * rows * columns * dtype.itemsize
    xs = [
        torch.randn(rows, columns, device=options.device, dtype=dtype)
        for _ in range(protocol.sets_for(bytes_moved))
    ]
    factors = [torch.randn(shape, device=options.device, dtype=dtype) for shape in shapes]
    ys = [torch.full_like(x, float("nan")) for x in xs]
    operation = _described(options, xs[0], "kron", [*map(tuple, shapes)])
    calls = []
    for x, y in zip(xs, ys, strict=True):
        arguments = kronop.KronMatmulArguments(operation=operation, X=x, factors=factors, Y=y)
        calls.append(lambda arguments=arguments: operation.run(arguments))
    calls[0]()
    expected = protocol.shuffle(xs[0].double(), [factor.double() for factor in factors])
    error = protocol.relative_error(ys[0], expected)
    del expected
    variants = {"kronop": calls, "shuffle": [lambda x=x: protocol.shuffle(x, factors) for x in xs]}
    shape = f"{rows} x {shapes[0][0]}^{len(shapes)}"
    return _row("kron", shape, dtype, variants, options, bytes_moved / bandwidth, error)


def _ksparse(
    options: Any, dtype: torch.dtype, pattern: tuple[int, ...], batch_last: bool, bandwidth: float
) -> dict[str, Any]:
    a, b, c, d = pattern
    rows = _BATCH[options.device]
    bytes_moved = (rows * a * d * (b + c) + a * b * c * d) * dtype.itemsize
    shape = (a * c * d, rows) if batch_last else (rows, a * c * d)
    xs = [
        torch.randn(shape, device=options.device, dtype=dtype)
        for _ in range(protocol.sets_for(bytes_moved))
    ]
    weights = torch.randn(pattern, device=options.device, dtype=dtype)
    out = (a * b * d, rows) if batch_last else (rows, a * b * d)
    ys = [torch.full(out, float("nan"), device=options.device, dtype=dtype) for _ in xs]
    operation = _described(options, xs[0], "ksparse", pattern, batch_last)
    calls = []
    for x, y in zip(xs, ys, strict=True):
        arguments = kronop.KSparseArguments(operation=operation, X=x, W=weights, Y=y)
        calls.append(lambda arguments=arguments: operation.run(arguments))
    calls[0]()
    error = protocol.relative_error(ys[0], _bmm(xs[0].double(), weights.double(), batch_last))
    variants = {"kronop": calls, "bmm": [lambda x=x: _bmm(x, weights, batch_last) for x in xs]}
    name = f"{pattern} {'last' if batch_last else 'first'}"
    return _row("ksparse", name, dtype, variants, options, bytes_moved / bandwidth, error)


def _row(
    family: str,
    shape: str,
    dtype: torch.dtype,
    variants: Any,
    options: Any,
    floor: float,
    error: float,
) -> dict[str, Any]:
    times = protocol.medians(variants, options.device, options.repeats)
    return {
        "family": family,
        "shape": shape,
        "dtype": str(dtype).removeprefix("torch."),
        **{f"{name}_ms": round(value, 4) for name, value in times.items()},
        "one_pass_ms": round(floor * 1e3, 4),
        "error": error,
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


def _described(
    options: Any, x: torch.Tensor, family: str, shape: Any, batch_last: bool = False
) -> Any:
    element = getattr(kronop, str(x.dtype).removeprefix("torch."))
    compute = kronop.MathInstruction.simt(element).element_accumulator
    width = 16 // element.bytes
    while any(size % width for size in _contiguous_sizes(options, family, shape, batch_last)):
        width //= 2
    matrix = kronop.TensorDescription(element, kronop.RowMajor, width)
    small = kronop.TensorDescription(element)
    epilogue = kronop.LinearCombination(element, width, compute, compute)
    target = "x86" if options.device == "cpu" else 90
    if family == "kron":
        return kronop.KronMatmulOperation(target, None, matrix, small, matrix, epilogue, shape)
    return kronop.KSparseOperation(target, None, matrix, small, matrix, epilogue, shape, batch_last)


def _contiguous_sizes(options: Any, family: str, shape: Any, batch_last: bool) -> Iterator[int]:
    if family == "kron":
        product = 1
        for p, _ in shape:
            product *= p
        yield product
    elif batch_last:
        yield _BATCH[options.device]
    else:
        a, b, c, d = shape
        yield from (a * b * d, a * c * d)


if __name__ == "__main__":
    main()
