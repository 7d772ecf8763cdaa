"""What others do on the CPUs that are to be timed."""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path

from kronop.cpus import cpu_count

_LOAD = Path("/proc/loadavg")
_LOOKS, _SECONDS_APART = 5, 0.01


def warn_of_load(device: str) -> None:
    """Says on standard error where others keep the CPU busy that is to be timed."""
    if device == "cpu" and (busy := busy_cpus()):
        print(
            f"warning: other processes keep {busy} of {cpu_count()} CPUs busy;"
            " times and gains are those of a busy machine",
            file=sys.stderr,
        )


def busy_cpus() -> int:
    """CPUs of those that this process may use which others keep busy, now and not on average.

    Looks for a twentieth of a second, and counts threads that run or could; 0 where the system does
    not tell.
    """
    looks = []
    for _ in range(_LOOKS):
        time.sleep(_SECONDS_APART)
        looks.append(_running(_LOAD) - 1)  # Without this thread.
    spare = (os.cpu_count() or 1) - cpu_count()
    return max(0, min(cpu_count(), int(statistics.median(looks)) - spare))


def _running(load: Path) -> int:
    """Threads that run or could: the first number of "7/126", the fourth entry."""
    try:
        return int(load.read_text().split()[3].partition("/")[0])
    except (OSError, ValueError, IndexError):
        return 1
