"""What all reports of results say: the machine, ceilings, timings as JSON, and notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import kronop
from kronop.bench.arrays import Arrays
from kronop.bench.roofline import Ceilings
from kronop.bench.timing import AnyFloor, Measured, Timing

Told = Mapping[str, str | int]
"""The machine and the versions of libraries, by name."""

_ABOVE = "roofline above 1: the ceilings of this run are below what the machine can do"


def machine_of(arrays: Arrays) -> Told:
    """The version of kronop, and what the arrays are on."""
    return {"kronop": kronop.__version__, **arrays.describe()}


def machine_text(machine: Told) -> str:
    return ", ".join(f"{name} {value}" for name, value in machine.items())


def head(ceilings: Ceilings, machine: Told) -> str:
    """The lines above the table: the machine, and the measured ceilings."""
    rates = ", ".join(
        f"{name} {rate / 1e12:.3g}" for name, rate in ceilings.operations_per_second.items()
    )
    return (
        f"{machine_text(machine)}\n"
        f"copy {ceilings.copy_bytes_per_second / 1e12:.3g} TB/s; matrix products of"
        f" {ceilings.size}^3 in TFLOP/s: {rates}"
    )


def notes(results: Sequence[Measured[AnyFloor]]) -> list[str]:
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


def ceilings_json(ceilings: Ceilings) -> dict[str, object]:
    """The measured ceilings."""
    return {
        "copy_bytes_per_second": ceilings.copy_bytes_per_second,
        "operations_per_second": ceilings.operations_per_second,
        "matrix_size": ceilings.size,
    }


def peers_json(result: Measured[AnyFloor]) -> dict[str, object]:
    return {name: timing_json(timing) for name, timing in result.peers.items()}


def timing_json(timing: Timing) -> dict[str, object]:
    """The timing in numbers that JSON can hold: an infinite error is given as a reason."""
    infinite = timing.error == float("inf")
    return {
        "ms": timing.ms,
        "graph_ms": timing.graph_ms,
        "error": None if infinite else timing.error,
        "reason": "the result is not finite" if infinite else timing.reason,
    }
