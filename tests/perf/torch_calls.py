"""What calls of kronop.torch cost beside torch's own: `python -m tests.perf.torch_calls --device
cuda`.

JSON lines, each with both in microseconds of the same run, medians of interleaved rounds: layers
beside torch.nn.Linear of the same features, products beside the loop of reshapes and matmuls. A
round is many calls and, on a GPU, one synchronization behind them; `python` counts the function
calls of Python that one call makes.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

import kronop.torch
from kronop.torch.nn import KSLinear

_ROWS = 64
_LAYERS = {"one factor": [(6, 64, 64, 1)], "two factors": [(6, 64, 64, 1), (1, 48, 48, 8)]}
_PRODUCTS = (
    ("1024 x 64^2", 1024, [64] * 2, torch.float32),
    ("20 x 8^5", 20, [8] * 5, torch.float32),
    ("64 x 16^2", 64, [16] * 2, torch.float32),
    ("4096 x 20^2, float64", 4096, [20] * 2, torch.float64),
)
_Call = Callable[[], Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=100)
    options = parser.parse_args()
    torch.manual_seed(0)
    for name, ours, theirs in (*_layers(options.device), *_products(options.device)):
        times = _measure((ours, theirs), options)
        row = {
            "case": name,
            "device": options.device,
            "kronop_us": round(times[0], 2),
            "torch_us": round(times[1], 2),
            "ratio": round(times[0] / times[1], 3),
            "kronop_python": _python_calls(ours),
            "torch_python": _python_calls(theirs),
        }
        print(json.dumps(row), flush=True)


def _layers(device: str) -> list[tuple[str, _Call, _Call]]:
    found = []
    for name, patterns in _LAYERS.items():
        ours = KSLinear(patterns, device=device)
        theirs = torch.nn.Linear(ours.in_features, ours.out_features, device=device)
        x = torch.randn(_ROWS, ours.in_features, device=device)
        grad = torch.randn(_ROWS, ours.out_features, device=device)
        for what, made in (
            ("inference", lambda layer, x=x: _inference(layer, x)),
            ("forward", lambda layer, x=x: lambda: layer(x)),
            ("step", lambda layer, x=x, grad=grad: _step(layer, x, grad)),
        ):
            found.append((f"{what}, {name}", made(ours), made(theirs)))
    return found


def _inference(layer: Any, x: Any) -> _Call:
    def call() -> None:
        with torch.no_grad():
            layer(x)

    return call


def _step(layer: Any, x: Any, grad: Any) -> _Call:
    parameters = list(layer.parameters())

    def call() -> None:
        layer(x).backward(grad)
        for item in parameters:
            item.grad = None

    return call


def _products(device: str) -> list[tuple[str, _Call, _Call]]:
    found = []
    for name, rows, sizes, kind in _PRODUCTS:
        place = {"device": device, "dtype": kind}
        factors = [torch.randn(size, size, **place) / size**0.5 for size in sizes]
        columns = 1
        for size in sizes:
            columns *= size
        operands = [torch.randn(rows, columns, **place), *factors]
        for item in operands:
            item.requires_grad_()
        grad = torch.randn(rows, columns, **place)
        calls = [_gradients(product, operands, grad) for product in (kronop.torch.gemkm, _loop)]
        found.append((f"gemkm, forward and backward, {name}", *calls))
    return found


def _gradients(product: Callable[..., Any], operands: Sequence[Any], grad: Any) -> _Call:
    x, *factors = operands
    return lambda: torch.autograd.grad(product(x, factors), operands, grad)


def _loop(x: Any, factors: Sequence[Any]) -> Any:
    """One digit after the other, the last first."""
    rows = len(x)
    for factor in reversed(factors):
        x = (x.reshape(rows, -1, len(factor)) @ factor).mT.reshape(rows, -1)
    return x


def _measure(calls: Sequence[_Call], options: Any) -> list[float]:
    """Microseconds of each."""
    for call in calls:
        for _ in range(10):  # Until what repeats them has been learned.
            call()
    finish = torch.cuda.synchronize if options.device == "cuda" else lambda: None
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(options.rounds):
        for call, own in zip(calls, times, strict=True):
            finish()
            begin = time.perf_counter()
            for _ in range(options.calls):
                call()
            finish()
            own.append((time.perf_counter() - begin) / options.calls * 1e6)
    return [statistics.median(own) for own in times]


def _python_calls(call: _Call) -> int:
    profile = cProfile.Profile()
    profile.enable()
    call()
    profile.disable()
    found: Any = pstats.Stats(profile)
    return int(found.total_calls)


if __name__ == "__main__":
    main()
