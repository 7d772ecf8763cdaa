"""compiled_cache.db: binaries by content key, safe among processes, repaired when damaged.

A row that can't be trusted is a miss, and so is a file that can't: the cache may cost a
compilation, never a wrong kernel. Nothing that is read from it is unpickled.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from kronop.artifacts import Binary
from kronop.compiler import rows, tables
from kronop.compiler.claims import claim
from kronop.compiler.folders import (
    UntrustedError,
    cache_folder,
    make_private_file,
    make_private_folder,
)
from kronop.compiler.keys import SCHEMA
from kronop.compiler.rows import Memo, Winner
from kronop.errors import ArgumentError, mismatch
from kronop.frozen import dataclass

FILE_NAME = "compiled_cache.db"
LIMIT_BYTES = 1 << 30
# Others write for milliseconds. What takes longer than a compile is not worth waiting for; and who
# has written for so long goes on, so that for a while the wait is a short one.
_BUSY_SECONDS, _HURRIED_SECONDS = 1.0, 0.05
_HURRY_SECONDS = 60.0
_REPAIR_SECONDS = 30.0
# A use within this time of the last noted one is not noted: reading must not mean writing.
_TOUCH_SECONDS = 3600.0

_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR}
# No table, other columns, or a moved file: another process upgraded or repaired it, or someone else
# changed it. Opening it again helps.
_REOPEN = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CONSTRAINT}
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What `list` tells of a cached kernel. Sizes in bytes, times in seconds since 1970."""

    key: str
    entry: str
    arch: str
    compiler: str
    size: int
    seconds: float
    created: float
    last_used: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One cached kernel with its source."""

    binary: Binary
    source: str
    created: float
    last_used: float


class Cache:
    """The store of one folder. Every method is safe among threads, processes and forks.

    A folder that can't be used (read-only, someone else's, full) turns the store into one that
    holds nothing, after one warning; the process still keeps what it compiles in memory.
    """

    def __init__(self, folder: Path | None = None, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self.folder = cache_folder() if folder is None else folder
        self.limit_bytes = limit_bytes
        self._connection: sqlite3.Connection | None = None
        self._inode: tuple[int, int] | None = None
        self._unusable = False
        self._hurries_until = 0.0
        self._lock = threading.Lock()
        _caches.add(self)

    @property
    def path(self) -> Path:
        return self.folder / FILE_NAME

    def get(self, key: str) -> Binary | None:
        """The binary of `key`, or None; a row that fails its checksum is deleted."""
        record = self._run(lambda db: rows.read(db, key), None)
        if record is None:
            return None
        row = rows.parse(record)
        if row is None:
            self._run(lambda db: rows.delete(db, key), None)
            return None
        now = time.time()
        if now - row.last_used > _TOUCH_SECONDS:
            self._run(lambda db: rows.touch(db, key, now), None)
        return row.binary

    def put(self, binary: Binary, source: str) -> None:
        """Keep `binary`; the least recently used rows go when the store exceeds its limit."""
        values = rows.format_row(binary, source, time.time())
        self._run(lambda db: rows.write(db, values, binary.key, self.limit_bytes), None)

    def drop(self, binary: Binary) -> None:
        """Delete the row of `binary`, unless it has another image by now."""
        self._run(lambda db: rows.delete_image(db, binary.key, binary.image), None)

    def recall(self, place: str) -> Memo | None:
        """What was remembered of the compiler that is found at `place`, or None."""
        return self._run(lambda db: rows.recall(db, place), None)

    def remember(self, memo: Memo) -> None:
        """Keep `memo` in place of what was remembered for its place."""
        self._run(lambda db: rows.remember(db, memo), None)

    def winner(self, key: str) -> Winner | None:
        """What tuning found fastest for `key`, or None."""
        return self._run(lambda db: rows.winner(db, key), None)

    def winners(self) -> list[Winner]:
        """All that tuning found, the oldest first."""
        return self._run(rows.winners, [])

    def crown(self, winner: Winner) -> None:
        """Keep `winner` in place of what was found before for its key."""
        self._run(lambda db: rows.crown(db, winner), None)

    def plan(self, key: str) -> str | None:
        """The text of the plan of `key` that an earlier process made, or None."""
        return self._run(lambda db: rows.plan(db, key), None)

    def keep_plan(self, key: str, text: str) -> None:
        """Keep the text of a plan in place of what was kept for its key."""
        self._run(lambda db: rows.keep_plan(db, key, text), None)

    @contextlib.contextmanager
    def claim(self, key: str) -> Iterator[bool]:
        """Hold the right to compile `key` against every other process of this folder."""
        if self._run(lambda db: True, False):
            with claim(self.folder / f"{key}.claim") as held:
                yield held
        else:
            yield False

    def list(self) -> tuple[Entry, ...]:
        """Every cached kernel, the most recently used first."""
        nothing: tuple[tuple[Any, ...], ...] = ()
        found = self._run(rows.summary, nothing)
        names = ("key", "entry", "arch", "compiler", "size", "seconds", "created", "last_used")
        return tuple(Entry(**dict(zip(names, row, strict=True))) for row in found)

    def show(self, key_prefix: str) -> Record:
        """The one kernel whose key starts with `key_prefix`.

        Raises:
            ArgumentError: no key starts so, or several do.
        """
        keys = [entry.key for entry in self.list() if entry.key.startswith(key_prefix)]
        record = self._run(lambda db: rows.read(db, keys[0]), None) if len(keys) == 1 else None
        row = rows.parse(record) if record is not None else None
        if row is None:
            raise ArgumentError(
                mismatch(
                    "key",
                    expected="the start of one cached key",
                    got=f"{key_prefix!r}, the start of {len(keys)}",
                    hint="see cache list",
                )
            )
        return Record(
            binary=row.binary, source=row.source, created=row.created, last_used=row.last_used
        )

    def clear(self) -> int:
        """Delete all there is and give the space back; how many kernels there were.

        Locks that killed processes left behind go as well.
        """
        for left in self.folder.glob("*.claim"):
            with contextlib.suppress(OSError), claim(left, patience=0):
                pass
        return self._run(rows.clear, 0)

    def close(self) -> None:
        """Let go of the file; the next call opens it again."""
        with _alone(self._lock) as is_alone:
            if is_alone:
                self._disconnect()

    def _run(self, action: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        """`action` on the open database; `otherwise` where it can't be used, or is in use by what
        a signal's handler interrupts in this thread."""
        with _alone(self._lock) as is_alone:
            return self._act(action, otherwise) if is_alone else otherwise

    def _act(self, action: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        """As `_run`; what is damaged is repaired at most once."""
        for repaired in (False, True):
            if self._unusable:
                return otherwise
            try:
                return action(self._open())
            except (OSError, UntrustedError) as error:
                self._give_up(str(error))
            except sqlite3.Error as error:
                code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
                if code & 0xFF in _BUSY:
                    if not self._hurries():
                        self._hurries_until = time.monotonic() + _HURRY_SECONDS
                    self._disconnect()
                    return otherwise
                self._recover(code, str(error), repaired=repaired)
        return otherwise

    def _recover(self, code: int, reason: str, *, repaired: bool) -> None:
        try:
            if code & 0xFF in _CORRUPT and not repaired:
                self._discard_damaged()
            elif repaired or code & 0xFF not in _REOPEN:
                self._give_up(reason)
        except OSError as error:
            self._give_up(f"{reason}; {error}")
        finally:
            # Last: while the old file is open, no new one can be given its inode number.
            self._disconnect()

    def _open(self) -> sqlite3.Connection:
        patience = _HURRIED_SECONDS if self._hurries() else _BUSY_SECONDS
        if self._connection is not None:
            if _inode(self.path) == self._inode:
                tables.wait_at_most(self._connection, patience)
                return self._connection
            # Removed or repaired by someone else; what is written to the old file is lost.
            self._disconnect()
        # Without links from now on: a link that is turned meanwhile leads nowhere else.
        self.folder = make_private_folder(self.folder)
        make_private_file(self.path)
        self._inode = _inode(self.path)
        self._connection = sqlite3.connect(
            self.path, timeout=patience, isolation_level=None, check_same_thread=False
        )
        tables.prepare(self._connection, SCHEMA, patience)
        return self._connection

    def _hurries(self) -> bool:
        return time.monotonic() < self._hurries_until

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _discard_damaged(self) -> None:
        """Delete the damaged file, unless another process has already put a new one there."""
        with claim(self.folder / "repair.claim", patience=_REPAIR_SECONDS):
            if _inode(self.path) != self._inode:
                return
            # The log first: a new database must never meet the old one's.
            for suffix in ("-wal", "-shm", "-journal", ""):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{self.path}{suffix}")

    def _give_up(self, reason: str) -> None:
        self._unusable = True
        warnings.warn(
            f"{self.path} can't be used, compiled kernels are kept in memory only: {reason}",
            RuntimeWarning,
            stacklevel=7,
        )

    def _abandon(self) -> None:
        """In a forked child: SQLite's handles must be neither used nor closed there."""
        _inherited.append(self._connection)
        self._connection = None
        self._lock = threading.Lock()


_caches: weakref.WeakSet[Cache] = weakref.WeakSet()
_inherited: list[sqlite3.Connection | None] = []
_threads_inside: set[int] = set()


def is_interrupted() -> bool:
    """Whether this thread is inside a cache: who asks is a signal's handler in the middle of it."""
    return threading.get_ident() in _threads_inside


@contextlib.contextmanager
def _alone(lock: threading.Lock) -> Iterator[bool]:
    """Hold `lock`; yields whether it is held: not by a handler that interrupts its own thread."""
    if is_interrupted():
        yield False
        return
    thread = threading.get_ident()
    try:  # From here on: a handler that raises (Ctrl-C) must not leave the thread's mark behind.
        _threads_inside.add(thread)
        with lock:
            yield True
    finally:
        _threads_inside.discard(thread)


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _after_fork() -> None:
    _threads_inside.clear()
    for cache in _caches:
        cache._abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
