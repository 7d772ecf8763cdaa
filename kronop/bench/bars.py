"""A picture of what `bench kron --json` wrote: other libraries' times over kronop's."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kronop.bench.plot import figure_of
from kronop.errors import ArgumentError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Libraries, their names in the legend, and colours that all eyes tell apart (Okabe and Ito).
_LIBRARIES = {
    "shuffle": ("reshape and matmul (torch or NumPy)", "#0072B2"),
    "fastkron": ("FastKron", "#E69F00"),
    "linear_operator": ("linear_operator", "#009E73"),
}
_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
# Inches: the picture's width, at which labels can be read on a telephone, a bar's height, and what
# surrounds a panel's bars.
_WIDTH, _BAR, _AROUND = 4.2, 0.17, 1.1
# Between groups of bars, in bars.
_GAP = 0.8
_LONGEST_REASON = 30


@dataclass(frozen=True, slots=True)
class Group:
    """A product, and how long others took for it.

    Attributes:
        shape: as the user wrote it.
        ms: kronop's time.
        gains: other libraries' times over that one.
        reasons: why libraries have no time.
    """

    shape: str
    ms: float
    gains: dict[str, float]
    reasons: dict[str, str]


@dataclass(frozen=True, slots=True)
class Panel:
    """The products of one machine in one type; those that kronop was not timed at are left out."""

    title: str
    groups: tuple[Group, ...]

    @property
    def libraries(self) -> list[str]:
        """Those that have a time here."""
        return [name for name in _LIBRARIES if any(name in group.gains for group in self.groups)]


def read(path: str, dtypes: Sequence[str]) -> list[Panel]:
    """A panel for each of these types that a file has.

    Raises:
        ArgumentError: it is no file that `bench kron --json` wrote, or has no time of these types.
    """
    try:
        told = json.loads(Path(path).read_text())
        panels = list(_panels(told, dtypes))
    except (OSError, UnicodeError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise _unusable(path, str(getattr(error, "strerror", None) or error)) from error
    if not panels:
        raise _unusable(path, f"no time beside another library's in {', '.join(dtypes)}")
    return panels


def _unusable(path: str, got: str) -> ArgumentError:
    return ArgumentError(
        path, expected="a file that `kronop bench kron --json` wrote", got=got, hint="measure again"
    )


def _panels(told: dict[str, Any], dtypes: Sequence[str]) -> Iterator[Panel]:
    machine = told["machine"]
    count = machine.get("threads")
    threads = "" if count is None else ", 1 thread" if count == 1 else f", {count} threads"
    for dtype in dict.fromkeys(case["dtype"] for case in told["cases"] if case["dtype"] in dtypes):
        groups = tuple(
            _group(case)
            for case in told["cases"]
            if case["dtype"] == dtype and case["kronop"]["ms"]
        )
        panel = Panel(f"{machine['device']}{threads}\n{dtype}", groups)
        if panel.libraries:
            yield panel


def _group(case: dict[str, Any]) -> Group:
    ms, peers = case["kronop"]["ms"], case["peers"]
    return Group(
        shape=case["shape"],
        ms=ms,
        gains={name: item["ms"] / ms for name, item in peers.items() if item["ms"]},
        reasons={name: item["reason"] for name, item in peers.items() if not item["ms"]},
    )


def save(path: str, panels: Sequence[Panel]) -> None:
    """Writes a picture with one panel above the other."""
    heights = [_bars(panel) * _BAR + _AROUND for panel in panels]
    names = [name for name in _LIBRARIES if any(name in panel.libraries for panel in panels)]
    figure = figure_of(_WIDTH, sum(heights) + 0.2 + 0.2 * len(names))
    column = figure.subplots(len(panels), 1, squeeze=False, gridspec_kw={"height_ratios": heights})
    figure.supylabel("rows:factors, and kronop's time", fontsize=10)
    limits = _limits(panels)
    for axes, panel in zip(column.flat, panels, strict=True):
        _draw(axes, panel, limits)
    patch = importlib.import_module("matplotlib.patches").Patch
    handles = [patch(color=_LIBRARIES[name][1], label=_LIBRARIES[name][0]) for name in names]
    figure.legend(handles=handles, loc="outside upper center", ncols=1, frameon=False)
    figure.savefig(path)


def _step(panel: Panel) -> float:
    """The height of a group and the gap behind it, in bars."""
    return len(panel.libraries) + _GAP


def _bars(panel: Panel) -> float:
    """The height of what is drawn, in bars."""
    return len(panel.groups) * _step(panel)


def _limits(panels: Sequence[Panel]) -> tuple[float, float]:
    """The same for all panels, with room for the numbers at the ends of bars."""
    gains = [gain for panel in panels for group in panel.groups for gain in group.gains.values()]
    least, most = min(1.0, *gains), max(1.0, *gains)
    # The numbers take about a sixth of a panel's width, which is the logarithm of these.
    room = max(most / least, 2) ** 0.22
    return least / room if least < 1 else 1.0, most * room


def _draw(axes: Axes, panel: Panel, limits: tuple[float, float]) -> None:
    count, step = len(panel.libraries), _step(panel)
    for at, group in enumerate(panel.groups):
        for place, name in enumerate(panel.libraries):
            _bar(axes, group, name, at * step + place)
    axes.set_xscale("log")
    axes.set_xlim(*limits)
    ticks = [tick for tick in _TICKS if limits[0] <= tick <= limits[1]]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    middles = [at * step + (count - 1) / 2 for at in range(len(panel.groups))]
    axes.set_yticks(middles, [f"{group.shape}  {_ms(group.ms)}" for group in panel.groups])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(_bars(panel) - _GAP, -1)
    axes.axvline(1, color="black", lw=1)
    axes.set_axisbelow(True)
    axes.grid(True, axis="x", alpha=0.3)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    # Both may be wider than the axes, to the left of which there is room.
    axes.set_title(panel.title, fontsize=10, loc="right")
    axes.set_xlabel("other libraries' time over kronop's", loc="right")


def _bar(axes: Axes, group: Group, name: str, place: float) -> None:
    gain = group.gains.get(name)
    if gain is None:
        reason = group.reasons.get(name, "")
        if len(reason) <= _LONGEST_REASON:
            axes.annotate(reason, (1, place), **_beside(1), color="0.45", style="italic")
        return
    axes.barh(place, gain - 1, left=1, height=0.92, color=_LIBRARIES[name][1])
    axes.annotate(_times(gain), (gain, place), **_beside(gain))


def _beside(gain: float) -> dict[str, Any]:
    """Arguments of a text at the end of a bar that grows to the left or to the right of 1."""
    return {
        "xytext": (3 if gain >= 1 else -3, 0),
        "textcoords": "offset points",
        "ha": "left" if gain >= 1 else "right",
        "va": "center",
        "fontsize": 9,
    }


def _times(gain: float) -> str:
    return f"{gain:.0f}×" if gain >= 10 else f"{gain:.1f}×" if gain >= 1.95 else f"{gain:.2f}×"


def _ms(ms: float) -> str:
    return f"{ms:.3g} ms" if ms < 1000 else f"{ms:.0f} ms"
