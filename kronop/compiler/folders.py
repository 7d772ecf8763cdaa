"""Where the cache lives, and whether that folder may be trusted with native code."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from kronop import knobs


class UntrustedError(Exception):
    """The folder or file can't serve as a cache; the text says why and what to do."""


def cache_folder() -> Path:
    """The knob `cache_dir`, or the user's cache folder of this system."""
    chosen = knobs.current().cache_dir
    if chosen is not None:
        return chosen.absolute()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local") / "kronop"
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/kronop"
    # The XDG rule: a relative path there is to be ignored.
    shared = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(shared) if os.path.isabs(shared) else Path.home() / ".cache") / "kronop"


def make_private_folder(folder: Path) -> None:
    """`folder`, made for this user alone where it is missing.

    Raises:
        UntrustedError: it is someone else's, or others can put native code into it.
        OSError: it can't be made.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check(folder, folder.stat())


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


def _check(path: Path, found: os.stat_result) -> None:
    if sys.platform == "win32":
        return
    if found.st_uid != os.geteuid():
        raise UntrustedError(
            f"{path} belongs to user {found.st_uid}, not to {os.geteuid()}; "
            "set KRONOP_CACHE_DIR to a folder of your own"
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UntrustedError(f"{path} can be written by others; run: chmod go-w {path}")
