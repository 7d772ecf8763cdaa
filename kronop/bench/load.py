"""Whether other processes use the CPUs that are to be timed."""

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
    """Warns on standard error if a CPU is to be timed that other processes keep busy."""
    if device == "cpu" and (busy := busy_cpus()):
        print(
            f"warning: other processes keep {busy} of {cpu_count()} CPUs busy;"
            " times and gains are those of a busy machine",
            file=sys.stderr,
        )


def busy_cpus() -> int:
    """How many of this process's CPUs other processes keep busy at this moment.

    It samples the number of runnable threads for a twentieth of a second; 0 if the system does not
    report that number.
    """
    looks = []
    for _ in range(_LOOKS):
        time.sleep(_SECONDS_APART)
        looks.append(_running(_LOAD) - 1)  # This thread does not count.
    spare = (os.cpu_count() or 1) - cpu_count()
    return max(0, min(cpu_count(), int(statistics.median(looks)) - spare))


def _running(load: Path) -> int:
    """The number of runnable threads: the 7 of "7/126", the fourth entry of /proc/loadavg."""
    try:
        return int(load.read_text().split()[3].partition("/")[0])
    except (OSError, ValueError, IndexError):
        return 1
