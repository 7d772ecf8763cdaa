"""The paper's figures, computed from measured rows: shares won, speed-ups, time over dense."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kronop.bench.layers import ALGORITHMS, OURS
from kronop.bench.patterns import Case
from kronop.bench.rows import Row

DENSE = "dense"
# Below this density at least half of the matrix is zeros, and kronop should beat a dense product.
_SPARSE = 0.5
_DECILE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """How much faster kronop is than another algorithm, over the cases that have both times.

    Attributes:
        against: an algorithm, or "best other".
        count: number of cases.
        won: share of the cases in which kronop is faster.
        median, least: the other algorithm's time over kronop's.
        where: the case of `least`.
    """

    against: str
    count: int
    won: float
    median: float
    least: float
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The shares of the roofline that kronop reaches.

    Attributes:
        decile: the share that nine tenths of the cases reach.
        where: the case of `least`.
    """

    median: float
    decile: float
    least: float
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures of the cases with one device, element type, layout and direction.

    Attributes:
        title: says which cases these are.
        cases: the number of cases with a time of kronop.
        gains: against the best other algorithm, then against each.
        over_dense: median of kronop's time over dense.
        behind_dense: cases with a density under 0.5 in which dense is not slower.
        roofline: kronop's shares of the roofline.
        error: kronop's largest error.
        failed: cases without a time of kronop, with the reason.
    """

    title: str
    cases: int
    gains: tuple[Gain, ...]
    over_dense: float | None
    behind_dense: tuple[str, ...]
    roofline: Shares | None
    error: float | None
    failed: tuple[str, ...]


def summaries(rows: Iterable[Row]) -> list[Summary]:
    """A summary for each device, element type, layout and direction; if a case occurs twice, its
    last row counts."""
    groups: dict[tuple[str, str, str, bool], dict[Case, dict[str, Row]]] = {}
    for row in rows:
        group = groups.setdefault((row.device, row.dtype, row.layout, row.backward), {})
        group.setdefault(row.case, {})[row.algorithm] = row
    return [
        _summary(f"{dtype}, batch {layout}{', forward + backward' * backward}, {device}", cases)
        for (device, dtype, layout, backward), cases in groups.items()
    ]


def _summary(title: str, cases: dict[Case, dict[str, Row]]) -> Summary:
    ours = {case: row for case, rows in cases.items() if (row := rows.get(OURS)) is not None}
    timed = {case: row for case, row in ours.items() if row.ms is not None}
    others = [name for name in ALGORITHMS if name != OURS]
    times = {
        name: {case: row.ms for case, rows in cases.items() if (row := rows.get(name)) and row.ms}
        for name in (OURS, *others)
    }
    best = {
        case: min(found)
        for case in cases
        if (found := [times[name][case] for name in others if case in times[name]])
    }
    gains = [_gain(times[OURS], best, "best other")]
    gains += [_gain(times[OURS], times[name], name) for name in others]
    dense = times[DENSE]
    both = [case for case in times[OURS] if case in dense]
    shares = sorted((row.share, str(case)) for case, row in timed.items() if row.share is not None)
    errors = [row.error for row in timed.values() if row.error is not None]
    return Summary(
        title=title,
        cases=len(timed),
        gains=tuple(gain for gain in gains if gain is not None),
        over_dense=statistics.median(times[OURS][case] / dense[case] for case in both)
        if both
        else None,
        behind_dense=tuple(
            str(case)
            for case in both
            if case.pattern.density < _SPARSE and times[OURS][case] >= dense[case]
        ),
        roofline=_shares(shares),
        error=max(errors, default=None),
        failed=tuple(f"{case}: {row.reason}" for case, row in ours.items() if row.ms is None),
    )


def _gain(ours: dict[Case, float], other: dict[Case, float], against: str) -> Gain | None:
    ratios = sorted((other[case] / ours[case], str(case)) for case in ours if case in other)
    if not ratios:
        return None
    return Gain(
        against=against,
        count=len(ratios),
        won=sum(ratio > 1 for ratio, _ in ratios) / len(ratios),
        median=statistics.median(ratio for ratio, _ in ratios),
        least=ratios[0][0],
        where=ratios[0][1],
    )


def _shares(shares: Sequence[tuple[float, str]]) -> Shares | None:
    if not shares:
        return None
    values = [share for share, _ in shares]
    return Shares(
        median=statistics.median(values),
        decile=values[int(_DECILE * len(values))],
        least=values[0],
        where=shares[0][1],
    )


def text(summary: Summary) -> str:
    """The summary as lines for a terminal."""
    lines = [f"{summary.title}: {summary.cases} cases"]
    for gain in summary.gains:
        lines.append(
            f"  against {gain.against:10} {gain.median:7.2f}x in the median, won {gain.won:6.1%}"
            f" of {gain.count}, least {gain.least:.2f}x {gain.where}"
        )
    if summary.over_dense is not None:
        lines.append(f"  time over dense    {summary.over_dense:7.2f} in the median")
    if summary.behind_dense:
        lines.append(f"  density under 0.5, not faster than dense: {_list(summary.behind_dense)}")
    if summary.roofline is not None:
        found = summary.roofline
        lines.append(
            f"  of the roofline    {found.median:7.2f} in the median, {found.decile:.2f} on 90 %,"
            f" least {found.least:.2f} {found.where}"
        )
    if summary.error is not None:
        lines.append(f"  largest error      {summary.error:7.1e}")
    if summary.failed:
        lines.append(f"  no time: {_list(summary.failed)}")
    return "\n".join(lines)


def _list(items: Sequence[str], most: int = 8) -> str:
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more
