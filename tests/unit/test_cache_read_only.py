"""compiled_cache.db where nothing can be written: it is used, and nothing new is promised."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from kronop.compiler import Cache, folders
from kronop.compiler import cache as cache_module
from kronop.errors import ArgumentError
from tests.unit.test_cache import KEY, ROOT, filled, make

_IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
# Root writes everywhere unless it has given up its capabilities.
_PLAIN = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if _IS_ROOT else []

needs_a_plain_user = pytest.mark.skipif(
    sys.platform == "win32" or (_IS_ROOT and shutil.which("setpriv") is None),
    reason="needs a user to whom the modes of files matter",
)


def plainly(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KRONOP_CACHE_DIR": str(folder), "PYTHONPATH": str(ROOT)}
    command = [*_PLAIN, sys.executable, *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT)


@pytest.fixture(params=["folder and file", "folder", "file"])
def read_only(tmp_path: Path, request: pytest.FixtureRequest):
    """A folder with a filled cache, parts of which can't be written."""
    path = filled(tmp_path / "cache#1 %41?")
    if "file" in request.param:
        path.chmod(0o400)
    if "folder" in request.param:
        path.parent.chmod(0o500)
    yield path.parent
    path.parent.chmod(0o700)


USE = """
import warnings
from tests.unit.test_cache import KEY, Cache, make
with warnings.catch_warnings():
    warnings.simplefilter("error")
    cache = Cache()
    found = cache.get(KEY)
    assert found.image == make().image
    assert len(cache.list()) == 21
    with cache.claim("b2" * 32) as held:
        assert not held
    assert not cache.keeps
cache.put(make("b2" * 32), "source")
cache.put(make("b3" * 32), "source")
assert cache.get("b2" * 32) is None
cache.drop(found)
assert cache.get(KEY) is None, "a kernel that does not load must not be found again"
"""


@needs_a_plain_user
def test_what_is_there_is_read_and_what_is_new_is_not_promised(read_only: Path) -> None:
    before = {item.name for item in read_only.iterdir()}
    done = plainly("-c", USE, folder=read_only)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "Warning" in line]
    assert "is only read, new kernels are kept in memory only: " in line
    assert line.startswith("<string>:13: RuntimeWarning")  # The line that puts a kernel.
    listed = plainly("-m", "kronop", "cache", "list", folder=read_only)
    assert (listed.returncode, listed.stderr) == (0, "")
    assert ": 21 kernels" in listed.stdout
    cleared = plainly("-m", "kronop", "cache", "clear", folder=read_only)
    assert (cleared.returncode, cleared.stdout) == (1, "")
    (line,) = cleared.stderr.splitlines()
    assert "expected a cache that can be written, got" in line
    assert {item.name for item in read_only.iterdir()} - before <= {
        f"{cache_module.FILE_NAME}{suffix}" for suffix in ("-wal", "-shm")
    }


@needs_a_plain_user
def test_a_file_that_can_not_be_read_is_not_said_to_be_empty(tmp_path: Path) -> None:
    path = filled(tmp_path / "cache")
    path.chmod(0)
    listed = plainly("-m", "kronop", "cache", "list", folder=path.parent)
    assert (listed.returncode, listed.stdout) == (1, "")
    assert "expected a cache that can be read, got [Errno 13]" in listed.stderr


def test_a_cache_of_other_tables_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path / "cache")
    monkeypatch.setattr(cache_module.opening.os, "access", lambda *_: False)
    monkeypatch.setattr(cache_module.opening, "SCHEMA", 999)
    cache = Cache(tmp_path / "cache")
    with pytest.warns(RuntimeWarning, match="other tables"):
        assert cache.get(KEY) is None
    with pytest.raises(ArgumentError, match="other tables"):
        cache.require()


def test_damage_is_left_where_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = filled(tmp_path / "cache")
    path.write_bytes(b"scribbled" * 1000)
    monkeypatch.setattr(cache_module.opening, "make_private_file", lambda _: "it may not be")
    with pytest.warns(RuntimeWarning, match="not a database"):
        assert Cache(tmp_path / "cache").get(KEY) is None
    assert path.read_bytes() == b"scribbled" * 1000


@pytest.mark.skipif(sys.platform == "win32", reason="owners are POSIX's")
def test_a_cache_that_root_has_filled_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an image of a container, whose users are others."""
    found = list(os.stat(tmp_path))
    found[0], found[4] = 0o040755, 0
    monkeypatch.setattr(os, "geteuid", lambda: 123456)
    folders._check(tmp_path, os.stat_result(found))
    found[4] = 1000
    with pytest.raises(folders.UntrustedError, match="belongs to user 1000"):
        folders._check(tmp_path, os.stat_result(found))


def test_a_cache_that_is_in_use_can_be_required(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    cache.put(make(), "source")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.require(writable=True)
    assert cache.keeps
