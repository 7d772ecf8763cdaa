"""A folder for one compilation or load that no other user can reach, even below a shared TMPDIR.

If others can write to the temporary folder, they may replace any name in it at any time. The new
folder is therefore opened once, checked, and from then on reached through the open handle.
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
# Younger folders are not swept: another machine may use them, and not every file system shares
# locks among machines.
_OLD_SECONDS = 3600.0


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """A new empty folder, removed with its contents when the block ends.

    The path is valid in this process, and as the working folder of processes that it starts.

    Raises:
        OSError: the folder can't be made, or other users keep replacing it.
    """
    if sys.platform == "win32":  # The temporary folder belongs to the user alone there.
        # Windows can't delete a mapped file: such files are left for the system to clear.
        with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as made:
            yield Path(made)
        return
    path, handle = _make()
    inheritance.hold(handle)
    # On macOS no path leads through a handle, but the temporary folder belongs to the user alone.
    place = Path(f"/proc/self/fd/{handle}") if sys.platform == "linux" else Path(path)
    try:
        yield place
    finally:
        with contextlib.suppress(OSError):
            _empty(handle)
            os.rmdir(path)
        inheritance.close(handle)


def sweep() -> None:
    """Removes the folders that killed processes have left in the temporary folder.

    Nothing is removed if other users can rename entries there: one of them could rename another
    folder of this user to such a name, and its contents would be deleted.
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
        """The path and open handle of a new folder; the handle holds a lock, so that other
        processes' sweeps spare the folder."""
        for _ in range(_TRIES):
            path = tempfile.mkdtemp(prefix=_PREFIX)
            try:
                handle = _open_folder(path)
            except FileNotFoundError:
                continue  # Another process swept the folder before it was locked.
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
                # On file systems where folders can't be locked, `_lock` is None: nothing is swept.
                if _is_old(handle) and _lock(handle) and os.fstat(handle).st_uid == os.geteuid():
                    _empty(handle)
                    os.rmdir(name, dir_fd=parent)
            finally:
                os.close(handle)

    def _is_old(handle: int) -> bool:
        """Whether the folder is too old to be in use by another machine, whose lock may not be
        visible here."""
        limit = max(_OLD_SECONDS, 2 * knobs.current().compile_seconds)
        return time.time() - os.fstat(handle).st_mtime > limit

    def _lock(handle: int) -> bool | None:
        """Whether `handle` got the lock; None if the file system can't lock folders."""
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
        """Whether the open folder is accessible to this user alone, and empty like a new one."""
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
