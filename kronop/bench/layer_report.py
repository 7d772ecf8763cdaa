"""Rows of Kronecker-sparse products as lines of a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kronop.bench.layers import OURS
from kronop.bench.rows import Row
from kronop.bench.table import Table, error_text, milliseconds

_TABLE = Table(
    (
        *(("a,b,c,d", 18), ("type", 13), ("batch", 6), ("ms", 8), ("graph ms", 9)),
        *(("roofline", 9), ("floor ms", 9), ("is of", 11), ("error", 9)),
    )
)


def _table(algorithms: Iterable[str]) -> Table:
    """kronop's columns, then one column for each other algorithm."""
    return _TABLE.beside([name for name in algorithms if name != OURS], "{} (gain)", 17)


def columns(algorithms: Sequence[str]) -> str:
    """The heading of the table."""
    return _table(algorithms).heading()


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
    cells += [_other(row, ours) for row in rows if row is not ours]
    told = [f"  {row.algorithm}: {row.reason}" for row in rows if row.reason]
    return "\n".join([_table(row.algorithm for row in rows).line(cells), *told])


def _other(row: Row, ours: Row | None) -> str:
    gain = f" ({row.ms / ours.ms:.2f}x)" if row.ms and ours and ours.ms else ""
    return milliseconds(row.ms) + gain
