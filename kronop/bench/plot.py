"""Pictures: the rates of all cases under the measured roofline, and gains of layers.

matplotlib is imported when a picture is drawn.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kronop.bench.case import Result
from kronop.bench.layers import OURS
from kronop.bench.patterns import Case
from kronop.bench.roofline import Ceilings
from kronop.bench.rows import Row
from kronop.descriptions.datatype import TENSOR_TYPES
from kronop.errors import ArgumentError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ENDINGS = (".png", ".svg")
_MARKERS = {"kronop": "o", "shuffle": "x", "fastkron": "^", "linear_operator": "+"}
# Of element types, as all eyes tell them apart (Okabe and Ito): as many as `bench kron` has.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
_GREY = "0.35"
# Of labels of points: their size in points of 1/72 inch, the width of a letter over that size, and
# the distances from the point at which there may be room, with a line to the point from the second
# on.
_LABEL, _LETTER = 7.0, 0.66
_DISTANCES = (5.0, 14.0, 24.0, 36.0, 50.0, 66.0)
_DIRECTIONS = 12

Box = tuple[float, float, float, float]


def check(path: str, option: str = "--plot") -> None:
    """Checks, before anything is measured, that a picture can be drawn.

    Args:
        option: that named the path.

    Raises:
        ArgumentError: matplotlib is not installed, or the name ends in neither .png nor .svg.
    """
    if not path.endswith(_ENDINGS):
        raise ArgumentError(
            option,
            expected=f"a name that ends in {' or '.join(_ENDINGS)}",
            got=path,
            hint="rename it",
        )
    if importlib.util.find_spec("matplotlib") is None:
        raise ArgumentError(
            option,
            expected="matplotlib",
            got="no such package",
            hint=f"pip install matplotlib, or leave {option} out",
        )


def figure_of(width: float, height: float) -> Figure:
    """An empty figure of that size in inches, whose parts make room for each other."""
    made = importlib.import_module("matplotlib.figure").Figure
    figure: Figure = made(figsize=(width, height), dpi=120, layout="constrained", facecolor="white")
    return figure


def save(path: str, results: Sequence[Result], ceilings: Ceilings, title: str) -> None:
    """Writes a picture: useful operations per second over useful operations per byte."""
    done = [result for result in results if result.floor is not None]
    figure = figure_of(10, 7)
    axes = figure.subplots()
    colours = dict(zip(dict.fromkeys(result.dtype for result in done), _COLOURS, strict=False))
    for dtype, colour in colours.items():
        _points(axes, [result for result in done if result.dtype == dtype], colour)
        _roof(axes, done, ceilings, dtype, colour)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("useful operations per useful byte")
    axes.set_ylabel("useful operations per second")
    axes.set_title(title)
    axes.grid(True, which="both", alpha=0.2)
    for name in _shown(done):
        # A colour is a type, whichever the library: so each has one entry.
        axes.plot([], [], _MARKERS[name], color=_GREY, label=name)
    if done:
        figure.legend(loc="outside right upper", fontsize=8)
        figure.draw_without_rendering()  # Places of labels depend on the axes' size.
        _label(axes, done, colours)
    figure.savefig(path)


def save_gains(path: str, rows: Sequence[Row]) -> None:
    """Writes a picture: time of the best other algorithm over kronop's, against operations per
    byte."""
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
    figure = figure_of(5.2, 5.2)  # Labels can be read on a telephone.
    axes = figure.subplots()
    for index, (label, places) in enumerate(points.items()):
        x, y = zip(*places, strict=True)
        axes.plot(x, y, "ox^+sd"[index % 6], color=f"C{index}", alpha=0.7, label=label)
    axes.axhline(1, color="black", lw=1, label="as fast as kronop")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xlabel("useful operations per useful byte")
    axes.set_ylabel("time of the best other algorithm over kronop's")
    axes.set_title(f"Kronecker-sparse products on {rows[0].device}", fontsize=10)
    axes.grid(True, which="both", alpha=0.2)
    figure.legend(loc="outside lower center", ncols=2, fontsize=9)
    figure.savefig(path)


def _where(result: Result, ms: float) -> tuple[float, float]:
    return result.operations / result.bytes, result.operations / ms * 1e3


def _times(name: str, results: Sequence[Result]) -> Iterator[tuple[float, float]]:
    """The places of a library's points."""
    for result in results:
        timing = result.kronop if name == "kronop" else result.peers.get(name)
        if timing is not None and timing.ms:
            yield _where(result, timing.ms)


def _shown(results: Sequence[Result]) -> list[str]:
    return [name for name in _MARKERS if any(_times(name, results))]


def _points(axes: Axes, results: Sequence[Result], colour: str) -> None:
    for name in _shown(results):
        x, y = zip(*_times(name, results), strict=True)
        strength = 1.0 if name == "kronop" else 0.4
        axes.plot(x, y, _MARKERS[name], color=colour, alpha=strength)


def _roof(
    axes: Axes, results: Sequence[Result], ceilings: Ceilings, dtype: str, colour: str
) -> None:
    intensities = [result.operations / result.bytes for result in results]
    least, most = min(intensities) / 2, max(intensities) * 2
    rate, bandwidth = ceilings.rate(dtype), ceilings.copy_bytes_per_second
    corner = min(max(rate / bandwidth, least), most)
    x = [least, corner, most]
    y = [min(value * bandwidth, rate) for value in x]
    axes.plot(x, y, color=colour, lw=1, label=f"roofline, {dtype}")


def _label(axes: Axes, results: Sequence[Result], colours: dict[str, str]) -> None:
    """Writes the shape beside each of kronop's points, where it covers no point and no label."""
    scale = 72 / axes.figure.dpi
    to_page = axes.transData.transform
    points = [
        tuple(scale * value for value in to_page(place))
        for name in _shown(results)
        for place in _times(name, results)
    ]
    taken = [(x - 2, y - 2, x + 2, y + 2) for x, y in points]
    for result in results:
        assert result.kronop.ms
        place = _where(result, result.kronop.ms)
        x, y = (scale * value for value in to_page(place))
        width, height = len(result.shape.text) * _LABEL * _LETTER, 1.2 * _LABEL
        box, distance = _free(x, y, width, height, taken)
        taken.append(box)
        axes.annotate(
            result.shape.text,
            place,
            xytext=(box[0] - x, box[1] - y),
            textcoords="offset points",
            fontsize=_LABEL,
            color=colours[result.dtype],
            arrowprops={"arrowstyle": "-", "color": "0.6", "lw": 0.5}
            if distance > _DISTANCES[0]
            else None,
        )


def _free(
    x: float, y: float, width: float, height: float, taken: Sequence[Box]
) -> tuple[Box, float]:
    """A box of that size near a point that meets none of the others, and its distance; the last
    one that was tried, if all do."""
    turns = [2 * math.pi * at / _DIRECTIONS for at in range(_DIRECTIONS)]
    for distance, turn in itertools.product(_DISTANCES, turns):
        # The box's middle is so far from the point that its edge has that distance.
        across, up = math.cos(turn), math.sin(turn)
        left = x + across * (distance + width / 2) - width / 2
        low = y + up * (distance + height / 2) - height / 2
        box = (left, low, left + width, low + height)
        if not any(_meet(box, other) for other in taken):
            break
    return box, distance


def _meet(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
