"""A folder for one compilation or one load that nobody else reaches, whatever TMPDIR allows.

Where others can write to the temporary folder, a name in it may stand for something else at any
time. The folder is therefore opened once, checked, and from then on reached through that handle.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from kronop import knobs
from kronop.compiler import inheritance

_PREFIX = "kronop-work-"
_TRIES = 8
# What is younger may be in use by another machine.
_OLD_SECONDS = 3600.0


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """An empty folder, removed with all that is in it when the block ends.

    The path is good in this process, and as the folder that a process it starts begins in.

    Raises:
        OSError: it can't be made, or others take it away.
    """
    if sys.platform == "win32":  # The temporary folder is the user's own there.
        # A file that is mapped can't be deleted: it stays for the system to clear.
        with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as made:
            yield Path(made)
        return
    path, handle = _make()
    inheritance.hold(handle)
    # Elsewhere (macOS) no path leads through a handle, and the temporary folder is the user's own.
    place = Path(f"/proc/self/fd/{handle}") if sys.platform == "linux" else Path(path)
    try:
        yield place
    finally:
        with contextlib.suppress(OSError):
            _empty(handle)
            os.rmdir(path)
        inheritance.close(handle)


def sweep() -> None:
    """Remove the folders that killed processes have left in the temporary folder.

    Only where nobody else can rename them: there, such a name might be given to another folder of
    this user, whose contents would go.
    """
    if sys.platform == "win32":
        return
    with contextlib.suppress(OSError):
        parent = _open_folder(tempfile.gettempdir())
        try:
            found = os.fstat(parent)
            others_write = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if found.st_uid not in (0, os.geteuid()) or (
                others_write and not found.st_mode & stat.S_ISVTX
            ):
                return
            for name in os.listdir(parent):
                if name.startswith(_PREFIX):
                    _sweep_one(name, parent)
        finally:
            os.close(parent)


if sys.platform != "win32":
    import fcntl

    def _make() -> tuple[str, int]:
        """A new folder's path and the handle that locks it: a lock tells sweepers to spare it."""
        for _ in range(_TRIES):
            path = tempfile.mkdtemp(prefix=_PREFIX)
            try:
                handle = _open_folder(path)
            except FileNotFoundError:
                continue  # Swept before it was locked.
            if _lock(handle) is not False and _is_mine(handle) and _is_still(path, handle):
                return path, handle
            os.close(handle)
        raise PermissionError(
            errno.EPERM, "new folders are exchanged by others", tempfile.gettempdir()
        )

    def _sweep_one(name: str, parent: int) -> None:
        with contextlib.suppress(OSError):
            handle = _open_folder(name, parent)
            try:
                # Where folders can't be locked at all, none is swept.
                if _is_old(handle) and _lock(handle) and os.fstat(handle).st_uid == os.geteuid():
                    _empty(handle)
                    os.rmdir(name, dir_fd=parent)
            finally:
                os.close(handle)

    def _is_old(handle: int) -> bool:
        """Some file systems lock for one machine alone: others may still be at work there."""
        limit = max(_OLD_SECONDS, 2 * knobs.current().compile_seconds)
        return time.time() - os.fstat(handle).st_mtime > limit

    def _lock(handle: int) -> bool | None:
        """Whether `handle` got the lock; None where the file system has none for folders."""
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return None
        return True

    def _open_folder(path: str, parent: int | None = None) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(path, flags, dir_fd=parent)

    def _is_mine(handle: int) -> bool:
        """Whether the open folder is this user's alone, and empty as a new one is."""
        found = os.fstat(handle)
        is_private = found.st_uid == os.geteuid() and not found.st_mode & 0o077
        return is_private and not os.listdir(handle)

    def _is_still(path: str, handle: int) -> bool:
        try:
            return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(handle))
        except OSError:
            return False

    def _empty(handle: int) -> None:
        for name in os.listdir(handle):
            if stat.S_ISDIR(os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode):
                shutil.rmtree(name, dir_fd=handle)
            else:
                os.unlink(name, dir_fd=handle)
