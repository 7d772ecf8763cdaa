"""The cache's folder, and the checks that nobody else can put native code into it."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import stat
import sys
from collections.abc import Collection
from pathlib import Path

from kronop import knobs

if sys.platform != "win32":
    import pwd

_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS}
_MOST_LINKS = 40  # The number of symbolic links that Linux follows in one path.


class UntrustedError(Exception):
    """The folder or file can't serve as a cache; the message says why and what to do."""


def cache_folder() -> Path:
    """The knob `cache_dir`, or the user's cache folder of this system.

    A relative path in the environment is ignored: it would name a place in the current folder,
    where anyone may have planted a cache. (The result is relative only if the system knows no home
    folder either; `make_private_folder` then refuses it.)
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
    """$HOME if it is absolute, else the home folder in the system's list of users."""
    named = os.path.expanduser("~")
    if os.path.isabs(named) or sys.platform == "win32":
        return Path(named)
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return Path(named)


def make_private_folder(folder: Path) -> Path:
    """The path of `folder` with links resolved; missing folders are made for this user alone.

    Nobody else can replace it: this user or root owns every folder and link on the path to it.

    Raises:
        UntrustedError: the path is relative, another user owns the folder or a part of the path to
            it, or others can write into it.
        OSError: the folder can't be made.
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
    """The status of the file at `path`; if there is none, of a new folder for this user alone."""
    try:
        return path.lstat()
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        return path.lstat()


def _check_parent(path: Path, found: os.stat_result) -> None:
    """Refuses a folder in which another user could replace an entry by one of his own.

    In a sticky folder, such as /tmp, users can rename only their own entries. Writing by the group
    is allowed if the group's number is the user's: many systems give each user such a group, and
    make new folders writable for it.
    """
    _check_owner(path, found, _roots())
    writers = stat.S_IWOTH if found.st_gid == os.geteuid() else stat.S_IWOTH | stat.S_IWGRP
    if found.st_mode & writers and not found.st_mode & stat.S_ISVTX:
        raise UntrustedError(
            f"{path} can be written by others; run chmod go-w (or +t) on it, or set "
            "KRONOP_CACHE_DIR to a folder elsewhere"
        )


def make_private_file(path: Path) -> str | None:
    """Makes the file `path`, empty and for this user alone, if it is missing.

    Returns:
        None, or why an existing file can only be read.

    Raises:
        UntrustedError: `path` is not a plain file of this user or of root, or others can write to
            it.
        OSError: the file can neither be opened for writing nor, if it is there, for reading.
    """
    flags, reason = getattr(os, "O_CLOEXEC", 0), None
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o600)
    except OSError as error:
        if error.errno not in _REFUSED or not path.exists():
            raise
        handle, reason = os.open(path, os.O_RDONLY | flags), str(error)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise UntrustedError(f"{path} is no plain file; remove it")
        _check(path, found)
    finally:
        os.close(handle)
    return reason


@functools.cache
def _roots() -> frozenset[int]:
    """The user ids of root: 0, and in a container without a root user the id that files of
    unknown users show."""
    roots = {0}
    with contextlib.suppress(OSError, ValueError):
        known = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
        if all(int(first) > 0 for first, _, _ in known):
            roots.add(int(Path("/proc/sys/kernel/overflowuid").read_text()))
    return frozenset(roots)


def _check(path: Path, found: os.stat_result) -> None:
    if sys.platform == "win32":
        return
    # A file of root may be read: it was filled for all users, in the image of a container.
    _check_owner(path, found, {0})
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UntrustedError(f"{path} can be written by others; run: chmod go-w {path}")


def _check_owner(path: Path, found: os.stat_result, trusted: Collection[int] = frozenset()) -> None:
    if found.st_uid != os.geteuid() and found.st_uid not in trusted:
        raise UntrustedError(
            f"{path} belongs to user {found.st_uid}, not to {os.geteuid()}; "
            "set KRONOP_CACHE_DIR to a folder of your own"
        )
