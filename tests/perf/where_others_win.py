"""Where other libraries are as fast or faster: `OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
python -m tests.perf.where_others_win` measures the table of docs/benchmarks.md.

JSON lines: medians of interleaved rounds in milliseconds, and each library's time over kronop's.
It needs SciPy, scikit-learn and torch.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.fft
import torch
from scipy.spatial import cKDTree
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.neighbors import NearestNeighbors

import kronop
from kronop.torch.nn import KSLinear

_RANDOM = np.random.default_rng(0)
_Case = tuple[str, dict[str, Callable[[], Any]]]
_FLOATS = (np.float32, np.float64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name has this word")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    for cases in (_products, _transforms, _layers, _neighbours, _distances):
        for name, calls in cases():
            if options.only in name:
                times = _measure(calls, options.rounds)
                ratios = {key: round(times[key] / times["kronop"], 2) for key in calls}
                print(json.dumps({"case": name, "ms": times, "over kronop": ratios}), flush=True)


def _measure(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(3):
        for call in calls.values():
            call()
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(1e3 * (time.perf_counter() - start))
    return {name: round(statistics.median(every), 4) for name, every in times.items()}


def _values(dtype: Any, *shape: int) -> Any:
    return _RANDOM.standard_normal(shape).astype(dtype)


def _two(matmul: Any, x: Any, a: Any, b: Any) -> Any:
    """Rows of x times a and b, which are p x p, in two matrix products."""
    p = len(a)
    return matmul(a.T, matmul(x.reshape(-1, p), b).reshape(-1, p, p)).reshape(len(x), -1)


def _products() -> Iterator[_Case]:
    for dtype in _FLOATS:
        for rows, p in ((1, 16), (1000, 64), (100, 128), (64, 256), (16, 512), (1, 1024)):
            x, a, b = _values(dtype, rows, p * p), _values(dtype, p, p), _values(dtype, p, p)
            tensors = [torch.from_numpy(item) for item in (x, a, b)]
            calls = {
                "kronop": lambda x=x, a=a, b=b: kronop.gemkm(x, [a, b]),
                "numpy": lambda x=x, a=a, b=b: _two(np.matmul, x, a, b),
                "torch": lambda tensors=tensors: _two(torch.matmul, *tensors),
            }
            if p == 16:
                formed = np.kron(a, b)
                calls["formed"] = lambda x=x, formed=formed: x @ formed
            yield f"product {rows} x {p}^2 {np.dtype(dtype).name}", calls


def _transforms() -> Iterator[_Case]:
    shapes = (
        (256, 64, 2),
        (64, 128, 2),
        (16, 256, 2),
        (8192, 64, 1),
        (2048, 256, 1),
        (512, 1024, 1),
    )
    for dtype in _FLOATS:
        for rows, n, count in shapes:
            cosines = scipy.fft.dct(np.eye(n), norm="ortho", axis=1).astype(dtype)
            x, axes = _values(dtype, rows, *[n] * count), tuple(range(1, count + 1))
            calls = {
                "kronop": lambda x=x, c=[cosines] * count: kronop.gemkm(x.reshape(len(x), -1), c),
                "scipy": lambda x=x, axes=axes: scipy.fft.dctn(x, axes=axes, norm="ortho"),
            }
            assert np.allclose(calls["kronop"]().reshape(x.shape), calls["scipy"](), atol=1e-3)
            yield f"cosine transform {rows} x {n}^{count} {np.dtype(dtype).name}", calls


def _layers() -> Iterator[_Case]:
    for width, blocks in ((64, 8), (256, 16), (1024, 32), (4096, 32)):
        layers = {"kronop": KSLinear.monarch(width, width, blocks)}
        layers["dense"] = torch.nn.Linear(width, width)
        x = torch.randn(256, width)
        yield (
            f"layer forward 256 x {width}",
            {name: lambda layer=layer, x=x: _forward(layer, x) for name, layer in layers.items()},
        )
        yield (
            f"layer step 256 x {width}",
            {name: lambda layer=layer, x=x: _step(layer, x) for name, layer in layers.items()},
        )


@torch.no_grad()
def _forward(layer: Any, x: Any) -> None:
    layer(x)


def _step(layer: Any, x: Any) -> None:
    layer.zero_grad()
    layer(x).sum().backward()


def _neighbours() -> Iterator[_Case]:
    norm = kronop.kernels.PowerNorm(2)
    for dtype in _FLOATS:
        for features in (3, 8, 16, 64, 784):
            x, y = _values(dtype, 4000, features), _values(dtype, 4000, features)
            brute = NearestNeighbors(n_neighbors=5, algorithm="brute").fit(y)
            calls = {
                "kronop": lambda x=x, y=y: kronop.kernel_reduce(x, y, norm, "topk", k=5),
                "brute": lambda x=x, brute=brute: brute.kneighbors(x),
            }
            if features <= 16:
                calls["tree"] = lambda x=x, y=y: cKDTree(y).query(x, 5)
            yield f"neighbours 4000 {features} features {np.dtype(dtype).name}", calls


def _distances() -> Iterator[_Case]:
    for dtype in _FLOATS:
        for features in (3, 64, 784):
            x, y = _values(dtype, 2000, features), _values(dtype, 2000, features)
            tensors = [torch.from_numpy(item) for item in (x, y)]
            calls = {
                "kronop": lambda x=x, y=y: kronop.cdist(x, y),
                "scikit-learn": lambda x=x, y=y: euclidean_distances(x, y),
                "torch": lambda tensors=tensors: torch.cdist(*tensors),
            }
            yield f"cdist 2000 {features} features {np.dtype(dtype).name}", calls


if __name__ == "__main__":
    main()
