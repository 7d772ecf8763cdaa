"""Where the cache lives, and whether that folder may be trusted with native code."""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import sys
from collections.abc import Collection
from pathlib import Path

from kronop import knobs

_MOST_LINKS = 40  # As many as Linux follows.


class UntrustedError(Exception):
    """The folder or file can't serve as a cache; the text says why and what to do."""


def cache_folder() -> Path:
    """The knob `cache_dir`, or the user's cache folder of this system.

    What the environment names by a relative path is ignored: that would be a place in the current
    folder, where anyone may have planted a cache. (Relative where the system knows no home either.)
    """
    chosen = knobs.current().cache_dir
    if chosen is not None:
        return chosen
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA", "")
        return (Path(local) if os.path.isabs(local) else _home() / "AppData/Local") / "kronop"
    if sys.platform == "darwin":
        return _home() / "Library/Caches/kronop"
    shared = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(shared) if os.path.isabs(shared) else _home() / ".cache") / "kronop"


def _home() -> Path:
    """$HOME where it is absolute, else what the system's list of users says."""
    named = os.path.expanduser("~")
    if os.path.isabs(named) or sys.platform == "win32":
        return Path(named)
    import pwd

    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return Path(named)


def make_private_folder(folder: Path) -> Path:
    """`folder` without links, made for this user alone where it is missing.

    Nobody else can exchange it: every folder and link on the way to it is this user's or root's.

    Raises:
        UntrustedError: it is relative, it or something on the way to it is someone else's, or
            others can put native code into it.
        OSError: it can't be made.
    """
    if not folder.is_absolute():
        raise UntrustedError(f"{folder} is relative; set KRONOP_CACHE_DIR to an absolute path")
    if sys.platform == "win32":
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    place, pending, links = Path("/"), list(reversed(folder.parts[1:])), 0
    while pending:
        _check_parent(place, place.lstat())
        path = place / pending.pop()
        found = _made(path)
        if not stat.S_ISLNK(found.st_mode):
            place = place.parent if path.name == ".." else path
            continue
        _check_owner(path, found, {0})
        links += 1
        if links > _MOST_LINKS:
            raise UntrustedError(f"{folder} leads from link to link; name another folder")
        target = Path(os.readlink(path))
        place = Path("/") if target.is_absolute() else place
        pending += reversed(target.parts[target.is_absolute() :])
    found = place.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise UntrustedError(f"{place} is no folder; remove it")
    _check(place, found)
    return place


def _made(path: Path) -> os.stat_result:
    """What is at `path`; a folder for this user alone where nothing was."""
    try:
        return path.lstat()
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        return path.lstat()


def _check_parent(path: Path, found: os.stat_result) -> None:
    """Whether nobody else can put something in the place of what lies in the folder `path`.

    In a sticky one, such as /tmp, each user renames only what is his own. Where every user has a
    group of his own, which has his number, what he makes can be written by that group.
    """
    _check_owner(path, found, _roots())
    writers = stat.S_IWOTH if found.st_gid == os.geteuid() else stat.S_IWOTH | stat.S_IWGRP
    if found.st_mode & writers and not found.st_mode & stat.S_ISVTX:
        raise UntrustedError(
            f"{path} can be written by others; run chmod go-w (or +t) on it, or set "
            "KRONOP_CACHE_DIR to a folder elsewhere"
        )


def make_private_file(path: Path) -> None:
    """`path`, made empty and for this user alone where it is missing.

    Raises:
        UntrustedError: it is no plain file of this user, or others can write to it.
        OSError: it can't be opened for writing.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise UntrustedError(f"{path} is no plain file; remove it")
        _check(path, found)
    finally:
        os.close(handle)


@functools.cache
def _roots() -> frozenset[int]:
    """Root, and who stands for it in a container that knows no user but this one."""
    roots = {0}
    with contextlib.suppress(OSError, ValueError):
        known = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
        if all(int(first) > 0 for first, _, _ in known):
            roots.add(int(Path("/proc/sys/kernel/overflowuid").read_text()))
    return frozenset(roots)


def _check(path: Path, found: os.stat_result) -> None:
    if sys.platform == "win32":
        return
    _check_owner(path, found)
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UntrustedError(f"{path} can be written by others; run: chmod go-w {path}")


def _check_owner(path: Path, found: os.stat_result, trusted: Collection[int] = frozenset()) -> None:
    if found.st_uid != os.geteuid() and found.st_uid not in trusted:
        raise UntrustedError(
            f"{path} belongs to user {found.st_uid}, not to {os.geteuid()}; "
            "set KRONOP_CACHE_DIR to a folder of your own"
        )
