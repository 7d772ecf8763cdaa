"""Rows of Kronecker-sparse products as lines of a table."""

from __future__ import annotations

from collections.abc import Sequence

from kronop.bench.layers import OURS
from kronop.bench.report import error_text, milliseconds
from kronop.bench.rows import Row

_COLUMNS = (
    ("a,b,c,d", 18),
    ("type", 13),
    ("batch", 6),
    ("ms", 8),
    ("graph ms", 9),
    ("roofline", 9),
    ("floor ms", 9),
    ("is of", 11),
    ("error", 9),
)
_OTHER_WIDTH = 17


def columns(algorithms: Sequence[str]) -> str:
    """The heading: kronop's columns, then one column for each other algorithm."""
    names = [name.ljust(width) for name, width in _COLUMNS]
    names += [f"{name} (gain)".ljust(_OTHER_WIDTH) for name in algorithms if name != OURS]
    return " ".join(names).rstrip()


def line(rows: Sequence[Row]) -> str:
    """A line for the rows of one case; below it, the reasons of algorithms that failed."""
    ours = next((row for row in rows if row.algorithm == OURS), None)
    any_row = rows[0]
    cells = [
        str(any_row.pattern),
        any_row.dtype,
        any_row.layout,
        milliseconds(ours.ms if ours else None),
        milliseconds(ours.graph_ms if ours else None),
        f"{ours.share:.2f}" if ours and ours.share else "-",
        milliseconds(any_row.floor_ms),
        any_row.bound,
        error_text(ours.error if ours else None),
    ]
    padded = [cell.ljust(width) for cell, (_, width) in zip(cells, _COLUMNS, strict=True)]
    padded += [_other(row, ours).ljust(_OTHER_WIDTH) for row in rows if row is not ours]
    told = [f"  {row.algorithm}: {row.reason}" for row in rows if row.reason]
    return "\n".join([" ".join(padded).rstrip(), *told])


def _other(row: Row, ours: Row | None) -> str:
    gain = f" ({row.ms / ours.ms:.2f}x)" if row.ms and ours and ours.ms else ""
    return milliseconds(row.ms) + gain
