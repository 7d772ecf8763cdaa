"""compiled_cache.db: binaries by content key, shared safely by processes, repaired when damaged.

A row or file that can't be trusted counts as missing: a damaged cache may cost a compilation, but
never gives a wrong kernel. Nothing that is read from it is unpickled.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TypeVar

from kronop.artifacts import Binary
from kronop.compiler import opening, rows, tables
from kronop.compiler.claims import claim
from kronop.compiler.folders import UntrustedError, cache_folder, make_private_folder
from kronop.compiler.keys import SCHEMA
from kronop.compiler.patience import Patience
from kronop.compiler.rows import Entry, Memo, Record, Winner
from kronop.errors import ArgumentError, warn
from kronop.late import whole

FILE_NAME = "compiled_cache.db"
LIMIT_BYTES = 1 << 30
_REPAIR_SECONDS = 30.0
# The time of the last use is written at most this often, so that reading rarely means writing.
_TOUCH_SECONDS = 3600.0

_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR}
# Errors of a missing table, other columns or a moved file: another process upgraded, repaired or
# changed the database. Opening it again helps.
_REOPEN = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CONSTRAINT}
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}

T = TypeVar("T")


class Cache:
    """The store in one folder. Threads, processes and forked children may use it at once.

    If the folder can't be used (another user's, full), the store warns once and then acts as if it
    were empty. If it can only be read, it is, and the store warns once that something new is not
    kept. The process still keeps its compiled kernels in memory.

    Args:
        folder: where compiled_cache.db is or will be; None for that of `default_cache`.
        limit_bytes: where everything in it takes more than this, the oldest plans and tuning
            results and the kernels that were not used for longest are deleted.

    Example:
        >>> import pathlib, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> cache = kronop.compiler.Cache(pathlib.Path(folder.name))
        >>> cache.list(), cache.keeps, cache.path.exists()
        ((), True, True)
        >>> cache.close()
        >>> folder.cleanup()
    """

    def __init__(self, folder: Path | None = None, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self.folder = cache_folder() if folder is None else folder
        self.limit_bytes = limit_bytes
        self._connection: sqlite3.Connection | None = None
        self._inode: tuple[int, int] | None = None
        self._unusable: str | None = None
        self._read_only: str | None = None  # Why the file can only be read, and
        self._is_told = False  # whether that was told.
        self._dropped: set[str] = set()  # Kernels that should have been deleted.
        self._patience = Patience()
        self._lock = threading.Lock()
        _caches.add(self)

    @property
    def path(self) -> Path:
        """The file, compiled_cache.db."""
        return self.folder / FILE_NAME

    @property
    def keeps(self) -> bool:
        """Whether later processes will find what is put here, as far as is known by now."""
        return self._unusable is None and self._read_only is None

    def require(self, *, writable: bool = False) -> None:
        """Raises ArgumentError unless the file can be read and, with `writable`, be written."""
        trial = "BEGIN IMMEDIATE; ROLLBACK" if writable else ""
        is_ready = self._run(lambda db: db.executescript(trial) is not None, False)
        reason = self._unusable or (self._read_only if writable else None)
        if not is_ready or reason is not None:
            raise ArgumentError(
                str(self.path),
                expected=f"a cache that can be {'written' if writable else 'read'}",
                got=reason or "one that another process keeps busy",
                hint="mend that, or set KRONOP_CACHE_DIR to another folder",
            )

    def get(self, key: str, *, compiles: bool = False) -> Binary | None:
        """The binary of `key`, or None; a row with a wrong checksum is deleted.

        Args:
            key: the kernel's.
            compiles: the caller compiles it otherwise, so another process that writes is waited for
                longer.
        """
        record = self._run(lambda db: rows.read(db, key), None, compiles=compiles)
        if record is None or key in self._dropped:
            return None
        row = rows.parse(record)
        if row is None:
            self._write(lambda db: rows.delete(db, key), None)
            return None
        now = time.time()
        if now - row.last_used > _TOUCH_SECONDS:
            self._write(lambda db: rows.touch(db, key, now), None)
        return row.binary

    def put(self, binary: Binary, source: str) -> None:
        """Stores `binary`; the least recently used rows are deleted if the store exceeds its
        limit."""
        values = rows.format_row(binary, source, time.time())

        def write(db: sqlite3.Connection) -> None:
            rows.write(db, values, binary.key, self.limit_bytes)
            self._dropped.discard(binary.key)

        loss = "new kernels are kept in memory only"
        self._write(write, None, loss=loss, compiles=True)

    def drop(self, binary: Binary) -> None:
        """Deletes the row of `binary`, unless another image has replaced it."""

        def delete(db: sqlite3.Connection) -> bool:
            rows.delete_image(db, binary.key, binary.image)
            return True

        if not self._write(delete, False):
            self._dropped.add(binary.key)

    def recall(self, place: str) -> Memo | None:
        """The memo of the compiler for the circumstances that `place` digests, or None."""
        return self._run(lambda db: rows.recall(db, place), None)

    def remember(self, memo: Memo) -> None:
        """Stores `memo` in place of an earlier one with its `place`."""
        self._write(lambda db: rows.remember(db, memo), None)

    def winner(self, key: str) -> Winner | None:
        """The winner that tuning stored for `key`, or None."""
        return self._run(lambda db: rows.winner(db, key), None)

    def winners(self) -> list[Winner]:
        """All winners that tuning stored, the oldest first."""
        return self._run(rows.winners, [])

    def crown(self, winner: Winner) -> None:
        """Stores `winner` in place of an earlier one with its key."""
        loss = "what tuning finds now is not kept"
        self._write(lambda db: rows.crown(db, winner, self.limit_bytes), None, loss=loss)

    def plan(self, key: str) -> str | None:
        """The text of the plan of `key` that an earlier process made, or None."""
        return self._run(lambda db: rows.plan(db, key), None)

    def keep_plan(self, key: str, text: str) -> None:
        """Stores the text of a plan in place of an earlier one with its key."""
        self._write(lambda db: rows.keep_plan(db, key, text, self.limit_bytes), None)

    @contextlib.contextmanager
    def claim(self, key: str) -> Iterator[bool]:
        """Keeps all other processes that use this folder from compiling `key` during the block.

        Yields whether it does; if not (see `claims.claim`), two processes may compile the same key.
        A database that another process keeps busy is no reason.
        """
        try:
            self.folder = make_private_folder(self.folder)
        except (OSError, UntrustedError):
            yield False
            return
        with claim(self.folder / f"{key}.claim") if self.keeps else nullcontext(False) as held:
            yield held

    def list(self) -> tuple[Entry, ...]:
        """Every cached kernel, the most recently used first."""
        nothing: tuple[Entry, ...] = ()
        return self._run(rows.entries, nothing)

    def show(self, key_prefix: str) -> Record:
        """The one kernel whose key starts with `key_prefix`.

        Raises:
            ArgumentError: no key starts with `key_prefix`, or several do.
        """
        keys = [entry.key for entry in self.list() if entry.key.startswith(key_prefix)]
        record = self._run(lambda db: rows.read(db, keys[0]), None) if len(keys) == 1 else None
        found = rows.parse(record) if record is not None else None
        if found is None:
            raise ArgumentError(
                "key",
                expected="the start of one cached key",
                got=f"{key_prefix!r}, the start of {len(keys)}",
                hint="see cache list",
            )
        return found

    def clear(self) -> int:
        """Deletes everything, frees the space, and returns the number of deleted kernels.

        Lock files that killed processes left behind are deleted too.
        """
        for left in self.folder.glob("*.claim"):
            with contextlib.suppress(OSError), claim(left, patience=0):
                pass
        return self._write(rows.clear, 0, loss="nothing is removed")

    def close(self) -> None:
        """Closes the file; the next call opens it again."""
        with whole(), _alone(self._lock) as is_alone:
            if is_alone:
                self._disconnect()

    def _run(
        self, action: Callable[[sqlite3.Connection], T], otherwise: T, *, compiles: bool = False
    ) -> T:
        """The result of `action` on the open database.

        It is `otherwise` if the database can't be used, or if this is a signal handler that has
        interrupted this thread inside a cache.
        """
        # A child that is forked while SQLite works would inherit locks of that library.
        with whole(), _alone(self._lock) as is_alone:
            return self._act(action, otherwise, compiles) if is_alone else otherwise

    def _write(
        self,
        action: Callable[[sqlite3.Connection], T],
        otherwise: T,
        *,
        loss: str | None = None,
        compiles: bool = False,
    ) -> T:
        """As `_run`, for an action that writes: where the file can only be read it is left out, and
        `loss` tells once what that means; None for what nobody misses."""

        def act(db: sqlite3.Connection) -> T:
            return action(db) if self._read_only is None else otherwise

        done = self._run(act, otherwise, compiles=compiles)
        if loss is not None and self._read_only is not None and not self._is_told:
            self._is_told = True
            warn(f"{self.path} is only read, {loss}: {self._read_only}")
        return done

    def _act(self, action: Callable[[sqlite3.Connection], T], otherwise: T, compiles: bool) -> T:
        """As `_run`, for the holder of the lock; a damaged database is repaired at most once."""
        for repaired in (False, True):
            if self._unusable is not None:
                return otherwise
            try:
                return action(self._open(self._patience.seconds(compiles)))
            except (OSError, UntrustedError) as error:
                self._give_up(str(error))
            except sqlite3.Error as error:
                code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
                if code & 0xFF in _BUSY:
                    self._patience.lose(compiles)
                    self._disconnect()
                    return otherwise
                self._recover(code, str(error), repaired=repaired)
        return otherwise

    def _recover(self, code: int, reason: str, *, repaired: bool) -> None:
        try:
            if code & 0xFF in _CORRUPT and not repaired and self._read_only is None:
                self._discard_damaged()
            elif repaired or code & 0xFF not in _REOPEN:
                self._give_up(reason)
        except OSError as error:
            self._give_up(f"{reason}; {error}")
        finally:
            # Closed last: while the old file is open, no new file can get its inode number, by
            # which `_discard_damaged` tells them apart.
            self._disconnect()

    def _open(self, patience: float) -> sqlite3.Connection:
        if self._connection is not None:
            if opening.inode(self.path) == self._inode:
                tables.wait_at_most(self._connection, patience)
                return self._connection
            # Another process removed or replaced the file: writes to the old one would be lost.
            self._disconnect()
        # From now on the path without links is used, so that changing a link later has no effect.
        self.folder = make_private_folder(self.folder)
        self._read_only = opening.make_file(self.path)
        self._inode = opening.inode(self.path)
        if self._read_only is None:
            self._connection = opening.connect(self.path, patience)
            tables.prepare(self._connection, SCHEMA, patience)
        else:
            self._connection = opening.open_to_read(self.path, patience)
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _discard_damaged(self) -> None:
        """Deletes the damaged file, unless another process has replaced it."""
        with claim(self.folder / "repair.claim", patience=_REPAIR_SECONDS):
            if opening.inode(self.path) != self._inode:
                return
            # The log is deleted first: SQLite must never apply an old log to a new database.
            for suffix in ("-wal", "-shm", "-journal", ""):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{self.path}{suffix}")

    def _give_up(self, reason: str) -> None:
        self._unusable = reason
        warn(f"{self.path} can't be used, compiled kernels are kept in memory only: {reason}")

    def _abandon(self) -> None:
        """Drops the connection in a forked child, where SQLite's handles must be neither used nor
        closed; a reference keeps them from being closed."""
        _inherited.append(self._connection)
        self._connection = None
        self._lock = threading.Lock()


_caches: weakref.WeakSet[Cache] = weakref.WeakSet()
_inherited: list[sqlite3.Connection | None] = []
_threads_inside: set[int] = set()


def is_interrupted() -> bool:
    """Whether this thread is inside a cache; the caller is then a signal handler that has
    interrupted it there."""
    return threading.get_ident() in _threads_inside


@contextlib.contextmanager
def _alone(lock: threading.Lock) -> Iterator[bool]:
    """Holds `lock` during the block, and yields whether it does.

    A signal handler that has interrupted its thread inside a cache does not get the lock: waiting
    for its own thread would never end.
    """
    if is_interrupted():
        yield False
        return
    thread = threading.get_ident()
    try:  # `add` is inside the block, so that an exception of a handler (Ctrl-C) undoes it.
        _threads_inside.add(thread)
        with lock:
            yield True
    finally:
        _threads_inside.discard(thread)


def _after_fork() -> None:
    _threads_inside.clear()
    for cache in _caches:
        cache._abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
