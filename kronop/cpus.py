"""The number of CPUs that this process may use, and a way to spread work over them."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_OWN, _ROOT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


@functools.cache
def cpu_count() -> int:
    """The CPUs in this process's affinity, limited by its control groups' quotas; read once."""
    known = hasattr(os, "sched_getaffinity")
    cpus = len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1
    return max(1, min([cpus, *_quotas(_OWN, _ROOT)]))


def _quotas(own: Path, root: Path) -> Iterator[int]:
    """The CPUs, rounded up, that each control group of this process grants (cgroups v1 and v2)."""
    try:
        lines = own.read_text(errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        # Inside a container the group's folder may be mounted as the root, while the path is the
        # host's: so all parents of the path are tried too.
        group = Path(path.lstrip("/"))
        for folder in (group, *group.parents):
            quota = _quota(root / ("cpu" if controllers else "") / folder)
            if quota is not None:
                yield quota


def _quota(folder: Path) -> int | None:
    """The CPUs that a group's folder grants; None without such a group or quota ("max" or -1)."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            text = " ".join((folder / name).read_text() for name in names)
            quota, period = map(int, text.split())
        except (OSError, ValueError):
            continue
        return -(-quota // period) if quota > 0 and period > 0 else None
    return None


def spread(
    work: Callable[[Item], Result], items: Sequence[Item], threads: int | None = None
) -> list[Result]:
    """The results of `work` for all items, in their order.

    The calling thread and `threads - 1` others do the work; None means as many threads as CPUs.
    After an error no further item is begun, and when all threads have ended, the error of the first
    failed item is raised. concurrent.futures can't be used here: once the main thread has ended, it
    can neither be imported nor take work, but other threads may still need a kernel.
    """
    results: dict[int, Result] = {}
    errors: dict[int, BaseException] = {}
    places = iter(range(len(items)))

    def run() -> None:
        for place in places:
            try:
                results[place] = work(items[place])
            except BaseException as error:
                errors[place] = error
            if errors:
                return

    crew: list[threading.Thread] = []
    with contextlib.suppress(RuntimeError):  # If the system allows no more threads, use fewer.
        for _ in range(min(len(items), threads or cpu_count()) - 1):
            thread = threading.Thread(target=run)
            thread.start()
            crew.append(thread)
    try:
        run()
        for thread in crew:
            thread.join()
    finally:  # If this thread is interrupted, the other threads must not begin further items.
        for _ in places:
            pass
    if errors:
        raise errors[min(errors)]
    return [results[place] for place in range(len(items))]
