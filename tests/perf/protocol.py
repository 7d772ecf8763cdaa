"""How speeds are measured: rotating buffers, interleaved variants, medians."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

# More than any level-2 or last-level cache of the machines in question.
ROTATED_BYTES = 256 << 20
MOST_SETS = 16


def sets_for(bytes_per_call: int) -> int:
    """How many buffer sets make sure that nothing is timed warm."""
    return max(1, min(MOST_SETS, -(-ROTATED_BYTES // max(bytes_per_call, 1))))


def medians(
    variants: dict[str, Sequence[Callable[[], Any]]], device: str, repeats: int
) -> dict[str, float]:
    """Median milliseconds of each variant: a list of calls, one per buffer set, taken in turn."""
    times: dict[str, list[float]] = {name: [] for name in variants}
    for calls in variants.values():
        for call in calls[:2]:
            call()
    for repeat in range(repeats):
        for name, calls in variants.items():
            call = calls[repeat % len(calls)]
            times[name].append(_gpu_ms(call) if device == "cuda" else _host_ms(call))
    return {name: statistics.median(values) for name, values in times.items()}


def _gpu_ms(call: Callable[[], Any]) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    # A short spin on the GPU lets the host run ahead: launch cost is not timed as device time.
    torch.cuda._sleep(200_000)
    begin.record()
    call()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))


def _host_ms(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1e3


def copy_bandwidth(device: str, size: int) -> float:
    """Bytes per second of a copy of `size` bytes, read plus written."""
    count = sets_for(2 * size)
    sources = [torch.rand(size // 4, device=device) for _ in range(count)]
    target = [torch.empty_like(source) for source in sources]
    calls = [lambda a=a, b=b: b.copy_(a) for a, b in zip(sources, target, strict=True)]
    return 2 * size / medians({"copy": calls}, device, 15)["copy"] * 1e3


def shuffle(x: torch.Tensor, factors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The classical algorithm: multiply by the last digit, rotate it to the front, repeat."""
    rows = x.shape[0]
    for factor in reversed(factors):
        p, q = factor.shape
        x = (x.reshape(rows, -1, p) @ factor).transpose(1, 2).reshape(rows, -1)
        # After all factors every digit has come around once, so the order is the original one.
        assert x.shape[1] % q == 0
    return x


def relative_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return float((actual.double() - expected).norm() / expected.norm())
