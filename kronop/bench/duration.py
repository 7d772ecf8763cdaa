"""How long a run takes, about: it is told before a run that takes more than a minute."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass

from kronop.cpus import cpu_count

_MINUTE, _HOUR = 60, 3600
# Rounds of timing, which are half of what a case takes, in the runs behind every `Pace`.
_ROUNDS = 15


@dataclass(frozen=True, slots=True)
class Pace:
    """What cases of a benchmark take, in 15 rounds and with kernels that are not in the cache.

    Attributes:
        seconds: of any case, however small.
        rate: useful operations, of all of a case's products, in a second: those of the rounds, of
            the other libraries and of the checks are not counted. On a CPU they are those of a
            core.
    """

    seconds: float
    rate: float

    def of(self, operations: Iterable[float], device: str, rounds: int = _ROUNDS) -> float:
        """Seconds of cases with these operations."""
        rate = self.rate * (cpu_count() if device == "cpu" else 1)
        seconds = sum(self.seconds + count / rate for count in operations)
        return seconds * (1 + rounds / _ROUNDS) / 2


def announce(count: int, what: str, seconds: float, shorter: str = "") -> None:
    """Says on standard error what a run does and how long, if that is more than a minute.

    Args:
        count: of `what`, in the plural.
        seconds: of all of them.
        shorter: how to have a shorter run.
    """
    if seconds > _MINUTE:
        told = f"; {shorter}" if shorter else ""
        print(f"{count} {what}, about {text(seconds)}{told}", file=sys.stderr, flush=True)


def text(seconds: float) -> str:
    """Seconds in words, rounded as an estimate is."""
    if seconds < 1.5 * _MINUTE:
        return "a minute"
    if seconds < 1.5 * _HOUR:
        return f"{seconds / _MINUTE:.0f} minutes"
    return f"{seconds / _HOUR:.0f} hours"
