"""The CPUs that a process may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kronop import cpus


def _machine(folder: Path, own: str, files: dict[str, str]) -> tuple[Path, Path]:
    """/proc/self/cgroup and /sys/fs/cgroup with these texts."""
    (folder / "own").write_text(own)
    for name, text in files.items():
        path = folder / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "own", folder / "root"


@pytest.mark.parametrize(
    ("own", "files", "granted"),
    [
        ("0::/\n", {"cpu.max": "150000 100000\n"}, [2]),
        ("0::/\n", {"cpu.max": "max 100000\n"}, []),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "300000 100000\n"}, [3]),
        (
            "2:cpuset:/a\n1:cpuacct,cpu:/a\n0::/\n",
            {"cpu/a/cpu.cfs_quota_us": "50000\n", "cpu/a/cpu.cfs_period_us": "100000\n"},
            [1],
        ),
        (
            "1:cpu:/not/seen\n",
            {"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"},
            [4],
        ),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, []),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "7\n"}, []),
        ("0::/\n", {"cpu.max": ""}, []),
    ],
)
def test_quotas_of_both_versions(
    tmp_path: Path, own: str, files: dict[str, str], granted: list[int]
) -> None:
    assert list(cpus._quotas(*_machine(tmp_path, own, files))) == granted


def test_no_control_groups_are_no_quotas(tmp_path: Path) -> None:
    assert not list(cpus._quotas(tmp_path / "none", tmp_path))


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity on this system")
def test_the_least_of_affinity_and_quotas_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpus.os, "sched_getaffinity", lambda process: set(range(8)))
    for quotas, expected in (([], 8), ([12], 8), ([5, 3], 3)):
        monkeypatch.setattr(cpus, "_quotas", lambda own, root, quotas=quotas: iter(quotas))
        cpus.cpu_count.cache_clear()
        assert cpus.cpu_count() == expected
    cpus.cpu_count.cache_clear()
