"""Which folders may hold native code: absolute ones that nobody else can exchange."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kronop import knobs
from kronop.compiler import folders
from kronop.compiler.folders import UntrustedError, cache_folder, make_private_folder
from kronop.errors import DescriptionError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="owners are POSIX's")
_UID, _GID = 4, 5  # Places in os.stat_result.


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An empty folder under one that everyone can write, in which names are protected."""
    shared = tmp_path.resolve() / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    return shared


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, int, int], None]:
    """Makes one entry of a path's status another."""

    def change(path: Path, at: int, value: int) -> None:
        lstat = Path.lstat

        def changed(self: Path) -> os.stat_result:
            found = list(lstat(self))
            if self == path:
                found[at] = value
            return os.stat_result(found)

        monkeypatch.setattr(Path, "lstat", changed)

    return change


def test_what_is_missing_is_made_for_this_user_alone(place: Path) -> None:
    before = os.umask(0)
    try:
        folder = make_private_folder(place / "a" / "b" / "c")
    finally:
        os.umask(before)
    assert folder == place / "a" / "b" / "c"
    assert [stat.S_IMODE(item.stat().st_mode) for item in (folder, *folder.parents[:2])] == (
        [0o700] * 3
    )
    assert make_private_folder(folder) == folder


def test_links_are_followed(place: Path) -> None:
    (place / "real").mkdir(mode=0o700)
    (place / "absolute").symlink_to(place / "real")
    (place / "relative").symlink_to("real/../absolute/inner")
    assert make_private_folder(place / "absolute") == place / "real"
    assert make_private_folder(place / "relative" / "deep") == place / "real" / "inner" / "deep"
    (place / "loop").symlink_to("loop")
    with pytest.raises(UntrustedError, match="from link to link"):
        make_private_folder(place / "loop")


@pytest.mark.parametrize("name", ["link", "parent", "parent/own"])
def test_what_someone_else_owns_on_the_way_is_refused(
    place: Path, name: str, pretend: Callable[[Path, int, int], None]
) -> None:
    """Also where the folder that it leads to is this user's own: it may be any of those."""
    folder = make_private_folder(place / "parent" / "own")
    (place / "link").symlink_to(folder)
    pretend(place / name, _UID, 123456)
    with pytest.raises(UntrustedError, match=f"{name} belongs to user 123456"):
        make_private_folder(place / "link" / "cache" if name != "parent/own" else folder)


@pytest.mark.parametrize(
    ("mode", "own_group", "is_fine"),
    [
        (0o755, False, True),
        (0o777, True, False),
        (0o1777, False, True),
        (0o775, False, False),
        (0o775, True, True),
        (0o1775, False, True),
    ],
)
def test_who_can_write_a_folder_above_can_exchange_what_is_in_it(
    place: Path,
    mode: int,
    own_group: bool,
    is_fine: bool,
    pretend: Callable[[Path, int, int], None],
) -> None:
    place.chmod(mode)
    pretend(place, _GID, os.geteuid() + (0 if own_group else 1))
    if is_fine:
        make_private_folder(place / "cache")
        return
    with pytest.raises(UntrustedError, match=f"{place} can be written by others"):
        make_private_folder(place / "cache")
    assert not list(place.iterdir())


def test_a_file_on_the_way_is_an_error(place: Path) -> None:
    (place / "file").write_text("")
    for folder in (place / "file", place / "file" / "below"):
        with pytest.raises((UntrustedError, OSError), match=r"no folder|Not a directory"):
            make_private_folder(folder)


@pytest.mark.parametrize(
    ("users", "roots"),
    [("0 0 4294967295\n", {0}), ("0 1000 1\n", {0}), ("1000 1000 1\n", {0, 65534})],
)
def test_a_container_that_knows_no_root_shows_another_number_for_it(
    users: str, roots: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {"uid_map": users, "overflowuid": "65534\n"}
    monkeypatch.setattr(Path, "read_text", lambda self: texts[self.name])
    assert folders._roots.__wrapped__() == roots


@pytest.mark.parametrize("variable", ["HOME", "XDG_CACHE_HOME", "LOCALAPPDATA"])
@pytest.mark.parametrize("system", ["linux", "darwin", "win32"])
def test_no_variable_names_the_current_folder(
    monkeypatch: pytest.MonkeyPatch, variable: str, system: str
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv(variable, ".")
    monkeypatch.setattr(sys, "platform", system)
    with knobs.using(cache_dir=None):
        if system == "win32" and variable == "HOME":
            with pytest.raises(UntrustedError, match="is relative"):
                make_private_folder(cache_folder())
            return
        assert cache_folder().is_absolute()
        assert not cache_folder().is_relative_to(Path.cwd())


def test_a_relative_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for refused in (
        lambda: knobs.read({"KRONOP_CACHE_DIR": "cache"}),
        lambda: knobs.using(cache_dir=Path("cache")).__enter__(),
    ):
        with pytest.raises(DescriptionError, match="expected an absolute path, got 'cache'"):
            refused()
    with pytest.raises(UntrustedError, match="is relative"):
        make_private_folder(Path("cache"))
    assert not list(tmp_path.iterdir())
