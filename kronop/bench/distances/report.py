"""Results of problems of points as a table on the terminal, and as lines of JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kronop.bench.distances.case import Result
from kronop.bench.report import (
    PEER_WIDTH,
    error_text,
    microseconds,
    milliseconds,
    peer_text,
    timing_json,
)

_COLUMNS = (
    ("size", 19),
    ("case", 20),
    ("type", 9),
    ("ms", 10),
    ("graph us", 9),
    ("roofline", 9),
    ("floor ms", 9),
    ("is of", 16),
    ("error", 9),
)


def columns(peers: Sequence[str]) -> str:
    """The heading of the table."""
    names = [name.ljust(width) for name, width in _COLUMNS]
    names += [f"{name} ms (gain)".ljust(PEER_WIDTH) for name in peers]
    return " ".join(names).rstrip()


def row(result: Result, peers: Sequence[str]) -> str:
    """A line of the table; for a failed case it gives the reason."""
    problem = result.problem
    cells = [problem.label, problem.case, problem.dtype]
    if result.floor is None:
        padded = [cell.ljust(width) for cell, (_, width) in zip(cells, _COLUMNS, strict=False)]
        return f"{' '.join(padded)} failed: {result.kronop.reason}"
    cells += [
        milliseconds(result.kronop.ms),
        microseconds(result.kronop.graph_ms),
        f"{result.share:.2f}",
        milliseconds(result.floor.ms),
        result.floor.bound,
        error_text(result.kronop.error),
    ]
    padded = [cell.ljust(width) for cell, (_, width) in zip(cells, _COLUMNS, strict=True)]
    padded += [peer_text(result, result.peers[name]).ljust(PEER_WIDTH) for name in peers]
    return " ".join(padded).rstrip()


def as_json(result: Result) -> dict[str, Any]:
    """The measurements of a case; times are in milliseconds, `roofline` is floor over time."""
    floor = result.floor
    return {
        **result.problem.as_json(),
        "kronop": timing_json(result.kronop),
        "roofline": result.share,
        "floor": floor and {"ms": floor.ms, "bound": floor.bound, "parts": dict(floor.parts)},
        "peers": {name: timing_json(timing) for name, timing in result.peers.items()},
    }
