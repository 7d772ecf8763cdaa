"""Results as a table on the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kronop.bench.case import Result
from kronop.bench.roofline import Ceilings
from kronop.bench.timing import Measured, Timing

_ABOVE = "roofline above 1: the ceilings of this run are below what the machine can do"
PEER_WIDTH = 25
_COLUMNS = (
    ("M x factors", 18),
    ("type", 9),
    ("steps", 6),
    ("ms", 10),
    ("graph us", 9),
    ("roofline", 9),
    ("floor ms", 9),
    ("is of", 11),
    ("1 pass ms", 10),
    ("error", 9),
)


def head(ceilings: Ceilings, machine: dict[str, str | int]) -> str:
    """The lines above the table: the machine, and the measured ceilings."""
    told = ", ".join(f"{name} {value}" for name, value in machine.items())
    rates = ", ".join(
        f"{name} {rate / 1e12:.3g}" for name, rate in ceilings.operations_per_second.items()
    )
    return (
        f"{told}\n"
        f"copy {ceilings.copy_bytes_per_second / 1e12:.3g} TB/s; matrix products of"
        f" {ceilings.size}^3 in TFLOP/s: {rates}"
    )


def columns(peers: Sequence[str]) -> str:
    """The heading of the table."""
    names = [name.ljust(width) for name, width in _COLUMNS]
    names += [f"{name} ms (gain)".ljust(PEER_WIDTH) for name in peers]
    return " ".join(names).rstrip()


def row(result: Result, peers: Sequence[str]) -> str:
    """A line of the table; for a failed case it gives the reason."""
    if result.floor is None:
        return f"{result.shape.text:18} {result.dtype:9} failed: {result.kronop.reason}"
    cells = [
        result.shape.text,
        result.dtype,
        str(result.steps),
        milliseconds(result.kronop.ms),
        microseconds(result.kronop.graph_ms),
        f"{result.share:.2f}",
        milliseconds(result.floor.ms),
        result.floor.bound,
        milliseconds(result.floor.one_pass_ms),
        error_text(result.kronop.error),
    ]
    padded = [cell.ljust(width) for cell, (_, width) in zip(cells, _COLUMNS, strict=True)]
    padded += [peer_text(result, result.peers[name]).ljust(PEER_WIDTH) for name in peers]
    return " ".join(padded).rstrip()


def notes(results: Sequence[Measured[Any]]) -> list[str]:
    """Lines below the table: peers without a time or with wrong results, and shares above 1."""
    told: dict[str, list[str]] = {}
    for result in results:
        if (result.share or 0) > 1:
            told.setdefault(_ABOVE, []).append(result.label)
        for name, timing in [("kronop", result.kronop), *result.peers.items()]:
            reason = timing.reason if name != "kronop" or result.floor else ""
            if timing.error == float("inf"):
                reason = "the result is not finite"
            if reason:
                told.setdefault(f"{name}: {reason}", []).append(result.label)
    every = len(results) > 1
    return [
        f"{reason} ({'all' if every and len(where) == len(results) else _once(where)})"
        for reason, where in told.items()
    ]


def _once(labels: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(labels))


def as_json(
    results: Sequence[Result], ceilings: Ceilings, machine: dict[str, str | int], repeats: int
) -> dict[str, Any]:
    """Everything that was measured; times are in milliseconds, `roofline` is floor over time."""
    return {
        "machine": machine,
        "repeats": repeats,
        "ceilings": ceilings_json(ceilings),
        "cases": [_case(result) for result in results],
    }


def ceilings_json(ceilings: Ceilings) -> dict[str, Any]:
    """The measured ceilings."""
    return {
        "copy_bytes_per_second": ceilings.copy_bytes_per_second,
        "operations_per_second": ceilings.operations_per_second,
        "matrix_size": ceilings.size,
    }


def _case(result: Result) -> dict[str, Any]:
    floor = result.floor
    return {
        "shape": result.shape.text,
        "rows": result.shape.rows,
        "factors": result.shape.factors,
        "dtype": result.dtype,
        "bytes": result.bytes,
        "operations": result.operations,
        "steps": result.steps,
        "kronop": timing_json(result.kronop),
        "copy_ms": result.copy_ms,
        "roofline": result.share,
        "floor": floor
        and {
            "ms": floor.ms,
            "bound": floor.bound,
            "passes": floor.passes,
            "one_pass_ms": floor.one_pass_ms,
            "arithmetic_ms": floor.arithmetic_ms,
        },
        "peers": {name: timing_json(timing) for name, timing in result.peers.items()},
    }


def timing_json(timing: Timing) -> dict[str, Any]:
    """The timing in numbers that JSON can hold: an infinite error is given as a reason."""
    infinite = timing.error == float("inf")
    return {
        "ms": timing.ms,
        "graph_ms": timing.graph_ms,
        "error": None if infinite else timing.error,
        "reason": "the result is not finite" if infinite else timing.reason,
    }


def peer_text(result: Measured[Any], timing: Timing) -> str:
    """A peer's time, and that time over kronop's."""
    if timing.ms is None or not result.kronop.ms:
        return "-"
    mark = "" if timing.error != float("inf") else " wrong"
    return f"{milliseconds(timing.ms)} ({timing.ms / result.kronop.ms:.2f}x){mark}"


def milliseconds(value: float | None) -> str:
    """Milliseconds with four digits, or "-"."""
    return "-" if value is None else f"{value:.4g}" if value < 1000 else f"{value:.0f}"


def microseconds(value: float | None) -> str:
    """Milliseconds as microseconds, or "-"."""
    return "-" if value is None else f"{value * 1e3:.2f}"


def error_text(value: float | None) -> str:
    """An error with two digits, or "-"."""
    return "-" if value is None else f"{value:.1e}"
