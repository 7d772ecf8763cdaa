"""Resources of a kernel, read from the output of `ptxas -v` (the same from NVRTC and nvcc)."""

from __future__ import annotations

import re

from kronop.artifacts import Resources

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_USED = re.compile(r"Used (\d+) registers(.*)")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_SHARED = re.compile(r"(\d+) bytes smem")


def resources_of(entry: str, log: str) -> Resources:
    """Registers, spilled bytes (stores plus loads) and static shared bytes of kernel `entry`.

    All are None if the log does not mention the kernel.
    """
    lines = _section(entry, log)
    used = _USED.search(lines)
    if used is None:
        return Resources()
    spills = [sum(map(int, match.groups())) for match in _SPILLS.finditer(lines)]
    shared = _SHARED.search(used[2])
    return Resources(
        registers=int(used[1]),
        spill_bytes=sum(spills) if spills else None,
        static_shared_bytes=int(shared[1]) if shared else 0,
    )


def _section(entry: str, log: str) -> str:
    """The log between the line that starts `entry` and the next kernel's."""
    starts = list(_ENTRY.finditer(log))
    for index, match in enumerate(starts):
        if match[1] == entry:
            end = starts[index + 1].start() if index + 1 < len(starts) else len(log)
            return log[match.end() : end]
    return ""
