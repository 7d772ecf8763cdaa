"""Plots: the rates of all cases and peers under the measured roofline, and gains of layers."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any

from kronop.bench.case import Result
from kronop.bench.layers import OURS
from kronop.bench.patterns import Case
from kronop.bench.roofline import Ceilings
from kronop.bench.rows import Row
from kronop.descriptions.datatype import TENSOR_TYPES
from kronop.errors import ArgumentError, mismatch

_MARKERS = {"kronop": "o", "shuffle": "x", "fastkron": "^", "linear_operator": "+"}


def check(path: str) -> None:
    """Checks, before anything is measured, that a picture can be drawn.

    Raises:
        ArgumentError: matplotlib is not installed, or the name does not end in .png.
    """
    if not path.endswith(".png"):
        raise ArgumentError(
            mismatch("--plot", expected="a name that ends in .png", got=path, hint="rename it")
        )
    if importlib.util.find_spec("matplotlib") is None:
        raise ArgumentError(
            mismatch(
                "--plot",
                expected="matplotlib",
                got="no such package",
                hint="pip install matplotlib, or leave --plot out",
            )
        )


def save(path: str, results: Sequence[Result], ceilings: Ceilings, title: str) -> None:
    """Writes a PNG: useful operations per second over useful operations per byte."""
    done = [result for result in results if result.floor is not None]
    figure = importlib.import_module("matplotlib.figure").Figure(figsize=(10, 7), dpi=120)
    axes = figure.subplots()
    dtypes = list(dict.fromkeys(result.dtype for result in done))
    for index, dtype in enumerate(dtypes):
        _points(axes, [result for result in done if result.dtype == dtype], f"C{index}")
        _roof(axes, done, ceilings, dtype, f"C{index}")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("useful operations per useful byte")
    axes.set_ylabel("useful operations per second")
    axes.set_title(title)
    axes.grid(True, which="both", alpha=0.2)
    axes.legend(fontsize=8)
    figure.savefig(path)


def save_gains(path: str, rows: Sequence[Row]) -> None:
    """Writes a PNG: time of the best other algorithm over kronop's, against operations per byte."""
    cases: dict[Case, list[Row]] = {}
    for row in rows:
        cases.setdefault(row.case, []).append(row)
    points: dict[str, list[tuple[float, float]]] = {}
    for case, found in cases.items():
        ours = [row.ms for row in found if row.algorithm == OURS and row.ms]
        others = [row.ms for row in found if row.algorithm != OURS and row.ms]
        if ours and others:
            element = TENSOR_TYPES[case.dtype].bytes
            where = case.operations / case.bytes(element), min(others) / ours[0]
            points.setdefault(f"{case.dtype}, batch {case.layout}", []).append(where)
    figure = importlib.import_module("matplotlib.figure").Figure(figsize=(10, 7), dpi=120)
    axes = figure.subplots()
    for index, (label, places) in enumerate(points.items()):
        x, y = zip(*places, strict=True)
        axes.plot(x, y, "ox^+sd"[index % 6], color=f"C{index}", alpha=0.7, label=label)
    axes.axhline(1, color="black", lw=1)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xlabel("useful operations per useful byte")
    axes.set_ylabel("time of the best other algorithm over kronop's")
    axes.set_title(f"Kronecker-sparse products on {rows[0].device}")
    axes.grid(True, which="both", alpha=0.2)
    if points:
        axes.legend(fontsize=8)
    figure.savefig(path)


def _intensity(result: Result) -> float:
    return result.operations / result.bytes


def _points(axes: Any, results: Sequence[Result], color: str) -> None:
    for name, marker in _MARKERS.items():
        timed = [
            (_intensity(result), result.operations / timing.ms * 1e3)
            for result in results
            for timing in [result.kronop if name == "kronop" else result.peers.get(name)]
            if timing is not None and timing.ms
        ]
        if timed:
            label = f"{name} {results[0].dtype}"
            strength = 1.0 if name == "kronop" else 0.4
            x, y = zip(*timed, strict=True)
            axes.plot(x, y, marker, color=color, alpha=strength, label=label)
    for result in results:
        assert result.kronop.ms
        where = _intensity(result), result.operations / result.kronop.ms * 1e3
        axes.annotate(
            result.shape.text, where, fontsize=6, xytext=(3, 3), textcoords="offset points"
        )


def _roof(axes: Any, results: Sequence[Result], ceilings: Ceilings, dtype: str, color: str) -> None:
    intensities = [_intensity(result) for result in results]
    least, most = min(intensities) / 2, max(intensities) * 2
    rate, bandwidth = ceilings.rate(dtype), ceilings.copy_bytes_per_second
    corner = min(max(rate / bandwidth, least), most)
    x = [least, corner, most]
    axes.plot(x, [min(value * bandwidth, rate) for value in x], color=color, lw=1)
