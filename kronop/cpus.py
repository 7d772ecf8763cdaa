"""How many CPUs this process may use."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from pathlib import Path

_OWN, _ROOT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


@functools.cache
def cpu_count() -> int:
    """The CPUs of its affinity, limited by the quotas of its control groups; asked once."""
    known = hasattr(os, "sched_getaffinity")
    cpus = len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1
    return max(1, min([cpus, *_quotas(_OWN, _ROOT)]))


def _quotas(own: Path, root: Path) -> Iterator[int]:
    """CPUs, rounded up, that each group grants which holds this process, of either version."""
    try:
        lines = own.read_text(errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        # A container may see its own group as the root, under the path that the host has for it.
        group = Path(path.lstrip("/"))
        for folder in (group, *group.parents):
            quota = _quota(root / ("cpu" if controllers else "") / folder)
            if quota is not None:
                yield quota


def _quota(folder: Path) -> int | None:
    """None where there is no such group, or no quota: "max" or -1."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            text = " ".join((folder / name).read_text() for name in names)
            quota, period = map(int, text.split())
        except (OSError, ValueError):
            continue
        return -(-quota // period) if quota > 0 and period > 0 else None
    return None
