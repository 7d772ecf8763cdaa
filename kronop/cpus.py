"""How many CPUs this process may use, and work that is spread over them."""

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


def spread(
    work: Callable[[Item], Result], items: Sequence[Item], threads: int | None = None
) -> list[Result]:
    """`work` of each item, in their order, by this thread and `threads - 1` others (None: as many
    threads as there are CPUs).

    After an error no further item is begun; that of the first item that has one is raised when all
    threads have ended. concurrent.futures would not do: once the main thread has ended, it can
    neither be imported nor take work, though other threads may still need a kernel.
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
    with contextlib.suppress(RuntimeError):  # The system gives no more threads: fewer do.
        for _ in range(min(len(items), threads or cpu_count()) - 1):
            thread = threading.Thread(target=run)
            thread.start()
            crew.append(thread)
    try:
        run()
        for thread in crew:
            thread.join()
    finally:  # Nothing further is begun where this thread is interrupted.
        for _ in places:
            pass
    if errors:
        raise errors[min(errors)]
    return [results[place] for place in range(len(items))]
