"""Lock files by which one process at a time compiles a key; a holder's death releases its lock."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from kronop.compiler import inheritance

if sys.platform != "win32":
    import fcntl

PATIENCE_SECONDS = 300.0
"""Longest wait for another process; after that both compile the kernel, which is harmless."""


@contextlib.contextmanager
def claim(path: Path, *, patience: float = PATIENCE_SECONDS) -> Iterator[bool]:
    """Holds the lock file `path` during the block.

    Yields whether the lock is held. It is not if another process held it for `patience` seconds, or
    if the file system or operating system has no advisory locks. The operating system releases the
    lock when its holder dies.
    """
    handle = _acquire(path, patience)
    try:
        yield handle is not None
    finally:
        if handle is not None:
            _release(handle, path)


def _acquire(path: Path, patience: float) -> int | None:
    if sys.platform == "win32":
        return None
    deadline, pause = time.monotonic() + patience, 0.002
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            if time.monotonic() > deadline:
                return None
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
            continue
        except OSError:
            os.close(handle)
            return None
        if _is_still(path, handle):
            inheritance.hold(handle)
            return handle
        # The last holder removed this file between our open and our lock: open the new file.
        os.close(handle)


def _is_still(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except OSError:
        return False


def _release(handle: int, path: Path) -> None:
    # The file is removed while it is locked, so that nobody else can lock a file that is about to
    # be removed. The explicit unlock is needed because a child that was forked meanwhile has a copy
    # of the handle, and closing ours alone would leave the lock with it.
    with contextlib.suppress(OSError):
        path.unlink()
    if sys.platform != "win32":
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)
    with contextlib.suppress(OSError):
        inheritance.close(handle)
